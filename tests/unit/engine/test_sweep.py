"""A sweep over several commits: what it makes due itself is left to the next one, and what it has done is known."""

from collections import Counter
from pathlib import Path

import pytest

from telha_jobs import JobQueue, ManualClock, NewJob, QueueConfig
from telha_jobs.engine import sweep
from telha_jobs.engine.sweep import Chunk, Sweep
from tests.unit.api.support import START_MS, A


@pytest.fixture(autouse=True)
def two_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of a sweep handles two jobs."""
    monkeypatch.setattr(sweep, "CHUNK", 2)


def dying(path: Path, number: int) -> JobQueue:
    """So many leases that have ended, each of a job's only attempt; the dead are kept for no time."""
    clock = ManualClock(START_MS)
    config = QueueConfig(max_attempts=1, retention_dead_ms=0)
    queue = JobQueue.open(path / "queue", clock=clock, config=config)
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * number)
    queue.lease_batch("w", number)
    clock.advance(300_000)
    return queue


@pytest.mark.parametrize("number", [1, 2, 5])
def test_what_a_sweep_makes_due_is_left_to_the_next(tmp_path: Path, number: int) -> None:
    """All die in the first sweep, in however many commits; it says that there is more; the second one removes them."""
    with dying(tmp_path, number) as queue:
        first, second, third = queue.reap(), queue.reap(), queue.reap()
    assert (first.died, first.purged, first.more) == (number, 0, True)
    assert (second.died, second.purged, second.more) == (0, number, False)
    assert (third.purged, third.more) == (0, False)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_limit_holds_over_commits(tmp_path: Path, limit: int) -> None:
    """Of five: as many as were asked for."""
    with dying(tmp_path, 5) as queue:
        report = queue.reap(limit)
    assert (report.died, report.more) == (limit, True)


@pytest.mark.parametrize(("handled", "begun"), [(0, False), (1, True), (2, True)])
def test_a_sweep_has_begun_once_a_commit_handled_something(handled: int, begun: bool) -> None:
    """A commit that found its work done by another writer is none."""
    made = Sweep(START_MS, None, 0)
    assert not made.begun
    made.add(Chunk(Counter(), frozenset(), None, handled, ended=True))
    assert made.begun is begun
