"""What metrics count: every move of a job once, after its commit, under bounded labels."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    IdempotencyConflictError,
    JobQueue,
    LeaseRef,
    ManualClock,
    NewJob,
    StaleLeaseError,
    State,
    WrongStateError,
)
from telha_jobs.engine.commands import Ref
from telha_jobs.engine.leases import release
from telha_jobs.engine.submit import Result, complete
from telha_jobs.engine.unit import Unit
from telha_jobs.metrics import snapshot
from telha_jobs.metrics.tally import Tally
from telha_jobs.store.port import Family, Put
from telha_jobs.store.rocks import RocksStore
from tests.unit.metrics.conftest import Watch, Watched
from tests.unit.metrics.support import moved, scraped, table

A, B = UUID(int=0xA), UUID(int=0xB)
TTL_MS = 300_000


def leased(queue: JobQueue, kind: str = "embed") -> Any:
    """A lease on a new job."""
    queue.enqueue(A, kind, None)
    lease = queue.lease_next("worker", kinds=[kind])
    assert lease is not None
    return lease


def expire(queue: JobQueue, clock: ManualClock, kind: str = "embed") -> None:
    """A job dies of an expiry of its only attempt."""
    queue.enqueue(A, kind, None, max_attempts=1)
    assert queue.lease_next("worker", kinds=[kind])
    clock.advance(TTL_MS)
    assert queue.reap().died == 1


def fail_and_lease_again(watched: Watched) -> None:
    """A failed job is leased when its back-off is over."""
    watched.queue.fail(watched.lease(), "no")
    watched.clock.advance(10_000)
    watched.lease()


def fail_and_sweep(watched: Watched) -> None:
    """A failed job's back-off ends by a sweep."""
    watched.queue.fail(watched.lease(), "no")
    watched.sweep(10_000)


def lease_and_sweep(watched: Watched) -> None:
    """A lease expires."""
    watched.lease()
    watched.sweep(TTL_MS)


def jobs(kind: str, state: str) -> tuple[str, tuple[str, ...]]:
    """The key of a sample of `telha_jobs`."""
    return "telha_jobs", (kind, state)


def total(name: str, *labels: str) -> tuple[str, tuple[str, ...]]:
    """The key of a counter's sample."""
    return f"{name}_total", labels


MOVES: dict[str, tuple[Callable[[Watched], object], dict[tuple[str, tuple[str, ...]], float]]] = {
    "enqueue": (
        lambda watched: watched.queue.enqueue_many([NewJob(scope=A, kind="embed", payload=1)] * 3),
        {jobs("embed", "pending"): 3, total("telha_jobs_enqueued", "embed"): 3},
    ),
    "grant": (
        lambda watched: watched.lease(),
        {jobs("embed", "pending"): -1, jobs("embed", "leased"): 1, total("telha_leases_granted", "embed"): 1},
    ),
    "complete": (
        lambda watched: watched.queue.complete(
            watched.lease(),
            enqueue=[NewJob(scope=A, kind="embed", payload=1)],
        ),
        {
            jobs("embed", "completed"): 1,
            total("telha_leases_granted", "embed"): 1,
            total("telha_jobs_completed", "embed"): 1,
            total("telha_jobs_enqueued", "embed"): 1,
        },
    ),
    "extend": (
        lambda watched: watched.queue.extend(
            "worker",
            [watched.lease()],
        ),
        {
            jobs("embed", "pending"): -1,
            jobs("embed", "leased"): 1,
            total("telha_leases_granted", "embed"): 1,
            total("telha_leases_extended", "embed"): 1,
        },
    ),
    "fail": (
        lambda watched: watched.queue.fail(watched.lease(), "no"),
        {
            jobs("embed", "pending"): -1,
            jobs("embed", "failed"): 1,
            total("telha_leases_granted", "embed"): 1,
            total("telha_attempts_failed", "embed"): 1,
        },
    ),
    "reject": (
        lambda watched: watched.queue.fail(
            watched.lease(),
            "no",
            retryable=False,
        ),
        {
            jobs("embed", "pending"): -1,
            jobs("embed", "dead"): 1,
            ("telha_dead_letters", ("embed",)): 1,
            total("telha_jobs_died", "embed", "rejected"): 1,
            total("telha_leases_granted", "embed"): 1,
            total("telha_attempts_failed", "embed"): 1,
        },
    ),
    "release": (
        lambda watched: watched.queue.release(watched.lease()),
        {total("telha_leases_granted", "embed"): 1, total("telha_leases_released", "embed"): 1},
    ),
    "expire": (
        lease_and_sweep,
        {total("telha_leases_granted", "embed"): 1, total("telha_leases_expired", "embed"): 1},
    ),
    "promote by a sweep": (
        fail_and_sweep,
        {
            total("telha_leases_granted", "embed"): 1,
            total("telha_attempts_failed", "embed"): 1,
            total("telha_jobs_promoted", "embed"): 1,
        },
    ),
    "promote by a grant": (
        fail_and_lease_again,
        {
            jobs("embed", "pending"): -1,
            jobs("embed", "leased"): 1,
            total("telha_leases_granted", "embed"): 2,
            total("telha_attempts_failed", "embed"): 1,
            total("telha_jobs_promoted", "embed"): 1,
        },
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_is_counted_once(watched: Watched, move: str) -> None:
    """Each move of a job changes its own counters and gauges, and no others."""
    act, expected = MOVES[move]
    watched.queue.enqueue(A, "embed", None)
    before = scraped(watched.metrics)
    act(watched)
    assert moved(before, scraped(watched.metrics)) == dict(sorted(expected.items()))


def test_f9_expiry_of_the_last_attempt_is_one_dead_letter_more(watched: Watched, clock: ManualClock) -> None:
    """F9: the alerting metric rises by one, as a gauge and as a counter with its reason."""
    before = scraped(watched.metrics)
    expire(watched.queue, clock)
    assert moved(before, scraped(watched.metrics)) == {
        jobs("embed", "dead"): 1,
        ("telha_dead_letters", ("embed",)): 1,
        total("telha_jobs_died", "embed", "expired"): 1,
        total("telha_jobs_enqueued", "embed"): 1,
        total("telha_leases_granted", "embed"): 1,
        total("telha_leases_expired", "embed"): 1,
    }


def test_a_late_release_of_the_last_attempt_is_a_dead_letter(watched: Watched, clock: ManualClock) -> None:
    """A release after the deadline is an expiry, here too."""
    watched.queue.enqueue(A, "embed", None, max_attempts=1)
    lease = watched.lease()
    clock.advance(TTL_MS)
    before = scraped(watched.metrics)
    watched.queue.release(lease)
    assert moved(before, scraped(watched.metrics), "telha_jobs_died") == {
        total("telha_jobs_died", "embed", "expired"): 1
    }


def test_cancelled_jobs_stand_apart(watched: Watched) -> None:
    """A cancelled job is dead and no dead letter: somebody wanted it so."""
    job_id = watched.queue.enqueue(A, "embed", None).job_id
    before = scraped(watched.metrics)
    watched.queue.cancel(job_id)
    assert moved(before, scraped(watched.metrics)) == {
        ("telha_cancelled_jobs", ("embed",)): 1,
        jobs("embed", "dead"): 1,
        jobs("embed", "pending"): -1,
        total("telha_jobs_cancelled", "embed"): 1,
    }


def test_a_dead_letter_leaves_by_retry_discard_and_purge(watch: Watch, clock: ManualClock) -> None:
    """Whatever takes a dead job away lowers the gauge; the counter stays."""
    watched = watch(retention_dead_ms=1_000)
    for _ in range(3):
        expire(watched.queue, clock)
        before = scraped(watched.metrics)
        assert before["telha_dead_letters", ("embed",)] == 1
        [dead] = watched.queue.list_jobs(state=State.DEAD).jobs
        match int(before[total("telha_jobs_died", "embed", "expired")]):
            case 1:
                watched.queue.retry(dead.job_id)
                expected = total("telha_jobs_retried", "embed")
            case 2:
                watched.queue.discard(dead.job_id)
                expected = total("telha_jobs_removed", "embed")
            case _:
                clock.advance(1_000)
                watched.queue.reap()
                expected = total("telha_jobs_removed", "embed")
        after = moved(before, scraped(watched.metrics))
        assert (after["telha_dead_letters", ("embed",)], after[expected]) == (-1, 1)
        assert not any(name.startswith("telha_jobs_died") for name, _ in after)
        for job in watched.queue.list_jobs(state=State.PENDING).jobs:
            watched.queue.cancel(job.job_id)


def test_stale_submits_by_call_and_reason(watched: Watched) -> None:
    """Every use of a lease that is not current is counted once, in singles and in bulk."""
    lease = leased(watched.queue)
    watched.queue.complete(lease, "done")
    never = LeaseRef(lease.job_id, lease.generation + 1)
    before = scraped(watched.metrics)
    for use in (
        lambda: watched.queue.complete(lease, "again"),
        lambda: watched.queue.fail(lease, "no"),
        lambda: watched.queue.release(never),
    ):
        with pytest.raises(StaleLeaseError):
            use()
    watched.queue.complete(lease, "done")  # a repeat is no stale submit
    watched.queue.complete_many([(lease, "again"), (never, None)])
    watched.queue.extend("worker", [lease])
    assert moved(before, scraped(watched.metrics)) == {
        total("telha_stale_submits", "complete", "completed"): 2,
        total("telha_stale_submits", "complete", "never_leased"): 1,
        total("telha_stale_submits", "extend", "completed"): 1,
        total("telha_stale_submits", "fail", "completed"): 1,
        total("telha_stale_submits", "release", "never_leased"): 1,
    }


def flawed(unit: Unit) -> None:
    """A call with a flaw."""
    raise RuntimeError("a flaw of one call")


def refused_late(unit: Unit) -> None:
    """A call that is refused after it has changed something."""
    unit.kind_number("new")
    raise WrongStateError(UUID(int=1), State.DEAD, frozenset({State.PENDING}))


@pytest.mark.parametrize("third", [None, flawed, refused_late])
def test_calls_that_share_a_commit_are_counted_each(watched: Watched, third: Any) -> None:
    """A server's group counts every move and refusal once, also when the group has to be run again, apart."""
    first, second = leased(watched.queue), leased(watched.queue)
    stale = Ref(first.job_id.bytes, first.generation + 1)
    before = scraped(watched.metrics)
    operations: list[Any] = [
        lambda unit: complete(unit, Ref(first.job_id.bytes, first.generation), Result(None, b"\xc0"), ()),
        lambda unit: release(unit, stale, 0),
        *([third] if third else []),
        lambda unit: release(unit, Ref(second.job_id.bytes, second.generation), 0),
    ]
    replies, _ = watched.queue.engine.write_many(operations)
    assert isinstance(replies[1], StaleLeaseError)
    assert moved(before, scraped(watched.metrics)) == {
        jobs("embed", "completed"): 1,
        jobs("embed", "leased"): -2,
        jobs("embed", "pending"): 1,
        total("telha_jobs_completed", "embed"): 1,
        total("telha_leases_released", "embed"): 1,
        total("telha_stale_submits", "release", "never_leased"): 1,
    }


def test_what_was_refused_is_not_counted(watched: Watched) -> None:
    """A call that met a key conflict at its end counts nothing of what it had done before."""
    watched.queue.enqueue(A, "embed", 1, idempotency_key="k")
    before = scraped(watched.metrics)
    with pytest.raises(IdempotencyConflictError):
        watched.queue.enqueue_many(
            [
                NewJob(scope=A, kind="embed", payload=2),
                NewJob(scope=A, kind="embed", payload=2, idempotency_key="k"),
            ]
        )
    assert moved(before, scraped(watched.metrics)) == {}


def test_kinds_past_the_first_share_a_label(watch: Watch) -> None:
    """The first kinds by their numbers have labels of their own; what is left is counted under `other`."""
    watched = watch(kinds_max=2)
    for kind, number in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        watched.queue.enqueue_many([NewJob(scope=A, kind=kind, payload=None)] * number)
    found = scraped(watched.metrics)
    pending = {labels[0]: number for (name, labels), number in found.items() if (name, labels[1:]) == PENDING}
    enqueued = {labels[0]: number for (name, labels), number in found.items() if name == "telha_jobs_enqueued_total"}
    assert pending == enqueued == {"a": 1, "b": 2, "other": 7}


PENDING = ("telha_jobs", ("pending",))


def test_a_kind_called_other_is_counted_there(watched: Watched) -> None:
    """It shares the label, and no series stands twice."""
    watched.queue.enqueue(A, "other", None)
    found = scraped(watched.metrics)
    assert (found[jobs("other", "pending")], found[total("telha_jobs_enqueued", "other")]) == (1, 1)
    names = [(one.name, *one.labels.items()) for family in watched.metrics.collect() for one in family.samples]
    assert len(names) == len(set(names))


def test_the_dead_of_before_are_counted(watch: Watch, clock: ManualClock) -> None:
    """Metrics of a queue that is opened again know its dead letters and its cancelled jobs, by kind."""
    queue = watch().queue
    expire(queue, clock)
    expire(queue, clock, "ingest:pdf")
    queue.cancel(queue.enqueue(B, "embed", None).job_id)
    queue.enqueue(B, "embed", None)
    queue.close()
    found = scraped(watch().metrics)
    told = {(name, *labels): number for (name, labels), number in found.items() if number and "_jobs" not in name}
    assert {key: number for key, number in told.items() if key[0] == "telha_dead_letters"} == {
        ("telha_dead_letters", "embed"): 1,
        ("telha_dead_letters", "ingest:pdf"): 1,
    }
    assert found["telha_cancelled_jobs", ("embed",)] == 1
    assert found[total("telha_jobs_died", "embed", "expired")] == 0


def test_changes_during_the_count_are_counted_once(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the count has passed a row or not, what happens to it meanwhile leaves the right number."""
    monkeypatch.setattr(snapshot, "_STEPS_A_LOOK", 1)
    monkeypatch.setattr(snapshot, "_ROWS_A_STEP", 1)
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        scopes = (B, B, A, A)
        for scope in scopes:
            queue.enqueue(scope, "embed", None, max_attempts=1)
        for lease in queue.lease_batch("worker", 4):
            queue.fail(lease, "no")
        for victim, steps, between in product(queue.list_jobs().jobs, range(10), (0, 1, 2)):
            tally = Tally(kinds_max=9)
            queue.engine.observe(tally)
            look = partial(snapshot.count_dead, tally=tally)
            for _ in range(steps):
                queue.engine.read(look)
            queue.retry(victim.job_id)
            for _ in range(between):
                queue.engine.read(look)
            [lease] = queue.lease_batch("worker", 1)
            queue.fail(lease, "no")
            while not queue.engine.read(look):
                pass
            assert dict(tally.dead.dead) == {1: 4}, (victim.scope, steps, between)


def test_what_is_derived_anew_is_counted_anew(watched: Watched, clock: ManualClock) -> None:
    """After an interrupt nobody told what happened last: the dead and the quarantine are counted again."""
    expire(watched.queue, clock)
    engine = watched.queue.engine
    before = scraped(watched.metrics)
    engine._shared.observer = None  # the call that was interrupted told nobody
    expire(watched.queue, clock)
    engine._in_step = False
    assert watched.queue.counts()[State.DEAD] == 2
    after = scraped(watched.metrics)
    assert moved(before, after, "telha_dead_letters") == {("telha_dead_letters", ("embed",)): 1}


def test_quarantined_rows(watch: Watch, tmp_path: Path, clock: ManualClock) -> None:
    """Rows in quarantine at the open, and those that go there while it is open."""
    queue = watch().queue
    for scope in (A, B):
        queue.enqueue(scope, "embed", None)
    queue.close()
    store = RocksStore.open(tmp_path / "queue", clock=clock)
    [first, second] = [key for key, _ in store.scan(Family.JOBS, b"", None, 9)]
    store.commit([], [Put(Family.JOBS, first, b"no row")], b"token")
    store.close()
    with JobQueue.open(tmp_path / "queue", clock=clock) as middle:
        middle.lease_batch("worker", 1, scopes=[A])
    watched = watch()
    assert scraped(watched.metrics)["telha_quarantined_rows", ()] == 1
    watched.queue._store.commit([], [Put(Family.JOBS, second, b"no row")], b"token")
    assert watched.queue.lease_batch("worker", 1) == []
    assert scraped(watched.metrics)["telha_quarantined_rows", ()] == 2


def test_a_repair_is_seen(watch: Watch, tmp_path: Path, clock: ManualClock) -> None:
    """Rows that a repair moves to quarantine are counted there, and what it derives anew is counted anew."""
    queue = watch().queue
    expire(queue, clock)
    queue.enqueue(B, "embed", None)
    queue.close()
    store = RocksStore.open(tmp_path / "queue", clock=clock)
    [bad] = [key for key, _ in store.scan(Family.JOBS, b"", None, 9) if key.startswith(B.bytes)]
    store.commit([], [Put(Family.JOBS, bad, b"no row")], b"token")
    store.close()
    watched = watch()
    assert scraped(watched.metrics)["telha_quarantined_rows", ()] == 0
    assert watched.queue.check(repair=True)
    found = scraped(watched.metrics)
    assert (found["telha_quarantined_rows", ()], found["telha_dead_letters", ("embed",)]) == (1, 1)


def test_a_queue_without_metrics_tells_nobody(watched: Watched) -> None:
    """After a stop the queue works on and the numbers stand still."""
    watched.queue.enqueue(A, "embed", None)
    watched.metrics.stop()
    before = table(watched.metrics.collect())
    watched.queue.enqueue(A, "embed", None)
    after = table(watched.metrics.collect())
    assert moved(before, after) == {jobs("embed", "pending"): 1}
