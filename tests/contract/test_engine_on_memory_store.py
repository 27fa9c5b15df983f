"""The engine behind the port: on the in-memory store it answers as on RocksDB, whatever a distributed store may do.

Conflicts and commits of unknown outcome are injected at every commit of a scenario in turn. The answers stay the same,
nothing happens twice, the ring keeps its order, and every derived family follows from the rows.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    Backoff,
    JobQueue,
    JobUnreadableError,
    LeaseRef,
    ManualClock,
    NewJob,
    QueueConfig,
    QueueError,
    QueueUnavailableError,
    State,
)
from telha_jobs.engine import leases as leasing
from telha_jobs.engine.commands import Filters
from telha_jobs.engine.engine import Engine
from telha_jobs.store.memory import FaultPlan, MemoryDisk, MemoryStore
from telha_jobs.store.port import Family
from telha_jobs.store.rocks import RocksStore
from tests.contract.rigs import START_MS
from tests.field_failures.seam import Seam, queue_on
from tests.unit.api.support import A, B, C, healthy, lease, leased, refusal

CONFIG = QueueConfig(max_attempts=3, backoff=Backoff(base_ms=10, factor=2), retention_completed_ms=50, lease_ttl_ms=100)

Scenario = Callable[[JobQueue, ManualClock], Iterator[Any]]


class Names:
    """Answers without what is random in them: an id is told by when it was first seen."""

    def __init__(self) -> None:
        self._seen: dict[UUID, int] = {}

    def plain(self, value: Any) -> Any:
        """The answer, as something that can be compared between runs."""
        if isinstance(value, QueueError):
            fields = {name: self.plain(part) for name, part in vars(value).items() if name != "message"}
            return (type(value).__name__, sorted(fields.items(), key=str))
        if isinstance(value, list | tuple):
            return [self.plain(one) for one in value]
        if isinstance(value, UUID):
            return self._seen.setdefault(value, len(self._seen))
        if hasattr(value, "__dataclass_fields__"):
            fields = {name: self.plain(getattr(value, name)) for name in value.__dataclass_fields__}
            return (type(value).__name__, sorted(fields.items(), key=str))
        return value


def life(queue: JobQueue, clock: ManualClock) -> Iterator[Any]:
    """One of everything, over three scopes; each step's answer."""
    plain = Names().plain

    def told(call: Callable[[], Any]) -> Any:
        try:
            return plain(call())
        except QueueError as error:
            return plain(error)

    for scope in (B, A, C):
        yield told(partial(queue.enqueue, scope, "embed", "x" * 600, idempotency_key="k"))
    yield told(lambda: queue.enqueue(A, "embed", "other", idempotency_key="k"))
    yield told(lambda: queue.enqueue_many([NewJob(scope=s, kind="new", payload=n) for n, s in enumerate((A, B, A))]))
    first = queue.lease_batch("w", 4)
    yield plain(first)
    yield told(lambda: queue.extend("w", [*first, first[0]], progress={first[1].job_id: 1}))
    yield told(lambda: queue.complete(first[0], 1, enqueue=[NewJob(scope=C, kind="next", payload=None)]))
    yield told(lambda: queue.complete(first[0], 1, enqueue=[NewJob(scope=C, kind="next", payload=None)]))
    yield told(lambda: queue.fail(first[1], "x"))
    yield told(lambda: queue.release(first[2], delay_ms=3))
    clock.advance(100)
    yield told(queue.reap)
    yield told(lambda: queue.complete(first[3]))
    clock.advance(20)
    second = queue.lease_batch("w", 9)
    yield plain(second)
    yield told(lambda: queue.complete_many([(one, None) for one in (*second[:2], second[0], first[3])]))
    yield told(lambda: queue.fail(second[2], "poison", retryable=False))
    yield told(lambda: queue.cancel(second[3].job_id))
    yield told(lambda: queue.retry(second[2].job_id))
    yield told(lambda: queue.discard(second[3].job_id))
    clock.advance(100)
    yield told(lambda: queue.reap(2))
    yield told(queue.reap)
    clock.advance(50)
    yield told(queue.reap)
    yield told(lambda: queue.lease_batch("w", 9))
    yield told(queue.counts)
    yield [plain(job) for job in queue.list_jobs().jobs]


def on_memory(disk: MemoryDisk | None = None) -> tuple[JobQueue, MemoryStore, ManualClock]:
    """A queue on a new in-memory store."""
    clock = ManualClock(START_MS)
    store = MemoryStore.open(disk or MemoryDisk(), clock=clock)
    seam = Seam(store)
    return queue_on(seam, clock, CONFIG), store, clock


def undisturbed() -> tuple[list[Any], int]:
    """The answers of the scenario when nothing is injected, and how many commits it takes."""
    queue, store, clock = on_memory()
    answers = list(life(queue, clock))
    return answers, store.sequence


def test_the_answers_are_those_of_rocksdb(directory: Path) -> None:
    """Every answer of the scenario, refusals included, and the rows that are left."""
    clock = ManualClock(START_MS)
    store = RocksStore.open(directory / "queue", clock=clock)
    queue = queue_on(store, clock, CONFIG)
    answers = list(life(queue, clock))
    healthy(queue)
    queue.close()
    assert undisturbed()[0] == answers


FAULTS: dict[str, Callable[[FaultPlan], None]] = {
    "conflict": lambda faults: faults.conflict_next(),
    "three conflicts": lambda faults: faults.conflict_next(3),
    "unknown, applied": lambda faults: faults.unknown_next(applied=True),
    "unknown, not applied": lambda faults: faults.unknown_next(applied=False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_commit_changes_no_answer(fault: str) -> None:
    """Injected before the n-th commit, for every n: same answers, same rows, families in step, nothing twice."""
    expected, commits = undisturbed()
    for number in range(commits):
        queue, store, clock = on_memory()
        answers = list(faulty_life(queue, store, clock, number, FAULTS[fault]))
        assert expected == answers, f"at commit {number}"
        store.deliver()
        healthy(queue)


def faulty_life(
    queue: JobQueue, store: MemoryStore, clock: ManualClock, number: int, inject: Callable[[FaultPlan], None]
) -> Iterator[Any]:
    """The scenario, with the fault injected when `number` commits are done."""
    seam: Any = queue._store
    injected: list[bool] = []

    def hook(call: str) -> None:
        if call == "commit" and store.sequence == number and not injected:
            injected.append(True)
            inject(store.faults)

    seam.hook = hook
    yield from life(queue, clock)
    assert injected
    seam.hook = None


def test_faults_at_random_change_no_answer() -> None:
    """Thirty runs with a fault before every other commit, of any kind."""
    expected, _ = undisturbed()
    for seed in range(30):
        queue, store, clock = on_memory()
        chance = random.Random(seed)
        seam: Any = queue._store

        def hook(call: str, store: MemoryStore = store, chance: random.Random = chance) -> None:
            if call == "commit" and chance.random() < 0.5 and not (store.faults.conflicts or store.faults.unknowns):
                chance.choice(list(FAULTS.values()))(store.faults)

        seam.hook = hook
        assert expected == list(life(queue, clock)), f"seed {seed}"
        seam.hook = None
        store.deliver()
        healthy(queue)


def ring_of(queue: JobQueue) -> list[UUID]:
    """The scopes in the order in which they would be served."""
    return [UUID(bytes=scope) for scope in queue._engine._shared.agenda.ring()]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_ring_keeps_its_order(fault: str) -> None:
    """A grant that is decided again takes the same scope, and no scope loses or gains a place by it."""
    queue, store, _ = on_memory()
    for scope in (C, A, B):
        queue.enqueue_many([NewJob(scope=scope, kind="embed", payload=None)] * 3)
    FAULTS[fault](store.faults)
    assert lease(queue).scope == C
    assert ring_of(queue) == [A, B, C]
    FAULTS[fault](store.faults)
    assert [one.scope for one in queue.lease_batch("w", 4)] == [A, B, C, A]
    assert ring_of(queue) == [B, C, A]
    FAULTS[fault](store.faults)
    queue.enqueue(UUID(int=9), "embed", None)
    assert ring_of(queue) == [B, C, A, UUID(int=9)]


def test_a_refusal_leaves_the_ring_alone() -> None:
    """A bulk call that would have added a scope and is refused: the scope is not in the ring."""
    queue, _, _ = on_memory()
    queue.enqueue(A, "embed", 1, idempotency_key="k")
    jobs = [NewJob(scope=B, kind="embed", payload=None), NewJob(scope=A, kind="embed", payload=2, idempotency_key="k")]
    with pytest.raises(QueueError):
        queue.enqueue_many(jobs)
    assert ring_of(queue) == [A]


def test_a_conflict_in_a_large_batch_loses_no_job() -> None:
    """Three hundred jobs of one group, more than any window: after a rolled back grant all are granted, in order."""
    queue, store, _ = on_memory()
    made = [one.job_id for one in queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 300)]
    store.faults.conflict_next(2)
    taken = [one.job_id for one in queue.lease_batch("w", 90)]
    store.faults.unknown_next(applied=False)
    taken += [one.job_id for one in queue.lease_batch("w", 90)]
    store.faults.conflict_next(1)
    taken += [one.job_id for one in queue.lease_batch("w", 200)]
    assert made == taken
    healthy(queue)


def test_a_sweep_counts_its_work_once() -> None:
    """A conflict in the middle of a sweep of a thousand leases: none is skipped, none counted twice."""
    queue, store, clock = on_memory()
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 1_200)
    queue.lease_batch("w", 1_200)
    clock.advance(100)
    store.faults.conflict_next(1)
    store.faults.unknown_next(applied=False)
    report = queue.reap(1_100)
    assert (report.requeued, report.more) == (1_100, True)
    assert (queue.reap().requeued, queue.counts()[State.PENDING]) == (100, 1_200)
    healthy(queue)


def test_endless_conflicts_end_in_a_refusal() -> None:
    """A store that never lets a commit through: unavailable, not applied; afterwards the queue goes on."""
    queue, store, _ = on_memory()
    store.faults.conflict_next(1_000_000)
    assert refusal(QueueUnavailableError, lambda: queue.enqueue(A, "embed", None)).outcome == "not_applied"
    store.faults.conflicts = 0
    leased(queue)
    healthy(queue)


def test_a_call_meets_99_conflicts_and_goes_on() -> None:
    """At the hundredth in a row it gives up."""
    queue, store, _ = on_memory()
    store.faults.conflict_next(99)
    queue.enqueue(A, "embed", None)
    store.faults.conflict_next(100)
    assert refusal(QueueUnavailableError, lambda: queue.enqueue(A, "embed", None)).outcome == "not_applied"
    assert store.faults.conflicts == 0


def test_a_failed_store_refuses_until_reopened() -> None:
    """As on RocksDB: the outcome of the failed call is unknown, everything after it not applied."""
    disk = MemoryDisk()
    queue, store, clock = on_memory(disk)
    kept = queue.enqueue(A, "embed", None).job_id
    store.faults.fail_next()
    assert refusal(QueueUnavailableError, lambda: queue.enqueue(A, "embed", None)).outcome == "unknown"
    assert refusal(QueueUnavailableError, queue.counts).outcome == "not_applied"
    queue.close()
    queue = queue_on(MemoryStore.open(disk, clock=clock), clock, CONFIG)
    assert [kept] == [job.job_id for job in queue.list_jobs().jobs]
    assert lease(queue).generation == 1 << 32


def test_a_late_commit_does_not_arrive_twice() -> None:
    """An unknown commit that was fenced and decided again never lands behind it, whenever it would arrive."""
    queue, store, _ = on_memory()
    store.faults.unknown_next(applied=False)
    first = queue.enqueue(A, "embed", 1, idempotency_key="k")
    for _ in range(3):
        queue.enqueue(B, "embed", None)
        store.deliver()
    assert queue.counts(scope=A)[State.PENDING] == 1
    assert first.job_id == queue.enqueue(A, "embed", 1, idempotency_key="k").job_id


def test_the_engine_takes_store_config_and_clock() -> None:
    """It needs nothing else: one grant by hand."""
    clock = ManualClock(START_MS)
    store = MemoryStore.open(MemoryDisk(), clock=clock)
    queue_on(store, clock, CONFIG).enqueue(A, "embed", 7)
    engine = Engine(store, CONFIG, clock)
    [granted] = engine.write(lambda unit: leasing.grant(unit, "w", 5, Filters(None, None)))
    assert (granted.scope, granted.payload, granted.generation) == (A, 7, 1)


def test_a_bad_row_is_moved_although_the_commit_conflicts() -> None:
    """The quarantine of a row that a call by id met is decided again like everything else."""
    disk = MemoryDisk()
    queue, store, _ = on_memory(disk)
    held = leased(queue)
    [key] = [key for key, _ in store.scan(Family.JOBS, b"", None, 9)]
    disk.values[Family.JOBS][key] = b"bad"
    store.faults.conflict_next(2)
    refusal(JobUnreadableError, lambda: queue.complete(LeaseRef(held.job_id, 1)))
    assert queue.check().quarantined == (held.job_id,)
    healthy(queue)


def test_waiting_and_conflicts(directory: Path) -> None:
    """A poll whose grant conflicts does not report an empty queue."""
    queue, store, _ = on_memory()
    queue.enqueue(A, "embed", None)
    store.faults.conflict_next(5)
    assert queue.lease_next("w", wait_ms=0) is not None


@pytest.mark.parametrize("name", ["enqueue", "release", "retry"])
def test_an_interrupt_after_the_commit_loses_no_job(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between a commit and its bookkeeping: what was committed is in force for whoever goes on."""
    queue, store, _ = on_memory()
    held = leased(queue)
    if name == "retry":
        queue.cancel(held.job_id)
    calls: dict[str, Callable[[], object]] = {
        "enqueue": partial(queue.enqueue, B, "embed", None),
        "release": partial(queue.release, held),
        "retry": partial(queue.retry, held.job_id),
    }
    real = store.commit

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            calls[name]()
    again = lease(queue)
    assert (again.scope, queue.counts()[State.LEASED]) == ((B, 2) if name == "enqueue" else (A, 1))
    healthy(queue)


def test_an_interrupt_before_the_commit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a lease is being decided: the job is there for the next one, and the ring as a reopening has it."""
    queue, store, _ = on_memory()
    made = queue.enqueue(A, "embed", None)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.lease_next("w")
    assert made.job_id == lease(queue).job_id
    healthy(queue)
