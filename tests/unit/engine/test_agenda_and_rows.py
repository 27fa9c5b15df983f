"""The agenda is what the rows say, also after units of work that add and remove rows of one group at once."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from telha_jobs import Backoff, JobQueue, Lease, ManualClock, NewJob, QueueConfig, QueueError, State, arguments
from telha_jobs.engine import enqueue as enqueuing
from telha_jobs.engine import leases as leasing
from telha_jobs.engine import operator
from telha_jobs.engine.commands import Filters
from telha_jobs.engine.unit import Unit
from telha_jobs.keys import ReadyKey, parse_ready_key
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Family, Put
from tests.field_failures.seam import queue_on
from tests.unit.api.support import A, B, C, healthy, row_of, tamper

CONFIG = QueueConfig(lease_ttl_ms=1_000, backoff=Backoff(base_ms=10_000, factor=1), max_attempts=9)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[ManualClock], JobQueue]]:
    """Opens the test's queue."""
    made: list[JobQueue] = []

    def open_it(clock: ManualClock) -> JobQueue:
        made.append(JobQueue.open(tmp_path / "queue", clock=clock, config=CONFIG))
        return made[-1]

    yield open_it
    while made:
        made.pop().close()


def test_a_sweep_that_empties_a_window_keeps_what_it_adds(
    tmp_path: Path, opened: Callable[[ManualClock], JobQueue]
) -> None:
    """Expired leases go behind the window's edge, a bad row leaves the window, all in one commit: none is forgotten.

    The window is then filled from disk, where what this commit adds is not yet.
    """
    clock = ManualClock(1_000_000)
    queue = opened(clock)
    jobs = [queue.enqueue(A, "embed", number).job_id for number in range(33)]
    held = queue.lease_batch("w", 33)
    for one in held[:31]:
        queue.fail(one, "x")
    clock.advance(1_500)
    for one in held[31:]:
        queue.fail(one, "x")
    key, _ = row_of(queue, jobs[31])
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, b"bad"))
    queue = opened(clock)  # the window: jobs 0 to 31; behind its edge: job 32
    queue.cancel(jobs[32])
    clock.advance(8_500)
    assert len(queue.lease_batch("w", 31)) == 31  # the window: job 31, the bad one, not due yet
    clock.advance(1_500)
    report = queue.reap()
    assert (report.requeued, report.quarantined) == (31, 1)
    healthy(queue)
    clock.advance(10_000)
    assert len(queue.lease_batch("w", 99)) == 31
    assert queue.counts()[State.PENDING] == 0


def test_a_commit_that_adds_and_leases_forgets_nothing(opened: Callable[[ManualClock], JobQueue]) -> None:
    """A hundred jobs and forty leases of them in one commit, as a server has it: the other sixty are leased later.

    A window that grew too long is cut back; what is cut off is not on disk yet when the window is filled again.
    """
    queue = opened(ManualClock(1_000_000))
    jobs = [NewJob(scope=A, kind="embed", payload=number) for number in range(100)]
    drafts = arguments.drafts("jobs", jobs, CONFIG, 100)
    (_, early), _ = queue.engine.write_many(
        [
            lambda unit: enqueuing.enqueue(unit, drafts, field="jobs"),
            lambda unit: leasing.grant(unit, "w", 40, Filters(None, None)),
        ]
    )
    leases = [*early, *queue.lease_batch("w", 100)]
    assert list(range(100)) == [lease.payload for lease in leases]


@pytest.mark.parametrize("back", [True, False])
def test_a_commit_that_cancels_and_leases_past_it(opened: Callable[[ManualClock], JobQueue], *, back: bool) -> None:
    """The job's row is still on disk when the window is filled again: it stays away, and a retry brings it back."""
    queue = opened(ManualClock(1_000_000))
    jobs = [queue.enqueue(A, "embed", number).job_id for number in range(12)]
    queue.close()
    queue = opened(ManualClock(1_000_000))
    calls: list[Callable[[Unit], object]] = [
        lambda unit: operator.cancel(unit, jobs[7].bytes),
        lambda unit: leasing.grant(unit, "w", 9, Filters(None, None)),
        lambda unit: operator.retry(unit, jobs[7].bytes),
    ]
    replies, _ = queue.engine.write_many(calls[: 2 + back])
    leases = [*replies[1], *queue.lease_batch("w", 99)]
    expected = [0, 1, 2, 3, 4, 5, 6, 8, 9, *([7] if back else []), 10, 11]
    assert [lease.payload for lease in leases] == expected
    assert queue._engine._shared.orphans_dropped == 0
    healthy(queue)


SCOPES, KINDS = (A, B, C), ("x", "y")


class Storm:
    """Random operations on an in-memory queue, now and then with a conflict or a damaged row."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.disk = MemoryDisk()
        self.store = MemoryStore.open(self.disk, clock=self.clock)
        self.queue = queue_on(self.store, self.clock, CONFIG)
        self.held: list[Lease] = []

    def step(self) -> None:
        """One operation; refusals of bad rows and stale leases are part of it."""
        chance, queue = self.chance, self.queue
        if chance.random() < 0.2:
            chance.choice((self.store.faults.conflict_next, self._unknown))()
        acts: list[tuple[int, Callable[[], object]]] = [
            (4, self._enqueue),
            (4, lambda: self.held.extend(queue.lease_batch("w", chance.choice((1, 2, 5))))),
            (1, lambda: self.held.extend(queue.lease_batch("w", 2, kinds=["x"], scopes=chance.sample(SCOPES, 2)))),
            (2, lambda: queue.release(self._some(), delay_ms=chance.choice((0, 0, 700)))),
            (2, lambda: queue.fail(self._some(), "x")),
            (1, lambda: queue.complete(self._some(), enqueue=[NewJob(scope=B, kind="y", payload=None)])),
            (1, lambda: queue.cancel(chance.choice(queue.list_jobs(state=State.PENDING).jobs).job_id)),
            (3, lambda: self.clock.advance(chance.choice((1, 500, 1_000, 10_000)))),
            (2, lambda: queue.reap(chance.choice((None, 1, 3)))),
            (1, self._damage),
            (2, self._enqueue_and_lease),
            (2, self._cancel_lease_and_retry),
        ]
        with suppress(QueueError, IndexError):
            chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def expected(self, scope: UUID, kind: int) -> bytes | None:
        """The job that has to be leased next, told from the rows of `ready`."""
        rows = [parse_ready_key(key) for key in self.disk.keys[Family.READY]]
        now = self.queue.now_ms()
        due = [row for row in rows if (row.scope, row.kind) == (scope.bytes, kind) and row.due <= now]
        return min(due, key=lambda row: (row.priority, row.due, row.job_id)).job_id if due else None

    def found(self, scope: UUID, kind: int) -> bytes | None:
        """The job that the agenda has next."""
        row = self.queue._engine._shared.agenda.first(frozenset({kind}), frozenset({scope.bytes}))
        return None if row is None else ReadyKey(*row).job_id

    def _unknown(self) -> None:
        self.store.faults.unknown_next(applied=self.chance.random() < 0.5)

    def _enqueue(self) -> None:
        chance = self.chance
        self.queue.enqueue_many(
            NewJob(
                scope=chance.choice(SCOPES),
                kind=chance.choice(KINDS),
                payload=None,
                priority=chance.choice((1, 1, 1, 2)),
                delay_ms=chance.choice((0, 0, 400, 5_000)),
            )
            for _ in range(chance.choice((1, 1, 6)))
        )

    def _enqueue_and_lease(self) -> None:
        jobs = [NewJob(scope=A, kind="x", payload=None, priority=1)] * self.chance.choice((3, 8))
        drafts = arguments.drafts("jobs", jobs, CONFIG, 10)
        number = self.chance.choice((1, 4))
        (_, leases), _ = self.queue.engine.write_many(
            [
                lambda unit: enqueuing.enqueue(unit, drafts, field="jobs"),
                lambda unit: leasing.grant(unit, "w", number, Filters(None, None)),
            ]
        )
        self.held.extend(leases)

    def _cancel_lease_and_retry(self) -> None:
        """A row leaves, others are leased past it, and perhaps it comes back, all in one commit."""
        jobs = self.queue.list_jobs(state=State.PENDING).jobs
        gone, number = self.chance.choice(jobs).job_id.bytes, self.chance.choice((1, 4, 8))
        calls: list[Callable[[Unit], object]] = [
            lambda unit: operator.cancel(unit, gone),
            lambda unit: leasing.grant(unit, "w", number, Filters(None, None)),
            lambda unit: operator.retry(unit, gone),
        ]
        replies, _ = self.queue.engine.write_many(calls[: self.chance.choice((2, 3))])
        self.held.extend(lease for lease in replies[1] if isinstance(lease, Lease))

    def _some(self) -> Lease:
        return self.held.pop(self.chance.choice(range(len(self.held))))

    def _damage(self) -> None:
        key = self.chance.choice(self.disk.keys[Family.JOBS])
        self.disk.values[Family.JOBS][key] = b"bad"


@pytest.mark.parametrize(("window", "room"), [(1, 99), (2, 99), (3, 99), (3, 6)])
def test_the_agenda_has_what_the_rows_say(monkeypatch: pytest.MonkeyPatch, window: int, room: int) -> None:
    """After each of many random steps, for every scope and kind: the first due row, and the scopes of the ring.

    Windows are a few rows small, so that edges are met all the time.
    """
    monkeypatch.setattr("telha_jobs.agenda.WINDOW_ROWS", window)
    monkeypatch.setattr("telha_jobs.recovery.LOADED_ROWS", window)
    monkeypatch.setattr("telha_jobs.agenda.ROWS_MAX", room)
    monkeypatch.setattr("telha_jobs.agenda.KEPT_ROWS", 1)
    for seed in range(8):
        storm = Storm(seed)
        for number in range(150):
            storm.step()
            storm.queue.lease_next("w", kinds=["nobody"])  # time has come to the agenda, too
            numbers = [kind for kind in (1, 2) if kind in storm.queue._engine._shared.kinds.names]
            cases = [(scope, kind) for scope in SCOPES for kind in numbers]
            expected = {case: storm.expected(*case) for case in cases}
            assert expected == {case: storm.found(*case) for case in cases}, f"seed {seed}, step {number}"
            agenda = storm.queue._engine._shared.agenda
            assert agenda._rows == sum(len(group.window) for group in agenda._groups.values())
            ring = agenda.ring()
            assert {scope.bytes for scope, kind in cases if expected[scope, kind]} == set(ring)
            assert len(ring) == len(set(ring))
        storm.store.deliver()
        assert storm.queue._engine._shared.orphans_dropped == 0, f"seed {seed}"
        # A damaged row that nobody has met yet is told as such; apart from those everything is in step.
        assert [problem for problem in storm.queue.check().problems if "cannot be read" not in problem] == []
