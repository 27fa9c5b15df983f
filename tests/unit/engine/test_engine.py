"""The engine around an operation: how a sweep that is cut short ends, what observers hear, when polls are woken."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from telha_jobs import Clock, JobNotFoundError, JobQueue, ManualClock, QueueUnavailableError, StaleLeaseError
from telha_jobs.clock import SystemClock
from telha_jobs.engine import engine as engine_module
from telha_jobs.engine import sweep
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.observer import Change, LeaseUse
from telha_jobs.errors import LeaseEnd
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Family
from tests.field_failures.seam import Seam, queue_on
from tests.unit.api.support import MISSING, START_MS, A, lease, refusal


class Here:
    """A queue on a store in memory with a seam before it."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.seam = Seam(MemoryStore.open(MemoryDisk(), clock=self.clock))
        self.queue = queue_on(self.seam, self.clock)

    def expired(self, number: int) -> None:
        """So many leases, and the time when all of them have ended."""
        for _ in range(number):
            self.queue.enqueue(A, "embed", None)
            lease(self.queue)
        self.clock.advance(300_000)


@pytest.fixture
def here() -> Here:
    """An empty queue."""
    return Here()


def gone_at_scan(number: int) -> Callable[[str], None]:
    """A hook that lets the store be gone from its `number`-th scan on."""
    scans: list[str] = []

    def hook(call: str) -> None:
        if call == "scan":
            scans.append(call)
        if len(scans) >= number:
            raise QueueUnavailableError("the store is gone", outcome="not_applied")

    return hook


@pytest.mark.parametrize(("scans", "outcome"), [(2, "not_applied"), (3, "unknown")], ids=["before", "after"])
def test_a_sweep_that_is_cut_short_tells_whether_it_did_anything(
    here: Here, monkeypatch: pytest.MonkeyPatch, scans: int, outcome: str
) -> None:
    """Gone before its first commit nothing was applied; gone after it, nobody can say that nothing was."""
    monkeypatch.setattr(sweep, "CHUNK", 1)
    here.expired(2)
    here.seam.hook = gone_at_scan(scans)
    assert refusal(QueueUnavailableError, here.queue.reap).outcome == outcome


class Listener:
    """An observer that notes what it hears."""

    def __init__(self) -> None:
        self.refusals: list[tuple[LeaseUse, LeaseEnd]] = []
        self.commits: list[tuple[int, int]] = []
        self.beginnings: list[int] = []

    def derived(self, quarantined: int) -> None:
        """It begins."""
        self.beginnings.append(quarantined)

    def committed(self, changes: Sequence[Change], quarantined: int) -> None:
        """A commit."""
        self.commits.append((len(changes), quarantined))

    def refused(self, use: LeaseUse, why: LeaseEnd) -> None:
        """A use of a lease that is not current."""
        self.refusals.append((use, why))

    def __getattr__(self, name: str) -> Any:
        """What else a store tells is passed over."""
        return lambda *_: None


@pytest.fixture
def listener(here: Here) -> Listener:
    """Who listens to the queue."""
    made = Listener()
    here.queue.engine.observe(made)
    return made


def test_observers_hear_of_refused_leases(here: Here, listener: Listener) -> None:
    """Of a refused call's and of those among the outcomes of a bulk call, each once."""
    here.queue.enqueue(A, "embed", None)
    held = lease(here.queue)
    here.queue.release(held)
    refusal(StaleLeaseError, lambda: here.queue.complete(held))
    here.queue.extend("w", [held])
    assert [use for use, _ in listener.refusals] == ["complete", "extend"]


def test_observers_hear_of_no_refusal_when_there_was_none(here: Here, listener: Listener) -> None:
    """Current leases are used in silence."""
    here.queue.enqueue(A, "embed", None)
    held = lease(here.queue)
    here.queue.extend("w", [held])
    here.queue.complete(held)
    assert listener.refusals == []
    assert listener.commits == [(1, 0)] * 4


def test_observers_hear_of_a_conflicting_refusal_once(here: Here, listener: Listener) -> None:
    """What was decided and could not be committed is not told."""
    here.queue.enqueue(A, "embed", None)
    held, other = lease(here.queue), here.queue.enqueue(A, "embed", None)
    current = lease(here.queue)
    assert other.job_id == current.job_id
    here.queue.release(held)
    here.clock.advance(1)
    here.seam.inner.faults.conflict_next(2)  # type: ignore[union-attr]  # it is one in memory
    here.queue.extend("w", [held, current])
    assert [use for use, _ in listener.refusals] == ["extend"]


def woken(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each time that polls are woken."""
    times: list[None] = []
    monkeypatch.setattr(queue.engine._work, "notify_all", lambda: times.append(None))
    return times


def test_a_queue_that_is_shut_refuses_before_its_store_is_closed(here: Here) -> None:
    """A sweep, which looks between its commits, ends there."""
    here.queue.engine.shut()
    refusal(QueueUnavailableError, here.queue.engine.require_open)
    here.seam.require_usable()


def test_nobody_is_woken_when_nobody_waits(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before the first poll nor after it has ended."""
    times = woken(here.queue, monkeypatch)
    here.queue.enqueue(A, "embed", None)
    lease(here.queue, wait_ms=5)
    assert here.queue.lease_next("w", wait_ms=5) is None
    here.queue.enqueue(A, "embed", None)
    assert times == []


def paused(
    here: Here, monkeypatch: pytest.MonkeyPatch, wait_ms: int, times_s: Sequence[float]
) -> list[tuple[float, int]]:
    """A poll that gets nothing, while the clock shows these times: how long it meant to sleep, and how many did."""
    engine, sleeps = here.queue.engine, list[tuple[float, int]]()

    def pause_s(remaining_s: float) -> float:
        sleeps.append((remaining_s, engine._polling))
        return 0.001

    monkeypatch.setattr(engine, "pause_s", pause_s)
    monkeypatch.setattr(engine_module, "monotonic", iter(times_s).__next__)
    assert here.queue.lease_next("w", wait_ms=wait_ms) is None
    return sleeps


def test_a_poll_sleeps_for_what_is_left_of_its_wait(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second before its end it does, at its end it does not."""
    assert paused(here, monkeypatch, 1_500, [0.0, 1.0, 1.5]) == [(0.5, 1)]


def test_a_wait_of_a_millisecond_is_one(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a wait of 0 is none."""
    assert paused(here, monkeypatch, 1, [0.0, 0.0, 1.0]) == [(0.001, 1)]


def test_polls_that_wait_are_counted(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """One while it waits, none afterwards, again and again: writers ask that before they wake anybody."""
    for _ in range(3):
        assert paused(here, monkeypatch, 1_000, [0.0, 0.0, 1.0]) == [(1.0, 1)]
        assert here.queue.engine._polling == 0


class Foreign(Clock):
    """A clock that nobody knows anything about."""

    def wall_ms(self) -> int:
        return START_MS

    def boot_ms(self) -> int:
        return START_MS


def pause_s(clock: Clock, due_ms: int | None, remaining_s: float = 60.0) -> float:
    """How long a poll sleeps on a clock when the next row is due in so many milliseconds."""
    store = MemoryStore.open(MemoryDisk(), clock=ManualClock(START_MS))
    queue = queue_on(store, ManualClock(START_MS))
    if due_ms is not None:
        queue.enqueue(A, "embed", None, delay_ms=due_ms)
    return Engine(store, queue.config, clock).pause_s(remaining_s)


@pytest.mark.parametrize(
    ("clock", "due_ms", "expected"),
    [
        (ManualClock(START_MS), 250, 60.0),
        (SystemClock(), None, 60.0),
        (SystemClock(), 250, 0.25),
        (SystemClock(), 1, 0.001),
        (SystemClock(), 90_000, 60.0),
        (Foreign(), None, 0.05),
        (Foreign(), 20, 0.02),
        (Foreign(), 90_000, 0.05),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Clock) else str(value),
)
def test_a_poll_sleeps_until_the_next_row_is_due(clock: Clock, due_ms: int | None, expected: float) -> None:
    """At most for what is left of its wait; under a clock that is moved by hand for all of it."""
    assert pause_s(clock, due_ms) == expected


def test_what_is_derived_is_derived_once(here: Here) -> None:
    """At open: neither a look nor a commit nor a refusal nor work that changed no row is a reason to do it again."""
    engine, derived = here.queue.engine, here.queue.engine._shared
    here.queue.counts()
    here.queue.enqueue(A, "embed", None)
    refusal(JobNotFoundError, lambda: here.queue.cancel(MISSING))
    here.queue.lease_next("w")
    engine.rewrite(lambda store: store.sequence)
    assert engine.read(lambda shared: shared) is derived


def test_what_is_out_of_step_is_derived_anew_once(here: Here) -> None:
    """By the next call, whatever it is; the one after it finds it so."""
    engine, derived = here.queue.engine, here.queue.engine._shared
    engine._in_step = False
    anew = engine.read(lambda shared: shared)
    assert anew is not derived
    assert engine.read(lambda shared: shared) is anew


def test_work_behind_the_engine_is_seen_by_whoever_comes_next(here: Here) -> None:
    """Rows that it wrote, whether it came to its end or broke."""
    other = queue_on(here.seam, here.clock)

    def broken(_: object) -> None:
        other.enqueue(A, "embed", 2)
        raise ZeroDivisionError

    here.queue.engine.rewrite(lambda _: other.enqueue(A, "embed", 1))
    assert lease(here.queue).payload == 1
    with pytest.raises(ZeroDivisionError):
        here.queue.engine.rewrite(broken)
    assert lease(here.queue).payload == 2


def test_work_that_wrote_nothing_mends_nothing(here: Here) -> None:
    """What was out of step before it stays so until it is derived."""
    derived = here.queue.engine._shared
    here.queue.engine._in_step = False
    here.queue.engine.rewrite(lambda store: store.sequence)
    assert here.queue.engine._shared is not derived


def test_an_observer_learns_how_many_rows_are_in_quarantine(here: Here) -> None:
    """When it begins to listen."""
    here.expired(2)
    values = here.seam.inner._disk.values[Family.JOBS]  # type: ignore[union-attr]  # it is one in memory
    values.update(dict.fromkeys(values, b"bad"))
    queue = queue_on(here.seam, here.clock)  # the other one knows the records
    assert queue.reap().quarantined == 2
    listener = Listener()
    queue.engine.observe(listener)
    queue.engine.observe(None)
    assert listener.beginnings == [2]


def enqueue(queue: JobQueue) -> object:
    """A call that writes."""
    return queue.enqueue(A, "embed", None)


@pytest.mark.parametrize(
    ("call", "act"),
    [("commit", enqueue), ("wait", enqueue), ("scan", JobQueue.list_jobs), ("wait", JobQueue.counts)],
    ids=["a commit", "its sync", "a look", "the sync of what it saw"],
)
def test_a_store_that_fails_wakes_whoever_waits(
    here: Here, monkeypatch: pytest.MonkeyPatch, call: str, act: Callable[[JobQueue], object]
) -> None:
    """Whatever the call was that met it: polls are to learn of it at once."""
    times = woken(here.queue, monkeypatch)

    def gone(*_: object) -> None:
        raise QueueUnavailableError("the store is gone")

    monkeypatch.setattr(here.seam, call, gone)
    refusal(QueueUnavailableError, lambda: act(here.queue))
    assert times
