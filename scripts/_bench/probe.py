"""Three stand-ins for the storage of a queue: one counts what it is asked for, one records it, one replays a record.

They replace `telha_jobs.store.database.Database` through `RocksStore.open(database=...)`, so that nothing in the queue
knows of them.

`Amounts` is exact and repeatable: RocksDB's own figures depend on when it compacts, these do not. A *grave* is a
deleted key that a scan would have to step over if nothing had been compacted away: the number behind every queue that
became slow over rows it had long deleted.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Self

from rocksdict import ColumnFamily, WriteBatch

from telha_jobs.store.database import Database
from telha_jobs.store.port import Family, Write

COUNTED = frozenset({"get", "iterate", "batch", "write", "flush"})
"""The calls of `Database` that reach the storage while a queue is open: a new one has to be counted here too."""
UNCOUNTED = frozenset({"open", "open_view", "close", "default_is_empty", "survive_fork"})
"""The rest of its public calls."""


@dataclass(slots=True)
class Amounts:
    """What the storage was asked for."""

    gets: int = 0
    seeks: int = 0
    """Scans begun: each is an iterator and one seek."""
    keys: int = 0
    """Pairs the scans returned."""
    graves: int = 0
    """Deleted keys the scans would step over."""
    batches: int = 0
    puts: int = 0
    deletes: int = 0
    batch_bytes: int = 0
    """What the batches add to the write-ahead log, its framing aside."""
    syncs: int = 0

    def minus(self, before: Self) -> "Amounts":
        """What was added since `before`."""
        return Amounts(**{name: number - getattr(before, name) for name, number in self.as_dict().items()})

    def copy(self) -> "Amounts":
        """The same numbers, which no longer change."""
        return Amounts(**self.as_dict())

    def as_dict(self) -> dict[str, int]:
        """Name to number, in the order of the fields."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True)
class Tally:
    """A running count, shared by every database that one class opens."""

    total: Amounts = field(default_factory=Amounts)

    @contextmanager
    def counted(self) -> Iterator[Amounts]:
        """`with tally.counted() as amounts:` fills `amounts` at the end with what the block asked for."""
        before, amounts = self.total.copy(), Amounts()
        yield amounts
        spent = self.total.minus(before)
        for name, number in spent.as_dict().items():
            setattr(amounts, name, number)


class _Graves:
    """The deleted keys of one family, in order."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []

    def dig(self, key: bytes) -> None:
        if not self._has(key):
            insort(self._keys, key)

    def fill(self, key: bytes) -> None:
        if self._has(key):
            del self._keys[bisect_left(self._keys, key)]

    def between(self, start: bytes, end: bytes | None, *, last: bytes | None) -> int:
        """Graves from `start` to before `end`, or to `last` when the scan ended there."""
        if last is not None:
            stop = bisect_right(self._keys, last)
        else:
            stop = len(self._keys) if end is None else bisect_left(self._keys, end)
        return max(0, stop - bisect_left(self._keys, start))

    def _has(self, key: bytes) -> bool:
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key


def counting(tally: Tally) -> type[Database]:
    """A `Database` that counts into `tally`."""
    graves = {family: _Graves() for family in Family}

    class Counting(Database):
        """Counts, then does the same."""

        def get(self, family: Family, key: bytes) -> bytes | None:
            tally.total.gets += 1
            return super().get(family, key)

        def iterate(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
            found = super().iterate(family, start, end, limit)
            last = found[-1][0] if len(found) == limit and found else None
            tally.total.seeks += 1
            tally.total.keys += len(found)
            tally.total.graves += graves[family].between(start, end, last=last)
            return found

        def batch(self, changes: Sequence[Write]) -> WriteBatch:
            for family, key, value in changes:
                if value is None:
                    tally.total.deletes += 1
                    graves[family].dig(key)
                else:
                    tally.total.puts += 1
                    graves[family].fill(key)
            return super().batch(changes)

        def write(self, batch: WriteBatch) -> None:
            tally.total.batches += 1
            tally.total.batch_bytes += batch.size_in_bytes()
            super().write(batch)

        def flush(self) -> None:
            tally.total.syncs += 1
            super().flush()

    return Counting


Tape = list[list[Write] | None]
"""What was written, in order: a batch, or None for a sync."""

Reel = list[list[tuple[bytes, bytes | None, ColumnFamily]] | None]
"""A tape made ready for one database."""


def recording(tape: Tape) -> type[Database]:
    """A `Database` that appends every batch and every sync to `tape`."""

    class Recording(Database):
        """Records, then does the same."""

        def batch(self, changes: Sequence[Write]) -> WriteBatch:
            tape.append([*changes])
            return super().batch(changes)

        def flush(self) -> None:
            tape.append(None)
            super().flush()

    return Recording


class Bare(Database):
    """The same database, with the same options, and nothing above it but a loop over prepared batches."""

    def reel(self, tape: Tape) -> Reel:
        """The tape with this database's family handles in it: not part of what is timed."""
        handles = self._handles
        return [
            None if batch is None else [(key, value, handles[family]) for family, key, value in batch] for batch in tape
        ]

    def play(self, reel: Reel) -> None:
        """Build and write every batch, and sync where the queue did."""
        rdict = self._opened()
        for changes in reel:
            if changes is None:
                rdict.flush_wal(True)  # noqa: FBT003  by position only
                continue
            batch = WriteBatch(raw_mode=True)
            for key, value, handle in changes:
                if value is None:
                    batch.delete(key, handle)
                else:
                    batch.put(key, value, handle)
            rdict.write(batch)
