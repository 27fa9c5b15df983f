"""Each sentence of each promise, said of a step or state that breaks it in that one way.

`test_promises` breaks the model and sees that some promise notices; here no branch of a predicate is left that never
rang. A step is made by hand: what the model would do, and one thing wrong with it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from telha_model.ops import Advance, CompleteMany, Enqueue, Extend, Lease, Op, Reap, Release, Reopen
from telha_model.promises import jobs, leases, order
from telha_model.promises.evidence import Taken, changes
from telha_model.replies import CompletedMany, Extended, Grant, Leased, Outcome, Reply
from telha_model.state import Digest, Event, Job, Queue, Submit
from telha_model.states import DEAD, LEASED, PENDING, Transition
from telha_model.step import step
from telha_model.types import NewJob, Ref
from tests.unit.model.support import CONFIG, START_MS, Rig, leased

PENDING_JOB = NewJob(1, "a")
MINE = Ref(1, 1)


def pending(*more: Op) -> Rig:
    """A queue with job 1 pending in scope 1, after some more steps."""
    rig = Rig()
    rig.do(Enqueue(PENDING_JOB), *more)
    return rig


def changed(queue: Queue, number: int = 1, **fields: Any) -> Queue:
    """The queue with fields of a job replaced, and nothing else."""
    return queue._replace(jobs=tuple(job._replace(**fields) if job.job_id == number else job for job in queue.jobs))


def job(rig: Rig, **fields: Any) -> Job:
    """Job 1 with some fields wrong."""
    return rig.job()._replace(**fields)


def taken(rig: Rig, op: Op, after: Queue | None = None, reply: Reply | None = None, **queue: Any) -> Taken:
    """The step as the model takes it, but for the reply or the queue after it, or fields of that."""
    said, then = step(rig.config, rig.queue, op)
    then = (then if after is None else after)._replace(**queue)
    return Taken(rig.config, rig.queue, op, said if reply is None else reply, then, changes(rig.queue, then))


def pair(step_taken: Taken) -> tuple[Taken, Job, Job]:
    """The step, and job 1 before and after it."""
    [(was, now)] = step_taken.changed
    assert was is not None
    assert now is not None
    return step_taken, was, now


def grant(**fields: Any) -> Grant:
    """A grant of job 1."""
    return Grant(1, 1, 1, "a", None, 1, (), 1, START_MS + CONFIG.lease_ttl_ms, "w", None)._replace(**fields)


# -- of one job, and of a state

OF_A_JOB: list[tuple[Callable[..., str | None], Job, str]] = [
    (jobs.one_state_well_formed, job(leased(), due_ms=None), "job 1 is leased with due None"),
    (jobs.one_state_well_formed, job(pending(), ended_at_ms=5), "job 1 is pending with due 1000, ended 5"),
    (jobs.one_state_well_formed, job(pending(), worker="w"), "job 1 is pending with worker w"),
    (jobs.one_state_well_formed, job(leased(), deadline_ms=None), "job 1 is leased with worker w, deadline None"),
    (jobs.one_state_well_formed, job(pending(), dead_reason="expired"), "job 1 is pending with dead reason expired"),
    (jobs.one_state_well_formed, job(pending(), purge_at_ms=5), "job 1 is pending with purge 5"),
    (jobs.one_state_well_formed, job(pending(), result=1), "job 1 is pending with purge None and result 1"),
    (leases.attempts_within_budget, job(pending(), attempts=3), "job 1 is pending after 3 of 3 attempts"),
    (
        leases.attempts_within_budget,
        job(pending(), state=DEAD, dead_reason="expired", attempts=2),
        "job 1 died of expired after 2 of 3 attempts",
    ),
]


@pytest.mark.parametrize(("predicate", "broken", "sentence"), OF_A_JOB, ids=[text for _, _, text in OF_A_JOB])
def test_a_job_that_cannot_be(predicate: Callable[..., str | None], broken: Job, sentence: str) -> None:
    """One field that does not belong to the state is told, with what it is."""
    told = predicate(CONFIG, broken)
    assert told is not None
    assert told.startswith(sentence)


def logged(*transitions: Transition) -> Job:
    """Job 1, pending, with a log of these."""
    return job(pending(), events=tuple([Event(START_MS, one, ()) for one in transitions]))


def test_a_log_that_takes_no_edge_of_the_table() -> None:
    """A completion does not leave pending."""
    told = jobs.logs_replay(CONFIG, logged(Transition.ENQUEUED, Transition.COMPLETED))
    assert told is not None
    assert "completed does not leave pending" in told


def test_a_log_beyond_its_cap() -> None:
    """One entry more than the cap."""
    config = CONFIG._replace(events_max=2)
    broken = logged(Transition.ENQUEUED, Transition.LEASED, Transition.RELEASED)
    assert jobs.logs_replay(config, broken) == "the log of job 1 has 3 entries"


def test_jobs_out_of_order() -> None:
    """Two jobs change places; or one has a number that nobody gave out."""
    queue = pending(Enqueue(PENDING_JOB)).queue
    turned = queue._replace(jobs=queue.jobs[::-1])
    assert jobs.numbers_in_order(CONFIG, turned) == "job 1 is out of order or not yet created"
    assert jobs.numbers_in_order(CONFIG, queue._replace(next_job_id=2)) == "job 2 is out of order or not yet created"


def test_a_ring_that_is_not_who_waits() -> None:
    """A scope is missing, one is there twice, one has nothing."""
    queue = pending().queue
    for ring in ((), (1, 1), (1, 2)):
        assert (
            order.ring_is_who_waits(CONFIG, queue._replace(ring=ring)) == f"the ring is {ring}, ready jobs are in [1]"
        )


# -- of a step


def test_a_job_that_appears_otherwise() -> None:
    """Leased already; or by an operation that creates nothing."""
    rig = Rig()
    for op, fields in ((Enqueue(PENDING_JOB), {"generation": 1}), (Enqueue(PENDING_JOB), {"state": LEASED})):
        told = taken(rig, op, changed(step(rig.config, rig.queue, op)[1], **fields))
        assert jobs.comes_and_goes_by_the_doors(told, *told.changed[0]) is not None
    created = step(rig.config, rig.queue, Enqueue(PENDING_JOB))[1]
    told = taken(rig, Reap(), created)
    assert jobs.comes_and_goes_by_the_doors(told, *told.changed[0]) == "job 1 appeared pending under generation 0"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"now_ms": START_MS + 1}, "reopening changed the time or the scope served last"),
        ({"last_served": 1}, "reopening changed the time or the scope served last"),
        ({"incarnation": 1}, "wrong incarnation after reopening"),
        ({"next_job_id": 9}, "reopening changed a job"),
    ],
)
def test_a_reopening_that_changes_something(fields: dict[str, Any], sentence: str) -> None:
    """Whatever outlives the process is asked for."""
    assert jobs.reopening_keeps_everything(taken(pending(), Reopen(clean=True), **fields)) == sentence


def test_a_generation_without_a_lease() -> None:
    """It rises while the lease is held, by an operation that grants nothing, or stays below the incarnation's range."""
    rig = leased()
    held = taken(rig, Extend("w", (MINE,)), changed(rig.queue, generation=2))
    assert leases.generations_rise(*pair(held)) == "job 1 got generation 2 without a new lease"
    rig = pending(Reopen(clean=False))
    low = taken(rig, Lease("w"), changed(step(rig.config, rig.queue, Lease("w"))[1], generation=1))
    assert leases.generations_rise(*pair(low)) == "job 1 was leased below the incarnation's range"


@pytest.mark.parametrize(
    ("ref", "status", "sentence"),
    [
        (MINE, "stale", "is current, yet stale"),
        (Ref(1, 2), "extended", "is not current, yet extended"),
        (Ref(9, 1), "at_limit", "is not current, yet at_limit"),
    ],
)
def test_an_extension_that_is_judged_wrongly(ref: Ref, status: Any, sentence: str) -> None:
    """The current lease is extended, and no other."""
    told = leases.extensions_are_judged(leased().queue, Extend("w", (ref,)), Extended((Outcome(ref.job_id, status),)))
    assert told is not None
    assert told.endswith(sentence)


@pytest.mark.parametrize(
    ("ref", "status", "sentence"),
    [(MINE, "stale", "is current, yet stale"), (Ref(1, 2), "completed", "is not current, yet completed")],
)
def test_a_completion_in_bulk_that_is_judged_wrongly(ref: Ref, status: Any, sentence: str) -> None:
    """The current lease is completed, and no other that repeats nothing."""
    op, reply = CompleteMany(((ref, 1),)), CompletedMany((Outcome(1, status),))
    told = leases.completions_are_judged(leased().queue, op, reply)
    assert told is not None
    assert told.endswith(sentence)


def test_a_bulk_call_that_changes_another_job() -> None:
    """It has the current lease of job 1, and job 2 moves."""
    rig = leased()
    rig.do(Enqueue(PENDING_JOB))
    broken = taken(rig, Extend("w", (MINE,)), changed(rig.queue, 2, progress=1))
    assert leases.bulk_changes_only_current(broken) == "a bulk call changed a job for which it had no current lease"


def test_a_release_is_never_a_repeat() -> None:
    """A stale release answered as if it had been one is told, whatever submit is recorded."""
    rig = leased()
    rig.complete()
    told = leases.submit_is_judged(rig.queue, Release(MINE), Extended(()))
    assert told is not None
    assert told.startswith(f"{MINE} is not current, yet the reply was")
    digest = Digest("complete", 1, (None, ()))
    assert rig.job().submit == Submit(digest, ())


def test_a_deadline_that_moves_back() -> None:
    """An extension leaves less time than there was."""
    rig = leased()
    broken = taken(rig, Extend("w", (MINE,)), changed(rig.queue, deadline_ms=START_MS + 1))
    assert leases.deadlines_hold(*pair(broken)) == "the deadline of job 1 moved back"


def test_a_ready_job_that_is_left_behind() -> None:
    """A poll comes back empty although a job is ready, and its filters let it through."""
    queue = pending().queue
    assert order.nothing_is_left_behind(queue, Lease("w"), Leased(())) == "job 1 was ready and left behind"
    assert order.nothing_is_left_behind(queue, Lease("w", 1, (2,)), Leased(())) is None


def test_a_grant_of_a_job_that_could_not_be_leased() -> None:
    """It does not exist, or has ended."""
    rig = leased()
    rig.complete()
    broken = taken(rig, Lease("w"), reply=Leased((grant(),)))
    assert order.least_first(broken) == "job 1 could not be leased at all"
    broken = taken(rig, Lease("w"), reply=Leased((grant(job_id=9),)))
    assert order.least_first(broken) == "job 9 could not be leased at all"


def test_numbers_with_a_gap() -> None:
    """A new job gets the number after the next; or the next number rises by one too many."""
    rig = Rig()
    after = step(rig.config, rig.queue, Enqueue(PENDING_JOB))[1]
    skipped = after._replace(jobs=(after.jobs[0]._replace(job_id=2),))
    assert order.ids_rise(taken(rig, Enqueue(PENDING_JOB), skipped)) == "a new job got the number 2, the next one was 1"
    told = order.ids_rise(taken(rig, Enqueue(PENDING_JOB), next_job_id=3))
    assert told == "after 1 new jobs the next number went from 1 to 3"


def test_a_promotion_that_is_early_or_moves_the_job() -> None:
    """A sweep makes a failed job pending before its back-off has ended, or gives it another place."""
    rig = leased()
    rig.fail()
    due_ms = rig.job().due_ms
    early = taken(rig, Reap(), changed(rig.queue, state=PENDING))
    assert order.only_when_due(*pair(early)) == f"job 1 was promoted at {START_MS}, due {due_ms} then {due_ms}"
    rig.do(Advance(5))
    moved = taken(rig, Reap(), changed(rig.queue, state=PENDING, due_ms=START_MS + 5))
    assert (
        order.only_when_due(*pair(moved)) == f"job 1 was promoted at {START_MS + 5}, due {due_ms} then {START_MS + 5}"
    )


def test_a_scope_served_out_of_turn() -> None:
    """The first of the ring has a job that the lease would take, and the second is served; or nobody writes it down."""
    rig = pending(Enqueue(NewJob(2, "a")))
    second = Leased((grant(job_id=2, scope=2),))
    told = order.first_eligible(taken(rig, Lease("w"), reply=second))
    assert told == "scope 2 was served out of turn, the ring was [1, 2]"
    assert order.first_eligible(taken(rig, Lease("w", 1, (2,)))) is None
    told = order.first_eligible(taken(rig, Lease("w"), last_served=None))
    assert told == "the last served scope was not written down"


def test_predicates_about_leases_have_nothing_to_say_of_others() -> None:
    """Of a step that grants nothing they say nothing."""
    for predicate in (order.least_first, order.first_eligible):
        assert predicate(taken(pending(), Advance(1))) is None
