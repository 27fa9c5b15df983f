"""Reports about leases: rescuers, heartbeats, dead workers, the last attempt, retries, shutdowns."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import Backoff, JobQueue, ManualClock, QueueConfig, StaleLeaseError, State, WrongStateError
from tests.field_failures.seam import Seam, at_call, at_commit, queue_on
from tests.unit.api.conftest import Open
from tests.unit.api.support import A, B, healthy, lease, leased, refusal, row_of, transitions, unchanged

TTL = 300_000


def test_f1_a_sweep_does_not_overwrite_a_completion(seams: Callable[[], Seam], clock: ManualClock) -> None:
    """F1: the sweep chose an expired lease, the worker completed it, then the sweep wrote: completed wins."""
    seam = seams()
    sweeping = queue_on(seam, clock)
    held = [leased(sweeping) for _ in range(3)]
    worker = queue_on(seam.inner, clock)
    clock.advance(TTL)
    seam.hook = at_commit(lambda: worker.complete(held[1], "done"))
    report = sweeping.reap()
    seam.hook = None
    assert (report.requeued, report.died, report.more) == (2, 0, False)
    found = sweeping.get(held[1].job_id)
    assert (found.state, found.result, found.attempts) == (State.COMPLETED, "done", 0)
    assert transitions(sweeping, held[1].job_id) == ["enqueued", "leased", "completed"]
    healthy(sweeping)


@pytest.mark.parametrize("act", ["complete", "fail", "extend", "release", "cancel"])
def test_f1_whatever_came_first_wins(seams: Callable[[], Seam], clock: ManualClock, act: str) -> None:
    """F1, its whole kind: every move that a worker or operator can slip in before the sweep's write is kept."""
    seam = seams()
    sweeping = queue_on(seam, clock)
    held = leased(sweeping)
    other = queue_on(seam.inner, clock)
    clock.advance(TTL)
    moves: dict[str, Callable[[], Any]] = {
        "complete": lambda: other.complete(held),
        "fail": lambda: other.fail(held, "x"),
        "extend": lambda: other.extend("w", [held]),
        "release": lambda: other.release(held),
        "cancel": lambda: other.cancel(held.job_id),
    }
    seam.hook = at_commit(moves[act])
    report = sweeping.reap()
    seam.hook = None
    assert (report.requeued, report.died) == (0, 0)
    last = {"complete": "completed", "fail": "failed", "extend": "leased", "release": "reaped", "cancel": "cancelled"}
    assert last[act] == transitions(sweeping, held.job_id)[-1]
    healthy(sweeping)


@pytest.mark.parametrize("order", ["beat first", "sweep first"])
def test_f2_a_heartbeat_at_the_deadline(queue: JobQueue, clock: ManualClock, order: str) -> None:
    """F2: interval and timeout were equal. At the deadline exactly, beat or sweep comes first: one holder each time."""
    held = leased(queue)
    clock.advance(TTL)
    if order == "beat first":
        assert queue.extend("w", [held])[0].status == "extended"
        assert queue.reap().requeued == 0
        assert queue.lease_next("another") is None
        queue.complete(held)
        return
    assert queue.reap().requeued == 1
    assert queue.extend("w", [held])[0].status == "stale"
    clock.advance(10_000)
    again = lease(queue)
    assert queue.extend("w", [held])[0].status == "stale"
    refusal(StaleLeaseError, lambda: queue.complete(held))
    queue.complete(again)


def test_f3_a_restarted_worker_does_not_keep_its_predecessors_jobs(queue: JobQueue, clock: ManualClock) -> None:
    """F3: a worker died, another of the same name beat for its own jobs: the dead one's lease expires in time."""
    old = leased(queue)
    clock.advance(TTL // 2)
    new = leased(queue)
    assert (old.worker, new.worker) == ("w", "w")
    for _ in range(3):
        queue.extend("w", [new])
    clock.advance(TTL // 2)
    queue.extend("w", [new])
    assert queue.reap().requeued == 1
    assert [queue.get(one.job_id).state for one in (old, new)] == [State.PENDING, State.LEASED]


def test_f5_a_pending_job_cannot_be_submitted(queue: JobQueue) -> None:
    """F5: failing a job that was not leased put it in two indexes. Here: stale, and the row is the same to the byte."""
    held = leased(queue)
    queue.release(held)
    before = row_of(queue, held.job_id)
    for call in (
        lambda: queue.complete(held),
        lambda: queue.fail(held, "x"),
        lambda: queue.fail(held, "x", retryable=False),
        lambda: queue.release(held),
    ):
        with unchanged(queue):
            refusal(StaleLeaseError, call)
    with unchanged(queue):
        assert queue.extend("w", [held])[0].status == "stale"
    assert before == row_of(queue, held.job_id)


def cancel_and_discard(queue: JobQueue, job_id: UUID) -> None:
    """Both, one after the other."""
    queue.cancel(job_id)
    queue.discard(job_id)


RACES: dict[str, tuple[Callable[[JobQueue, UUID], object], Callable[[JobQueue, UUID], object]]] = {
    "cancel within lease": (lambda queue, _: queue.lease_next("w"), lambda queue, job_id: queue.cancel(job_id)),
    "lease within cancel": (lambda queue, job_id: queue.cancel(job_id), lambda queue, _: queue.lease_next("w")),
    "cancel within a batch": (lambda queue, _: queue.lease_batch("w", 3), lambda queue, job_id: queue.cancel(job_id)),
    "cancel and discard within lease": (
        lambda queue, _: queue.lease_next("w"),
        cancel_and_discard,
    ),
}


@pytest.mark.parametrize(("known", "steps"), [(False, 4), (True, 2)], ids=["read from disk", "known"])
@pytest.mark.parametrize("race", RACES)
def test_f6_cancel_racing_a_lease(
    seams: Callable[[], Seam], clock: ManualClock, race: str, known: bool, steps: int
) -> None:
    """F6: a cancel between any two steps of a lease (or the other way round) leaves no dangling entry; sweeps go on.

    Also when the first queue still knows the record from its own commit and reads less of it.
    """
    outer, inner = RACES[race]
    number = 0
    while True:
        number += 1
        seam = seams()
        seam.coarse = True
        first = queue_on(seam, clock)
        job_id = first.enqueue(A, "embed", "x" * 600, idempotency_key="k").job_id
        first.enqueue(B, "embed", None)
        if not known:
            first = queue_on(seam, clock)
        second = queue_on(seam.inner, clock)
        seam.hook, seen = at_call(number, partial(inner, second, job_id))
        outer(first, job_id)
        seam.hook = None
        healthy(first)
        clock.advance(TTL)
        first.reap()
        second.reap()
        healthy(first)
        while first.lease_next("w") is not None:
            pass
        healthy(second)
        if len(seen) < number:
            break
    assert number >= steps


def test_f8_a_job_that_never_reports_dies_after_its_attempts(opened: Open, clock: ManualClock) -> None:
    """F8: only reported failures counted. Expiry counts: dead after exactly three leases, with a growing back-off."""
    queue = opened(max_attempts=3, backoff=Backoff(base_ms=10, factor=4))
    job_id = queue.enqueue(A, "embed", "kills its worker").job_id
    waits = []
    for _ in range(3):
        lease(queue)
        clock.advance(TTL)
        queue.reap()
        found = queue.get(job_id)
        if found.state is State.PENDING:
            waits.append((found.due_ms or 0) - queue.now_ms())
            assert queue.lease_next("w") is None
            clock.advance(waits[-1])
    assert waits == [10, 40]
    found = queue.get(job_id)
    assert (found.state, found.dead_reason, found.attempts) == (State.DEAD, "expired", 3)
    assert [event.detail["reason"] for event in found.events if "reason" in event.detail] == ["expired"] * 3
    assert transitions(queue, job_id).count("leased") == 3
    clock.advance(10**9)
    queue.reap()
    assert queue.lease_next("w") is None


@pytest.mark.parametrize("end", ["reap", "release"])
def test_f9_a_silent_last_attempt_is_death(opened: Open, clock: ManualClock, end: str) -> None:
    """F9: a crash on the last attempt left the job neither runnable nor dead. It is dead, and counted as such."""
    queue = opened(max_attempts=2)
    held = leased(queue)
    queue.fail(held, "x")
    clock.advance(10_000)
    held = lease(queue)
    clock.advance(TTL)
    assert queue.counts()[State.DEAD] == 0
    queue.reap() if end == "reap" else queue.release(held)
    assert (queue.counts()[State.DEAD], sum(queue.counts().values())) == (1, 1)
    healthy(queue)


def test_f10_retry_gives_a_full_budget(opened: Open, clock: ManualClock) -> None:
    """F10: a retried job died within a second, of a counter that was not reset. Here it gets all attempts again."""
    queue = opened(max_attempts=2, backoff=Backoff(base_ms=1, factor=1))
    first = leased(queue)
    for _ in range(2):
        clock.advance(TTL)
        queue.reap()
        clock.advance(1)
        queue.lease_next("w")
    assert queue.get(first.job_id).dead_reason == "expired"
    generation = queue.get(first.job_id).generation
    queue.retry(first.job_id)
    assert queue.get(first.job_id).attempts == 0
    states = []
    for _ in range(2):
        held = lease(queue)
        assert held.generation > generation
        refusal(StaleLeaseError, lambda: queue.complete(first))
        states.append(queue.fail(held, "x"))
        clock.advance(1)
    assert states == [State.FAILED, State.DEAD]


@pytest.mark.parametrize("state", State)
def test_f11_retry_moves_dead_jobs_only(queue: JobQueue, state: State) -> None:
    """F11: "retry all" ran completed jobs again. From every other state it is refused and the row stays as it was."""
    job_id = queue.enqueue(A, "embed", None).job_id
    if state is not State.PENDING:
        held = lease(queue)
        if state is State.COMPLETED:
            queue.complete(held)
        elif state in (State.FAILED, State.DEAD):
            queue.fail(held, "x", retryable=state is State.FAILED)
    if state is State.DEAD:
        queue.retry(job_id)
        assert queue.get(job_id).state is State.PENDING
        return
    with unchanged(queue):
        refusal(WrongStateError, lambda: queue.retry(job_id))


def test_f13_a_submit_after_release_is_stale(queue: JobQueue) -> None:
    """F13: at shutdown jobs were handed out twice. Once released, the old lease can do nothing; the new one can."""
    held = leased(queue)
    queue.release(held)
    again = lease(queue)
    for call in (lambda: queue.complete(held), lambda: queue.fail(held, "x"), lambda: queue.release(held)):
        with unchanged(queue):
            assert refusal(StaleLeaseError, call).why == "superseded"
    queue.complete(again)
    assert queue.get(held.job_id).state is State.COMPLETED


def test_f13_a_release_racing_a_completion_has_one_outcome(seams: Callable[[], Seam], clock: ManualClock) -> None:
    """F13: a release while the completion is under way: whichever commits first is the outcome, the other is stale."""
    for first, second in (("complete", "release"), ("release", "complete")):
        seam = seams()
        queue = queue_on(seam, clock)
        held = leased(queue)
        other = queue_on(seam.inner, clock)
        seam.hook = at_commit(partial(getattr(other, first), held))
        assert refusal(StaleLeaseError, partial(getattr(queue, second), held)).why == f"{first}d"
        seam.hook = None
        assert f"{first}d" == transitions(queue, held.job_id)[-1]
        healthy(queue)


def test_the_default_configuration_is_meant(queue: JobQueue) -> None:
    """The numbers above are those of the defaults."""
    config = QueueConfig()
    assert (config.lease_ttl_ms, config.backoff.base_ms) == (TTL, 10_000)
