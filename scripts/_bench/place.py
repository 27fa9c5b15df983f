"""Where a run keeps its databases, how it opens queues there, and how it fills them."""

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Literal
from uuid import UUID

from telha_jobs import Clock, JobQueue, NewJob, QueueConfig
from telha_jobs.clock import SystemClock
from telha_jobs.store.database import Database
from telha_jobs.store.rocks import RocksStore

SCOPE = UUID(int=0x51)
KIND = "ingest:document"
OTHER_KIND = "ingest:other"
PAYLOAD = random.Random(7).randbytes(200)
DAY_MS = 86_400_000
LONG_MS = 30 * DAY_MS
"""Longer than any run: such leases do not expire under it."""
FILL_BATCH = 10_000
MANY_SCOPES = 10_000
FRESH_JOBS = 1_000


@dataclass(kw_only=True)
class Place:
    """One run: its directory (on a real disk, so that a sync is one), its sizes, and what it tells on the way."""

    root: Path
    quick: bool = False
    silent: bool = False
    started_s: float = field(default_factory=time.monotonic)
    _made: int = 0
    _kept: dict[str, Path] = field(default_factory=dict)

    def size(self, full: int, quick: int) -> int:
        """The one that this run uses."""
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """A path nobody used."""
        self._made += 1
        return self.root / f"{name}-{self._made}"

    def once(self, name: str, build: Callable[[Path], None]) -> Path:
        """A database that several cases use: built by whoever needs it first, with nobody inside between cases."""
        if name not in self._kept:
            path = self.fresh(name)
            self.say(f"build the database {name!r}")
            build(path)
            self._kept[name] = path
        return self._kept[name]

    def say(self, text: str) -> None:
        """Progress, on the error stream: the report is what goes to the other one."""
        if not self.silent:
            print(f"bench: {time.monotonic() - self.started_s:6.1f} s  {text}", file=sys.stderr, flush=True)


def opened(
    path: Path,
    *,
    durability: Literal["sync", "os"] = "os",
    database: type[Database] = Database,
    clock: Clock | None = None,
    config: QueueConfig | None = None,
) -> JobQueue:
    """The queue at `path`, on a storage of one's own if wanted."""
    chosen = QueueConfig(durability=durability, lease_ttl_ms=LONG_MS) if config is None else config
    ticking = SystemClock() if clock is None else clock
    store = RocksStore.open(path, clock=ticking, durability=chosen.durability, database=database)
    try:
        return JobQueue(store, chosen, ticking)
    except BaseException:
        store.close()
        raise


def jobs(number: int, *, scope: UUID = SCOPE, kind: str = KIND) -> Iterator[NewJob]:
    """So many equal jobs."""
    one = NewJob(scope=scope, kind=kind, payload=PAYLOAD)
    return (one for _ in range(number))


def scopes(number: int) -> list[UUID]:
    """So many scopes, none of them `SCOPE`, in no order."""
    return [UUID(bytes=random.Random(index).randbytes(16)) for index in range(number)]


def spread(
    number: int, over: Sequence[UUID], *, kind: str, delay_ms: int | None = None, priorities: Sequence[int] = (128,)
) -> Iterator[NewJob]:
    """`number` jobs, equally many for each scope (what is left over falls away), priorities in turn."""
    share = number // len(over)
    for scope in over:
        equals = [
            NewJob(scope=scope, kind=kind, payload=PAYLOAD, delay_ms=delay_ms, priority=priority)
            for priority in priorities
        ]
        yield from islice(cycle(equals), share)


def fill(queue: JobQueue, many: Iterable[NewJob]) -> int:
    """Enqueue them all, 10,000 a commit; how many there were."""
    left, number = iter(many), 0
    while batch := list(islice(left, FILL_BATCH)):
        queue.enqueue_many(batch)
        number += len(batch)
    return number


def run_through(queue: JobQueue, number: int, *, complete: bool = True) -> None:
    """Lease `number` jobs that are there, 1,000 a commit, and complete them if wanted."""
    for start in range(0, number, 1_000):
        leases = queue.lease_batch("filler", min(1_000, number - start))
        if complete:
            queue.complete_many([(lease, None) for lease in leases])


def build_others(place: Place) -> Path:
    """A million urgent jobs of another kind over 10,000 scopes, and 1,000 of the usual one in one scope."""

    def build(path: Path) -> None:
        with opened(path) as queue:
            number, where = place.size(1_000_000, 50_000), scopes(place.size(MANY_SCOPES, MANY_SCOPES // 20))
            fill(queue, spread(number, where, kind=OTHER_KIND, priorities=(0,)))
            fill(queue, jobs(FRESH_JOBS))

    return place.once("others", build)


def build_later(place: Place) -> Path:
    """A million jobs for tomorrow, urgent ones and equals, over 100 scopes; and 1,000 due ones in one of the 100."""

    def build(path: Path) -> None:
        with opened(path) as queue:
            number, where = place.size(1_000_000, 50_000), [*scopes(99), SCOPE]
            fill(queue, spread(number, where, kind=KIND, delay_ms=DAY_MS, priorities=(0, 128)))
            fill(queue, jobs(FRESH_JOBS))

    return place.once("later", build)
