"""A process of its own: `python -m scripts._bench.child`, then one of the following. It prints a JSON object a line.

look PATH            open the queue there: how long it took, and the memory it holds
fill PATH JOBS SCOPES enqueue so many jobs over so many scopes: the memory it holds before and after
die PATH JOBS        open it, enqueue and lease so many jobs, and be killed
long PATH JOBS PARTS so many jobs from end to end, with retention; a line for every part of the run
"""

import ctypes
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from scripts._bench.place import KIND, fill, jobs, opened, scopes, spread
from telha_jobs import JobQueue, ManualClock, QueueConfig
from telha_jobs.store.database import Database

PARTS = 40
"""Parts of a long run: after each it is measured."""
BATCH = 100
BACKLOG = 2_000
"""Jobs that wait at any time of a long run."""
JOBS_PER_MS = 1
"""Of the queue's time, which a long run moves by hand."""
SWEEP_MS = 1_000
POLLS, POLL_RUNS = 50, 3
"""Single leases that are timed together after each part, and how often; the least counts, as all that comes between
makes it more: one disturbed run in a part would look like a trend.
"""
WARMING_JOBS = 20_000
"""By then the records that a queue keeps of the newest jobs are as many as ever."""
OPENS = 3
"""Copies that are opened in each part of a long run."""
_WORK = {"numbers": list(range(100)), "texts": [f"text {number}" for number in range(20)]}
_WORK_TIMES = 50
_COPIES = 10
_MEMORY_PROPERTIES = (
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.estimate-table-readers-mem",
)
_SHARED_PROPERTY = "rocksdb.block-cache-usage"
"""Every family names the one cache they share."""


def rss_bytes() -> int:
    """What this process has in memory, after giving back what it does not use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(path: Path) -> int:
    """What the directory's files hold."""
    total = 0
    for file in path.iterdir():
        with suppress(FileNotFoundError):  # RocksDB removes files as it goes
            total += file.stat().st_size
    return total


def watched(seen: "list[Watched]") -> type["Watched"]:
    """A `Database` that can be asked, later, for the memory RocksDB holds for it."""

    class Seen(Watched):
        """Notes every instance."""

        def get(self, *arguments: Any) -> bytes | None:
            if self not in seen:
                seen.append(self)
            return super().get(*arguments)

    return Seen


class Watched(Database):
    """Knows what RocksDB keeps in memory."""

    def memory_bytes(self) -> int:
        """Memtables and table readers of all families, and their block cache; 0 when closed."""
        families = self._families.values()
        own = sum(family.property_int_value(name) or 0 for family in families for name in _MEMORY_PROPERTIES)
        return own + max((family.property_int_value(_SHARED_PROPERTY) or 0 for family in families), default=0)


def look(path: Path) -> dict[str, Any]:
    """Open, and tell."""
    seen: list[Watched] = []
    database = watched(seen)
    started = time.perf_counter(), time.process_time()
    queue = opened(path, database=database)
    wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    memory = sum(one.memory_bytes() for one in seen)
    found = {
        "open_s": wall,
        "open_cpu_s": cpu,
        "work_us": work_us(),
        "rss": rss_bytes(),
        "rocksdb": memory,
        "jobs": sum_of(queue),
    }
    queue.close()
    return found


def filled(path: Path, number: int, over: int) -> dict[str, Any]:
    """Enqueue, a thousand a call, and tell what memory is held besides RocksDB's, before them and after them."""
    seen: list[Watched] = []
    queue = opened(path, database=watched(seen))
    held = []
    for many in (iter(jobs(WARMING_JOBS)), spread(number, scopes(over), kind=KIND)):
        while batch := list(islice(many, 1_000)):
            queue.enqueue_many(batch)
        held.append(rss_bytes() - sum(one.memory_bytes() for one in seen))
    queue.close()
    return {"jobs": number, "before": held[0], "after": held[1]}


def sum_of(queue: JobQueue) -> int:
    """Jobs in the queue."""
    return sum(queue.counts().values())


def die(path: Path, number: int) -> None:
    """Fill the log as a busy queue would, then end as `kill -9` ends it."""
    queue = opened(path)
    for _ in range(number // 1_000):
        fill(queue, jobs(1_000))
        queue.lease_batch("worker-1", 500)
    os.kill(os.getpid(), signal.SIGKILL)


def work_us() -> float:
    """What a fixed piece of work, not the queue's, costs this thread: the least of three times, in microseconds.

    Where it costs more than before, the machine got slower, and so did whatever was measured beside it.
    """
    costs = []
    for _ in range(3):
        started = time.thread_time()
        for _ in range(_WORK_TIMES):
            json.loads(json.dumps(_WORK))
        costs.append(time.thread_time() - started)
    return min(costs) * 1e6


@dataclass(kw_only=True)
class Aside:
    """What is looked at many times within a part of a long run, and what time the looking took."""

    path: Path
    wall_s: float = 0.0
    cpu_s: float = 0.0
    disk: list[int] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    opens: list[dict[str, Any]] = field(default_factory=list)

    def look(self) -> None:
        """The disk is a saw and the machine's speed comes and goes: a part is told by the means of both."""
        with self._apart():
            self.disk.append(disk_bytes(self.path))
            self.work.append(work_us())

    def open(self) -> None:
        """What an open costs is a saw too: it reads the log, which is nearly empty or nearly full."""
        with self._apart():
            self.opens.append(open_copy(self.path))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.thread_time() - cpu


def long(path: Path, number: int, parts: int = PARTS) -> Iterator[dict[str, Any]]:
    """The whole life of `number` jobs, a hundred a call; retention keeps a fiftieth of them."""
    clock = ManualClock(1_700_000_000_000)
    config = QueueConfig(durability="os", lease_ttl_ms=600_000, retention_completed_ms=number // 50 // JOBS_PER_MS)
    queue = opened(path, config=config, clock=clock)
    fill(queue, jobs(BACKLOG))
    part, swept = number // parts, 0
    for _ in range(parts):
        aside = Aside(path=path)
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in range(1, part // BATCH + 1):
            queue.enqueue_many(jobs(BATCH))
            leases = queue.lease_batch("worker-1", BATCH)
            queue.complete_many([(lease, None) for lease in leases])
            clock.advance(BATCH // JOBS_PER_MS)
            swept += BATCH // JOBS_PER_MS
            if swept >= SWEEP_MS:
                queue.reap()
                swept = 0
                aside.look()
            if batch % (part // BATCH // OPENS or 1) == 0:
                aside.open()
        aside.look()
        wall, cpu = time.perf_counter() - wall - aside.wall_s, time.process_time() - cpu - aside.cpu_s
        poll_us, poll_work_us = polled_us(queue), work_us()
        rss = rss_bytes()
        yield {
            "jobs": part,
            "seconds": wall,
            "cpu_seconds": cpu,
            "work_us": fmean(aside.work),
            "disk": fmean(aside.disk),
            "rss": rss,
            "open_s": fmean(one["open_s"] for one in aside.opens),
            "open_cpu_s": fmean(one["open_cpu_s"] for one in aside.opens),
            "open_work_us": fmean(one["work_us"] for one in aside.opens),
            "poll_us": poll_us,
            "poll_work_us": poll_work_us,
            "kept": sum_of(queue),
            "problems": list(queue.check().problems),
        }
    queue.close()


def polled_us(queue: JobQueue) -> float:
    """What one lease costs this thread, by itself; as many jobs wait afterwards as before."""
    return min(_polled_us(queue) for _ in range(POLL_RUNS))


def _polled_us(queue: JobQueue) -> float:
    started = time.thread_time()
    held = [lease for _ in range(POLLS) if (lease := queue.lease_next("worker-2")) is not None]
    cost = (time.thread_time() - started) / POLLS
    queue.complete_many([(lease, None) for lease in held])
    queue.enqueue_many(jobs(POLLS))
    return cost * 1e6


def open_copy(path: Path) -> dict[str, Any]:
    """Open a copy of the files as they are now, as after a kill at this moment, in a process of its own.

    RocksDB may replace files while they are copied; such a copy does not open, and the next one is taken.
    """
    reason = "none was taken"
    for _ in range(_COPIES):
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=path.parent))
        try:
            for file in sorted(path.iterdir()):
                with suppress(FileNotFoundError):
                    if file.suffix == ".sst":
                        (copy / file.name).hardlink_to(file)
                    elif file.name != "LOCK":
                        shutil.copyfile(file, copy / file.name)
            answer = subprocess.run(
                [sys.executable, "-m", __spec__.name, "look", str(copy)], capture_output=True, text=True, check=False
            )
            if answer.returncode == 0:
                found: dict[str, Any] = json.loads(answer.stdout)
                return found
            reason = answer.stderr
        finally:
            shutil.rmtree(copy, ignore_errors=True)
    raise RuntimeError(f"no copy of {path} would open: {reason}")


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says."""
    match arguments:
        case ["look", path]:
            print(json.dumps(look(Path(path))))
        case ["fill", path, number, over]:
            print(json.dumps(filled(Path(path), int(number), int(over))))
        case ["die", path, number]:
            die(Path(path), int(number))
        case ["long", path, number, *parts]:
            for line in long(Path(path), int(number), *map(int, parts)):
                print(json.dumps(line), flush=True)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
