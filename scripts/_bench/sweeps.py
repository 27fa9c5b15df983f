"""`reap` when nothing is due, and `counts`, whatever the queue is full of: both must cost what they find, nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from scripts._bench.measure import Figure, Limit, Span, microseconds, timed
from scripts._bench.place import (
    KIND,
    LONG_MS,
    MANY_SCOPES,
    SCOPE,
    Place,
    fill,
    jobs,
    opened,
    run_through,
    scopes,
    spread,
)
from telha_jobs import Backoff, JobQueue, QueueConfig

CALLS = 200
LIMIT = Limit(side="at most", value=50.0)
SHORT_CONFIG = QueueConfig(durability="os", lease_ttl_ms=1, retention_completed_ms=LONG_MS)
"""Leases end at once, so that the timers of those that were completed lie where a sweep looks."""
PURGING_CONFIG = QueueConfig(durability="os", lease_ttl_ms=1, retention_completed_ms=0)
FAILING_CONFIG = QueueConfig(
    durability="os", lease_ttl_ms=LONG_MS, backoff=Backoff(base_ms=LONG_MS, factor=1, cap_ms=LONG_MS)
)


def leased(queue: JobQueue, place: Place) -> None:
    """50,000 leases are out."""
    number = place.size(50_000, 5_000)
    fill(queue, jobs(number))
    run_through(queue, number, complete=False)


def failed(queue: JobQueue, place: Place) -> None:
    """10,000 jobs wait out a back-off."""
    number = place.size(10_000, 1_000)
    fill(queue, jobs(number))
    for lease in queue.lease_batch("filler", number):
        queue.fail(lease, "the disk is full")


def completed(queue: JobQueue, place: Place) -> None:
    """100,000 jobs ended, and the deadlines their leases had have passed since."""
    number = place.size(100_000, 10_000)
    fill(queue, jobs(number))
    run_through(queue, number)


def purged(queue: JobQueue, place: Place) -> None:
    """100,000 jobs ended and were purged."""
    completed(queue, place)
    queue.reap()


def ready(queue: JobQueue, _place: Place) -> None:
    """10,000 scopes have jobs of a kind."""
    fill(queue, spread(MANY_SCOPES, scopes(MANY_SCOPES), kind=KIND))
    fill(queue, jobs(100))


SITUATIONS: list[tuple[str, QueueConfig | None, Callable[[JobQueue, Place], None]]] = [
    ("50,000 leased", None, leased),
    ("10,000 failed", FAILING_CONFIG, failed),
    ("100,000 completed after their deadlines", SHORT_CONFIG, completed),
    ("100,000 purged", PURGING_CONFIG, purged),
    ("10,000 scopes ready", None, ready),
]


@dataclass(kw_only=True)
class Sweeps:
    """Every situation: a sweep, and the counts of all, of a scope, of a kind and of a family."""

    name: str = "sweep"
    about: str = "reap with nothing due, and counts"
    rounds: int | None = None
    _queues: dict[str, JobQueue] = field(default_factory=dict)
    _spans: dict[str, list[Span]] = field(default_factory=dict)

    def prepare(self, place: Place) -> None:
        for name, config, build in SITUATIONS:
            # Not opened again before the rounds: what was deleted is still in memory, where a scan is slowest.
            self._queues[name] = queue = opened(place.fresh("sweep"), config=config)
            build(queue, place)

    def round(self, _place: Place) -> None:
        for name, queue in self._queues.items():
            calls: dict[str, Callable[[], object]] = {
                "reap": queue.reap,
                "counts": queue.counts,
                "counts of a scope": partial(queue.counts, scope=SCOPE),
                "counts of a family": partial(queue.counts, kind="ingest:*"),
            }
            for what, call in calls.items():
                span = timed(lambda call=call: [call() for _ in range(CALLS)])  # type: ignore[misc]  # binds now
                self._spans.setdefault(f"{what}: {name}", []).append(span)

    def figures(self) -> list[Figure]:
        return [microseconds(self.name, name, spans, CALLS, limit=LIMIT) for name, spans in sorted(self._spans.items())]

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()
