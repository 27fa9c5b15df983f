"""Reports about jobs: pruning, keys, tenants, text that does not decode, listings that skip."""

import itertools
import math
import threading
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    JobQueue,
    ManualClock,
    NewJob,
    State,
)
from tests.unit.api.conftest import Open
from tests.unit.api.support import A, B, healthy, lease, leased, refusal, unchanged

WEEK = 604_800_000


# -- F12: pruning


def test_f12_nothing_alive_is_ever_purged(opened: Open, clock: ManualClock) -> None:
    """F12: pruning removed running jobs. A year later the pending, failed and leased ones are all there."""
    queue = opened(retention_completed_ms=1, retention_dead_ms=1, lease_ttl_ms=100 * WEEK)
    pending = queue.enqueue(A, "embed", None, delay_ms=60 * WEEK).job_id
    failed = leased(queue)
    queue.fail(failed, "x")
    running = leased(queue)
    clock.advance(52 * WEEK)
    assert queue.reap().purged == 0
    assert {pending, failed.job_id, running.job_id} == {job.job_id for job in queue.list_jobs().jobs}


def test_f12_retention_counts_from_the_end(opened: Open, clock: ManualClock) -> None:
    """F12: jobs were aged from their creation. One that waited for a year is kept its whole retention after its end."""
    queue = opened(retention_completed_ms=100)
    held = leased(queue)
    clock.advance(52 * WEEK)
    queue.complete(held)
    clock.advance(99)
    assert queue.reap().purged == 0
    clock.advance(1)
    assert queue.reap().purged == 1


# -- F14, F15: one key, one job


def test_f14_concurrent_enqueues_of_one_key_make_one_job(queue: JobQueue) -> None:
    """F14: two enqueues with one key made two jobs. Eight threads, fifty keys: one id for all, created once."""
    receipts: list[Any] = []
    began = threading.Barrier(8)

    def produce() -> None:
        began.wait(10)
        receipts.extend((n, queue.enqueue(A, "embed", n, idempotency_key=f"k{n}")) for n in range(50))

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(receipts) == 400
    assert {(number, receipt.job_id) for number, receipt in receipts} == {
        (job.payload, job.job_id) for job in queue.list_jobs(limit=999).jobs
    }
    assert sorted(number for number, receipt in receipts if receipt.created) == list(range(50))
    healthy(queue)


def test_f14_concurrent_conflicts_of_one_key_make_one_job(queue: JobQueue) -> None:
    """F14: with different work under the key, one is created and the others are told which job has it."""
    made: list[UUID] = []
    refused: list[UUID] = []
    began = threading.Barrier(8)

    def produce(number: int) -> None:
        began.wait(10)
        try:
            made.append(queue.enqueue(A, "embed", number, idempotency_key="k").job_id)
        except IdempotencyConflictError as error:
            refused.append(error.job_id)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (1, made * 7) == (len(made), refused)


@pytest.mark.parametrize("end", ["dead", "completed"])
def test_f15_an_ended_job_answers_for_its_key(queue: JobQueue, clock: ManualClock, end: str) -> None:
    """F15: a dead job pinned its key and new work vanished silently. The answer names it and its state."""
    held = leased(queue, payload=1, idempotency_key="k")
    if end == "dead":
        queue.fail(held, "x", retryable=False)
    else:
        queue.complete(held)
    receipt = queue.enqueue(A, "embed", 1, idempotency_key="k")
    assert (held.job_id, False, end) == (receipt.job_id, receipt.created, receipt.state.value)
    assert refusal(IdempotencyConflictError, lambda: queue.enqueue(A, "embed", 2, idempotency_key="k")).job_id == (
        held.job_id
    )


@pytest.mark.parametrize("way", ["purge", "discard"])
def test_f15_a_key_is_free_after_the_job(opened: Open, clock: ManualClock, way: str) -> None:
    """F15: once the job is gone, its key can be used for anything."""
    queue = opened(retention_dead_ms=100)
    held = leased(queue, payload=1, idempotency_key="k")
    queue.fail(held, "x", retryable=False)
    if way == "purge":
        clock.advance(100)
        assert queue.reap().purged == 1
    else:
        queue.discard(held.job_id)
    assert queue.enqueue(A, "other", 2, idempotency_key="k").created
    healthy(queue)


# -- F16: one tenant's thousand jobs


def crowd(queue: JobQueue, count: int = 1_000) -> None:
    """A thousand jobs of tenant A."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * count)


def grants_until(queue: JobQueue, scope: UUID) -> int:
    """Grants it takes until the scope is served."""
    for number in itertools.count(1):
        held = lease(queue)
        queue.complete(held)
        if held.scope == scope:
            return number
    raise AssertionError


def test_f16_a_single_job_beside_a_thousand(queue: JobQueue) -> None:
    """F16: B's only job waited behind A's thousand. It is served within two grants."""
    crowd(queue)
    queue.enqueue(B, "embed", None)
    assert grants_until(queue, B) <= 2


def test_f16_with_the_crowd_refilling(queue: JobQueue) -> None:
    """F16: also when A adds a hundred more, urgent ones, between any two grants."""
    crowd(queue)
    queue.enqueue(B, "embed", None, priority=255)
    for _ in range(2):
        queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None, priority=0)] * 100)
        if lease(queue).scope == B:
            return
    pytest.fail("B was not among the first two grants")


def test_f16_after_long_idleness(queue: JobQueue) -> None:
    """F16: also when B had nothing while A was served two hundred times; and it has no claim to more than its turn."""
    queue.enqueue(B, "embed", None)
    assert grants_until(queue, B) == 1
    crowd(queue)
    for _ in range(200):
        assert lease(queue).scope == A
    queue.enqueue_many([NewJob(scope=B, kind="embed", payload=None)] * 3)
    assert grants_until(queue, B) <= 2
    assert [lease(queue).scope for _ in range(4)] == [A, B, A, B]


def test_f16_with_scheduled_jobs(queue: JobQueue, clock: ManualClock) -> None:
    """F16: also when B's job comes due by itself; until then it takes no turn."""
    crowd(queue)
    queue.enqueue(B, "embed", None, delay_ms=1_000)
    assert [lease(queue).scope for _ in range(5)] == [A] * 5
    clock.advance(1_000)
    assert grants_until(queue, B) <= 2


def test_f16_after_a_restart(opened: Open) -> None:
    """F16: also after reopening, at whichever point of the ring it happens."""
    for served in range(3):
        queue = opened()
        crowd(queue)
        for _ in range(served):
            queue.complete(lease(queue))
        queue.enqueue(B, "embed", None)
        queue.close()
        queue = opened()
        assert grants_until(queue, B) <= 2
        queue.close()


# -- F17: text that encodes but does not decode


@pytest.mark.parametrize(
    "payload",
    [math.nan, "bad\ud800", {"deep": [math.nan]}, {"\udc80": 1}, b"ok"],
    ids=["nan", "text", "deep", "key", "ok"],
)
def test_f17_what_would_not_decode_is_refused(queue: JobQueue, payload: Any) -> None:
    """F17: NaN or bad text looped for ever. It round-trips, or is refused with nothing written."""
    if payload == b"ok":
        assert payload == leased(queue, payload=payload).payload
        return
    with unchanged(queue):
        refusal(InvalidArgumentError, lambda: queue.enqueue(A, "embed", payload))
    assert queue.lease_next("w") is None


def test_f17_a_failure_in_bad_text_is_recorded(queue: JobQueue) -> None:
    """F17: an error message with a broken byte in it still fails the job; it is not lost, and does not loop."""
    held = leased(queue)
    assert queue.fail(held, b"caf\xe9 \xff".decode("utf-8", "surrogateescape"), retryable=False) is State.DEAD
    assert queue.get(held.job_id).events[-1].detail["reason"] == "caf\ufffd \ufffd"


# -- F21: listings while jobs move


def test_f21_a_listing_sees_every_job_that_stays_once(queue: JobQueue, clock: ManualClock) -> None:
    """F21: a listing paged by offset skipped half the entries. Here jobs move, come and go between any two pages."""
    made = [queue.enqueue((A, B)[number % 2], "embed", number).job_id for number in range(60)]
    gone: set[UUID] = set()
    seen: list[UUID] = []
    after = None
    for turn in itertools.count():
        page = queue.list_jobs(limit=7, after=after)
        seen += [job.job_id for job in page.jobs]
        after = page.after
        if after is None:
            break
        held = queue.lease_batch("w", 5)
        queue.complete(held[0])
        queue.discard(held[0].job_id)
        gone.add(held[0].job_id)
        queue.fail(held[1], "x")
        queue.release(held[2])
        queue.cancel(held[3].job_id)
        queue.enqueue(A, "embed", f"new {turn}")
        clock.advance(1)
    stayed = [job_id for job_id in made if job_id not in gone]
    assert len(gone) > 5
    assert stayed == [job_id for job_id in seen if job_id in set(stayed)]
    assert len(seen) == len(set(seen))


def test_f21_a_listing_by_state_sees_no_job_twice(queue: JobQueue) -> None:
    """F21: also when each page's jobs leave the state before the next page is asked for."""
    made = [queue.enqueue(A, "embed", number).job_id for number in range(50)]
    seen: list[UUID] = []
    after = None
    while True:
        page = queue.list_jobs(state=State.PENDING, limit=5, after=after)
        for job in page.jobs:
            seen.append(job.job_id)
            queue.cancel(job.job_id)
        after = page.after
        if after is None:
            break
    assert made == seen


def test_a_key_that_was_never_stored_is_nobodys(queue: JobQueue) -> None:
    """A refused enqueue leaves no key that points nowhere."""
    with unchanged(queue):
        refusal(InvalidArgumentError, lambda: queue.enqueue(A, "embed", math.nan, idempotency_key="k"))
    made = queue.enqueue(A, "embed", 1, idempotency_key="k")
    assert made.created
    queue.cancel(made.job_id)
    queue.discard(made.job_id)
    refusal(JobNotFoundError, lambda: queue.get(made.job_id))
