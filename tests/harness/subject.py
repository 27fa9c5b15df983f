"""What a lane drives in lock-step with the model: a *subject*.

`EngineSubject` is the queue itself, on a database in memory, looked into after every step. Another subject (a server,
an engine with faults) subclasses `Subject`, or `EngineSubject` when it has a database of its own.
"""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from rocksdict import Rdict, ReadOptions, WriteBatch

from telha_jobs import InvalidArgumentError, JobQueue, ManualClock, QueueConfig, agenda, protocol, recovery
from telha_jobs.store.layout import INCARNATION_KEY, encode_incarnation
from telha_jobs.store.port import Family, Write
from telha_model import ops, replies
from telha_model.ops import Op
from telha_model.replies import Reply
from telha_model.state import Queue
from telha_model.types import Config
from tests.harness.decode import Decoder, Observed, Raw
from tests.harness.expect import Expectations, ring_difference
from tests.harness.public import public_differences
from tests.harness.translate import Translator, queue_config
from tests.harness.values import Names

MEMORY: Final = Path("/dev/shm")
QUIET: Final = ("quarantine",)
COMPACT_EVERY: Final = 240
TABLES_MAX: Final = 24
COPIES_MAX: Final = 100
PUBLIC_EVERY: Final = 61
CHECK_EVERY: Final = 997
WHOLE_EVERY: Final = 16


class SubjectError(Exception):
    """There can be no such subject here: what was asked for cannot be had."""


class Subject(ABC):
    """A queue under test, seen through the model's eyes."""

    names: Names

    @abstractmethod
    def apply(self, op: Op) -> Reply:
        """Do one operation and tell the reply in the model's terms. An exception no reply stands for passes."""

    @abstractmethod
    def differences(self, before: Queue, op: Op, after: Queue) -> list[str]:
        """What differs between the model's state after the operation and the subject's, one sentence each."""

    @abstractmethod
    def snapshot_differences(self, queue: Queue, *, public: bool) -> list[str]:
        """The same without an operation, all that is stored; `public`: all that the public interface says, too."""

    @abstractmethod
    def close(self) -> None:
        """End, and leave nothing behind."""


class EngineSubject(Subject):
    """The queue on RocksDB in memory, with its own clock.

    Reopening is real: a clean one closes and opens the directory; an unclean one opens a copy of the directory taken
    while the queue was open, as kill -9 would have left it. With `real_reopen_every=16` only each sixteenth is; the
    others make a new queue over the store that stays open, which derives everything from disk again in a hundredth of
    the time.
    `window_rows` is how many rows the agenda keeps in memory per group: with 1 a few jobs are enough to go beyond it.
    `rows_max` is how many it keeps of all groups before it leaves each of them one.
    """

    def __init__(
        self,
        config: Config,
        start_ms: int,
        *,
        real_reopen_every: int = 1,
        window_rows: int | None = None,
        rows_max: int | None = None,
    ) -> None:
        self._real_every = real_reopen_every
        self._restore = ExitStack()
        if window_rows is not None:
            from unittest.mock import patch  # takes asyncio along: a fifth of a process that walks no narrow tour

            self._restore.enter_context(patch.object(agenda, "WINDOW_ROWS", window_rows))
            self._restore.enter_context(patch.object(recovery, "LOADED_ROWS", window_rows))
            if rows_max is not None:
                self._restore.enter_context(patch.multiple(agenda, ROWS_MAX=rows_max, KEPT_ROWS=1))
        self._reopens = 0
        self.names = Names()
        self._settings: QueueConfig = queue_config(config)
        self._translator = Translator(self.names)
        self._decoder = Decoder(self.names)
        self._expectations = Expectations()
        self._root = Path(tempfile.mkdtemp(prefix="telha-lockstep-", dir=MEMORY if MEMORY.is_dir() else None))
        self._opens = 0
        self._clock = ManualClock(start_ms)
        self._steps = 0
        self._moves = 0
        self._settled = True
        self._written: int
        self._looks = 0
        self._noted: list[Write] = []
        self._commits = 0
        self._path = self._root / "0"
        self.queue = self._open()

    # -- one step

    def apply(self, op: Op) -> Reply:
        match op:
            case ops.Advance(ms):
                return self._advance(ms)
            case ops.Reopen(clean):
                return self._reopen(clean=clean)
            case _:
                return self._translator.call(self.asked, op)

    @property
    def asked(self) -> protocol.Queue:
        """Who is called, and says what there is."""
        return self.queue

    def differences(self, before: Queue, op: Op, after: Queue) -> list[str]:
        self._steps += 1
        if isinstance(op, ops.Advance | ops.Reopen):
            self._settled = isinstance(op, ops.Reopen)
        found = []
        written = self._sequence_on_disk()
        if written != self._written or after.jobs is not before.jobs or after.last_served != before.last_served:
            # RocksDB numbers every write: the same number means the same database, byte for byte.
            found += self._database_differences(op, before, after)
            self._written = written
        ring = ring_difference(after, self._agenda_ring(), settled=self._settled)
        if ring is not None:
            found.append(ring)
        if self._steps % PUBLIC_EVERY == 0:
            found += public_differences(self.asked, self.names, after)
        if self._steps % CHECK_EVERY == 0:
            found += [f"check: {problem}" for problem in self.asked.check().problems]
        return found

    def snapshot_differences(self, queue: Queue, *, public: bool) -> list[str]:
        found = list(self._expectations.differences(queue, self._decoder.observe(self._raw())))
        ring = ring_difference(queue, self._agenda_ring(), settled=self._settled)
        found += [] if ring is None else [ring]
        return found + list(public_differences(self.asked, self.names, queue)) if public else found

    def close(self) -> None:
        try:
            self.queue.close()
        finally:
            self._restore.close()
            shutil.rmtree(self._root)

    # -- time and reopening

    def _advance(self, ms: int) -> Reply:
        try:
            self._clock.advance(ms)
        except InvalidArgumentError as error:
            return replies.BadArgument(error.field)
        return replies.Advanced(self.asked.now_ms())

    def _reopen(self, *, clean: bool) -> Reply:
        self._reopens += 1
        if self._reopens % self._real_every:
            return self._renew(clean=clean)
        if len(_tables(self._path)) > TABLES_MAX:
            # Each open leaves a table per family and is over before RocksDB would merge them.
            self._compact()
        if clean:
            self.queue.close()
        else:
            before, self._path = self._path, self._root / str(self._opens)
            copy_while_open(before, self._path)
            self.queue.close()
            shutil.rmtree(before)
        self.queue = self._open()
        return replies.Reopened(self.queue._store.incarnation)

    def _renew(self, *, clean: bool) -> Reply:
        """A new queue over the same open store; after an unclean end with the incarnation that an open would give."""
        old, store = self.queue, self.queue._store
        old._engine.shut()
        old._unsubscribe()
        if not clean:
            store._incarnation += 1
            store._database._families[Family.META].put(INCARNATION_KEY, encode_incarnation(store._incarnation))
        self.queue = JobQueue(store, self._settings, self._clock)
        return replies.Reopened(store.incarnation)

    def _open(self) -> JobQueue:
        self._opens += 1
        self._moves = 0
        self._written = -1  # another database, or the same one written by an open: everything has to be read
        queue = JobQueue.open(self._path, config=self._settings, clock=self._clock)
        database = queue._store._database
        real = database.batch

        def batch(changes: Sequence[Write]) -> WriteBatch:
            self._noted += changes
            return real(changes)

        database.batch = batch  # type: ignore[method-assign]  # what a look has to read back
        return queue

    # -- looking inside

    def _database_differences(self, op: Op, before: Queue, after: Queue) -> list[str]:
        seen = self._look()
        found = list(self._expectations.differences(after, seen))
        commits = seen.meta.get("commit", (0, 0))[0]
        grown, self._commits = commits - self._commits, commits
        # Whoever only came due joins the ring by the next operation that writes, at the latest.
        self._settled = self._settled or grown > 0
        if not (grown == 1 or (grown == 0 and (after.jobs is before.jobs or isinstance(op, ops.Reopen)))):
            found.append(f"commits: one operation made {grown}")
        if grown and after.jobs is before.jobs and not isinstance(op, ops.Extend):
            found.append("commits: nothing changed, and yet there was a commit")
        self._moves += 1
        if self._moves % COMPACT_EVERY == 0:
            self._compact()
        return found

    def _look(self) -> Observed:
        """The whole database, decoded.

        When RocksDB's own count of writes says that nothing was written but the batches since the last look, their keys
        are read back and the rest is as it was; every sixteenth time, and whenever in doubt, everything is read.
        """
        noted, self._noted = self._noted, []
        self._looks += 1
        if self._looks % WHOLE_EVERY and self._sequence_on_disk() - self._written == len(noted):
            families = self.queue._store._database._families
            touched = dict.fromkeys((family, key) for family, key, _ in noted)
            seen = self._decoder.amend([(family.value, key, families[family].get(key)) for family, key in touched])
            if seen is not None:
                return seen
        return self._decoder.observe(self._raw())

    def _raw(self) -> Raw:
        raw = {}
        for family, handle in self._handles():
            pairs = []
            iterator = handle.iter(ReadOptions())
            iterator.seek_to_first()
            while iterator.valid():
                pairs.append((iterator.key(), iterator.value()))
                iterator.next()
            iterator.status()
            raw[family] = pairs
        # Everything that belongs to RocksDB has to go before the queue can be closed.
        return raw

    def _handles(self) -> Iterator[tuple[str, Rdict]]:
        for family, handle in self.queue._store._database._families.items():
            yield family.value, handle

    def _compact(self) -> None:
        """Drop the tombstones of thousands of short-lived rows; they slow every scan and mean nothing."""
        for family, handle in self._handles():
            if family not in QUIET:
                handle.flush()
                handle.compact_range(None, None)

    def _sequence_on_disk(self) -> int:
        return self.queue._store._database._opened().latest_sequence_number()

    def _agenda_ring(self) -> list[bytes]:
        return self.queue._engine._shared.agenda.ring()


class TamperedSubject(EngineSubject):
    """The queue with an entry too many in `timers` after each enqueue: whoever looks must see it."""

    def apply(self, op: Op) -> Reply:
        reply = super().apply(op)
        if isinstance(reply, replies.Enqueued) and reply.receipts:
            job_id = self.names.job_id(reply.receipts[0].job_id)
            self.queue._store._database._families[Family.TIMERS].put(bytes(8) + job_id.bytes, b"")
        return reply


tour_subject: Final = partial(EngineSubject, real_reopen_every=16)
"""The subject of the tours."""
narrow_subject: Final = partial(EngineSubject, real_reopen_every=16, window_rows=1)
"""The same with the smallest window of the agenda."""


def copy_while_open(source: Path, target: Path) -> None:
    """The directory as kill -9 would leave it now.

    Without LOCK: closing a copy of it drops this process's locks. A compaction in the background may add and remove
    tables meanwhile; then the copy would mix two moments, and it is taken again.
    """
    for _ in range(COPIES_MAX):
        before = _tables(source)
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK", "LOG*"))
        except shutil.Error:
            pass  # a table went; the names tell
        else:
            if before == _tables(source):
                return
        shutil.rmtree(target)
    raise AssertionError(f"{source} did not hold still for a copy")


def _tables(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".sst", ".log"))
