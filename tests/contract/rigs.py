"""What the contract suite needs of a store: to open it, to end it cleanly or not, and to break its disk.

A further store joins the suite by a rig of its own in `RIGS`.
"""

import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from rocksdict import WriteBatch

from telha_jobs.clock import ManualClock
from telha_jobs.store.database import Database
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Store
from telha_jobs.store.rocks import Durability, RocksStore

START_MS = 1_000_000


class Rig(ABC):
    """One place to store things, opened and ended again and again."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(START_MS)
        self.path = path

    @abstractmethod
    def open(self) -> Store:
        """Open the store for writing."""

    @abstractmethod
    def crash(self) -> None:
        """The process that has the store open dies, by kill -9: what was written stays, nothing is ended."""

    @abstractmethod
    def fail_next_write(self) -> None:
        """The next commit meets an error of the storage."""

    @abstractmethod
    def end(self) -> None:
        """Close whatever is open."""


class Faults:
    """What the next calls of a `FaultyDatabase` raise, and how many there were; a sync ends when `may_flush` is set."""

    def __init__(self) -> None:
        self.write: Exception | None = None
        self.flush: Exception | None = None
        self.get: Exception | None = None
        self.flushes = 0
        self.gets = 0
        self.flushing = threading.Event()
        self.may_flush = threading.Event()
        self.may_flush.set()


def faulty(faults: Faults) -> type[Database]:
    """A `Database` that raises what `faults` says, once, and counts its syncs."""

    class FaultyDatabase(Database):
        def get(self, family: object, key: bytes) -> bytes | None:
            faults.gets += 1
            error, faults.get = faults.get, None
            if error is not None:
                raise error
            return super().get(family, key)  # type: ignore[arg-type]  # passed on as it came

        def write(self, batch: WriteBatch) -> None:
            error, faults.write = faults.write, None
            if error is not None:
                raise error
            super().write(batch)

        def flush(self) -> None:
            faults.flushes += 1
            faults.flushing.set()
            faults.may_flush.wait()
            error, faults.flush = faults.flush, None
            if error is not None:
                raise error
            super().flush()

    return FaultyDatabase


def copy_as_crashed(source: Path, target: Path) -> None:
    """The directory as kill -9 would leave it at this moment.

    Without LOCK: opening and closing a locked file drops the locks this process holds on it.
    """
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))


class RocksRig(Rig):
    """RocksDB in a directory. A crash is a copy of the directory made while the store is open."""

    def __init__(self, path: Path, durability: Durability = "sync") -> None:
        super().__init__(path / "queue")
        self.faults = Faults()
        self.durability = durability
        self._opened: list[RocksStore] = []
        self._crashes = 0

    def open(self) -> RocksStore:
        store = RocksStore.open(self.path, clock=self.clock, durability=self.durability, database=faulty(self.faults))
        self._opened.append(store)
        return store

    def crash(self) -> None:
        self._crashes += 1
        copy = self.path.with_name(f"after-crash-{self._crashes}")
        copy_as_crashed(self.path, copy)
        self.end()
        self.path = copy

    def fail_next_write(self) -> None:
        self.faults.write = OSError("no space left on this device, says the test")

    def end(self) -> None:
        while self._opened:
            self._opened.pop().close()


class MemoryRig(Rig):
    """The in-memory store on a disk that outlives it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.disk = MemoryDisk()
        self.store: MemoryStore | None = None

    def open(self) -> MemoryStore:
        self.store = MemoryStore.open(self.disk, clock=self.clock)
        return self.store

    def crash(self) -> None:
        self.disk.crash()

    def fail_next_write(self) -> None:
        if self.store is not None:
            self.store.faults.fail_next()

    def end(self) -> None:
        if self.store is not None:
            self.store.close()


RIGS: dict[str, Callable[[Path], Rig]] = {"rocks": RocksRig, "memory": MemoryRig}
