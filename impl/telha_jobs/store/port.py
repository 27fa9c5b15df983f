"""The store port: what the engine asks of a transactional, ordered key-value store.

The contract, run against every store by `tests/contract`:

- A store holds the column families of `Family`; keys and values are bytes, keys order by unsigned bytes.
- `commit` is atomic over all families: every check holds and every write is applied, or nothing is.
- What a commit wrote is visible to every later `read` and `scan` at once, durable only after `wait(sequence)` returns.
- A check holds when the key did not change since its version: what `read` returned, or the sequence at some moment. A
  store may answer `Conflict` although it did not change (it may keep coarse versions), never `Committed` when it did.
- The writes of a commit act in their order, also on the same key.
- A commit also adds to counters: keys of `meta` whose value is a signed big-endian 64-bit integer. An absent one counts
  as zero, and a sum of zero removes the key. A key that is added to is written in no other way.
- Nothing above the port may rely on being the only writer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from telha_jobs.types import plain_members


@plain_members
class Family(Enum):
    """The column families; the value is the name on disk (docs/format.md)."""

    JOBS = "jobs"
    READY = "ready"
    TIMERS = "timers"
    IDS = "ids"
    IDEM = "idem"
    PAYLOADS = "payloads"
    QUARANTINE = "quarantine"
    META = "meta"

    # A member is one object per process; the hash that Enum defines is a Python call, in every look-up of every key.
    __hash__ = object.__hash__


JOBS, READY, TIMERS, IDS, IDEM, PAYLOADS, QUARANTINE, META = Family
"""The families as plain names, as those of `State` are and for the same reason."""


class Versioned(NamedTuple):
    """A value (None: absent) and the version a guard compares."""

    value: bytes | None
    version: int


Guard = tuple[Family, bytes, int]
"""Commit only if the key of the family did not change since this version."""

Write = tuple[Family, bytes, bytes | None]
"""Set the key of a family to a value, or with None remove it; removing an absent key is no error.

A commit has about ten guards and writes, and plain tuples cost a tenth of named ones. `Check`, `Put` and `Delete` are
the same with names, for where that matters more.
"""


class Check(NamedTuple):
    """A guard."""

    family: Family
    key: bytes
    version: int


class Put(NamedTuple):
    """Set a key."""

    family: Family
    key: bytes
    value: bytes


class Delete(NamedTuple):
    """Remove a key."""

    family: Family
    key: bytes
    value: None = None


Adds = Mapping[bytes, int]
"""What is added to each counter, by its key in the family `meta`."""

NO_ADDS: Final[Adds] = MappingProxyType({})


@dataclass(slots=True)  # not frozen: every commit makes one, and a frozen class sets its fields by calls
class Committed:
    """All writes are applied; `sequence` is what `wait` takes. Sequences rise by one with every commit."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """A checked key changed (or may have changed): nothing was written; read again and decide again."""


class CommitUnknownError(Exception):
    """The store cannot tell whether the commit was applied; `resolve` settles it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one commit may hold."""

    batch_bytes_max: int
    value_bytes_max: int


class Store(Protocol):
    """A transactional ordered store. Every call may raise `QueueUnavailableError`."""

    @property
    def incarnation(self) -> int:
        """How often this store was opened after an unclean end or a restore."""
        ...

    @property
    def sequence(self) -> int:
        """The sequence of the newest commit that is visible."""
        ...

    @property
    def limits(self) -> Limits: ...

    def require_usable(self) -> None:
        """Raise `QueueUnavailableError` when it is closed, failed or forked; else nothing."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a commit may be less durable, when it is visible, than the store was asked to make it; if not, `wait`
        has nothing to do.
        """
        ...

    def moment(self) -> tuple[int, int]:
        """`sequence` and `now`, as of one moment."""
        ...

    def read(self, keys: Sequence[tuple[Family, bytes]]) -> list[Versioned]:
        """The newest value and version of each key, in the order asked."""
        ...

    def scan(
        self, family: Family, start: bytes, end: bytes | None, limit: int, *, claim: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """At most `limit` pairs with start <= key < end, ascending (end None: to the end of the family).

        `claim` hints that the caller means to write what it finds, so that a shared store may hand different writers
        different rows.
        """
        ...

    def scan_counters(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        """`scan` of counters; one that makes no sense counts as 0. The store may remember them: then the first addition
        to each need not read it.
        """
        ...

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
    ) -> Committed | Conflict:
        """Apply all writes and additions if all checks hold.

        Raises `CommitUnknownError` when the outcome cannot be told.
        """
        ...

    def resolve(self, token: bytes, checks: Sequence[Guard], writes: Sequence[Write]) -> Committed | Conflict:
        """Settle an unknown commit. After `Conflict` it is certain that it neither was nor ever will be applied.

        A store that can settle it only by being opened again raises `QueueUnavailableError(outcome="unknown")`.
        """
        ...

    def forget(self) -> None:
        """Let go of what is remembered of the rows: something may have changed them behind the store's back."""
        ...

    def wait(self, sequence: int) -> None:
        """Return once every commit up to `sequence` is as durable as the store was asked to make it.

        A commit that is durable already is answered so, even when the store was closed or failed since. Otherwise a
        failed store raises `QueueUnavailableError(outcome="unknown")`.
        """
        ...

    def now(self) -> int:
        """The store's time in ms since the epoch: never goes backwards, also across reopening."""
        ...

    def clock_ahead_ms(self) -> int:
        """How far `now` is ahead of the wall clock."""
        ...

    def close(self) -> None:
        """Make everything durable, mark the end as clean and release the store."""
        ...
