"""`wait_ms`: real time under any clock, and awake at once when there is something to lease."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from telha_jobs import Backoff, Clock, JobQueue, Lease, ManualClock, NewJob, QueueConfig, QueueUnavailableError
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, A, B, leased, refusal

LONG_MS = 60_000
"""Longer than any test may take: whoever gets an answer was woken."""


class Waiter:
    """A thread inside `lease_next`, and its answer."""

    def __init__(self, queue: JobQueue, **filters: Any) -> None:
        self.lease: Lease | None = None
        self.error: Exception | None = None
        self._queue = queue
        self._filters = filters
        self._thread = threading.Thread(target=self._run, daemon=True)  # nobody wakes it on a broken queue
        self._thread.start()
        while not queue._engine._work._waiters:  # type: ignore[attr-defined]  # how a Condition keeps who waits
            assert self._thread.is_alive()
            time.sleep(0.001)

    def _run(self) -> None:
        try:
            self.lease = self._queue.lease_next("waiting", wait_ms=LONG_MS, **self._filters)
        except QueueUnavailableError as error:
            self.error = error

    def answer(self) -> Lease:
        """What it got, within five seconds."""
        self.end()
        assert self.lease is not None
        return self.lease

    def end(self) -> None:
        """Wait for the thread."""
        self._thread.join(5)
        assert not self._thread.is_alive()


def test_without_a_wait_the_answer_is_at_once(queue: JobQueue) -> None:
    """An empty queue says None."""
    began = time.monotonic()
    assert queue.lease_next("w") is None
    assert time.monotonic() - began < 10


def test_a_wait_ends_in_real_time(queue: JobQueue) -> None:
    """Although the manual clock stands still; a batch gets an empty list."""
    began = time.monotonic()
    assert queue.lease_next("w", wait_ms=30) is None
    assert queue.lease_batch("w", 3, wait_ms=30) == []
    assert time.monotonic() - began >= 0.06


def test_a_job_that_is_there_is_not_waited_for(queue: JobQueue) -> None:
    """A long wait with a due job is answered at once; a batch does not wait to be full."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 2)
    assert queue.lease_next("w", wait_ms=LONG_MS) is not None
    assert len(queue.lease_batch("w", 9, wait_ms=LONG_MS)) == 1


def test_enqueue_wakes(queue: JobQueue) -> None:
    """The waiter gets the new job."""
    waiter = Waiter(queue)
    made = queue.enqueue(A, "embed", None)
    assert made.job_id == waiter.answer().job_id


def test_follow_ups_wake(queue: JobQueue) -> None:
    """A completion that creates a job."""
    held = leased(queue)
    waiter = Waiter(queue)
    [made] = queue.complete(held, enqueue=[NewJob(scope=B, kind="embed", payload=None)])
    assert made.job_id == waiter.answer().job_id


def test_release_wakes(queue: JobQueue) -> None:
    """A job given back."""
    held = leased(queue)
    waiter = Waiter(queue)
    queue.release(held)
    assert (held.job_id, 2) == (waiter.answer().job_id, waiter.answer().generation)


def test_retry_wakes(queue: JobQueue) -> None:
    """A dead job made pending."""
    held = leased(queue)
    queue.cancel(held.job_id)
    waiter = Waiter(queue)
    queue.retry(held.job_id)
    assert held.job_id == waiter.answer().job_id


def test_advancing_the_clock_wakes(queue: JobQueue, clock: ManualClock) -> None:
    """A delayed job comes due."""
    made = queue.enqueue(A, "embed", None, delay_ms=500)
    waiter = Waiter(queue)
    clock.advance(500)
    assert made.job_id == waiter.answer().job_id


def test_promotion_wakes(queue: JobQueue, clock: ManualClock) -> None:
    """A failed job whose back-off is over, with the sweep or without."""
    held = leased(queue)
    queue.fail(held, "x")
    waiter = Waiter(queue)
    clock.advance(10_000)
    queue.reap()
    assert waiter.answer().attempt == 2


def test_a_reaped_job_wakes_when_its_back_off_is_over(queue: JobQueue, clock: ManualClock) -> None:
    """The sweep alone makes nothing due."""
    held = leased(queue)
    waiter = Waiter(queue)
    clock.advance(300_000)
    assert queue.reap().requeued == 1
    clock.advance(10_000)
    assert (held.job_id, 2) == (waiter.answer().job_id, waiter.answer().attempt)


def test_a_waiter_gets_only_what_it_asked_for(queue: JobQueue) -> None:
    """By kind and scope; others are passed over, and a kind nobody knew when the wait began is found."""
    waiter = Waiter(queue, kinds=["new:*"], scopes=[B])
    queue.enqueue(A, "new:kind", None)
    queue.enqueue(B, "old", None)
    made = queue.enqueue(B, "new:kind", None)
    assert made.job_id == waiter.answer().job_id


def test_each_job_wakes_one_of_many(queue: JobQueue) -> None:
    """Eight waiters, eight jobs: each gets one."""
    waiters = [Waiter(queue) for _ in range(8)]
    made = [queue.enqueue(A, "embed", None).job_id for _ in range(8)]
    assert sorted(made) == sorted(waiter.answer().job_id for waiter in waiters)


def test_close_refuses_who_waits(queue: JobQueue) -> None:
    """Unavailable, not applied; close returns."""
    waiters = [Waiter(queue) for _ in range(3)]
    queue.close()
    for waiter in waiters:
        waiter.end()
        assert isinstance(waiter.error, QueueUnavailableError)
        assert waiter.error.outcome == "not_applied"


def test_due_time_wakes_under_the_system_clock(tmp_path: Any) -> None:
    """A delayed job is leased when it comes due, long before the wait ends."""
    with JobQueue.open(tmp_path / "queue") as queue:
        made = queue.enqueue(A, "embed", None, delay_ms=60)
        began = time.monotonic()
        held = queue.lease_next("w", wait_ms=LONG_MS)
        assert held is not None
        assert made.job_id == held.job_id
        assert time.monotonic() - began < 10


def test_the_end_of_a_back_off_wakes_under_the_system_clock(tmp_path: Any) -> None:
    """A failed job, without any sweep."""
    with JobQueue.open(tmp_path / "queue", config=QueueConfig(backoff=Backoff(base_ms=50))) as queue:
        queue.fail(leased(queue), "x")
        held = queue.lease_next("w", wait_ms=LONG_MS)
        assert held is not None
        assert held.attempt == 2


def test_a_clock_of_ones_own_is_looked_at_now_and_then(tmp_path: Any) -> None:
    """A clock that is moved behind the queue's back does not leave a waiter asleep."""

    class Mine(Clock):
        ms = START_MS

        def wall_ms(self) -> int:
            return self.ms

        def boot_ms(self) -> int:
            return self.ms

    clock = Mine()
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        made = queue.enqueue(A, "embed", None, delay_ms=3_600_000)
        waiter = Waiter(queue)
        clock.ms += 3_600_000
        assert made.job_id == waiter.answer().job_id


def test_a_failed_store_refuses_who_waits(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call meets the error: an enqueue here."""
    queue = opened()
    _wait_for_failure(queue, monkeypatch, lambda: queue.enqueue(A, "embed", None))


def test_a_store_that_fails_in_a_sweep_refuses_who_waits(
    opened: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep is one of those calls."""
    queue = opened()
    leased(queue)
    clock.advance(300_000)
    _wait_for_failure(queue, monkeypatch, queue.reap)


def _wait_for_failure(queue: JobQueue, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    waiter = Waiter(queue)

    def broken(batch: object) -> None:
        raise OSError("no space left on this device, says the test")

    monkeypatch.setattr(queue._store._database, "write", broken)
    assert refusal(QueueUnavailableError, call).outcome == "unknown"
    waiter.end()
    assert isinstance(waiter.error, QueueUnavailableError)


def test_a_waiter_holds_nobody_up(queue: JobQueue) -> None:
    """While it waits others read, write and sweep."""
    waiter = Waiter(queue, scopes=[B])
    held = leased(queue, A)
    queue.complete(held)
    queue.reap()
    assert queue.check()
    queue.enqueue(B, "embed", None)
    assert waiter.answer().scope == B
