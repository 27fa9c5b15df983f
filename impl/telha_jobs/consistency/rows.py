"""The part of a repair that goes row by row: every readable row gets the entries that follow from it, of two rows of
one job the weaker one goes to quarantine, and so does what cannot be read.

A row leaves `jobs` in the same commit as its entries in `ready` and `timers` and with its count, so each commit leaves
less wrong than the one before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from telha_jobs.consistency.check import DERIVED
from telha_jobs.consistency.follows import (
    Entry,
    Row,
    Rows,
    entries_of,
    is_job_key,
    names_a_job,
    paged,
    place_of,
    read_record,
    strength,
)
from telha_jobs.consistency.writer import Add, Change, Writer
from telha_jobs.core.record import Record
from telha_jobs.engine.rows import ids_value
from telha_jobs.keys import ID_BYTES, CountKey, count_key, parse_job_key, quarantine_key
from telha_jobs.kinds import Kinds
from telha_jobs.store.layout import decode_counter
from telha_jobs.store.port import Delete, Family, Put, Store

UNKNOWN_KIND = 0
"""The kind in `ids` of a job that nobody knows the kind of."""

Strays = Mapping[bytes, list[tuple[Family, bytes]]]
"""Of jobs with a row that cannot be read: their entries in `ready` and `timers`, which only a scan can find."""


@dataclass(slots=True)
class Totals:
    """What follows from the rows: entries by family, jobs by scope, kind and state, and the newest id."""

    expected: dict[Family, int] = field(default_factory=lambda: dict.fromkeys(DERIVED, 0))
    counts: dict[CountKey, int] = field(default_factory=dict)
    newest: bytes = b""

    def add(self, row: Row, kind: int, *, named: bool, sign: int = 1) -> None:
        """A row that stands (or stands no more). `named`: `idem` names it by its key."""
        for family, _, _ in entries_of(row.record, row.key, kind):
            if family is not Family.IDEM or named:
                self.expected[family] += sign
        if row.record.payload is None:
            self.expected[Family.PAYLOADS] += sign
        place = CountKey(row.record.scope, kind, row.record.state)
        self.counts[place] = self.counts.get(place, 0) + sign
        self.see(row.record.job_id)

    def see(self, job_id: bytes) -> None:
        """A job has, or had, this id."""
        self.newest = max(self.newest, job_id)


def find_strays(store: Store, jobs: set[bytes]) -> Strays:
    """One scan of `ready` and of `timers`, however many jobs are asked for."""
    found: dict[bytes, list[tuple[Family, bytes]]] = {}
    for family in (Family.READY, Family.TIMERS) if jobs else ():
        for page in paged(store, family):
            for key, _ in page:
                if key[-ID_BYTES:] in jobs:
                    found.setdefault(key[-ID_BYTES:], []).append((family, key))
    return found


class RowMender:
    """Mends row by row; `totals` is what follows from the rows that stand."""

    def __init__(self, writer: Writer, kinds: Kinds, strays: Strays) -> None:
        self.totals = Totals()
        self._writer = writer
        self._kinds = kinds
        self._strays = strays
        self._rows = Rows(writer.get)

    def mend_all(self, store: Store) -> None:
        """Every row of `jobs`."""
        for key in _keys(store):
            self._writer.begin()
            value = self._writer.get(Family.JOBS, key)
            if value is not None:  # else it lost against another row of its job since the page was read
                self._mend(key, value)
        self._writer.commit()

    def _mend(self, key: bytes, value: bytes) -> None:
        record = read_record(key, value)
        wrong = [record] if isinstance(record, str) else self._rows.unreadable(record)
        if isinstance(record, str) or wrong:
            self._set_aside(key, value, record, ", ".join(wrong))
            return
        row = Row(key, record)
        place = place_of(self._rows.get(Family.IDS, record.job_id), record.job_id)
        rival = None if place is None or place[0] == key else self._rows.row(place[0], whole=True)
        if rival is not None:
            if strength(record) <= strength(rival.record):
                self._supersede(row, rival)
                return
            if rival.key < key:  # it was passed, and stood
                named = self._rows.holder(rival.record) is None
                self.totals.add(rival, self._kind(rival.record), named=named, sign=-1)
            self._supersede(rival, row, counted=True)
        self.stand(row)

    def stand(self, row: Row) -> None:
        """The row stands: give it the entries that it lacks, and count it."""
        record = row.record
        kind = self._kind(record)
        holder = self._rows.holder(record)
        for family, key, wanted in entries_of(record, row.key, kind):
            if family is Family.IDEM and holder is not None:
                continue  # the check tells of it: nobody can say which of two jobs a key means
            found = self._writer.get(family, key)
            if found != wanted:
                what = "missing" if found is None else "wrong"
                self._writer.change(
                    [Put(family, key, wanted)],
                    f"job {UUID(bytes=record.job_id)}: its entry in {family.value} was {what}, written anew",
                )
        self.totals.add(row, kind, named=holder is None)

    def _kind(self, record: Record) -> int:
        return self._kinds.numbers[record.kind]

    def _supersede(self, loser: Row, winner: Row, *, counted: bool = False) -> None:
        """Of two rows of one job the weaker one goes to quarantine, and is never restored.

        `counted`: `ids` named the loser, so it is the one that the counters know.
        """
        record = loser.record
        kept = entries_of(winner.record, winner.key, self._kind(winner.record))
        value = self._writer.get(Family.JOBS, loser.key) or b""
        self._writer.change(
            [
                *_moved(loser.key, value, superseded=True),
                *self._without(entries_of(record, loser.key, self._kind(record)), kept),
                *(self._recounted(self._place(record), self._place(winner.record)) if counted else ()),
            ],
            f"job {UUID(bytes=record.job_id)}: of its two rows the one of generation {record.generation} with "
            f"{len(record.events)} events ({loser.key.hex()}) moved to quarantine; the one of generation "
            f"{winner.record.generation} with {len(winner.record.events)} events stands",
        )

    def _set_aside(self, key: bytes, value: bytes, record: Record | str, why: str) -> None:
        """A row that cannot be read goes to quarantine, where `ids` still names it unless the job has another row."""
        job_id = quarantine_key(key)[:ID_BYTES]
        place = place_of(self._rows.get(Family.IDS, job_id), job_id)
        other = place is not None and place[0] != key and self._stands(place[0])
        # Never over another row that is kept under that key.
        taken = self._writer.get(Family.QUARANTINE, quarantine_key(key)) not in (None, b"", value)
        writes = _moved(key, value, superseded=other or taken)
        kept: list[Entry] = []
        if other:
            row = self._rows.row(place[0]) if place is not None else None
            kept = [] if row is None else entries_of(row.record, row.key, self._kind(row.record))
        elif place is not None or names_a_job(key):
            if (place is None or place[0] != key) and is_job_key(key):
                kind = UNKNOWN_KIND if place is None else place[1]
                writes.append(Put(Family.IDS, job_id, ids_value(key, kind)))
            self.totals.see(job_id)
        if isinstance(record, str):
            gone = [Entry(family, entry, b"") for family, entry in self._strays.get(job_id, ())]
            if place is not None and place[0] == key:
                named = parse_job_key(key)
                writes += self._recounted(CountKey(named.scope, place[1], named.state))
        else:
            entries = entries_of(record, key, self._kind(record))
            gone = [one for one in entries if one.family in (Family.READY, Family.TIMERS)]
            if place is not None and place[0] == key:
                writes += self._recounted(self._place(record))
        writes += self._without(gone, kept)
        self._writer.change(
            writes, f"job {UUID(bytes=job_id)}: its row {key.hex()} cannot be read ({why}), moved to quarantine"
        )

    def _stands(self, key: bytes) -> bool:
        """Whether there is a row at that key, in `jobs` or in quarantine."""
        return (
            self._writer.get(Family.JOBS, key) is not None
            or self._writer.get(Family.QUARANTINE, quarantine_key(key)) is not None
        )

    def _without(self, entries: list[Entry], kept: list[Entry]) -> list[Change]:
        """Deletes of the entries that are there, but for those that another row of the job needs."""
        needed = {(one.family, one.key) for one in kept}
        return [
            Delete(family, key)
            for family, key, value in entries
            if (family, key) not in needed and family is not Family.IDS and self._writer.get(family, key) == value
        ]

    def _place(self, record: Record) -> CountKey:
        return CountKey(record.scope, self._kind(record), record.state)

    def _recounted(self, less: CountKey, more: CountKey | None = None) -> list[Add]:
        return self.counted(less, -1) + ([] if more is None else self.counted(more, 1))

    def counted(self, place: CountKey, delta: int) -> list[Add]:
        """So many jobs more or less there; nothing where the counter is damaged: that is mended later."""
        stored = self._writer.get(Family.META, count_key(*place))
        try:
            found = 0 if stored is None else decode_counter(stored)
        except ValueError:
            return []
        return [Add(count_key(*place), delta)] if found + delta >= 0 else []


def _moved(key: bytes, value: bytes, *, superseded: bool) -> list[Change]:
    return [Delete(Family.JOBS, key), Put(Family.QUARANTINE, quarantine_key(key, superseded=superseded), value)]


def _keys(store: Store) -> Iterator[bytes]:
    for page in paged(store, Family.JOBS):
        yield from [key for key, _ in page]
