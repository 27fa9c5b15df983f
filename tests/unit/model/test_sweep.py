"""Facts about the sweep, the operators and the log."""

import pytest

from telha_model.ops import Advance, Cancel, Complete, Discard, Enqueue, Lease, Op, Reap, Release, Retry
from telha_model.replies import BadArgument, Cancelled, Discarded, NotFound, Reaped, Retried, WrongState
from telha_model.state import Event
from telha_model.states import (
    CANCELLABLE,
    COMPLETED,
    DEAD,
    ENDED,
    FAILED,
    LEASED,
    PENDING,
    RETRYABLE,
    State,
    Transition,
)
from telha_model.types import NewJob, Ref
from tests.unit.model.support import CONFIG, START_MS, Rig, leased


def test_the_sweep_takes_a_lease_at_its_deadline() -> None:
    """One millisecond before the deadline nothing happens; at it the attempt counts and the job backs off."""
    rig = leased()
    rig.do(Advance(9))
    assert rig.refused(Reap()) == Reaped(0, 0, 0, 0, more=False)
    rig.do(Advance(1))
    assert rig.do(Reap()) == Reaped(1, 0, 0, 0, more=False)
    job = rig.job()
    assert (job.state, job.attempts, job.due_ms, job.generation) == (PENDING, 1, START_MS + 12, 1)
    detail = (("reason", "expired"), ("generation", 1), ("attempts", 1), ("due", START_MS + 12))
    assert job.events[-1] == Event(START_MS + 10, Transition.REAPED, detail)


def test_silence_kills_after_exactly_max_attempts() -> None:
    """A job whose workers all die is dead after its last attempt, with the whole story in its log."""
    rig = Rig()
    rig.enqueue()
    for _ in range(3):
        rig.do(Advance(1_000))
        assert rig.lease() == [1]
        rig.do(Advance(10), Reap())
    assert (rig.job().state, rig.job().dead_reason, rig.job().attempts) == (DEAD, "expired", 3)
    assert rig.log() == ["enqueued", "leased", "reaped", "leased", "reaped", "leased", "dead"]
    assert rig.lease() == []


def test_the_sweep_promotes_a_due_failure_to_its_place() -> None:
    """Promotion keeps the due time, so order does not depend on when the sweep ran."""
    rig = leased()
    rig.fail()
    rig.do(Advance(5))
    assert rig.do(Reap()) == Reaped(0, 0, 1, 0, more=False)
    assert (rig.job().state, rig.job().due_ms) == (PENDING, START_MS + 2)


def test_promotion_does_not_touch_the_ring() -> None:
    """A due failed job was ready before, and is ready after."""
    rig = leased()
    rig.fail()
    rig.do(Enqueue(NewJob(2, "a")), Advance(5))
    assert rig.queue.ring == (2, 1)
    rig.do(Reap())
    assert rig.queue.ring == (2, 1)


def test_the_sweep_purges_after_retention() -> None:
    """An ended job goes at the end of its retention, not before."""
    rig = leased()
    rig.complete()
    rig.do(Advance(99))
    assert rig.refused(Reap()) == Reaped(0, 0, 0, 0, more=False)
    rig.do(Advance(1))
    assert rig.do(Reap()) == Reaped(0, 0, 0, 1, more=False)
    assert rig.queue.jobs == ()


def test_without_retention_nothing_is_purged() -> None:
    """None means for ever."""
    rig = leased(CONFIG._replace(retention_completed_ms=None))
    rig.complete()
    rig.do(Advance(10**12))
    assert rig.refused(Reap()) == Reaped(0, 0, 0, 0, more=False)


def test_no_retention_at_all_waits_for_the_next_sweep() -> None:
    """A job that dies in a sweep is purged by the next one, and this one says that more is waiting."""
    rig = leased(CONFIG._replace(max_attempts=1, retention_dead_ms=0))
    rig.do(Advance(10))
    assert rig.do(Reap()) == Reaped(0, 1, 0, 0, more=True)
    assert rig.do(Reap()) == Reaped(0, 0, 0, 1, more=False)


def test_the_earliest_due_goes_first_over_all_kinds_of_work() -> None:
    """A purge due at 1, an expiry at 2 and a promotion at 3 are swept in that order, whatever their numbers."""
    rig = Rig(CONFIG._replace(lease_ttl_ms=2, retention_completed_ms=1))
    for scope in (3, 2, 1):
        rig.enqueue(scope)
    assert rig.lease(3) == [1, 2, 3]
    rig.do(Complete(Ref(3, 1)))
    rig.do(Advance(1))
    rig.fail(1)
    rig.do(Advance(2))
    assert rig.do(Reap(1)) == Reaped(0, 0, 0, 1, more=True)
    assert rig.do(Reap(1)) == Reaped(1, 0, 0, 0, more=True)
    assert rig.do(Reap(1)) == Reaped(0, 0, 1, 0, more=False)


def test_ties_in_the_sweep_go_by_number() -> None:
    """Two leases that expire together are swept in order of their jobs."""
    rig = Rig()
    rig.enqueue(2)
    rig.enqueue(1)
    rig.lease(2)
    rig.do(Advance(10), Reap(1))
    assert (rig.job(1).state, rig.job(2).state) == (PENDING, LEASED)


def test_a_sweep_of_nothing_is_an_argument_error() -> None:
    """The limit is at least one."""
    assert leased().refused(Reap(0)) == BadArgument("limit")


def _in(state: State) -> Rig:
    rig = Rig()
    rig.enqueue(delay_ms=4)
    rig.do(Advance(4))
    if state is not PENDING:
        rig.lease()
    if state is FAILED:
        rig.fail()
    elif state is COMPLETED:
        rig.complete()
    elif state is DEAD:
        rig.fail(retryable=False)
    return rig


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize(
    ("op", "needed", "done"),
    [(Retry(1), RETRYABLE, Retried), (Cancel(1), CANCELLABLE, Cancelled), (Discard(1), ENDED, Discarded)],
)
def test_an_operator_moves_only_what_may_move(state: State, op: Op, needed: frozenset[State], done: type) -> None:
    """Retry takes dead jobs, cancel living ones, discard ended ones; the rest is refused and stays as it is."""
    rig = _in(state)
    if state in needed:
        assert type(rig.do(op)) is done
    else:
        assert rig.refused(op) == WrongState(1, state, needed)


@pytest.mark.parametrize("op", [Retry(5), Cancel(5), Discard(5)])
def test_an_operator_may_name_nobody(op: Op) -> None:
    """An unknown job is not found."""
    assert leased().refused(op) == NotFound(5)


def test_retry_gives_a_fresh_budget() -> None:
    """Attempts start again, the generation goes on, the end of the lease is remembered."""
    rig = _in(DEAD)
    rig.do(Advance(3), Retry(1))
    job = rig.job()
    assert (job.state, job.attempts, job.generation, job.due_ms) == (PENDING, 0, 1, START_MS + 7)
    assert (job.ended_at_ms, job.purge_at_ms, job.dead_reason, job.lease_end) == (None, None, None, "failed")
    assert job.events[-1] == Event(START_MS + 7, Transition.RETRIED, (("due", START_MS + 7),))


def test_retry_respects_run_at() -> None:
    """A job cancelled before its time is not early after retry."""
    rig = Rig()
    rig.enqueue(run_at_ms=START_MS + 50)
    rig.do(Cancel(1), Retry(1))
    assert rig.job().due_ms == START_MS + 50


def test_cancel_ends_a_lease() -> None:
    """A cancelled job is dead, its attempts as they were, and says so in one event."""
    rig = leased()
    rig.do(Cancel(1))
    job = rig.job()
    assert (job.state, job.dead_reason, job.attempts, job.lease_end) == (DEAD, "cancelled", 0, "cancelled")
    assert job.events[-1].detail == (("reason", "cancelled"), ("generation", 1), ("attempts", 0))


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    """At the cap the middle collapses into one entry with count, time and state; the first half stays for ever."""
    rig = Rig(CONFIG._replace(max_attempts=1, events_max=8))
    rig.enqueue()
    for _ in range(10):
        rig.lease()
        rig.do(Advance(1), Release(rig.ref()))
    events = rig.job().events
    assert len(events) == 8
    kept = ["enqueued", "leased", "released", "leased"]
    assert rig.log() == [*kept, "elided", "released", "leased", "released"]
    assert events[4] == Event(START_MS + 8, Transition.ELIDED, (("count", 14), ("state", "leased")))


def test_the_first_overflow_replaces_two_entries() -> None:
    """One entry too many costs two: the elided one stands for both."""
    rig = Rig(CONFIG._replace(max_attempts=1, events_max=8))
    rig.enqueue()
    for _ in range(4):
        rig.lease()
        rig.do(Release(rig.ref()))
    assert rig.job().events[4].detail == (("count", 2), ("state", "leased"))
    assert len(rig.job().events) == 8


def test_a_cancelled_pending_job_has_no_lease_end() -> None:
    """Without a lease there is none to end."""
    rig = Rig()
    rig.enqueue()
    rig.do(Cancel(1))
    assert rig.job().lease_end is None


def test_an_idle_lease_writes_nothing() -> None:
    """A poll of an empty queue changes nothing."""
    rig = Rig()
    rig.refused(Lease("w", 5))
