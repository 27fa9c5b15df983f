"""A queue with metrics, on a clock that moves by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from telha_jobs import JobQueue, Lease, ManualClock, QueueConfig
from telha_jobs.metrics import Metrics

START_MS = 1_700_000_000_000


class Watched(NamedTuple):
    """An open queue, its metrics and its clock."""

    queue: JobQueue
    metrics: Metrics
    clock: ManualClock

    def lease(self) -> Lease:
        """A lease on the next job, which there is."""
        lease = self.queue.lease_next("worker")
        assert lease is not None
        return lease

    def sweep(self, after_ms: int) -> None:
        """A sweep when so much time has passed."""
        self.clock.advance(after_ms)
        self.queue.reap()


Watch = Callable[..., Watched]


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves only by hand."""
    return ManualClock(START_MS)


@pytest.fixture
def watch(tmp_path: Path, clock: ManualClock) -> Iterator[Watch]:
    """Opens the test's queue with metrics; what is open at the end is closed."""
    made: list[Watched] = []

    def open_it(*, kinds_max: int = 100, **config: Any) -> Watched:
        queue = JobQueue.open(tmp_path / "queue", config=QueueConfig(**config), clock=clock)
        made.append(Watched(queue, Metrics(queue, kinds_max=kinds_max), clock))
        return made[-1]

    yield open_it
    for one in made:
        one.metrics.stop()
        one.queue.close()


@pytest.fixture
def watched(watch: Watch) -> Watched:
    """An empty queue with the default settings."""
    return watch()
