"""Many threads on one queue, closing with callers inside, reopening at once, forks, and the reaper's thread."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    InvalidArgumentError,
    JobNotFoundError,
    JobQueue,
    ManualClock,
    NewJob,
    QueueConfig,
    QueueLockedError,
    QueueUnavailableError,
    StaleLeaseError,
    State,
    WrongStateError,
)
from telha_jobs.store.port import Family, Put
from tests.unit.api.conftest import Open
from tests.unit.api.support import MISSING, A, B, C, healthy, lease, leased, refusal, row_of, tamper

REFUSALS = (StaleLeaseError, WrongStateError, JobNotFoundError)


def together(*runs: Callable[[], object]) -> None:
    """Run all at once, each in a thread, and raise what any of them raised."""
    errors: list[BaseException] = []
    began = threading.Barrier(len(runs))

    def guarded(run: Callable[[], object]) -> None:
        try:
            began.wait(10)
            run()
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for error in errors:
        raise error


def until(condition: Callable[[], bool]) -> None:
    """Wait, at most ten seconds, for another thread to get somewhere."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Mixed:
    """A thread that does a bit of everything, from a seed."""

    def __init__(self, queue: JobQueue, clock: ManualClock, seed: int, granted: list[tuple[UUID, int]]) -> None:
        self._queue = queue
        self._clock = clock
        self._random = random.Random(seed)
        self._granted = granted

    def run(self) -> None:
        """120 steps."""
        for _ in range(120):
            with suppress(*REFUSALS):
                self._step()

    def _step(self) -> None:
        queue, roll = self._queue, self._random.randrange(10)
        scope = self._random.choice((A, B, C))
        if roll < 3:
            key = f"k{self._random.randrange(40)}" if roll else None
            queue.enqueue(scope, "embed", "x" * self._random.choice((1, 600)))
            queue.enqueue(scope, "embed", None, idempotency_key=key)
        elif roll < 7:
            self._work(queue.lease_batch("w", self._random.randrange(1, 4)))
        elif roll == 7:
            self._clock.advance(self._random.choice((1, 10_000, 300_000)))
            queue.reap(self._random.choice((None, 1, 5)))
        elif roll == 8:
            jobs = queue.list_jobs(limit=50).jobs
            if jobs:
                job = self._random.choice(jobs)
                self._random.choice((queue.cancel, queue.retry, queue.discard))(job.job_id)
        else:
            assert sum(queue.counts().values()) >= 0
            queue.get(MISSING)

    def _work(self, held: list[Any]) -> None:
        self._granted += [(one.job_id, one.generation) for one in held]
        for one in held:
            verb = self._random.randrange(6)
            if verb == 0:
                self._queue.fail(one, "x", retryable=self._random.random() < 0.8)
            elif verb == 1:
                self._queue.release(one)
            elif verb == 2:
                self._queue.extend("w", [one], progress={one.job_id: 1})
            elif verb == 3:
                self._queue.complete(one, 1, enqueue=[NewJob(scope=B, kind="next", payload=None)])
            elif verb == 4:
                self._queue.complete_many([(one, 2)])


def test_sixteen_threads_of_everything(opened: Open, clock: ManualClock) -> None:
    """No (job, generation) is granted twice, every derived family follows from the rows, and so after reopening."""
    queue = opened(durability="os")
    granted: list[tuple[UUID, int]] = []
    together(*[Mixed(queue, clock, seed, granted).run for seed in range(16)])
    assert list(set(Counter(granted).values())) == [1]
    healthy(queue)
    counts = queue.counts()
    queue.close()
    queue = opened()
    assert counts == queue.counts()
    healthy(queue)


def test_racing_leases_share_no_job(queue: JobQueue) -> None:
    """Eight threads drain one scope: each job goes to one of them."""
    made = {one.job_id for one in queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 400)}
    taken: list[list[UUID]] = [[] for _ in range(8)]

    def drain(mine: list[UUID]) -> None:
        while held := queue.lease_next("w"):
            mine.append(held.job_id)

    together(*[lambda mine=mine: drain(mine) for mine in taken])
    assert sorted(made) == sorted(job_id for mine in taken for job_id in mine)


def test_one_submit_of_many_is_taken(queue: JobQueue) -> None:
    """Eight threads complete one lease with eight results: one of them is told yes, and its result is kept."""
    held = leased(queue)
    told: list[int] = []

    def submit(number: int) -> None:
        try:
            queue.complete(held, number)
        except StaleLeaseError:
            return
        told.append(number)

    together(*[lambda number=number: submit(number) for number in range(8)])
    assert told == [queue.get(held.job_id).result]


def test_reads_beside_writes(queue: JobQueue) -> None:
    """Listings, counts and checks while others write: the check is always clean."""
    done = threading.Event()

    def write() -> None:
        try:
            for _ in range(60):
                held = leased(queue, B)
                queue.complete(held, enqueue=[NewJob(scope=C, kind="embed", payload=None)])
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            healthy(queue)
            assert len(queue.list_jobs(limit=10_000).jobs) <= sum(queue.counts().values())

    together(write, read, read)


# -- closing


def test_a_closed_queue_refuses_everything(queue: JobQueue) -> None:
    """Unavailable before anything else: also with bad arguments; nothing was applied."""
    held = leased(queue)
    queue.close()
    bad: Any = None
    calls: list[Callable[[], object]] = [
        lambda: queue.enqueue(bad, "embed", None),
        lambda: queue.enqueue_many(bad),
        lambda: queue.lease_next(bad),
        lambda: queue.lease_batch("w", 0),
        lambda: queue.extend("w", bad),
        lambda: queue.complete(held),
        lambda: queue.complete_many(bad),
        lambda: queue.fail(held, bad),
        lambda: queue.release(held),
        lambda: queue.reap(0),
        queue.start_reaper,
        lambda: queue.retry(bad),
        lambda: queue.cancel(held.job_id),
        lambda: queue.discard(MISSING),
        lambda: queue.get(MISSING),
        lambda: queue.list_jobs(limit=0),
        queue.counts,
        lambda: queue.check(repair=True),
        queue.now_ms,
        queue.clock_ahead_ms,
    ]
    assert {"not_applied"} == {refusal(QueueUnavailableError, call).outcome for call in calls}


def test_close_twice_is_close_once(queue: JobQueue) -> None:
    """Also from many threads at once."""
    together(*[queue.close] * 4)
    queue.close()


def test_with_closes(tmp_path: Path, clock: ManualClock) -> None:
    """Also when the block raises; the error comes through."""
    with pytest.raises(LookupError), JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        raise LookupError
    refusal(QueueUnavailableError, queue.counts)


def test_close_with_callers_inside(opened: Open) -> None:
    """Each caller is answered or refused, and whatever was answered is there after reopening."""
    queue = opened()
    answered: list[UUID] = []
    outcomes: list[str] = []

    def produce() -> None:
        while True:
            try:
                answered.append(queue.enqueue(A, "embed", None).job_id)
            except QueueUnavailableError as error:
                outcomes.append(error.outcome)
                return

    def close_soon() -> None:
        until(lambda: len(answered) > 50)
        queue.close()

    together(*[produce] * 6, close_soon)
    assert outcomes == ["not_applied"] * 6
    again = opened()
    ids = {job.job_id for job in again.list_jobs(limit=10_000).jobs}
    assert sorted(answered) == sorted(ids)
    healthy(again)


def test_close_does_not_wait_for_a_slow_argument(queue: JobQueue, opened: Open) -> None:
    """A call that is still reading its iterable when the queue closes is refused, and nothing of it is written."""
    inside, go_on = threading.Event(), threading.Event()

    def jobs() -> Any:
        inside.set()
        assert go_on.wait(10)
        yield NewJob(scope=A, kind="embed", payload=None)

    def close() -> None:
        assert inside.wait(10)
        queue.close()
        go_on.set()

    refused: list[QueueUnavailableError] = []
    together(lambda: refused.append(refusal(QueueUnavailableError, lambda: queue.enqueue_many(jobs()))), close)
    left = sum(opened().counts().values())
    assert [error.outcome for error in refused] == ["not_applied"]
    assert left == 0


def closed_mid_sweep(queue: JobQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """Three leases have expired, a sweep handles one a commit, and its second commit starts the thread that closes."""
    for _ in range(3):
        leased(queue)
    clock.advance(300_000)
    monkeypatch.setattr("telha_jobs.engine.sweep.CHUNK", 1)
    closer = threading.Thread(target=queue.close)
    commits: list[object] = []
    real = queue._engine._run

    def run(operation: Any) -> Any:
        commits.append(operation)
        if len(commits) == 2:
            closer.start()
            until(lambda: queue._engine.closing)
        return real(operation)

    monkeypatch.setattr(queue._engine, "_run", run)
    return closer


def test_a_sweep_cut_short_by_a_close_is_unknown(
    queue: JobQueue, opened: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops between two commits, and does not say that nothing was applied."""
    closer = closed_mid_sweep(queue, clock, monkeypatch)
    error = refusal(QueueUnavailableError, queue.reap)
    closer.join(10)
    left = opened().counts()
    assert (error.outcome, left[State.PENDING], left[State.LEASED]) == ("unknown", 2, 1)


def test_close_does_not_wait_for_all_that_is_overdue(
    queue: JobQueue, opened: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reaper stops between two commits too, and that is no error."""
    closer = closed_mid_sweep(queue, clock, monkeypatch)
    queue.start_reaper()
    until(lambda: queue._engine.closing)
    closer.join(10)
    left = opened().counts()
    assert (left[State.PENDING], left[State.LEASED], caplog.text) == (2, 1, "")


def test_a_poll_that_gets_in_during_a_close_is_refused(queue: JobQueue) -> None:
    """It passed the door before the close began and took the lock after it: nobody would wake it any more."""
    refused: list[str] = []

    def poll() -> None:
        refused.append(refusal(QueueUnavailableError, lambda: queue._engine.poll(lambda _: [], 60_000)).outcome)

    queue._engine.shut()
    late = threading.Thread(target=poll, daemon=True)
    late.start()
    late.join(10)
    assert refused == ["not_applied"]


def test_the_same_process_reopens_at_once(opened: Open) -> None:
    """Twenty times, with reads, iterators and errors in between: nothing keeps the lock."""
    ids: list[UUID] = []

    def use(queue: JobQueue) -> None:
        ids.append(queue.enqueue(A, "embed", None).job_id)
        queue.list_jobs(limit=1)
        refusal(JobNotFoundError, lambda: queue.get(MISSING))
        refusal(InvalidArgumentError, lambda: queue.reap(0))
        queue.start_reaper()
        queue.close()

    for _ in range(20):
        use(opened())
    assert ids == [job.job_id for job in opened().list_jobs().jobs]


def test_two_owners_are_one_too_many(queue: JobQueue, opened: Open, tmp_path: Path) -> None:
    """The second is told the path and the remedy; the first goes on."""
    error = refusal(QueueLockedError, opened)
    assert (str(tmp_path / "queue"), True) == (error.path, "close that queue first" in str(error))
    queue.enqueue(A, "embed", None)


# -- forks


def in_child(run: Callable[[], object]) -> int:
    """The exit code of a forked child that runs this and leaves as Python does."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_is_refused(queue: JobQueue) -> None:
    """Every call but close; the parent's queue goes on untouched."""
    held = leased(queue)

    def child() -> None:
        for call in (
            lambda: queue.enqueue(A, "embed", None),
            lambda: queue.get(held.job_id),
            lambda: queue.lease_next("w", wait_ms=60_000),
            queue.counts,
            queue.reap,
            queue.start_reaper,
            queue.now_ms,
        ):
            error = refusal(QueueUnavailableError, call)
            assert error.outcome == "not_applied"
            assert "fork" in str(error)
        queue.close()
        queue.close()

    assert in_child(child) == 0
    queue.complete(held)
    healthy(queue)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_forked_with_callers_inside_is_refused(queue: JobQueue) -> None:
    """Whatever locks other threads held at the fork: the child does not hang."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            queue.enqueue(A, "embed", None)
            queue.lease_next("w", wait_ms=1)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: refusal(QueueUnavailableError, queue.counts)) == 0
            assert in_child(queue.close) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    healthy(queue)


def test_a_forked_child_exits_as_processes_do(tmp_path: Path) -> None:
    """Through the interpreter's own end, with the queue still referred to; the parent then closes cleanly."""
    script = """
import os, sys, warnings
from uuid import UUID
from telha_jobs import JobQueue, QueueUnavailableError
warnings.simplefilter("ignore")
queue = JobQueue.open(sys.argv[1])
queue.start_reaper()
made = queue.enqueue(UUID(int=1), "embed", None)
child = os.fork()
if child == 0:
    try:
        queue.get(made.job_id)
    except QueueUnavailableError:
        sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with queue:
    print(queue.get(made.job_id).state.value, bool(queue.check()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "queue")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("7\npending True\n", "", 0)
    with JobQueue.open(tmp_path / "queue") as queue:
        assert lease(queue).generation == 1


# -- the reaper's thread


def test_the_reaper_runs_only_when_started(queue: JobQueue, clock: ManualClock) -> None:
    """No thread before; one after, however often it is started; none after close."""

    def reapers() -> int:
        return sum(thread.name == "telha-reaper" for thread in threading.enumerate())

    held = leased(queue)
    clock.advance(10_000_000)
    assert (reapers(), queue.get(held.job_id).state) == (0, State.LEASED)
    queue.start_reaper()
    queue.start_reaper()
    together(*[queue.start_reaper] * 4)
    assert reapers() == 1
    until(lambda: queue.get(held.job_id).state is State.PENDING)
    queue.close()
    assert reapers() == 0


def test_the_reaper_sweeps_at_its_interval(opened: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once when it starts, then when the manual clock has moved that far."""
    queue = opened(lease_ttl_ms=5, reaper_interval_ms=1_000)
    swept: list[Any] = []
    real = queue._engine.reap
    monkeypatch.setattr(queue._engine, "reap", lambda limit: swept.append(real(limit)))
    queue.start_reaper()
    until(lambda: len(swept) == 1)
    held = leased(queue)
    clock.advance(999)
    assert queue.get(held.job_id).state is State.LEASED
    clock.advance(1)
    until(lambda: queue.get(held.job_id).state is State.PENDING)


def test_the_reaper_under_the_system_clock(tmp_path: Path) -> None:
    """It sweeps by itself, and close ends it long before its next turn."""
    with JobQueue.open(tmp_path / "queue", config=QueueConfig(lease_ttl_ms=20, reaper_interval_ms=30)) as queue:
        queue.start_reaper()
        held = leased(queue)
        until(lambda: queue.get(held.job_id).attempts == 1)
    with JobQueue.open(tmp_path / "queue", config=QueueConfig(reaper_interval_ms=3_600_000)) as queue:
        queue.start_reaper()


def test_the_reaper_survives_a_bad_row(
    tmp_path: Path, opened: Open, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The row goes to quarantine, the others are swept, and the thread is there for the next ones."""
    queue = opened(lease_ttl_ms=5, reaper_interval_ms=1_000)
    held = [leased(queue) for _ in range(3)]
    key, value = row_of(queue, held[1].job_id)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, value[:-1]))
    queue = opened(lease_ttl_ms=5, reaper_interval_ms=1_000)
    clock.advance(5)
    queue.start_reaper()
    until(lambda: queue.counts()[State.PENDING] == 2)
    assert (held[1].job_id,) == queue.check().quarantined
    late = leased(queue, B)
    clock.advance(1_000)
    until(lambda: queue.get(late.job_id).state is State.PENDING)
    healthy(queue)


def test_the_reaper_survives_whatever_a_sweep_raises(
    queue: JobQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs the error, and sweeps again at its next turn."""
    held = leased(queue)
    sweeps: list[int] = []
    real = queue._engine.reap

    def flawed(limit: int | None) -> Any:
        sweeps.append(1)
        if len(sweeps) == 1:
            raise RuntimeError("a flaw, says the test")
        return real(limit)

    monkeypatch.setattr(queue._engine, "reap", flawed)
    queue.start_reaper()
    until(lambda: len(sweeps) == 1)
    clock.advance(300_000)
    until(lambda: queue.get(held.job_id).state is State.PENDING)
    assert "a sweep failed" in caplog.text


def test_closing_a_queue_with_a_reaper_logs_nothing(
    opened: Open, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An orderly end is no error."""
    for _ in range(20):
        queue = opened(reaper_interval_ms=1)
        queue.start_reaper()
        for _ in range(5):
            clock.advance(1)
        queue.close()
    assert caplog.text == ""
