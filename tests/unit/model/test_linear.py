"""The search for an order of concurrent calls, and the check of one: right histories pass, broken ones do not."""

from collections.abc import Callable

import pytest

from telha_model import ops, replies, witness
from telha_model.course import Course
from telha_model.history import UndecidedError
from telha_model.linear import SWEEP, Call, Commit, Found, Look, Step, Stuck, search
from telha_model.replies import Enqueued, Leased, Receipt
from telha_model.state import new_queue
from telha_model.states import State
from telha_model.step import step
from telha_model.types import NewJob
from telha_model.witness import Ready, Waited
from tests.unit.model.simulated import CONFIG, DIES, START_MS, Simulated

NODES_MAX = 20_000


def within(nodes: int = NODES_MAX) -> Callable[[], bool]:
    """Gives up after so many nodes."""
    seen = iter(range(nodes))
    return lambda: next(seen, None) is None


def searched(life: Simulated, *, by_commit: bool, course: Course | None = None) -> Found | Stuck:
    """An order of a whole life."""
    return search(
        course or life.course,
        [((), life.start)],
        life.calls,
        by_commit=by_commit,
        whole=True,
        give_up=within(),
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("by_commit", [True, False])
def test_a_right_history_has_an_order_and_the_order_is_a_witness(seed: int, by_commit: bool) -> None:
    """150 calls of eight callers, the last eight without an answer; found without a doubt, and proved by playing it."""
    life = Simulated(seed, 150, lost=8)
    found = searched(life, by_commit=by_commit)
    assert isinstance(found, Found), found
    assert witness.problems(CONFIG, life.start, found, life.calls, by_commit=by_commit) == []
    assert witness.out_of_order(life.calls) == []
    assert life.course.differences(found.queue) == []


def test_calls_without_an_answer_are_told_apart() -> None:
    """Of the last eight calls, those that changed something are in the order, the others are not."""
    life = Simulated(3, 150, lost=8)
    found = searched(life, by_commit=True)
    assert isinstance(found, Found)
    happened = witness.happened(found, life.calls)
    assert 0 < len(happened) < 8
    assert {name for name in happened if int(name[1:]) < 142} == set()


def test_the_beginning_of_a_life_is_searched_on_its_own() -> None:
    """With the answers up to a moment only, and no trust in the server's order."""
    life = Simulated(5, 200)
    cut = sorted(call.asked for call in life.calls)[120]
    begun = [call for call in life.calls if call.asked <= cut]
    begun = [call if call.told <= cut else call._replace(reply=None, told=DIES) for call in begun]
    begun = [call for call in begun if not isinstance(call.op, Look) or call.told <= cut]
    found = search(life.course, [((), life.start)], begun, by_commit=False, whole=False, give_up=within())
    assert isinstance(found, Found), found
    assert witness.problems(CONFIG, life.start, found, begun, by_commit=False) == []


def test_a_search_that_is_given_up_says_nothing() -> None:
    """It raises; nobody can take it for a pass."""
    life = Simulated(1, 50)
    with pytest.raises(UndecidedError, match="given up with"):
        search(life.course, [((), life.start)], life.calls, by_commit=False, whole=True, give_up=within(10))


# -- broken on purpose


def _place(life: Simulated, fits: Callable[[Call], bool]) -> int:
    found = [place for place, call in enumerate(life.calls) if fits(call)]
    return found[len(found) // 2]


def _lease_delivered_twice(life: Simulated) -> Course:
    at = _place(life, lambda call: isinstance(call.reply, Leased) and bool(call.reply.grants))
    call = life.calls[at]
    life.calls.insert(at, call._replace(name="again", commit=None))
    return life.course


def _job_lost(life: Simulated) -> Course:
    at = _place(life, lambda call: isinstance(call.op, ops.Enqueue) and "created=True" in str(call.reply))
    reply = life.calls[at].reply
    assert isinstance(reply, Enqueued)
    course = life.course
    logs = {job: log for job, log in life.logs.items() if job != reply.receipts[0].job_id}
    rows = {n: row for n, row in course.rows.items() if n != reply.receipts[0].job_id}
    return Course(CONFIG, rows, life.queue.last_served, logs)


def _nobody_asked(life: Simulated) -> Course:
    del life.calls[_place(life, lambda call: isinstance(call.reply, replies.Completed))]
    return life.course


def _refused_and_done(life: Simulated) -> Course:
    at = _place(life, lambda call: isinstance(call.reply, replies.Released))
    call = life.calls[at]
    assert isinstance(call.op, ops.Release)
    ref = call.op.ref
    stale = replies.StaleLease(ref.job_id, ref.generation, ref.generation, State.PENDING, "reaped")
    life.calls[at] = call._replace(reply=stale)
    return life.course


def _read_of_the_past(life: Simulated) -> Course:
    at = _place(life, lambda call: isinstance(call.op, ops.Enqueue) and "created=True" in str(call.reply))
    call, reply = life.calls[at], life.calls[at].reply
    assert isinstance(reply, Enqueued)
    newest = reply.receipts[0].job_id
    late = Look(lambda queue: queue.next_job_id <= newest)
    life.calls.append(Call("late", late, None, call.told + 0.1, call.told + 0.2))
    return life.course


def _key_given_twice(life: Simulated) -> Course:
    def repeated(call: Call) -> bool:
        return isinstance(call.op, ops.Enqueue) and "created=False" in str(call.reply)

    at = _place(life, repeated)
    receipt = Receipt(max(job.job_id for job in life.queue.jobs), created=True, state=State.PENDING)
    life.calls[at] = life.calls[at]._replace(reply=Enqueued((receipt,)))
    return life.course


def _answered_before_its_turn(life: Simulated) -> Course:
    at = _place(life, lambda call: isinstance(call.reply, replies.Completed | replies.Failed))
    life.calls[at] = life.calls[at]._replace(asked=0.0, told=0.001)
    return life.course


BROKEN = (
    _lease_delivered_twice,
    _job_lost,
    _nobody_asked,
    _refused_and_done,
    _read_of_the_past,
    _key_given_twice,
    _answered_before_its_turn,
)


@pytest.mark.parametrize("by_commit", [True, False])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__.strip("_"))
def test_a_broken_history_has_no_order(broken: Callable[[Simulated], Course], by_commit: bool) -> None:
    """One thing is changed in a right history, and no order is left, also to who believes no commit; with a reason."""
    life = Simulated(4, 200)
    course = broken(life)
    found = searched(life, by_commit=by_commit, course=course)
    assert isinstance(found, Stuck)
    assert found.sentences


def test_commits_that_real_time_excludes_are_found_in_one_scan() -> None:
    """Who was told before another was asked, and stands in a later commit: one sentence for each who was overtaken."""
    asked = [(0.0, 1.0, 3), (2.0, 3.0, 2), (0.5, 9.0, 1), (4.0, 5.0, 3)]
    calls = [
        Call(f"c{n}", ops.Reap(), replies.Reaped(0, 0, 0, 0, more=False), a, b, Commit(s, 0))
        for n, (a, b, s) in enumerate(asked)
    ]
    assert witness.out_of_order(calls) == ["c1 comes before c0, which was told before c1 was asked"]


def _proved() -> tuple[Found, list[Call]]:
    """Two calls and their order."""
    made, leased = ops.Enqueue(NewJob(1, "a", 1)), ops.Lease("w")
    reply, queue = step(CONFIG, new_queue(START_MS), made)
    grant, queue = step(CONFIG, queue, leased)
    calls = [Call("a", made, reply, 0, 1, Commit(1, 0)), Call("b", leased, grant, 2, 3, Commit(2, 0))]
    return Found((), (Step("a", (made,)), Step("b", (leased,))), queue), calls


def test_an_order_is_checked_whoever_found_it() -> None:
    """Left out, taken twice, turned round, another call, another answer, another end: each is told."""
    found, calls = _proved()
    start = new_queue(START_MS)

    def told(found: Found, calls: list[Call]) -> str:
        return "; ".join(witness.problems(CONFIG, start, found, calls, by_commit=True))

    first, second = found.steps
    assert told(found, calls) == ""
    assert "b is not in the order" in told(found._replace(steps=(first,)), calls)
    assert "a is 2 times in the order" in told(found._replace(steps=(first, first, second)), calls)
    turned = told(found._replace(steps=(second, first)), calls)
    assert "b comes before a, which was told before b was asked" in turned
    assert "the order is not that of the commits" in turned
    other = Step("b", (ops.Lease("x"),))
    assert "b stands in the order as another call" in told(found._replace(steps=(first, other)), calls)
    nothing = calls[1]._replace(reply=Leased(()))
    assert "b was told Leased(grants=()), the model answers" in told(found, [calls[0], nothing])
    assert "the order leads elsewhere" in told(found._replace(queue=start), calls)
    looked = Call("c", Look(lambda queue: not queue.jobs), None, 4, 5)
    after = found._replace(steps=(first, second, Step("c", ())))
    assert "c saw what is not so" in told(after, [*calls, looked])
    swept = found._replace(steps=(first, Step(SWEEP, (ops.Reap(1),)), second))
    assert told(swept, calls) == ""


def test_a_token_in_two_answers_is_told() -> None:
    """Whoever they were."""
    _, calls = _proved()
    again = calls[1]._replace(name="again")
    assert witness.granted_twice(calls) == []
    assert witness.granted_twice([*calls, again]) == ["generation 1 of job 1 was granted 2 times"]


WAIT = Waited("w", (1,), ("a", "b:*"), 0.0, 9.0)


@pytest.mark.parametrize(
    ("job", "found"),
    [
        (Ready("j", 1, "a", 1.0, 9.5), True),
        (Ready("j", 1, "b:x", 1.0, float("inf")), True),
        (Ready("j", 1, "a", 1.0, 2.5), False),  # somebody got it in time
        (Ready("j", 1, "a", 8.0, 20.0), False),  # the wait was over before
        (Ready("j", 2, "a", 1.0, 9.5), False),
        (Ready("j", 1, "c", 1.0, 9.5), False),
    ],
)
def test_a_job_that_lies_ready_while_somebody_waits_is_told(job: Ready, found: bool) -> None:
    """For longer than the bound, within one wait, and only a job that the filters cover."""
    assert bool(witness.overlooked([job], [WAIT], 2.0)) == found
    open_to_all = WAIT._replace(scopes=None, kinds=None)
    assert witness.overlooked([Ready("j", 7, "z", 1.0, 9.5)], [open_to_all], 2.0) == [
        "j lay ready for more than 2 s while w waited for such a job"
    ]
