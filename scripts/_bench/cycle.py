"""Against bare rocksdict: enqueue, lease and complete, one at a time at "os" and by the hundred at "sync".

*Raw* replays, in the same round and phase by phase, the batches (and syncs) that the same work wrote when it was done
once under the recorder: equal to the queue's in number, operations and sizes. It builds each batch from bytes that lie
ready. The ratio is raw time over queue time: the share of the storage's bare speed that is left.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from scripts._bench.measure import Figure, Limit, Span, microseconds, ratio, timed
from scripts._bench.place import KIND, PAYLOAD, SCOPE, Place, jobs, opened
from scripts._bench.probe import Bare, Tape, recording
from telha_jobs import JobQueue, Lease

PHASES = ("enqueue", "lease", "complete")
Phase = Callable[[], object]


def singles(queue: JobQueue, number: int) -> list[Phase]:
    """The three phases over `number` jobs, one call a job."""
    leases: list[Lease] = []

    def enqueue() -> None:
        for _ in range(number):
            queue.enqueue(SCOPE, KIND, PAYLOAD)

    def lease() -> None:
        leases.extend(one for _ in range(number) if (one := queue.lease_next("worker-1")) is not None)

    def complete() -> None:
        for one in leases:
            queue.complete(one)

    return [enqueue, lease, complete]


def hundreds(queue: JobQueue, number: int) -> list[Phase]:
    """The same, one call a hundred jobs."""
    calls = number // 100
    batches: list[list[Lease]] = []

    def enqueue() -> None:
        for _ in range(calls):
            queue.enqueue_many(jobs(100))

    def lease() -> None:
        batches.extend(queue.lease_batch("worker-1", 100) for _ in range(calls))

    def complete() -> None:
        for batch in batches:
            queue.complete_many([(one, None) for one in batch])

    return [enqueue, lease, complete]


@dataclass(kw_only=True)
class Cycle:
    """The three phases through the queue and through bare rocksdict."""

    name: str
    about: str
    durability: Literal["sync", "os"]
    work: Callable[[JobQueue, int], list[Phase]]
    full: int
    quick: int
    least: tuple[float, float, float]
    rounds: int | None = None
    _jobs: int = 0
    _tapes: list[Tape] = field(default_factory=list)
    _queue: dict[str, list[Span]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    _raw: dict[str, list[Span]] = field(default_factory=lambda: {phase: [] for phase in PHASES})

    def prepare(self, place: Place) -> None:
        self._jobs = place.size(self.full, self.quick)
        path, tape = place.fresh(self.name), Tape()
        queue = opened(path, durability=self.durability, database=recording(tape))
        for phase in self.work(queue, self._jobs):
            start = len(tape)
            phase()
            self._tapes.append(tape[start:])
        queue.close()
        shutil.rmtree(path)

    def round(self, place: Place) -> None:
        mine, bare = place.fresh(self.name), place.fresh(self.name)
        bare.mkdir()
        queue, raw = opened(mine, durability=self.durability), Bare.open(bare)
        phases = self.work(queue, self._jobs)
        for name, phase, tape in zip(PHASES, phases, self._tapes, strict=True):
            replay = partial(raw.play, raw.reel(tape))
            self._queue[name].append(timed(phase))
            self._raw[name].append(timed(replay))
        queue.close()
        raw.close()
        shutil.rmtree(mine)
        shutil.rmtree(bare)

    def figures(self) -> list[Figure]:
        found: list[Figure] = []
        for name, least in zip(PHASES, self.least, strict=True):
            mine, bare = self._queue[name], self._raw[name]
            found += [
                microseconds(self.name, f"{name}, a job", mine, self._jobs),
                microseconds(self.name, f"{name}, a job, raw", bare, self._jobs),
                ratio(self.name, f"{name}: raw / queue", bare, mine, limit=Limit(side="at least", value=least)),
            ]
        return found

    def close(self) -> None:
        self._tapes.clear()


def cycles() -> list[Cycle]:
    """The two cases of this module."""
    return [
        Cycle(
            name="single",
            about='one thread, "os", one job a call, 200-byte payload, against bare rocksdict',
            durability="os",
            work=singles,
            full=4_000,
            quick=1_000,
            least=(0.20, 0.15, 0.15),
        ),
        Cycle(
            name="hundred",
            about='one thread, "sync", a hundred jobs a call, against the same batches and syncs of bare rocksdict',
            durability="sync",
            work=hundreds,
            full=4_000,
            quick=1_000,
            least=(0.25, 0.25, 0.25),
        ),
    ]
