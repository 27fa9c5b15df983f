"""One open RocksDB database: the only code that calls rocksdict, and the seam where faults and kill points are put.

`Database` has few methods, each of them one thing the storage does: `get`, `iterate`, `write`, `flush`, `close`. A
subclass that overrides them can stand in for it (`RocksStore.open(database=...)`). What rocksdict raises passes
through; the caller decides what it means.

Ownership is RocksDB's lock on the file LOCK, which goes only when the database object, every family handle and every
iterator are gone: no iterator outlives a call here, and `close` drops the rest.

Forks. RocksDB does not survive one: in the child its threads are missing, and its destructor would cut the log to the
length the child knows, under the parent's feet, and then crash. So in a child every database open at the fork is marked
`forked` and kept alive for ever (one reference too many), and no database can be opened in a child of a process that
had opened one.
"""

import ctypes
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, ReadOptions, WriteBatch

from telha_jobs.store.port import Family, Write

_WAL_BYTES_MAX = 32 * 1024 * 1024
"""Bounds what a reopen replays, what the memtables hold and how many deleted rows lie in them: a third of the open time
and of the disk that 64 MiB takes, for 2 % more bytes written (ADR 4)."""
_DELETIONS_WINDOW, _DELETIONS_MAX = 1_000, 500
"""A table with that many deletions among so many entries is compacted at once: a seek over what was deleted costs a
third or less, and the disk falls (ADR 4)."""
_CACHE_BYTES_MAX = 16 * 1024 * 1024
"""Blocks kept in memory, of all families together: RocksDB's default is 32 MiB for each of the eight (ADR 4)."""
_OPEN_FILES_MAX = 512
"""Below the usual limit of 1,024 descriptors a process, with room for the program around the queue."""
_INFO_LOG_BYTES_MAX = 1024 * 1024
_INFO_LOGS_KEPT = 2
_DEFAULT_FAMILY = "default"
_NOT_FROM_ELSEWHERE = "External file version not found"
VIEW_PREFIX = "telha-view-"
"""What the names of the temporary directories of views begin with; RocksDB's errors name the files there."""
_CURRENT = "CURRENT"
_CLOSED = "the database is closed"

# Process-wide by nature, as a fork is: the databases open now, and the process that first opened one (RocksDB's threads
# live only there).
_open_databases: dict[int, "weakref.ref[Database]"] = {}
_rocksdb_process: list[int] = []


class ForkedError(Exception):
    """RocksDB cannot be used in this process: it is a forked child of one that used it."""


class Database:
    """An open database. Not thread-safe by itself, except that `flush` may run beside everything but `close`."""

    def __init__(self, rdict: Rdict, families: Iterable[Family], *, shadow: Path | None = None) -> None:
        self.forked = False
        self._rdict: Rdict | None = rdict
        self._shadow = shadow
        self._families = {family: rdict.get_column_family(family.value) for family in families}
        self._handles = {family: rdict.get_column_family_handle(family.value) for family in families}
        key = id(self)
        _open_databases[key] = weakref.ref(self, lambda _: _open_databases.pop(key, None))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open for writing; creates the database and the families that are missing. Takes the lock."""
        _claim_process()
        options = cls._database_options()
        options.create_if_missing(True)  # noqa: FBT003  by position only, here and below
        options.create_missing_column_families(True)  # noqa: FBT003
        cache = Cache(_CACHE_BYTES_MAX)
        families = {family.value: cls._family_options(family, cache) for family in Family}
        return cls(Rdict(str(path), options, column_families=families), Family)

    @classmethod
    def open_view(cls, path: Path, families: Iterable[Family]) -> Self:
        """Open some families for reading, beside whoever owns the database; writes nothing at `path` and takes no lock.

        rocksdict writes a small file even when it opens read-only. So the view stands on a temporary directory of links
        to the database's files. Files may vanish under it while it opens: then this raises, or `ViewChangedError` if
        the view would have a hole.
        """
        _claim_process()
        families = tuple(families)
        files = data_files(path)
        shadow = Path(tempfile.mkdtemp(prefix=VIEW_PREFIX))
        try:
            for name in files:
                (shadow / name).symlink_to(path / name)
            rdict = Rdict(
                str(shadow),
                _options(),
                column_families={family.value: _options() for family in families},
                access_type=AccessType.read_only(False),  # noqa: FBT003
            )
            view = cls(rdict, families, shadow=shadow)
        except BaseException:
            shutil.rmtree(shadow, ignore_errors=True)
            raise
        if data_files(path) != files:
            view.close()
            raise ViewChangedError(f"the files in {path} changed while it was being opened for reading")
        return view

    @classmethod
    def _database_options(cls) -> Options:
        """What holds for the whole database opened for writing. Measured: ADR 4."""
        options = _options()
        options.set_max_total_wal_size(_WAL_BYTES_MAX)
        options.set_max_open_files(_OPEN_FILES_MAX)
        options.set_max_log_file_size(_INFO_LOG_BYTES_MAX)
        options.set_keep_log_file_num(_INFO_LOGS_KEPT)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    @classmethod
    def _family_options(cls, family: Family, cache: Cache) -> Options:
        """What holds for one family of it."""
        del family
        options = _options()
        table = BlockBasedOptions()
        table.set_block_cache(cache)
        options.set_block_based_table_factory(table)
        options.add_compact_on_deletion_collector_factory(
            _DELETIONS_WINDOW, _DELETIONS_MAX, _DELETIONS_MAX / _DELETIONS_WINDOW
        )
        return options

    def get(self, family: Family, key: bytes) -> bytes | None:
        """The value, or None."""
        value: bytes | None = self._families[family].get(key)
        return value

    def iterate(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """At most `limit` pairs from `start` to before `end`; RocksDB knows the end: tombstones past it are free."""
        found: list[tuple[bytes, bytes]] = []
        if limit <= 0 or (end is not None and end <= start):
            return found
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        iterator = self._families[family].iter(options)
        try:
            iterator.seek(start)
            while iterator.valid():
                found.append((iterator.key(), iterator.value()))
                if len(found) == limit:
                    break
                iterator.next()
            # An iterator that met an error is not valid either; only its status tells.
            iterator.status()
        finally:
            # A traceback would keep this frame, and with it the iterator and RocksDB's lock.
            del iterator
        return found

    def default_is_empty(self) -> bool:
        """Whether RocksDB's family `default`, which this library never uses, holds nothing."""
        iterator = self._opened().iter(ReadOptions())
        try:
            iterator.seek_to_first()
            empty = not iterator.valid()
            iterator.status()
        finally:
            del iterator
        return empty

    def batch(self, changes: Sequence[Write]) -> WriteBatch:
        """The changes as one batch for `write`; nothing is written yet."""
        batch = WriteBatch(raw_mode=True)
        handles = self._handles
        for family, key, value in changes:
            if value is None:
                batch.delete(key, handles[family])
            else:
                batch.put(key, value, handles[family])
        return batch

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch as a whole, visible at once, not synced."""
        if self._rdict is None:
            raise ValueError(_CLOSED)
        self._rdict.write(batch)

    def flush(self) -> None:
        """Make everything written so far durable (fdatasync of the log). Frees the interpreter while the disk works."""
        self._opened().flush_wal(True)  # noqa: FBT003

    def close(self) -> None:
        """Release everything, LOCK included. Does nothing the second time, and nothing in a forked child."""
        if self.forked or self._rdict is None:
            return
        rdict, self._rdict = self._rdict, None
        _open_databases.pop(id(self), None)
        self._families.clear()
        self._handles.clear()
        try:
            rdict.close()
        finally:
            if self._shadow is not None:
                shutil.rmtree(self._shadow, ignore_errors=True)

    def _opened(self) -> Rdict:
        if self._rdict is None:
            raise ValueError(_CLOSED)
        return self._rdict

    def survive_fork(self) -> None:
        """Called in a forked child: give up the database without touching it."""
        self.forked = True
        # With this object stay the database and the families, whose destructors flush, and so wait for missing threads.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class ViewChangedError(Exception):
    """The database changed while a view of it was being opened: try again."""


def damaged_tables(path: Path) -> list[str]:
    """The tables of a database that does not open whose own description cannot be read. Writes nothing at `path`.

    RocksDB does not always name them. It is offered each as a table from elsewhere, which it refuses before it takes
    it: a sound one because it was not made for that, a damaged one with what is wrong.
    """
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="telha-probe-") as probe:
        rdict = Rdict(probe, _options())
        try:
            for table in sorted(path.glob("*.sst")):
                try:
                    rdict.ingest_external_file([str(table)])
                except Exception as error:  # noqa: BLE001  rocksdict raises plain Exception; its text tells
                    if _NOT_FROM_ELSEWHERE not in str(error):
                        found.append(table.name)
        finally:
            rdict.close()
    return found


def exists(path: Path) -> bool:
    """Whether there is a RocksDB database at `path`, complete or not."""
    return (path / _CURRENT).is_file()


def family_names(path: Path) -> set[str]:
    """The names of the families the database at `path` has, `default` left out. Reads only."""
    return set(Rdict.list_cf(str(path))) - {_DEFAULT_FAMILY}


def data_files(path: Path) -> frozenset[str]:
    """The files that hold the database's data: not the lock, the info logs and what rocksdict adds."""
    return frozenset(
        name
        for name in sorted(file.name for file in path.iterdir())
        if name == _CURRENT or name.startswith("MANIFEST-") or name.endswith((".sst", ".log", ".blob"))
    )


def _options() -> Options:
    options = Options(raw_mode=True)
    # The default of 16 threads costs 10 ms per open and gains nothing before there are hundreds of tables.
    options.set_max_file_opening_threads(1)
    return options


def _claim_process() -> None:
    process = os.getpid()
    if _rocksdb_process and _rocksdb_process != [process]:
        raise ForkedError(
            "RocksDB was in use when this process was forked, so it does not work here: start processes with `spawn`"
        )
    _rocksdb_process[:] = [process]


def _leave_exit_handlers_out() -> None:
    """Make this process end with `_exit` once Python is done.

    RocksDB's own exit handler joins its threads, which a forked child does not have: it crashes, and takes the exit
    code along. The handler registered last is the first to run, and gets the exit code.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # in glibc; elsewhere the child's exit code may be that of a crash
        libc.on_exit(libc["_exit"], None)


def _after_fork_in_child() -> None:
    if _rocksdb_process:
        _leave_exit_handlers_out()
    for reference in tuple(_open_databases.values()):
        database = reference()
        if database is not None:
            database.survive_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
