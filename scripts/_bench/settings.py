"""RocksDB's settings beside each other on a churning queue: `python -m scripts._bench.settings [NAME ...]`; with
`--standing` on a queue in which most jobs stay.

The figures of docs/adr/0004-rocksdb-settings.md. Each setting is a `Database` with other options and gets a process of
its own, which takes jobs from end to end with retention, so that all but a fiftieth of what is written is deleted
again. Times are CPU times of the whole process, RocksDB's threads included, so that a busy machine says the same.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from rocksdict import BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, Options

from scripts._bench.child import Watched, disk_bytes, open_copy, rss_bytes
from scripts._bench.place import fill, jobs, opened, run_through
from telha_jobs import Lease, ManualClock, QueueConfig
from telha_jobs.store.port import Family

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
JOBS = 100_000
PARTS = 20
BATCH = 100
BACKLOG = 2_000
SWEEP_MS = 1_000
TIMED = 500

POINTS = (Family.IDS, Family.JOBS, Family.IDEM, Family.PAYLOADS)
"""Families that are asked for single keys."""


class Setting(NamedTuple):
    """What is set beside RocksDB's defaults. `deletions`: so many of a thousand entries, and the table is compacted."""

    log_mib: int = 64
    memtable_mib: int | None = None
    memtables_mib: int | None = None
    cache_mib: int | None = None
    bloom: bool = False
    deletions: int | None = None
    universal: bool = False
    compression: str | None = None

    def of_database(self, options: Options) -> None:
        """Put what holds for all families into `options`."""
        options.set_max_total_wal_size(self.log_mib * MIB)
        if self.memtables_mib is not None:
            options.set_db_write_buffer_size(self.memtables_mib * MIB)

    def of_family(self, options: Options, family: Family, cache: Cache | None) -> None:
        """Put what holds for a family into `options`."""
        table = BlockBasedOptions()
        if cache is not None:
            table.set_block_cache(cache)
        if self.bloom and family in POINTS:
            table.set_bloom_filter(10, False)  # noqa: FBT003  by position only
        options.set_block_based_table_factory(table)
        if self.memtable_mib is not None:
            options.set_write_buffer_size(self.memtable_mib * MIB)
        if self.deletions is not None:
            options.add_compact_on_deletion_collector_factory(1_000, self.deletions, 0.5)
        if self.universal and family in (Family.READY, Family.TIMERS):
            options.set_compaction_style(DBCompactionStyle.universal())
        if self.compression is not None:
            options.set_compression_type(getattr(DBCompressionType, self.compression)())


SETTINGS: dict[str, Setting | None] = {
    "chosen": None,
    "plain": Setting(),
    "log 8 MiB": Setting(log_mib=8),
    "log 16 MiB": Setting(log_mib=16),
    "log 32 MiB": Setting(log_mib=32),
    "log 256 MiB": Setting(log_mib=256),
    "memtables 4 MiB each": Setting(memtable_mib=4),
    "memtables 32 MiB in all": Setting(memtables_mib=32),
    "one cache of 32 MiB": Setting(cache_mib=32),
    "bloom filters": Setting(bloom=True),
    "compact on deletion": Setting(deletions=500),
    "universal ready, timers": Setting(universal=True),
    "no compression": Setting(compression="none"),
    "zstd": Setting(compression="zstd"),
    "log 16 MiB, on deletion": Setting(log_mib=16, deletions=500),
    "log 32 MiB, on deletion": Setting(log_mib=32, deletions=500),
}
"""`plain` is RocksDB's default but for the log; `chosen` is what the queue opens with (None: nothing is changed)."""


def database_of(setting: Setting | None, seen: list[Watched]) -> type[Watched]:
    """A `Database` with that setting, which notes its instance in `seen`."""
    own_cache = None if setting is None or setting.cache_mib is None else Cache(setting.cache_mib * MIB)

    class Changed(Watched):
        """The queue's options, or others."""

        @classmethod
        def _database_options(cls) -> Options:
            options = super()._database_options()
            if setting is not None:
                setting.of_database(options)
            return options

        @classmethod
        def _family_options(cls, family: Family, cache: Cache) -> Options:
            if setting is None:
                return super()._family_options(family, cache)
            options = Options(raw_mode=True)
            setting.of_family(options, family, own_cache)
            return options

        def get(self, family: Family, key: bytes) -> bytes | None:
            if not seen:
                seen.append(self)
            return super().get(family, key)

    return Changed


def process_cpu_s() -> float:
    """Of all threads, RocksDB's included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def written_bytes() -> int:
    """What this process has given to the file system: log, tables, all."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


class Run:
    """One setting's workload."""

    def __init__(self, name: str, path: Path, number: int) -> None:
        seen: list[Watched] = []
        self._clock = ManualClock(1_700_000_000_000)
        config = QueueConfig(durability="os", lease_ttl_ms=600_000, retention_completed_ms=number // 50)
        self._path, self._number = path, number
        self._queue = opened(path, database=database_of(SETTINGS[name], seen), clock=self._clock, config=config)
        [self._database] = seen
        self._swept = 0
        self._held: list[Lease] = []

    def churn(self, number: int) -> None:
        """So many jobs from end to end."""
        for _ in range(number // BATCH):
            self._queue.enqueue_many(jobs(BATCH))
            leases = self._queue.lease_batch("worker-1", BATCH)
            self._queue.complete_many([(lease, None) for lease in leases])
            self._clock.advance(BATCH)
            self._swept += BATCH
            if self._swept >= SWEEP_MS:
                self._queue.reap()
                self._swept = 0

    def result(self) -> dict[str, Any]:
        """Everything that is measured."""
        self._queue.enqueue_many(jobs(BACKLOG))
        disks, opens, scans, memory = list[int](), list[float](), dict[str, list[float]](), list[int]()
        cpu = 0.0
        written = 0
        for part in range(PARTS):
            started, before = process_cpu_s(), written_bytes()
            self.churn(self._number // PARTS)
            cpu, written = cpu + process_cpu_s() - started, written + written_bytes() - before
            disks.append(disk_bytes(self._path))
            memory.append(self._database.memory_bytes())
            for family, seconds in self._scanned().items():
                scans.setdefault(family, []).append(seconds)
            if part % 4 == 3:
                opens.append(open_copy(self._path)["open_cpu_s"])
        lease, complete = self._singles()
        half = PARTS // 2
        found = {
            "cpu_us_a_job": cpu / self._number * 1e6,
            "written_a_job": written / self._number,
            "disk_mb": fmean(disks[half:]) / 1e6,
            "disk_mb_max": max(disks) / 1e6,
            "open_ms": median(opens) * 1e3,
            "open_ms_max": max(opens) * 1e3,
            "ready_us": median(scans["ready"]) * 1e6,
            "ready_us_max": max(scans["ready"]) * 1e6,
            "timers_us_max": max(scans["timers"]) * 1e6,
            "rocksdb_mb_max": max(memory) / 1e6,
            "rss_mb": rss_bytes() / 1e6,
            "lease_us": lease * 1e6,
            "complete_us": complete * 1e6,
        }
        self._queue.close()
        return found

    def _scanned(self) -> dict[str, float]:
        """A plain seek to the first live row of a family, over whatever was deleted before it: what an open pays."""
        found: dict[str, float] = {}
        for family in (Family.READY, Family.TIMERS):
            started = time.thread_time()
            self._database.iterate(family, b"", None, 1)
            found[family.value] = time.thread_time() - started
        return found

    def _singles(self) -> tuple[float, float]:
        started = time.thread_time()
        held = [lease for _ in range(TIMED) if (lease := self._queue.lease_next("worker-1")) is not None]
        between = time.thread_time()
        for lease in held:
            self._queue.complete(lease)
        return (between - started) / TIMED, (time.thread_time() - between) / TIMED


def standing(name: str, path: Path, number: int) -> dict[str, Any]:
    """Enqueue three times `number` jobs, 10,000 a call; lease and complete a third of them, 1,000 a call."""
    queue = opened(path, database=database_of(SETTINGS[name], []))
    cpu, written = process_cpu_s(), written_bytes()
    fill(queue, jobs(3 * number))
    filled_cpu, filled = process_cpu_s(), written_bytes()
    run_through(queue, number)
    found = {
        "fill_us": (filled_cpu - cpu) / number / 3 * 1e6,
        "fill_bytes": (filled - written) / number / 3,
        "run_us": (process_cpu_s() - filled_cpu) / number * 1e6,
        "run_bytes": (written_bytes() - filled) / number,
        "standing_mb": disk_bytes(path) / 1e6,
    }
    queue.close()
    return found


STANDING_COLUMNS = (
    ("fill_us", "enqueue, CPU µs a job"),
    ("fill_bytes", "written a job, B"),
    ("run_us", "lease and complete, CPU µs"),
    ("run_bytes", "written a job, B"),
    ("standing_mb", "disk, MB"),
)
COLUMNS = (
    ("cpu_us_a_job", "CPU a job, µs"),
    ("written_a_job", "written a job, B"),
    ("disk_mb", "disk, MB"),
    ("disk_mb_max", "at most"),
    ("open_ms", "open, ms"),
    ("open_ms_max", "at most"),
    ("ready_us", "seek ready, µs"),
    ("ready_us_max", "at most"),
    ("timers_us_max", "timers at most"),
    ("rocksdb_mb_max", "RocksDB, MB"),
    ("rss_mb", "RSS, MB"),
    ("lease_us", "lease, µs"),
    ("complete_us", "complete, µs"),
)


def in_child(name: str, number: int, scratch: Path, *extra: str) -> dict[str, Any]:
    """One setting in a process of its own."""
    directory = Path(tempfile.mkdtemp(prefix="settings-", dir=scratch))
    try:
        words = ["--jobs", str(number), "--in", str(directory / "db"), *extra, name]
        command = [sys.executable, "-m", __spec__.name, *words]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(words: Sequence[str]) -> int:
    """Print a line of a markdown table for each setting."""
    parser = argparse.ArgumentParser(prog="python -m scripts._bench.settings", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(SETTINGS)}")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--standing", action="store_true", help="three times as many jobs, most of which stay")
    parser.add_argument("--in", dest="path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    for name in options.names:
        if name not in SETTINGS:
            parser.error(f"no setting is called {name!r}")
    if options.path is not None:
        [name] = options.names
        run = standing(name, options.path, options.jobs) if options.standing else None
        print(json.dumps(Run(name, options.path, options.jobs).result() if run is None else run))
        return 0
    scratch = ROOT / "out"
    scratch.mkdir(exist_ok=True)
    columns, extra = (STANDING_COLUMNS, ["--standing"]) if options.standing else (COLUMNS, [])
    print("| setting | " + " | ".join(title for _, title in columns) + " |", flush=True)
    print("|---|" + "---:|" * len(columns), flush=True)
    for name in options.names or SETTINGS:
        found = in_child(name, options.jobs, scratch, *extra)
        cells = [f"{found[key]:,.0f}" if found[key] >= 100 else f"{found[key]:,.1f}" for key, _ in columns]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
