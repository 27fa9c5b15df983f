"""Facts about creating jobs."""

import pytest

from telha_model.ops import Advance, Cancel, Discard, Enqueue, EnqueueMany, Reap
from telha_model.replies import BadArgument, Enqueued, KeyConflict, Receipt
from telha_model.state import Event
from telha_model.states import COMPLETED, DEAD, LEASED, PENDING, State, Transition
from telha_model.types import OVERSIZE, TIME_MS_MAX, Config, KindPolicy, NewJob
from tests.unit.model.support import START_MS, Rig, leased

KEYED = NewJob(1, "a", 1, idempotency_key="k")


def test_a_new_job_is_pending_and_due_at_once() -> None:
    """A job without times is due when it is created, and its log says so."""
    rig = Rig()
    assert rig.do(Enqueue(NewJob(1, "a"))) == Enqueued((Receipt(1, created=True, state=PENDING),))
    job = rig.job()
    assert (job.state, job.due_ms, job.attempts, job.generation) == (PENDING, START_MS, 0, 0)
    assert job.events == (Event(START_MS, Transition.ENQUEUED, (("due", START_MS),)),)


@pytest.mark.parametrize(
    ("new", "due_ms", "run_at_ms"),
    [
        (NewJob(1, "a", run_at_ms=5), START_MS, 5),
        (NewJob(1, "a", run_at_ms=START_MS + 5), START_MS + 5, START_MS + 5),
        (NewJob(1, "a", delay_ms=5), START_MS + 5, START_MS + 5),
        (NewJob(1, "a", delay_ms=0), START_MS, START_MS),
        (NewJob(1, "a", run_at_ms=TIME_MS_MAX), TIME_MS_MAX, TIME_MS_MAX),
    ],
    ids=["past", "ahead", "delay", "no delay", "the end of time"],
)
def test_due_is_the_later_of_now_and_run_at(new: NewJob, due_ms: int, run_at_ms: int) -> None:
    """`run_at` in the past does not make a job older than it is, and a delay is recorded as `run_at`."""
    rig = Rig()
    rig.do(Enqueue(new))
    assert (rig.job().due_ms, rig.job().spec.run_at_ms) == (due_ms, run_at_ms)


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (NewJob(-1, "a"), "scope"),
        (NewJob(1, ""), "kind"),
        (NewJob(1, "a b"), "kind"),
        (NewJob(1, "a*"), "kind"),
        (NewJob(1, "k" * 129), "kind"),
        (NewJob(1, "system:sweep"), "kind"),
        (NewJob(1, "a", OVERSIZE), "payload"),
        (NewJob(1, "a", priority=256), "priority"),
        (NewJob(1, "a", priority=-1), "priority"),
        (NewJob(1, "a", run_at_ms=TIME_MS_MAX + 1), "run_at_ms"),
        (NewJob(1, "a", run_at_ms=0, delay_ms=0), "delay_ms"),
        (NewJob(1, "a", delay_ms=-1), "delay_ms"),
        (NewJob(1, "a", max_attempts=0), "max_attempts"),
        (NewJob(1, "a", max_attempts=64), "max_attempts"),
        (NewJob(1, "a", idempotency_key=""), "idempotency_key"),
        (NewJob(1, "a", idempotency_key="é" * 513), "idempotency_key"),
        (NewJob(1, "a", headers=(("n", "v" * 16_384),)), "headers"),
    ],
)
def test_a_wrong_field_is_named(new: NewJob, field: str) -> None:
    """A value no job may have is refused under the name of its field."""
    rig = Rig()
    assert rig.refused(Enqueue(new)) == BadArgument(field)
    assert rig.refused(EnqueueMany((NewJob(1, "a"), new))) == BadArgument(f"jobs[1].{field}")


@pytest.mark.parametrize("new", [NewJob(0, "system:sweep"), NewJob(0, "a"), NewJob(1, "a", max_attempts=63)])
def test_what_stands_at_the_edge_of_a_rule_passes(new: NewJob) -> None:
    """The nil scope takes any kind, and the event log has room for 63 attempts at its default cap."""
    assert isinstance(Rig().do(Enqueue(new)), Enqueued)


def _in_state(state: State) -> Rig:
    rig = Rig()
    rig.do(Enqueue(KEYED))
    if state is not PENDING:
        rig.lease()
    if state is State.FAILED:
        rig.fail()
    elif state is COMPLETED:
        rig.complete()
    elif state is DEAD:
        rig.do(Cancel(1))
    return rig


@pytest.mark.parametrize("state", list(State))
def test_a_held_key_answers_with_its_job_whatever_its_state(state: State) -> None:
    """The same work under the same key gives the existing job and its state, and changes nothing."""
    rig = _in_state(state)
    other = KEYED._replace(priority=1, delay_ms=9, headers=(("x", "y"),), max_attempts=1)
    assert rig.refused(Enqueue(other)) == Enqueued((Receipt(1, created=False, state=state),))


@pytest.mark.parametrize(
    "other", [KEYED._replace(kind="b"), KEYED._replace(payload=2), KEYED._replace(payload_version=2)]
)
def test_a_held_key_refuses_other_work(other: NewJob) -> None:
    """Kind, payload and payload version make the work; another one under the key is a conflict."""
    rig = _in_state(COMPLETED)
    assert rig.refused(Enqueue(other)) == KeyConflict(1, "k", None)


def test_a_key_holds_in_its_scope_only() -> None:
    """Another scope may use the same key."""
    rig = _in_state(PENDING)
    assert rig.do(Enqueue(KEYED._replace(scope=2, payload=9))) == Enqueued((Receipt(2, created=True, state=PENDING),))


def test_a_key_is_free_after_purge() -> None:
    """The key lives as long as its job's row: after retention and the sweep it makes a new job."""
    rig = _in_state(COMPLETED)
    rig.do(Advance(100), Reap())
    assert rig.do(Enqueue(KEYED)) == Enqueued((Receipt(2, created=True, state=PENDING),))


def test_a_key_is_free_after_discard() -> None:
    """Discarding a dead job frees its key."""
    rig = _in_state(DEAD)
    rig.do(Discard(1))
    assert rig.do(Enqueue(KEYED)) == Enqueued((Receipt(2, created=True, state=PENDING),))


def test_many_is_the_singles_in_order() -> None:
    """Several jobs in one call are created as one after another would be, a key met within the call included."""
    jobs = (NewJob(2, "a"), KEYED, NewJob(1, "b"), KEYED)
    one, all_at_once = Rig(), Rig()
    one.do(*[Enqueue(new) for new in jobs])
    reply = all_at_once.do(EnqueueMany(jobs))
    assert all_at_once.queue == one.queue
    assert isinstance(reply, Enqueued)
    assert [receipt.job_id for receipt in reply.receipts] == [1, 2, 3, 2]
    assert [receipt.created for receipt in reply.receipts] == [True, True, True, False]


def test_many_is_refused_as_a_whole_by_its_first_conflict() -> None:
    """A conflict with an earlier item of the same call refuses all of it and names the item."""
    rig = Rig()
    assert rig.refused(EnqueueMany((NewJob(1, "z"), KEYED, KEYED._replace(payload=2)))) == KeyConflict(2, "k", 2)


def test_an_argument_goes_before_a_conflict() -> None:
    """A wrong value in a later item wins over a conflict in an earlier one."""
    rig = _in_state(PENDING)
    wrong = EnqueueMany((KEYED._replace(payload=2), NewJob(1, "")))
    assert rig.refused(wrong) == BadArgument("jobs[1].kind")


def test_too_many_at_once_are_refused() -> None:
    """More than 10,000 new jobs in a call are an argument error, and none at all is no error."""
    assert Rig().refused(EnqueueMany((NewJob(1, "a"),) * 10_001)) == BadArgument("jobs")
    assert Rig().do(EnqueueMany(())) == Enqueued(())


def test_the_budget_of_the_kind_does_not_bind_the_cap_of_the_job() -> None:
    """Whether a log has room is asked of the job's own number of attempts."""
    rig = Rig(Config(events_max=24, kinds=(("a", KindPolicy(max_attempts=5)),)))
    assert rig.refused(Enqueue(NewJob(1, "a", max_attempts=6))) == BadArgument("max_attempts")
    assert isinstance(rig.do(Enqueue(NewJob(1, "a"))), Enqueued)


def test_leased_keeps_its_key() -> None:
    """Leasing a job does not free its key."""
    rig = leased()
    rig.do(Enqueue(KEYED))
    assert rig.lease() == [2]
    assert rig.job(2).state is LEASED
    assert rig.refused(Enqueue(KEYED)) == Enqueued((Receipt(2, created=False, state=LEASED),))
