"""A sweep's commits are bounded in bytes as well as in jobs: rows may hold results and progress of any size."""

from pathlib import Path

import pytest

from telha_jobs import JobQueue, ManualClock, NewJob, QueueConfig, State
from telha_jobs.engine import sweep
from telha_jobs.store.port import Family, Put
from tests.unit.api.support import START_MS, A, healthy, tamper


@pytest.mark.parametrize("reopened", [False, True], ids=["rows in memory", "rows read"])
def test_a_sweep_over_large_rows_takes_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool
) -> None:
    """Thirty expired leases with 4,000 bytes of progress each, at most 20,000 bytes a commit: six commits, all done."""
    monkeypatch.setattr(sweep, "CHUNK_BYTES", 20_000)
    clock = ManualClock(START_MS)
    queue = _with_progress(tmp_path, clock)
    if reopened:
        queue.close()
        queue = JobQueue.open(tmp_path / "queue", clock=clock)
    with queue:
        clock.advance(300_000)
        before = queue._store.counters.commits
        assert queue.reap().requeued == 30
        assert queue._store.counters.commits - before == 6
        assert queue.counts()[State.PENDING] == 30
        healthy(queue)


def test_a_row_that_fills_a_commit_has_one_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large rows are, a commit handles one, and the sweep goes on behind it."""
    monkeypatch.setattr(sweep, "CHUNK_BYTES", 1)
    clock = ManualClock(START_MS)
    with _with_progress(tmp_path, clock) as queue:
        clock.advance(300_000)
        before = queue._store.counters.commits
        assert queue.reap().requeued == 30
        assert queue._store.counters.commits - before == 30


def test_large_rows_that_cannot_be_read_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go to quarantine, five a commit."""
    monkeypatch.setattr(sweep, "CHUNK_BYTES", 20_000)
    clock = ManualClock(START_MS)
    queue = _with_progress(tmp_path, clock)
    rows = queue._store.scan(Family.JOBS, b"", None, 100)
    queue.close()
    tamper(tmp_path / "queue", *(Put(Family.JOBS, key, value[:-1]) for key, value in rows))
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        clock.advance(300_000)
        before = queue._store.counters.commits
        report = queue.reap()
        assert (report.quarantined, report.more) == (30, False)
        assert queue._store.counters.commits - before == 6
        healthy(queue)


def _with_progress(tmp_path: Path, clock: ManualClock) -> JobQueue:
    queue = JobQueue.open(tmp_path / "queue", clock=clock, config=QueueConfig())
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 30)
    held = queue.lease_batch("w", 30)
    queue.extend("w", held, progress={one.job_id: "x" * 4_000 for one in held})
    return queue
