"""The store port on RocksDB: one process owns the database, one lock orders its calls.

Sequence of a commit: checks, one unsynced batch (with the commit state of `layout`), visible at once; `wait` makes it
durable by group commit. Versions are coarse: a read returns the sequence of the whole store, and any commit since is a
`Conflict`. The engine reads and commits under a lock of its own, so it does not meet one.

Fail closed: after any error from the storage every call raises `QueueUnavailableError` until the database is opened
again. The call that met the error while writing raises `CommitUnknownError`, waiters that no sync covers raise
`outcome="unknown"`. Such a store leaves the open mark behind.

Clean and unclean ends: the open mark is written and synced before the first commit; a clean close syncs everything,
then removes the mark and syncs that. An open that finds the mark raises the incarnation (so that a lost write can never
hand out an old generation again).
"""

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from telha_jobs.clock import Clock, QueueClock, SystemClock, monotonic
from telha_jobs.errors import InvalidArgumentError, QueueUnavailableError
from telha_jobs.store import layout, opening
from telha_jobs.store.counters import CounterCache, counted
from telha_jobs.store.database import Database
from telha_jobs.store.grouping import SyncGroup
from telha_jobs.store.observer import StoreObserver, StoreOperation
from telha_jobs.store.port import (
    META,
    NO_ADDS,
    Adds,
    Committed,
    CommitUnknownError,
    Conflict,
    Delete,
    Family,
    Guard,
    Limits,
    Put,
    Versioned,
    Write,
)
from telha_jobs.types import named

Durability = Literal["sync", "os"]

_BATCH_BYTES_MAX = 2 * 1024**3
_LIMITS = Limits(batch_bytes_max=_BATCH_BYTES_MAX, value_bytes_max=1024**3 + 64 * 1024**2)
"""RocksDB's lengths have 32 bits: half of that leaves room, and a value holds the largest payload one can configure."""

_CLOSED = "the queue is closed: open it again"
_FORKED = (
    "this is a forked child of the process that has the queue open: use the queue there, or start this one by spawn"
)

_log = logging.getLogger("telha_jobs")


@dataclass(frozen=True, slots=True)
class StoreCounters:
    """What the store did since it was opened."""

    commits: int
    conflicts: int
    syncs: int


class RocksStore:
    """A `telha_jobs.store.port.Store`. Thread-safe. Open with `open` or `open_read_only`, not by the constructor."""

    def __init__(
        self,
        database: Database,
        clock: QueueClock,
        *,
        state: layout.CommitState,
        incarnation: int,
        durability: Durability | None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._incarnation = incarnation
        self._durability = durability
        self.waits = durability == "sync"
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._sequence = state.sequence
        self._refusal: str | None = None
        self._failed = False
        self._counters = CounterCache(database.get)
        self._commits = 0
        self._conflicts = 0
        self.observer: StoreObserver | None = None
        self._sync = SyncGroup(flush=self._flush, written=lambda: self._sequence, synced=state.sequence)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock,
        durability: Durability = "sync",
        database: type[Database] = Database,
    ) -> Self:
        """Open the database at `path` for writing, creating it if there is none.

        Raises `QueueLockedError`, `FormatVersionError`, or `QueueUnavailableError(outcome="not_applied")` for what is
        foreign, no directory, not writable or damaged; then nothing was written.
        """
        where = opening.prepare(path)
        opened = opening.open_owned(where, database)
        try:
            incarnation, state = opening.recorded(opened)
            # Before anything is written: a clock that cannot be read refuses the open.
            queue_clock = QueueClock(clock, state.high_water_ms)
            incarnation = opening.begin(opened, incarnation)
            return cls(opened, queue_clock, state=state, incarnation=incarnation, durability=durability)
        except BaseException as error:
            _let_go(opened)
            if isinstance(error, InvalidArgumentError | QueueUnavailableError) or not isinstance(error, Exception):
                raise
            raise opening.unusable(where, error) from error

    @classmethod
    def open_read_only(
        cls, path: str | os.PathLike[str], *, clock: Clock | None = None, database: type[Database] = Database
    ) -> Self:
        """A view of the database at `path` as it is now, also while another process owns it: no lock taken, nothing
        written.

        It may show what is not durable yet. `commit` is refused; `wait` has nothing to wait for.
        """
        where = Path(os.path.realpath(path))
        view = opening.open_view(where, database)
        try:
            incarnation, state = opening.recorded(view)
            ahead_of = QueueClock(SystemClock() if clock is None else clock, state.high_water_ms)
            return cls(view, ahead_of, state=state, incarnation=incarnation, durability=None)
        except BaseException as error:
            _let_go(view)
            if isinstance(error, InvalidArgumentError | QueueUnavailableError) or not isinstance(error, Exception):
                raise
            raise opening.unusable(where, error) from error

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def sequence(self) -> int:
        # Under the lock: a commit whose write is visible already but whose sequence is not set yet would escape the
        # reply rule.
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            if self._refusal is not None:
                raise QueueUnavailableError(self._refusal)
            return self._sequence

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that opened the store."""
        return self._database.forked

    @property
    def limits(self) -> Limits:
        return _LIMITS

    @property
    def read_only(self) -> bool:
        """Whether this is a view that cannot commit."""
        return self._durability is None

    @property
    def counters(self) -> StoreCounters:
        """Commits, conflicts and syncs since the open."""
        return StoreCounters(self._commits, self._conflicts, self._sync.flushes)

    def moment(self) -> tuple[int, int]:
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            if self._refusal is not None:
                raise QueueUnavailableError(self._refusal)
            return self._sequence, self._clock.now()

    def read(self, keys: Sequence[tuple[Family, bytes]]) -> list[Versioned]:
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            if self._refusal is not None:
                raise QueueUnavailableError(self._refusal)
            get, version = self._database.get, self._sequence
            try:
                return [named(Versioned, (get(family, key), version)) for family, key in keys]
            except Exception as error:  # rocksdict raises plain Exception; any failed read closes the store
                raise self._fail("read", error) from error

    def scan(
        self, family: Family, start: bytes, end: bytes | None, limit: int, *, claim: bool = False
    ) -> list[tuple[bytes, bytes]]:
        del claim  # one process, one lock: there is nobody to give other rows to
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            return self._scanned(family, start, end, limit)

    def scan_counters(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            found = [(key, counted(key, value)) for key, value in self._scanned(META, start, end, limit)]
            upto = found[-1][0] + b"\0" if found and len(found) == limit else end
            if upto is not None and limit > 0 and not self.read_only:
                self._counters.learn(start, upto, found)
            return found

    def _scanned(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Called under the lock."""
        if self._refusal is not None:
            raise QueueUnavailableError(self._refusal)
        try:
            return self._database.iterate(family, start, end, limit)
        except Exception as error:  # as in `read`
            raise self._fail("read", error) from error

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
    ) -> Committed | Conflict:
        del token  # a store that one process owns never has to find an unknown commit again
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        with self._lock:
            if self._refusal is not None:
                raise QueueUnavailableError(self._refusal)
            if self._durability is None:
                raise QueueUnavailableError("this is a read-only view: close the owner's queue and open it for writing")
            if checks and any(version != self._sequence for _, _, version in checks):
                self._conflicts += 1
                return Conflict()
            sequence = self._sequence + 1
            try:
                changes = [*writes]
                sums = self._counters.settle(adds, changes)
            except InvalidArgumentError:
                raise
            except Exception as error:  # reading a counter failed: nothing was written
                raise self._fail("read", error) from error
            changes.append((META, layout.COMMIT_KEY, layout.encode_commit(sequence, self._clock.newest_ms)))
            batch = self._database.batch(changes)
            size = batch.size_in_bytes()
            if size > _BATCH_BYTES_MAX:
                raise InvalidArgumentError("writes", f"one commit holds at most {_BATCH_BYTES_MAX} bytes")
            try:
                self._database.write(batch)
                self._sequence = sequence
                self._counters.keep(sums)
            except BaseException as error:
                # Also an interrupt: nobody can say on which side of the write, or of the counters, it came.
                failure = self._fail("write", error)
                if isinstance(error, Exception):
                    raise CommitUnknownError(str(failure)) from error
                raise
            self._commits += 1
            if self.observer is not None:
                self.observer.wrote(size)
            return Committed(sequence)

    def resolve(self, token: bytes, checks: Sequence[Guard], writes: Sequence[Write]) -> Committed | Conflict:
        """RocksDB may still apply a failed write when it is opened again, so only that can tell."""
        del token, checks, writes
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        raise QueueUnavailableError(
            "a write failed and may or may not be applied: open the queue again and look", outcome="unknown"
        )

    def forget(self) -> None:
        with self._lock:
            self._counters.forget()

    def wait(self, sequence: int) -> None:
        """Also after a close, and after a failure, a commit that is durable already is answered as such."""
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        if sequence > self._sequence:
            raise InvalidArgumentError(
                "sequence", f"{sequence} was never committed here, the newest is {self._sequence}"
            )
        if self.waits:
            self._sync.wait(sequence)

    def now(self) -> int:
        return self.moment()[1]

    def clock_ahead_ms(self) -> int:
        self.require_usable()
        with self._lock:
            return self._clock.ahead_ms()

    def close(self) -> None:
        """Does nothing the second time, and nothing in a forked child.

        Raises `QueueUnavailableError(outcome="unknown")` when the last sync failed; everything is released all the
        same.
        """
        if self._database.forked:
            return
        with self._closing:
            with self._lock:
                if self._refusal == _CLOSED:
                    return
                self._refusal = _CLOSED
            try:
                self._sync.drain()
                if self._durability is not None and not self._failed:
                    self._end()
            finally:
                _let_go(self._database)

    def _end(self) -> None:
        """Nobody else is inside: make everything durable, then say that the end was clean."""
        state = layout.encode_commit(self._sequence, self._clock.newest_ms)
        try:
            # Through the group, so that whoever still waits is answered by this very sync.
            self._sync.wait(self._sequence)
            closing: list[Write] = [
                Put(Family.META, layout.COMMIT_KEY, state),
                Delete(Family.META, layout.OPEN_KEY),
            ]
            self._database.write(self._database.batch(closing))
            self._database.flush()
        except (
            Exception
        ) as error:  # rocksdict raises plain Exception; the mark may still be there, so the next open counts as unclean
            self._failed = True
            raise QueueUnavailableError(
                f"the queue was closed, but not cleanly ({error}): see to the disk", outcome="unknown"
            ) from error

    def _flush(self) -> None:
        began = monotonic()
        try:
            self._database.flush()
        except Exception as error:  # rocksdict raises plain Exception; any failed sync closes the store
            with self._lock:
                self._fail("sync", error)
            raise
        if self.observer is not None:
            self.observer.synced(monotonic() - began)

    def _fail(self, what: StoreOperation, error: BaseException) -> QueueUnavailableError:
        """Refuse every call from now on; returns the refusal for the call that met the error. Called under the lock."""
        text = opening.told(error)
        advice = "a file is damaged: close the queue and restore a backup"
        if not opening.is_damage(text):
            advice = "close the queue, see to the disk and open it again"
        reason = f"the storage failed to {what} ({text}): {advice}"
        _log.error("%s", reason)
        self._failed = True
        if self.observer is not None:
            self.observer.failed(what)
        self._refusal = self._refusal or reason
        self._sync.fail(reason)
        return QueueUnavailableError(reason)

    def require_usable(self) -> None:
        if self._database.forked:
            raise QueueUnavailableError(_FORKED)
        if self._refusal is not None:
            raise QueueUnavailableError(self._refusal)


def _let_go(database: Database) -> None:
    """Close a database in which nothing is left to be made durable, or whose failure was told already."""
    try:
        database.close()
    except Exception as error:  # noqa: BLE001  rocksdict raises plain Exception; RocksDB tells an old error here again
        _log.error("the storage failed while it was being closed (%s): see to the disk", error)
