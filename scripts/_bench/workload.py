"""The guard's workload: every operation a fixed number of times, each counted on its own. The same everywhere, always.

Time is a manual clock's, and whatever differs between two runs (ids, tokens) has the same length in both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from scripts._bench.amounts import START_MS, churn, counted_queue, large_payload
from scripts._bench.place import KIND, PAYLOAD, SCOPE, jobs, spread
from scripts._bench.probe import Amounts, Tally
from telha_jobs import JobQueue, Lease, ManualClock, NewJob, State

TIMES = 200
BATCH = 100
CHURN = 5_000
DISTANT_MS = 8 * 86_400_000
"""Past every retention, back-off and lease of the default configuration."""


@dataclass(kw_only=True)
class Counts:
    """By operation: how often it was done, and what all of them together asked the storage for."""

    times: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, Amounts] = field(default_factory=dict)

    def add(self, name: str, times: int, amounts: Amounts) -> None:
        """One operation's."""
        self.times[name], self.amounts[name] = times, amounts


class Counter:
    """Counts operations on one queue."""

    def __init__(self, queue: JobQueue, tally: Tally, counts: Counts) -> None:
        self.queue = queue
        self._tally = tally
        self._counts = counts

    @contextmanager
    def counted(self, name: str, times: int) -> Iterator[None]:
        """`with counter.counted("enqueue", 200):` around 200 of them."""
        with self._tally.counted() as spent:
            yield
        self._counts.add(name, times, spent)

    def each(self, name: str, items: list[Any], action: Callable[[Any], object]) -> None:
        """The action with each item."""
        with self.counted(name, len(items)):
            for item in items:
                action(item)

    def leases(self, number: int) -> list[Lease]:
        """So many, uncounted."""
        return self.queue.lease_batch("worker-1", number)


def measure(root: Path) -> Counts:
    """Everything, in databases below `root`."""
    counts, tally, clock = Counts(), Tally(), ManualClock(START_MS)
    path = root / "operations"
    with tally.counted() as spent:
        queue = counted_queue(path, tally, clock)
    counts.add("open, new", 1, spent)
    counter = Counter(queue, tally, counts)
    queue.enqueue(SCOPE, KIND, PAYLOAD)  # interns the kind
    counter.leases(1)
    _produce(counter)
    _consume(counter)
    _look(counter)
    _mend(counter)
    _sweep(counter, clock)
    with tally.counted() as spent:
        queue.close()
    counts.add("close", 1, spent)
    _open(root / "groups", counts, clock)
    counts.add("1 MiB payload: enqueue, 3 leases, 10 heartbeats, complete", 1, large_payload(root / "payload"))
    for name, amounts in churn(root / "churn", CHURN).items():
        counts.add(f"{CHURN} jobs gone: {name}", 1, amounts)
    return counts


def _produce(counter: Counter) -> None:
    queue, keys = counter.queue, [f"document-{number:04}" for number in range(TIMES)]
    counter.each("enqueue", keys, lambda _: queue.enqueue(SCOPE, KIND, PAYLOAD))
    counter.each("enqueue, with a key", keys, lambda key: queue.enqueue(SCOPE, KIND, PAYLOAD, idempotency_key=key))
    counter.each("enqueue, key known", keys, lambda key: queue.enqueue(SCOPE, KIND, PAYLOAD, idempotency_key=key))
    counter.each("enqueue, for later", keys, lambda _: queue.enqueue(SCOPE, KIND, PAYLOAD, delay_ms=60_000))
    with counter.counted("enqueue_many, 100 jobs a call", 20):
        for _ in range(20):
            queue.enqueue_many(jobs(BATCH))


def _consume(counter: Counter) -> None:
    queue, held = counter.queue, list[Lease]()
    counter.each("lease_next", [None] * TIMES, lambda _: held.append(_taken(queue)))
    counter.each("lease_next, nothing there", [None] * TIMES, lambda _: queue.lease_next("w", kinds=("absent",)))
    counter.each("extend", held, lambda lease: queue.extend("w", [lease]))
    counter.each("extend, with progress", held, lambda lease: queue.extend("w", [lease], progress={lease.job_id: 1}))
    with counter.counted("extend, 200 leases a call", 1):
        queue.extend("w", held)
    counter.each("release", held, queue.release)
    held = counter.leases(TIMES)
    counter.each("complete", held, queue.complete)
    counter.each("complete, repeated", held, queue.complete)
    follow_up = NewJob(scope=SCOPE, kind=KIND, payload=PAYLOAD)
    counter.each(
        "complete, with a follow-up", counter.leases(TIMES), lambda lease: queue.complete(lease, enqueue=[follow_up])
    )
    counter.each("fail", counter.leases(TIMES), lambda lease: queue.fail(lease, "the disk is full"))
    batches: list[list[Lease]] = []
    with counter.counted("lease_batch, 100 jobs a call", 10):
        batches.extend(queue.lease_batch("w", BATCH) for _ in range(10))
    with counter.counted("complete_many, 100 jobs a call", 10):
        for batch in batches:
            queue.complete_many([(lease, None) for lease in batch])


def _look(counter: Counter) -> None:
    queue = counter.queue
    ids = [job.job_id for job in queue.list_jobs(limit=TIMES).jobs]
    counter.each("get", ids, queue.get)
    counter.each("list_jobs, 100 a page", [None] * 10, lambda _: queue.list_jobs(limit=BATCH))
    counter.each("counts", [None] * 10, lambda _: queue.counts(scope=SCOPE))
    counter.each("reap, nothing due", [None] * 10, lambda _: queue.reap())


def _mend(counter: Counter) -> None:
    queue = counter.queue
    pending = [job.job_id for job in queue.list_jobs(state=State.PENDING, limit=BATCH).jobs]
    counter.each("cancel", pending, queue.cancel)
    counter.each("retry", pending, queue.retry)
    for job_id in pending:
        queue.cancel(job_id)
    counter.each("discard", pending, queue.discard)


def _sweep(counter: Counter, clock: ManualClock) -> None:
    """First the leases that ran out and the back-offs that ended, then what retention lets go."""
    queue = counter.queue
    counter.leases(TIMES)
    clock.advance(3_600_000)
    for name in ("reap, leases and back-offs", "reap, completed jobs"):
        with counter.counted(name, 1):
            queue.reap()
        clock.advance(DISTANT_MS)
    counter.each("reap, nothing due, after others", [None] * 10, lambda _: queue.reap())


def _open(path: Path, counts: Counts, clock: ManualClock) -> None:
    """Opening costs what there are groups, not jobs."""
    tally = Tally()
    with counted_queue(path, tally, clock) as queue:
        queue.enqueue_many(spread(2_000, [UUID(int=1 + number) for number in range(20)], kind=KIND))
    with tally.counted() as spent:
        queue = counted_queue(path, tally, clock)
    counts.add("open, 2,000 jobs in 20 groups", 1, spent)
    queue.close()


def _taken(queue: JobQueue) -> Lease:
    lease = queue.lease_next("worker-1")
    if lease is None:
        raise RuntimeError("the workload ran out of jobs: it enqueues fewer than it leases")
    return lease
