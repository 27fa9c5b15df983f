"""Kill points: named places in the store's seam at which a process ends by SIGKILL, the N-th time it comes by.

They stand in a subclass of `Database` that only tests use, so that the product has none of them and they cost nothing
there. `between` is the one that is no step of the storage: it lies between two commits of one sweep.

| point | when |
|---|---|
| `look.before`, `look.after` | around the look at what stands in a directory that is about to be opened |
| `open.before`, `open.after` | around RocksDB's own open, which creates missing column families and replays the log |
| `write.before`, `write.after` | around a batch: before it, and after it but before its sync |
| `sync.before`, `sync.after` | around the sync: `sync.after` is before the reply |
| `close.before`, `close.after` | around the release of the database |
| `sweep.between` | after a commit of a sweep, before its next |
"""

import os
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self
from unittest.mock import patch

from rocksdict import Options, WriteBatch

from telha_jobs.engine import sweep
from telha_jobs.store.database import Database
from telha_jobs.store.port import Family, Write

POINTS: Final = (
    "look.before",
    "look.after",
    "open.before",
    "open.after",
    "write.before",
    "write.after",
    "sync.before",
    "sync.after",
    "close.before",
    "close.after",
    "sweep.between",
)


_LOG_PIECE_BYTES: Final = 4_096


class Points:
    """Counts how often each point is met since `arm`, and kills the process at the one that is armed."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self._armed: tuple[str, int] | None = None
        self._counting = False

    def arm(self, point: str | None, number: int) -> None:
        """From now on count; at the `number`-th time that `point` is met the process ends. None: only count."""
        self.hits.clear()
        self._counting = True
        self._armed = None if point is None else (point, number)

    def disarm(self) -> None:
        """Count no more."""
        self._counting = False

    def meet(self, point: str) -> None:
        """The process came by."""
        if not self._counting:
            return
        self.hits[point] += 1
        if self._armed == (point, self.hits[point]):
            os.kill(os.getpid(), signal.SIGKILL)


class PointedDatabase(Database):
    """A database with kill points. `points` belongs to the process: it has one database at a time."""

    points: ClassVar[Points] = Points()

    @classmethod
    def _database_options(cls) -> Options:
        options = super()._database_options()
        # A batch of some kilobytes takes several writes here, as one of some megabytes does in earnest.
        options.set_writable_file_max_buffer_size(_LOG_PIECE_BYTES)
        return options

    @classmethod
    def open(cls, path: Path) -> Self:
        cls.points.meet("open.before")
        opened = super().open(path)
        cls.points.meet("open.after")
        return opened

    @classmethod
    def open_view(cls, path: Path, families: Iterable[Family]) -> Self:
        cls.points.meet("look.before")
        view = super().open_view(path, families)
        cls.points.meet("look.after")
        return view

    def write(self, batch: WriteBatch) -> None:
        self.points.meet("write.before")
        super().write(batch)
        self.points.meet("write.after")

    def flush(self) -> None:
        self.points.meet("sync.before")
        super().flush()
        self.points.meet("sync.after")

    def close(self) -> None:
        if self._shadow is not None:  # a view: its end is part of the look
            super().close()
            return
        self.points.meet("close.before")
        super().close()
        self.points.meet("close.after")


class TornDatabase(PointedDatabase):
    """A canary: it writes each batch in two halves, as a queue would whose commit is no single batch."""

    _first: WriteBatch | None = None

    def batch(self, changes: Sequence[Write]) -> WriteBatch:
        half = len(changes) // 2
        self._first = super().batch(changes[:half]) if half else None
        return super().batch(changes[half:])

    def write(self, batch: WriteBatch) -> None:
        first, self._first = self._first, None
        if first is not None:
            super().write(first)
        super().write(batch)


def install(*, sweep_commit: int) -> None:
    """Make this process's sweeps commit after so many jobs, and meet `sweep.between` after each commit.

    For a process that will be killed: nothing is put back.
    """
    patch.object(sweep, "CHUNK", sweep_commit).start()
    add = sweep.Sweep.add

    def added(self: sweep.Sweep, chunk: sweep.Chunk) -> None:
        add(self, chunk)
        if not self.finished:
            PointedDatabase.points.meet("sweep.between")

    patch.object(sweep.Sweep, "add", added).start()
