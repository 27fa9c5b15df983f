"""Retry, cancel, discard and the sweep: who may move, what moves when, and in which order."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    Backoff,
    InvalidArgumentError,
    JobNotFoundError,
    JobQueue,
    KindPolicy,
    ManualClock,
    NewJob,
    ReapReport,
    StaleLeaseError,
    State,
    WrongStateError,
)
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, A, B, each, healthy, lease, leased, refusal, rows, unchanged

TTL = 300_000
WEEK = 604_800_000
NOTHING = ReapReport(0, 0, 0, 0, 0, more=False)


def in_state(queue: JobQueue, state: State) -> UUID:
    """A job brought into the state."""
    if state is State.PENDING:
        return queue.enqueue(A, "embed", None).job_id
    held = leased(queue)
    if state is State.COMPLETED:
        queue.complete(held)
    elif state is State.FAILED:
        queue.fail(held, "x")
    elif state is State.DEAD:
        queue.fail(held, "x", retryable=False)
    return held.job_id


MOVES: list[tuple[str, frozenset[State], State | None]] = [
    ("retry", frozenset({State.DEAD}), State.PENDING),
    ("cancel", frozenset({State.PENDING, State.LEASED, State.FAILED}), State.DEAD),
    ("discard", frozenset({State.COMPLETED, State.DEAD}), None),
]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("verb", "needed", "after"), MOVES, ids=[move[0] for move in MOVES])
def test_an_operator_moves_jobs_of_these_states_only(
    queue: JobQueue, verb: str, needed: frozenset[State], after: State | None, state: State
) -> None:
    """Any other state is refused with the state and those it needs, and nothing changes."""
    job_id = in_state(queue, state)
    if state not in needed:
        with unchanged(queue):
            error = refusal(WrongStateError, lambda: getattr(queue, verb)(job_id))
        assert (job_id, state, needed) == (error.job_id, error.state, error.needed)
        return
    assert getattr(queue, verb)(job_id) is None
    if after is None:
        refusal(JobNotFoundError, lambda: queue.get(job_id))
    else:
        assert after is queue.get(job_id).state
    healthy(queue)


def test_retry_gives_a_fresh_budget(queue: JobQueue, clock: ManualClock) -> None:
    """Attempts 0, due now, and nothing left of the death but the log."""
    job_id = in_state(queue, State.DEAD)
    clock.advance(50)
    queue.retry(job_id)
    found = queue.get(job_id)
    assert (found.attempts, found.due_ms, found.ended_at_ms, found.dead_reason) == (0, START_MS + 50, None, None)


def test_retry_respects_run_at(queue: JobQueue) -> None:
    """Due at the later of now and `run_at`."""
    job_id = queue.enqueue(A, "embed", None, run_at_ms=START_MS + 99).job_id
    queue.cancel(job_id)
    queue.retry(job_id)
    assert queue.get(job_id).due_ms == START_MS + 99


def test_a_retried_job_is_not_purged_at_its_old_time(opened: Open, clock: ManualClock) -> None:
    """Its retention is over with its death."""
    queue = opened(retention_dead_ms=10)
    job_id = in_state(queue, State.DEAD)
    queue.retry(job_id)
    clock.advance(10)
    assert queue.reap() == NOTHING
    assert queue.get(job_id).state is State.PENDING


def test_cancel_ends_a_lease(queue: JobQueue) -> None:
    """It is no longer current; attempts stay as they were."""
    held = leased(queue)
    queue.cancel(held.job_id)
    assert refusal(StaleLeaseError, lambda: queue.complete(held)).why == "cancelled"
    found = queue.get(held.job_id)
    assert (found.dead_reason, found.attempts, found.worker, found.deadline_ms) == ("cancelled", 0, None, None)


def test_discard_removes_everything(queue: JobQueue) -> None:
    """Row, payload, key and counters."""
    queue.enqueue(A, "embed", "x" * 9_999, idempotency_key="k")
    held = lease(queue)
    queue.complete(held)
    queue.discard(held.job_id)
    assert [len(found) for family, found in rows(queue).items() if family.value != "meta"] == [0] * 7
    assert set(queue.counts().values()) == {0}


# -- the sweep


def test_an_empty_sweep(queue: JobQueue) -> None:
    """Nothing due: nothing done, nothing written."""
    leased(queue)
    queue.enqueue(A, "embed", None)
    with unchanged(queue):
        assert queue.reap() == NOTHING


def test_an_expired_lease_goes_back_with_a_back_off(queue: JobQueue, clock: ManualClock) -> None:
    """At its deadline, not a millisecond before; the attempt counts, due is now + back-off."""
    held = leased(queue)
    clock.advance(TTL - 1)
    assert queue.reap() == NOTHING
    clock.advance(1)
    assert queue.reap() == ReapReport(1, 0, 0, 0, 0, more=False)
    found = queue.get(held.job_id)
    assert (found.state, found.attempts, found.due_ms) == (State.PENDING, 1, START_MS + TTL + 10_000)


def test_the_last_expiry_is_death(opened: Open, clock: ManualClock) -> None:
    """Dead by expiry, never limbo."""
    queue = opened(max_attempts=1)
    held = leased(queue)
    clock.advance(TTL)
    assert queue.reap() == ReapReport(0, 1, 0, 0, 0, more=False)
    found = queue.get(held.job_id)
    assert (found.state, found.dead_reason, found.attempts) == (State.DEAD, "expired", 1)
    assert found.events[-1].transition == "dead"


def test_a_failed_job_is_promoted_when_due(queue: JobQueue, clock: ManualClock) -> None:
    """Pending at the same due, so that order does not depend on when the sweep ran."""
    job_id = in_state(queue, State.FAILED)
    clock.advance(9_999)
    assert queue.reap() == NOTHING
    clock.advance(5_000)
    assert queue.reap() == ReapReport(0, 0, 1, 0, 0, more=False)
    found = queue.get(job_id)
    assert (found.state, found.attempts, found.due_ms) == (State.PENDING, 1, START_MS + 10_000)


def test_ended_jobs_are_purged_by_their_retention(queue: JobQueue, clock: ManualClock) -> None:
    """Completed ones after a week from their end; dead ones never, by default."""
    clock.advance(5_000)
    completed, dead = in_state(queue, State.COMPLETED), in_state(queue, State.DEAD)
    clock.advance(WEEK - 1)
    assert queue.reap() == NOTHING
    clock.advance(1)
    assert queue.reap() == ReapReport(0, 0, 0, 1, 0, more=False)
    refusal(JobNotFoundError, lambda: queue.get(completed))
    clock.advance(52 * WEEK)
    assert queue.reap() == NOTHING
    assert queue.get(dead).state is State.DEAD
    healthy(queue)


@each("setting, state", [("retention_completed_ms", State.COMPLETED), ("retention_dead_ms", State.DEAD)])
def test_retention_is_fixed_when_the_job_ends(opened: Open, clock: ManualClock, setting: str, state: State) -> None:
    """A changed setting affects later ends only; None sets no timer."""
    queue = opened(**{setting: 100})
    early = in_state(queue, state)
    queue.close()
    queue = opened(**{setting: None})
    kept = in_state(queue, state)
    queue.close()
    queue = opened(**{setting: 50})
    late = in_state(queue, state)
    clock.advance(50)
    assert queue.reap().purged == 1
    refusal(JobNotFoundError, lambda: queue.get(late))
    clock.advance(50)
    assert queue.reap().purged == 1
    refusal(JobNotFoundError, lambda: queue.get(early))
    clock.advance(WEEK)
    assert queue.reap() == NOTHING
    assert queue.get(kept).state is state


def test_retention_zero_is_purged_by_the_next_sweep(opened: Open, clock: ManualClock) -> None:
    """Not by the sweep that ended it."""
    queue = opened(max_attempts=1, retention_dead_ms=0)
    held = leased(queue)
    clock.advance(TTL)
    assert queue.reap() == ReapReport(0, 1, 0, 0, 0, more=True)
    assert queue.get(held.job_id).state is State.DEAD
    assert queue.reap() == ReapReport(0, 0, 0, 1, 0, more=False)


def test_a_sweep_takes_the_oldest_due_first_over_everything(opened: Open, clock: ManualClock) -> None:
    """All scopes and kinds of work in one order by time, ties by job id; `more` until all is done."""
    queue = opened(lease_ttl_ms=30, retention_completed_ms=20, max_attempts=1)
    queue.enqueue(B, "embed", "expires at 30")
    lease(queue)
    purged = in_state(queue, State.COMPLETED)
    queue.close()
    queue = opened(lease_ttl_ms=25, retention_completed_ms=20, backoff=Backoff(base_ms=25))
    failing = in_state(queue, State.FAILED)
    expiring = leased(queue).job_id
    clock.advance(30)
    reports = [queue.reap(1) for _ in range(4)]
    assert reports == [
        ReapReport(0, 0, 0, 1, 0, more=True),
        ReapReport(0, 0, 1, 0, 0, more=True),
        ReapReport(1, 0, 0, 0, 0, more=True),
        ReapReport(1, 0, 0, 0, 0, more=False),
    ]
    refusal(JobNotFoundError, lambda: queue.get(purged))
    assert failing.int < expiring.int


@each("limit, done, more", [(1, 1, True), (2, 2, True), (3, 3, False), (4, 3, False), (None, 3, False)])
def test_a_sweep_does_at_most_its_limit(
    queue: JobQueue, clock: ManualClock, limit: int | None, done: int, more: bool
) -> None:
    """And says whether more is waiting."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 3)
    queue.lease_batch("w", 3)
    clock.advance(TTL)
    report = queue.reap(limit)
    assert (done, more) == (report.requeued, report.more)


def test_a_large_sweep_takes_several_commits_and_all_work(opened: Open, clock: ManualClock) -> None:
    """More than a thousand expired leases, each counted once."""
    queue = opened(retention_dead_ms=0, max_attempts=1)
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 1_234)
    queue.lease_batch("w", 2_000)
    clock.advance(TTL)
    assert queue.reap() == ReapReport(0, 1_234, 0, 0, 0, more=True)
    assert queue.reap(1_000) == ReapReport(0, 0, 0, 1_000, 0, more=True)
    assert queue.reap() == ReapReport(0, 0, 0, 234, 0, more=False)
    healthy(queue)


# -- precedence: unavailable, argument, not found, repeat, stale or wrong state, key conflict


def test_an_argument_is_looked_at_before_the_job(queue: JobQueue) -> None:
    """A bad argument is reported although the job is not there, or the lease is stale."""
    held = leased(queue)
    queue.complete(held)
    calls: list[Callable[[], object]] = [
        lambda: queue.complete(held, {1, 2}),
        lambda: queue.fail(held, "x", retryable=1),  # type: ignore[arg-type]  # the fault
        lambda: queue.release(held, delay_ms=-1),
        lambda: queue.complete(held, enqueue=[NewJob(scope=A, kind="", payload=None)]),
    ]
    for call in calls:
        refusal(InvalidArgumentError, call)


def test_a_repeat_is_answered_before_staleness(queue: JobQueue) -> None:
    """The lease has ended; the same call is answered all the same."""
    held = leased(queue)
    queue.complete(held, 1)
    assert queue.complete(held, 1) == []


def test_staleness_comes_before_a_key_conflict(queue: JobQueue) -> None:
    """Follow-ups of a stale lease are not looked at."""
    queue.enqueue(A, "embed", 1, idempotency_key="k")
    held = lease(queue)
    queue.release(held)
    conflict = NewJob(scope=A, kind="embed", payload=2, idempotency_key="k")
    refusal(StaleLeaseError, lambda: queue.complete(held, enqueue=[conflict]))


def test_arguments_are_looked_at_in_their_order(queue: JobQueue) -> None:
    """When several are bad the first is named."""
    bad: Any = None
    assert refusal(InvalidArgumentError, lambda: queue.enqueue(bad, bad, {1}, priority=bad)).field == "scope"
    assert refusal(InvalidArgumentError, lambda: queue.lease_batch(bad, bad, kinds=bad)).field == "worker"
    assert refusal(InvalidArgumentError, lambda: queue.complete(bad, {1})).field == "lease"


# -- policies


def test_a_jobs_own_ceiling_wins(opened: Open) -> None:
    """Then its kind's, then the queue's."""
    queue = opened(max_attempts=3, kinds={"two:*": KindPolicy(max_attempts=2)})
    states = []
    for kind, own in (("two:x", 1), ("two:x", None), ("three", None)):
        held = leased(queue, kind=kind, max_attempts=own)
        states.append(queue.fail(held, "x"))
    assert states == [State.DEAD, State.FAILED, State.FAILED]


def test_the_ceiling_is_the_one_in_force_at_the_failure(opened: Open) -> None:
    """A queue reopened with a lower one ends the job at its next failure."""
    queue = opened(max_attempts=5)
    held = leased(queue)
    queue.close()
    assert opened(max_attempts=1).fail(held, "x") is State.DEAD


@each(
    "policy, delays",
    [
        (KindPolicy(), [10, 20, 40, 50]),
        (KindPolicy(backoff_base_ms=7), [7, 14, 28, 50]),
        (KindPolicy(backoff_base_ms=70), [70, 70, 70, 70]),
        (KindPolicy(backoff_factor=1), [10, 10, 10, 10]),
        (KindPolicy(backoff_cap_ms=15), [10, 15, 15, 15]),
        (KindPolicy(backoff_cap_ms=5), [5, 5, 5, 5]),
        (KindPolicy(backoff_base_ms=30, backoff_cap_ms=20), [30, 30, 30, 30]),
        (KindPolicy(backoff_base_ms=30, backoff_cap_ms=80, backoff_factor=3), [30, 80, 80, 80]),
    ],
)
@pytest.mark.parametrize("by", ["fail", "reap"])
def test_a_kinds_back_off(opened: Open, clock: ManualClock, policy: KindPolicy, delays: list[int], by: str) -> None:
    """An override of the base is base and at-least-cap; failure and expiry alike."""
    queue = opened(backoff=Backoff(base_ms=10, factor=2, cap_ms=50), kinds={"x": policy}, max_attempts=9)
    queue.enqueue(A, "x", None)
    found = []
    for _ in delays:
        held = lease(queue)
        if by == "fail":
            queue.fail(held, "x")
        else:
            clock.advance(TTL)
            queue.reap()
        found.append((queue.get(held.job_id).due_ms or 0) - queue.now_ms())
        clock.advance(found[-1])
    assert delays == found


def test_the_longest_family_wins_and_its_gaps_are_queue_wide(opened: Open) -> None:
    """A field that the winning entry leaves open is the queue's, not that of a shorter family."""
    queue = opened(
        lease_ttl_ms=1_000,
        kinds={"a:*": KindPolicy(lease_ttl_ms=7, max_attempts=1), "a:b:*": KindPolicy(max_attempts=2)},
    )
    held = leased(queue, kind="a:b:c")
    assert (held.deadline_ms, queue.fail(held, "x")) == (START_MS + 1_000, State.FAILED)
