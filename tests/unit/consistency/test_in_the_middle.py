"""A repair that does not get to its end: killed, refused, closed, or met by another writer."""

import random
import threading
from pathlib import Path

import pytest

from telha_jobs import JobQueue, ManualClock, QueueConfig, QueueUnavailableError, State
from telha_jobs.consistency import check, repair, writer
from telha_jobs.keys import COUNT_PREFIX, parse_job_key, ready_key, timer_key
from telha_jobs.store.memory import MemoryStore
from telha_jobs.store.port import Delete, Family, Put
from tests.field_failures.seam import Seam
from tests.harness.damage import DAMAGE, MISSING, ROW_DAMAGE, START_MS, A, damage, populated
from tests.unit.api.support import lease, refusal, tamper
from tests.unit.consistency.repairs import differences, killed, listed, opened, repaired

TTL = 300_000


@pytest.mark.parametrize("late", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_commit_it_is_finished_by_the_next(
    seed: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first, second, ... commit until it gets through: no job is dropped meanwhile, a queue works on what is
    there, and repairing again ends where one repair would have.
    """
    monkeypatch.setattr(writer, "BATCH_WRITES", 1)
    chance = random.Random(seed)
    hurt = populated(seed, 5)
    damage(hurt.disk, [chance.choice(sorted(ROW_DAMAGE)), *chance.choices(sorted(DAMAGE), k=3)], seed)
    everybody = listed(hurt.pairs())
    whole = hurt.copied()
    commits = repaired(whole).commits
    for dies_at in range(1, commits + 2):
        cut = hurt.copied()
        assert killed(cut, dies_at=dies_at, late=late) == (dies_at <= commits)
        assert set() == everybody - listed(cut.pairs())
        beside = cut.copied()
        with beside.opened() as queue:
            queue.enqueue(A, "embed", None)
            queue.lease_batch("w", 100)
            queue.reap()
        repaired(cut)
        assert differences(whole.pairs(), cut.pairs()) == []
    assert commits > 3


@pytest.mark.parametrize("name", sorted(ROW_DAMAGE))
def test_each_commit_leaves_less_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows alone are damaged: after each commit the check finds no more than before it."""
    monkeypatch.setattr(writer, "BATCH_WRITES", 1)
    hurt = populated(21, 6)
    damage(hurt.disk, [name], 21)
    commits = repaired(hurt.copied()).commits
    found = []
    for dies_at in range(1, commits + 2):
        cut = hurt.copied()
        killed(cut, dies_at=dies_at, late=False)
        store = opened(cut)
        found.append(len(check(store).problems))
        store.close()
    assert found == sorted(found, reverse=True)
    assert found[0] > 0


@pytest.mark.parametrize("state", State)
def test_a_row_takes_its_entries_along(state: State) -> None:
    """One row that cannot be read, whatever state it is in: its first commit leaves nothing wrong."""
    hurt = populated(23, 60)
    [key, *_] = [key for key in hurt.disk.keys[Family.JOBS] if parse_job_key(key).state is state]
    hurt.disk.apply([Put(Family.JOBS, key, b"nonsense")])
    assert killed(hurt, dies_at=1, late=True)
    store = opened(hurt)
    assert check(store).problems == ()
    store.close()


def test_another_writer_ends_it() -> None:
    """Somebody else's commit between what was read and what is written: refused, nothing of it is written, and the
    next repair finishes.
    """
    hurt = populated(2, 3)
    hurt.disk.apply([Put(Family.TIMERS, timer_key(START_MS, MISSING.bytes), b"")])
    store = MemoryStore.open(hurt.disk, clock=ManualClock(hurt.now_ms))
    seam = Seam(store)
    key = timer_key(START_MS, MISSING.bytes)

    def hook(call: str) -> None:
        if call == "commit":
            seam.hook = None
            store.commit([], [Put(Family.IDS, MISSING.bytes, b"theirs")], b"theirs")

    seam.hook = hook
    error = refusal(QueueUnavailableError, lambda: repair(seam))
    assert ("another writer" in str(error), error.outcome, key in hurt.disk.keys[Family.TIMERS]) == (
        True,
        "not_applied",
        True,
    )
    assert repair(seam).report.problems == ()


def test_a_close_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is closed while it repairs itself ends after the commit at hand, and says that part is done."""
    monkeypatch.setattr(writer, "BATCH_WRITES", 1)
    clock = ManualClock(START_MS)
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        ids = [queue.enqueue(A, "embed", number).job_id for number in range(5)]
    tamper(tmp_path / "queue", *(Delete(Family.IDS, job_id.bytes) for job_id in ids))
    queue = JobQueue.open(tmp_path / "queue", clock=clock)
    real = queue._store.commit
    commits: list[int] = []

    def commit(*arguments: object) -> object:
        commits.append(1)
        if len(commits) == 2:
            queue._engine.closing = True  # what `close` does first, before it waits for the lock
        return real(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(queue._store, "commit", commit)
    error = refusal(QueueUnavailableError, lambda: queue.check(repair=True))
    assert ("part of the repair is done" in str(error), error.outcome, len(commits)) == (True, "unknown", 2)
    monkeypatch.undo()
    queue.close()
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        assert queue.check(repair=True).repaired == 3
        assert [job.job_id for job in queue.list_jobs().jobs] == ids


# -- on an open queue


def test_an_open_queue_goes_on_with_what_is_right(tmp_path: Path) -> None:
    """Leases stay current, lost places are found, orphans are gone from memory too, and counts are right."""
    clock = ManualClock(START_MS)
    config = QueueConfig(retention_completed_ms=None)
    with JobQueue.open(tmp_path / "queue", clock=clock, config=config) as queue:
        queue.enqueue(A, "embed", 0)
        held = lease(queue)
        lost = queue.enqueue(A, "embed", 1).job_id
        kept = queue.enqueue(A, "embed", 2).job_id
    store = JobQueue.open(tmp_path / "queue", clock=clock, config=config)._store
    [key] = [key for key, _ in store.scan(Family.READY, b"", None, 9) if key.endswith(lost.bytes)]
    counters = [key for key, _ in store.scan(Family.META, b"count/", b"count0", 9)]
    store.close()
    tamper(
        tmp_path / "queue",
        Delete(Family.READY, key),
        Put(Family.READY, ready_key(A.bytes, 1, 1, 1, MISSING.bytes), b""),
        *(Put(Family.META, counter, b"\0" * 7 + b"\x09") for counter in counters),
    )
    with JobQueue.open(tmp_path / "queue", clock=clock, config=config) as queue:
        assert queue.counts()[State.PENDING] == 9
        report = queue.check(repair=True)
        assert (report.problems, report.repaired, bool(report)) == ((), 4, True)
        assert queue.counts() == dict.fromkeys(State, 0) | {State.PENDING: 2, State.LEASED: 1}
        assert queue.extend("w", [held])[0].status == "extended"
        assert [one.job_id for one in queue.lease_batch("w", 9)] == [lost, kept]
        queue.complete(held)
        clock.advance(TTL)
        assert queue.reap().requeued == 2
        assert queue.check()


def test_a_waiting_poll_gets_what_a_repair_finds(tmp_path: Path) -> None:
    """A job whose place in the order was lost: who waits for work gets it at once."""
    clock = ManualClock(START_MS)
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        lost = queue.enqueue(A, "embed", 1)
        [key] = [key for key, _ in queue._store.scan(Family.READY, b"", None, 9)]
    tamper(tmp_path / "queue", Delete(Family.READY, key))
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        assert queue.lease_next("w") is None
        found: list[object] = []
        waiter = threading.Thread(target=lambda: found.append(queue.lease_next("w", wait_ms=60_000)))
        waiter.start()
        queue.check(repair=True)
        waiter.join(30)
        assert [getattr(one, "job_id", None) for one in found] == [lost.job_id]


def test_a_sound_queue_keeps_its_ring(tmp_path: Path) -> None:
    """A repair with nothing to do derives nothing anew: who stands where in the line is not forgotten."""
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(START_MS)) as queue:
        queue.enqueue(A, "embed", 1)
        shared, commits = queue._engine._shared, queue._store.counters.commits
        assert queue.check(repair=True).repaired == 0
        assert (shared, commits) == (queue._engine._shared, queue._store.counters.commits)


def test_callers_meanwhile_lose_nothing(tmp_path: Path) -> None:
    """Producers and workers run while the queue is repaired again and again: all is done once, and agrees."""
    with JobQueue.open(tmp_path / "queue", config=QueueConfig(durability="os", retention_completed_ms=None)) as queue:
        done: list[object] = []
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set() or queue.counts()[State.PENDING]:
                for held in queue.lease_batch("w", 3):
                    queue.complete(held)
                    done.append(held.job_id)

        def produce() -> None:
            for number in range(150):
                queue.enqueue(A, "embed", number)

        workers = [threading.Thread(target=work) for _ in range(2)]
        producers = [threading.Thread(target=produce) for _ in range(2)]
        for one in (*workers, *producers):
            one.start()
        reports = []
        for round_ in range(6):
            orphan = Put(Family.READY, ready_key(A.bytes, 1, 0, round_, MISSING.bytes), b"")
            timer = Put(Family.TIMERS, timer_key(round_, MISSING.bytes), b"")
            queue._store.commit([], [orphan, timer], b"damage")
            reports.append(queue.check(repair=True))
        for one in producers:
            one.join()
        stop.set()
        for one in workers:
            one.join()
        assert [report.problems for report in reports] == [()] * 6
        assert sum(report.repaired for report in reports) >= 6
        assert (len(done), len(set(done))) == (300, 300)
        assert queue.counts() == dict.fromkeys(State, 0) | {State.COMPLETED: 300}
        assert queue.check()


def test_a_repair_after_a_failure_of_the_storage_is_refused() -> None:
    """Fail closed: the store met an error, and repairing on it would be guessing."""
    hurt = populated(3, 3)
    hurt.disk.apply([Put(Family.TIMERS, b"", b"")])
    store = opened(hurt)
    store.faults.fail_next()
    assert refusal(QueueUnavailableError, lambda: repair(store)).outcome == "unknown"
    assert refusal(QueueUnavailableError, lambda: repair(store)).outcome == "not_applied"


@pytest.mark.parametrize("value", [b"\0" * 7 + b"\x09", b"nonsense", None], ids=["another number", "no number", "gone"])
def test_a_counter_that_changed_under_an_open_queue_is_put_right(tmp_path: Path, value: bytes | None) -> None:
    """A repair starts from what is on disk, not from what the store remembers; counting goes on from there."""
    with JobQueue.open(tmp_path / "queue", config=QueueConfig(durability="os")) as queue:
        for _ in range(5):
            queue.enqueue(A, "embed", None)
        database = queue._store._database
        [key] = [key for key, _ in queue._store.scan(Family.META, COUNT_PREFIX, None, 1)]
        database.write(database.batch([(Family.META, key, value)]))
        report = queue.check(repair=True)
        queue.enqueue(A, "embed", None)
        assert (report.repaired, report.problems, queue.check().problems) == (1, (), ())
        assert queue.counts()[State.PENDING] == 6
