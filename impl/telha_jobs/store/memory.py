"""The store port in memory, with exact versions per key and faults on demand.

For tests of whatever stands above the port, and as the second opinion on its contract. A `MemoryDisk` is what outlives
the store: open it again after `close` (a clean end) or after `crash` (an unclean one: what was committed stays, the
open mark too). Every commit is durable at once.

`faults` scripts what a distributed store may do at its worst: answer `Conflict` although nothing changed, or lose track
of a commit. An unknown commit was either applied, or it is still on its way: it then lands right after the next commit
whose writes leave its checks true, unless `resolve` fenced it before. Looking whether it is there settles nothing.
"""

import bisect
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from telha_jobs.clock import Clock, QueueClock
from telha_jobs.errors import InvalidArgumentError, QueueLockedError, QueueUnavailableError
from telha_jobs.store.counters import counted
from telha_jobs.store.layout import encode_counter
from telha_jobs.store.port import (
    NO_ADDS,
    Adds,
    Committed,
    CommitUnknownError,
    Conflict,
    Family,
    Guard,
    Limits,
    Versioned,
    Write,
)

_LIMITS = Limits(batch_bytes_max=2 * 1024**3, value_bytes_max=1024**3 + 64 * 1024**2)
_CLOSED = "the queue is closed: open it again"
_FAILED = "the storage failed: close the queue and open it again"


class MemoryDisk:
    """What stays when the store is gone: the rows, and whether the last end was clean."""

    def __init__(self) -> None:
        self.values: dict[Family, dict[bytes, bytes]] = {family: {} for family in Family}
        self.keys: dict[Family, list[bytes]] = {family: [] for family in Family}
        """The keys of `values`, sorted."""
        self.versions: dict[tuple[Family, bytes], int] = {}
        """The sequence of the last commit that wrote a key, a removed key too."""
        self.sequence = 0
        self.high_water_ms = 0
        self.incarnation = 0
        self.open_mark = False
        self.owner: MemoryStore | None = None

    def crash(self) -> None:
        """The owner's process dies: its store is of no use any more, the open mark stays."""
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.abandon()

    def apply(self, writes: Sequence[Write], adds: Adds = NO_ADDS) -> int:
        """Apply writes in their order, and additions, as one commit; returns its sequence. After `ValueError` nothing
        changed.
        """
        after: dict[tuple[Family, bytes], bytes | None] = {}
        for family, key, value in writes:
            after[family, key] = value
        for key, delta in adds.items():
            total = counted(key, self.values[Family.META].get(key)) + delta
            after[Family.META, key] = encode_counter(total) if total else None
        self.sequence += 1
        for (family, key), new in after.items():
            self._set(family, key, new)
        return self.sequence

    def _set(self, family: Family, key: bytes, value: bytes | None) -> None:
        keys = self.keys[family]
        place = bisect.bisect_left(keys, key)
        present = place < len(keys) and keys[place] == key
        if value is None:
            self.values[family].pop(key, None)
            if present:
                del keys[place]
        else:
            self.values[family][key] = value
            if not present:
                keys.insert(place, key)
        self.versions[family, key] = self.sequence


@dataclass(slots=True)
class _Late:
    """A commit that is on its way and may still arrive."""

    token: bytes
    checks: tuple[Guard, ...]
    writes: tuple[Write, ...]
    adds: Adds


@dataclass(slots=True)
class FaultPlan:
    """What the next commits meet; empty: nothing unusual."""

    conflicts: int = 0
    unknowns: list[bool] = field(default_factory=list)
    failures: int = 0

    def conflict_next(self, count: int = 1) -> None:
        """The next `count` commits answer `Conflict` and write nothing."""
        self.conflicts += count

    def unknown_next(self, applied: bool) -> None:  # noqa: FBT001  the one thing it says
        """One more commit raises `CommitUnknownError`: it was applied, or it will be later unless it is fenced."""
        self.unknowns.append(applied)

    def fail_next(self) -> None:
        """One more commit meets a storage error, as on a broken disk: the store is of no use until opened again."""
        self.failures += 1


class MemoryStore:
    """A `telha_jobs.store.port.Store` in memory. Thread-safe. Open with `open`, not by the constructor."""

    def __init__(self, disk: MemoryDisk, clock: QueueClock) -> None:
        self.faults = FaultPlan()
        self.waits = True  # for nothing, but whoever stands above shall ask
        self._disk = disk
        self._incarnation = disk.incarnation
        self._clock = clock
        self._lock = threading.Lock()
        self._refusal: str | None = None
        self._failed = False
        self._late: list[_Late] = []
        self._settled: dict[bytes, int | None] = {}

    @classmethod
    def open(cls, disk: MemoryDisk, *, clock: Clock) -> Self:
        """Take the disk. Raises `QueueLockedError` while another store has it."""
        if disk.owner is not None:
            raise QueueLockedError("memory", detail="by this process")
        queue_clock = QueueClock(clock, disk.high_water_ms)
        if disk.open_mark:
            disk.incarnation += 1
        disk.open_mark = True
        store = cls(disk, queue_clock)
        disk.owner = store
        return store

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def sequence(self) -> int:
        with self._lock:
            self.require_usable()
            return self._disk.sequence

    @property
    def limits(self) -> Limits:
        return _LIMITS

    def moment(self) -> tuple[int, int]:
        with self._lock:
            self.require_usable()
            return self._disk.sequence, self._clock.now()

    def read(self, keys: Sequence[tuple[Family, bytes]]) -> list[Versioned]:
        with self._lock:
            self.require_usable()
            return [Versioned(self._disk.values[family].get(key), self._version(family, key)) for family, key in keys]

    def scan(
        self, family: Family, start: bytes, end: bytes | None, limit: int, *, claim: bool = False
    ) -> list[tuple[bytes, bytes]]:
        del claim  # every writer sees the same rows here; conflicts are scripted
        with self._lock:
            self.require_usable()
            keys, values = self._disk.keys[family], self._disk.values[family]
            first = bisect.bisect_left(keys, start)
            last = len(keys) if end is None else bisect.bisect_left(keys, end)
            return [(key, values[key]) for key in keys[first : min(last, first + max(limit, 0))]]

    def scan_counters(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        return [(key, counted(key, value)) for key, value in self.scan(Family.META, start, end, limit)]

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
    ) -> Committed | Conflict:
        with self._lock:
            self.require_usable()
            if self.faults.failures:
                self.faults.failures -= 1
                self._failed = True
                self._refusal = _FAILED
                raise CommitUnknownError(_FAILED)
            if self.faults.conflicts:
                self.faults.conflicts -= 1
                return Conflict()
            if not self._hold(checks):
                return Conflict()
            if self.faults.unknowns:
                applied = self.faults.unknowns.pop(0)
                if applied:
                    self._settled[token] = self._apply(writes, adds)
                else:
                    self._late.append(_Late(token, tuple(checks), tuple(writes), dict(adds)))
                raise CommitUnknownError("the connection was lost while the commit was under way")
            sequence = self._apply(writes, adds)
            self._deliver()
            return Committed(sequence)

    def resolve(self, token: bytes, checks: Sequence[Guard], writes: Sequence[Write]) -> Committed | Conflict:
        """Fences the token first: whatever is still on its way under it is thrown away when it arrives."""
        del checks, writes
        with self._lock:
            if self._failed:
                raise QueueUnavailableError(_FAILED, outcome="unknown")
            self.require_usable()
            sequence = self._settled.setdefault(token, None)
            return Conflict() if sequence is None else Committed(sequence)

    def deliver(self) -> None:
        """Whatever is on its way arrives now."""
        with self._lock:
            self._deliver()

    def forget(self) -> None:
        """There is nothing that it remembers."""

    def wait(self, sequence: int) -> None:
        if sequence > self._disk.sequence:
            raise InvalidArgumentError("sequence", f"{sequence} was never committed here")

    def now(self) -> int:
        with self._lock:
            self.require_usable()
            return self._clock.now()

    def clock_ahead_ms(self) -> int:
        with self._lock:
            self.require_usable()
            return self._clock.ahead_ms()

    def close(self) -> None:
        with self._lock:
            if self._refusal == _CLOSED:
                return
            self._refusal = _CLOSED
            if self._disk.owner is self:
                self._disk.owner = None
                if not self._failed:
                    self._disk.open_mark = False
                    self._disk.high_water_ms = max(self._disk.high_water_ms, self._clock.newest_ms)

    def abandon(self) -> None:
        """The process of this store is dead; see `MemoryDisk.crash`."""
        with self._lock:
            self._refusal = self._refusal or "the process that owned this store is dead"

    def _apply(self, writes: Sequence[Write], adds: Adds) -> int:
        try:
            sequence = self._disk.apply(writes, adds)
        except ValueError as error:
            raise InvalidArgumentError("adds", str(error)) from error
        self._disk.high_water_ms = max(self._disk.high_water_ms, self._clock.newest_ms)
        return sequence

    def _deliver(self) -> None:
        arriving, self._late = self._late, []
        for late in arriving:
            if late.token not in self._settled and self._hold(late.checks):
                self._settled[late.token] = self._apply(late.writes, late.adds)

    def _hold(self, checks: Sequence[Guard]) -> bool:
        newest = self._disk.sequence
        return all(self._version(family, key) <= version <= newest for family, key, version in checks)

    def _version(self, family: Family, key: bytes) -> int:
        return self._disk.versions.get((family, key), 0)

    def require_usable(self) -> None:
        if self._refusal is not None:
            raise QueueUnavailableError(self._refusal)
