"""What lives while the storage fails: an open, calls and a close of one queue with a fault in force, told to a history.

The functions are lives for `tests.chaos.forks`. A fault is one of

- `call`: strace attaches to the life, counts the system calls of a kind that each thread makes on the database's files,
  and makes the N-th fail, or the N-th and all later ones. Nothing else in the process notices. With `log_bytes_max`
  RocksDB begins a new log after so many bytes, and its own threads write tables meanwhile. `durability`: "os", or
  "sync" unless it is given.
- `space`: the database lies on a tmpfs in a mount namespace of the life's own, with so many pages left, from the start
  or once the queue is open.
- `size`: once the queue is open no file may become larger than the log is then and so many bytes more. For systems that
  allow no mounts, and because the error comes at any byte, not at a page.
"""

import os
import resource
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rocksdict import Options

from telha_jobs import JobQueue, ManualClock, QueueConfig, QueueError, QueueUnavailableError
from telha_jobs.store.database import Database
from tests.chaos.history import History
from tests.chaos.injection import Injector, mounted_tmpfs, remount_read_only
from tests.chaos.seeded import SMALL_SIZES, START_MS, Load, Recorder, fixed_ids

CONFIG: Final = QueueConfig(lease_ttl_ms=1_000, retention_completed_ms=10_000, retention_dead_ms=10_000)
AT_OS: Final = replace(CONFIG, durability="os")
PAGE_BYTES: Final = 4_096
DISK_BYTES: Final = 4 * 1024 * 1024
_NOBODY: Final = 65534


def base(*, database: str, history: str, seed: int, calls: int) -> None:
    """A queue that was closed once and killed then: with tables, and a log to recover."""
    told = History(Path(history), "base")
    recorder, clock = Recorder(told), ManualClock(START_MS)
    load = Load(seed, told, recorder, clock, sizes=SMALL_SIZES)
    with fixed_ids(seed):
        for last in (False, True):
            _open(Path(database), load, recorder, clock, {})
            _play(load, calls)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            load.queue.close()


def live(
    *, database: str, history: str, seed: int, calls: int, fault: dict[str, Any], copy_of: str | None = None
) -> dict[str, Any]:
    """Open, call and close under the fault.

    The answer tells what `open`, a `call` (the library's own refusals aside) and `close` raised (None: nothing), and
    which system calls failed, each as `injection.Failed`; there is a mark before every call, before `close`, and where
    all is durable and the database is let go.
    `copy_of`: where the database comes from; what is left of one on a disk of its own is put to `database`.
    """
    path = Path(database)
    if fault["kind"] == "space":
        disk = path.with_name("disk")
        disk.mkdir()
        with mounted_tmpfs(disk, DISK_BYTES):
            if copy_of is not None:
                shutil.copytree(copy_of, disk / "database")
            if fault["when"] == "open":
                _fill(disk, fault["spare"])
            answer = _lived(disk / "database", Path(history), seed, calls, fault, _nothing)
            shutil.copytree(disk / "database", path, dirs_exist_ok=True)
        return answer
    if copy_of is not None:
        shutil.copytree(copy_of, path)
    if fault["kind"] != "call":
        return _lived(path, Path(history), seed, calls, fault, _nothing)
    injector = Injector(path, path.with_name("trace"), fault["call"], fault["error"], fault["when"])
    answer = _lived(path, Path(history), seed, calls, fault, injector.mark)
    return {**answer, "failed": injector.stop()}


class _Buffered(History):
    """Keeps its lines until the end: the limit on the size of files is on every file."""

    def __init__(self, path: Path, writer: str) -> None:
        super().__init__(path, writer)
        self._lines: list[dict[str, Any]] = []

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.append(line)

    def close(self) -> None:
        for line in self._lines:
            super()._write(line)
        super().close()


def _nothing() -> None:
    """Nobody wants a mark."""


def _lived(
    path: Path, history: Path, seed: int, calls: int, fault: dict[str, Any], mark: Callable[[], object]
) -> dict[str, Any]:
    kind = _Buffered if fault["kind"] == "size" else History
    said: dict[str, Any] = {"open": None, "call": None, "close": None, "failed": []}
    with kind(history, "live") as told:
        recorder, clock = Recorder(told), ManualClock(START_MS + 60_000)
        recorder.at_call = recorder.at_close = mark
        load = Load(seed, told, recorder, clock, sizes=SMALL_SIZES)
        try:
            with fixed_ids(seed):
                _open(path, load, recorder, clock, fault)
        except BaseException as error:  # noqa: BLE001  whatever it is, whoever judges has to see it
            return {**said, "open": _named(error)}
        with _limited(path, fault):
            for step, does in (("call", partial(_play, load, calls)), ("close", load.queue.close)):
                try:
                    if step == "close":
                        mark()
                    does()
                except BaseException as error:  # noqa: BLE001  as above
                    said[step] = _named(error)
                told.note("over", step=step)
    return said


def _open(path: Path, load: Load, recorder: Recorder, clock: ManualClock, fault: dict[str, Any]) -> None:
    database = recorder.database()
    if "log_bytes_max" in fault:
        database = _with_small_logs(database, fault["log_bytes_max"])
    config = AT_OS if fault.get("durability") == "os" else CONFIG
    store = recorder.store().open(path, clock=clock, durability=config.durability, database=database)
    load.opened(store, JobQueue(store, config, clock))
    recorder.history.note("opened", incarnation=store.incarnation)


def _with_small_logs(database: type[Database], bytes_max: int) -> type[Database]:
    """One that begins a new log, and writes tables in the background, after so many bytes."""

    class Small(database):  # type: ignore[misc, valid-type]  # a base that is made for each life
        @classmethod
        def _database_options(cls) -> Options:
            options: Options = super()._database_options()
            options.set_max_total_wal_size(bytes_max)
            return options

    return Small


def _play(load: Load, calls: int) -> None:
    for _ in range(calls):
        load.step()
        load.settle()


def refused(*, database: str, nobody: bool) -> dict[str, Any] | None:
    """Open and close; what `open` said. `nobody`: as a user who owns nothing, if this one may become it."""
    import_module("pickle")  # the bindings import it while they open, from where nobody may read
    if nobody and os.geteuid() == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    return _opened_and_closed(Path(database))


def refused_on_disk(*, copy_of: str, disk: str, pages: int | None) -> dict[str, Any]:
    """The same on a tmpfs with so many pages left, or on one that is read-only (None), for a queue that is there and
    for a new one: what each open said, and which files changed or appeared.
    """
    where, answers = Path(disk), dict[str, Any]()
    with mounted_tmpfs(where, DISK_BYTES):
        shutil.copytree(copy_of, where / "there")
        if pages is None:
            remount_read_only(where)
        else:
            _fill(where, pages)
        before = fingerprint(where)
        for name in ("there", "new"):
            answers[name] = _opened_and_closed(where / name)
        changed = sorted({name for name, _ in before.items() ^ fingerprint(where).items()})
    return {**answers, "changed": changed}


def fingerprint(path: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a directory, itself included: when it changed, and its content."""
    every = (path, *path.rglob("*"))
    return {
        str(one.relative_to(path)): (one.lstat().st_mtime_ns, one.read_bytes() if one.is_file() else b"")
        for one in every
    }


def _opened_and_closed(path: Path) -> dict[str, Any] | None:
    try:
        JobQueue.open(path, config=CONFIG, clock=ManualClock(START_MS + 60_000)).close()
    except BaseException as error:  # noqa: BLE001  whatever it is, whoever judges has to see it
        return _named(error)
    return None


def _named(error: BaseException) -> dict[str, Any]:
    known = isinstance(error, QueueError)
    return {
        "error": type(error).__name__,
        "outcome": error.outcome if isinstance(error, QueueUnavailableError) else None,
        "text": str(error) if known else "".join(traceback.format_exception(error)),
    }


def _fill(disk: Path, pages: int) -> None:
    """Leave so many pages on the disk."""
    free = os.statvfs(disk).f_bavail * PAGE_BYTES - pages * PAGE_BYTES
    if free > 0:
        with (disk / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, free)


@contextmanager
def _limited(path: Path, fault: dict[str, Any]) -> Iterator[None]:
    """What only sets in once the queue is open."""
    match fault["kind"]:
        case "size":
            log = max(path.glob("*.log"))
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + fault["spare"], hard))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        case "space" if fault["when"] == "opened":
            _fill(path.parent, fault["spare"])
            yield
        case _:
            yield
