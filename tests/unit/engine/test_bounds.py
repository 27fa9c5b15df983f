"""How much at once: the bounds themselves, where other tests set smaller ones to get at what happens beyond them."""

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from telha_jobs import JobQueue, ManualClock, NewJob, QueueConfig
from telha_jobs.core.record import Record
from telha_jobs.engine import reader
from telha_jobs.engine.reader import JobFilter
from telha_jobs.engine.sweep import Sweep
from telha_jobs.engine.unit import Unit, Unreadable
from tests.unit.api.support import START_MS, A

MIB = 1024 * 1024


@pytest.fixture
def clock() -> ManualClock:
    """Moves when told to."""
    return ManualClock(START_MS)


@pytest.fixture
def queue(tmp_path: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """Empty, and leases end after a minute."""
    config = QueueConfig(lease_ttl_ms=60_000, lease_batch_max=2_000)
    with JobQueue.open(tmp_path / "queue", clock=clock, config=config) as opened:
        yield opened


def expire(queue: JobQueue, clock: ManualClock, number: int) -> None:
    """So many leases, and the time when all of them have ended."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * number)
    queue.lease_batch("w", number)
    clock.advance(60_000)


@pytest.mark.parametrize(("number", "commits"), [(1_000, 2), (1_001, 3)])
def test_a_commit_of_a_sweep_handles_500_jobs(queue: JobQueue, clock: ManualClock, number: int, commits: int) -> None:
    """Other calls get their turn between them."""
    expire(queue, clock, number)
    before = queue._store.counters.commits
    assert queue.reap().requeued == number
    assert queue._store.counters.commits - before == commits


def test_a_commit_of_a_sweep_ends_with_64_mib_of_rows(
    queue: JobQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows of 64 MiB less a byte, and a byte each, it handles the first two."""
    expire(queue, clock, 4)
    weights, find = chain([64 * MIB - 1], repeat(1)), Unit.find

    def heavy(unit: Unit, job_id: bytes) -> Record | Unreadable | None:
        before, found = unit.bytes_found, find(unit, job_id)
        unit.bytes_found = before + next(weights)
        return found

    monkeypatch.setattr(Unit, "find", heavy)
    assert queue.engine.write(Sweep(clock.wall_ms(), None, 0).chunk).handled == 2


@pytest.mark.parametrize(("number", "ended"), [(255, True), (256, False), (257, False)])
def test_a_look_of_a_listing_is_at_256_ids(queue: JobQueue, number: int, ended: bool) -> None:
    """A listing that is longer takes another look, and lets others in between."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * number)
    everything = JobFilter(None, None, None)
    look = queue.engine.read(lambda shared: reader.look(shared.source(), everything, b"", 1_000))
    assert (len(look.jobs), look.ended) == (min(number, 256), ended)
