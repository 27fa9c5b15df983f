"""Seed §12: contention, poison and stale submits. Each has one more test that shows its alarm to ring."""

from pathlib import Path
from uuid import UUID

import pytest

from telha_jobs import Backoff, JobQueue, LeaseRef, ManualClock, Receipt, StaleLeaseError, State
from tests.harness import contention
from tests.harness.classes import counted
from tests.harness.contention import Grant, Made, contend, judge
from tests.unit.api.conftest import Open
from tests.unit.api.support import A, healthy, lease, leased, refusal, transitions, unchanged

JOBS = 10_000
"""The command's 100,000 take a minute or so: scripts/contention --jobs 100000 --pollers 16."""


@pytest.mark.slow
def test_contention_no_double_lease(tmp_path: Path) -> None:
    """Sixteen pollers on 10,000 jobs: no lease granted twice, no job completed twice, nothing lost, order kept."""
    report = contend(tmp_path / "queue", jobs=JOBS, pollers=16, durability="os", seed=12)
    assert report.problems == ()
    assert report.grants >= JOBS
    assert report.returned > 0
    assert report.left_to_expire > 0


def test_contention_at_sync_shares_syncs(tmp_path: Path) -> None:
    """Eight pollers at durability "sync": the same holds, and there are fewer syncs than commits."""
    with counted("contention") as hits:
        report = contend(tmp_path / "queue", jobs=500, pollers=8, durability="sync", seed=12, hits=hits)
    assert report.problems == ()
    assert 0 < report.syncs < report.commits


def test_poison_dead_letters_after_exactly_max_attempts_with_full_log(opened: Open, clock: ManualClock) -> None:
    """A job that fails or falls silent every time is dead after five leases, and its log tells every one of them."""
    queue = opened(backoff=Backoff(base_ms=10, factor=4))
    job_id = queue.enqueue(A, "ingest:pdf", "poison").job_id
    reasons = []
    for attempt in range(1, 6):
        held = lease(queue)
        assert (attempt, attempt) == (held.attempt, held.generation)
        if attempt % 2:
            reasons.append(f"broken, attempt {attempt}")
            queue.fail(held, reasons[-1])
        else:
            reasons.append("expired")
            clock.advance(300_000)
            queue.reap()
        clock.advance(10 * 4 ** (attempt - 1) - 1)
        assert queue.lease_next("w") is None
        clock.advance(1)
    queue.reap()
    assert queue.lease_next("w") is None
    found = queue.get(job_id)
    assert (found.state, found.dead_reason, found.attempts) == (State.DEAD, "attempts", 5)
    assert queue.counts()[State.DEAD] == 1
    assert reasons == [event.detail["reason"] for event in found.events if "reason" in event.detail]
    once = ["leased", "failed", "promoted", "leased", "reaped"]
    assert ["enqueued", *once, *once, "leased", "dead"] == [event.transition for event in found.events]
    assert [event.detail["generation"] for event in found.events if event.transition == "leased"] == [1, 2, 3, 4, 5]


def test_stale_submit_is_rejected_by_lease_generation(opened: Open, clock: ManualClock) -> None:
    """A reaped worker submits late, while another holds the job: refused, nothing changes, the other completes."""
    queue = opened()
    old = leased(queue)
    clock.advance(300_000)
    assert queue.reap().requeued == 1
    clock.advance(10_000)
    new = lease(queue)
    assert (old.job_id, old.worker, old.generation + 1) == (new.job_id, new.worker, new.generation)
    with unchanged(queue):
        for call in (lambda: queue.complete(old, "late"), lambda: queue.fail(old, "late"), lambda: queue.release(old)):
            error = refusal(StaleLeaseError, call)
            assert (error.why, error.state, error.current_generation) == ("superseded", State.LEASED, 2)
    queue.complete(new, "in time")
    assert queue.get(new.job_id).result == "in time"
    assert transitions(queue, new.job_id).count("completed") == 1
    healthy(queue)


# -- the alarms


def made(number: int, began: int, ended: int) -> Made:
    """A job as its producer was told."""
    return Made(Receipt(UUID(int=number), True, State.PENDING), A, 128, began, ended)


def grant(number: int, began: int, ended: int, generation: int = 1) -> Grant:
    """A lease as its poller was told."""
    return Grant(LeaseRef(UUID(int=number), generation), A, True, began, ended)


def test_the_judge_sees_ids_out_of_order() -> None:
    """A call that ended before another began has the higher id."""
    assert list(contention._ids([made(1, 0, 5), made(2, 3, 9), made(3, 10, 11)])) == []
    assert len(list(contention._ids([made(2, 0, 5), made(1, 6, 9)]))) == 1


def test_the_judge_sees_a_younger_job_granted_first() -> None:
    """Job 1 was there before the grant of job 2 began, and was granted after it had ended."""
    jobs = [made(1, 0, 1), made(2, 2, 3)]
    assert list(contention._order(jobs, [grant(1, 4, 5), grant(2, 6, 7)])) == []
    assert list(contention._order(jobs, [grant(2, 4, 6), grant(1, 5, 7)])) == []
    assert len(list(contention._order(jobs, [grant(2, 4, 5), grant(1, 6, 7)]))) == 1
    assert list(contention._order([made(1, 0, 5), made(2, 2, 3)], [grant(2, 4, 5), grant(1, 6, 7)])) == []


def test_the_judge_sees_doubles_and_losses() -> None:
    """A lease granted twice, a job completed twice, one never completed, one completed by an old lease."""
    jobs, refs = [made(1, 0, 1), made(2, 0, 1)], [LeaseRef(UUID(int=1), 1), LeaseRef(UUID(int=2), 1)]
    grants = [grant(1, 2, 3), grant(2, 2, 3)]
    assert list(contention._amounts(2, jobs, grants, refs)) == []
    assert len(list(contention._amounts(2, jobs, [*grants, grant(1, 2, 3)], refs))) == 1
    assert len(list(contention._amounts(2, jobs, grants, [*refs, refs[0]]))) == 1
    assert len(list(contention._amounts(2, jobs, grants, refs[:1]))) == 1
    assert len(list(contention._amounts(2, jobs, [*grants, grant(2, 4, 5, generation=2)], refs))) == 1
    assert len(list(contention._amounts(3, jobs, grants, refs))) == 1


def test_the_judge_sees_what_a_thread_raised(tmp_path: Path, clock: ManualClock) -> None:
    """A thread's own error is a problem of the run."""
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        run = contention.Run(queue, jobs=1, pollers=1, seed=1)
        run.pollers[0].error = LookupError("says the test")
        assert judge(run) == ["a thread raised LookupError: says the test"]
