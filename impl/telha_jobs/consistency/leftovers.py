"""The parts of a repair that come after the rows: what is in quarantine, entries that no row explains, counters, and
the two marks of `meta` that say how far ids and the ring have come.
"""

from collections.abc import Iterator
from itertools import groupby
from uuid import UUID

from telha_jobs.consistency.check import DERIVED, sane_last_id, stored_counters
from telha_jobs.consistency.follows import (
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
from telha_jobs.consistency.rows import UNKNOWN_KIND, RowMender, Totals
from telha_jobs.consistency.writer import Add, Change, Writer
from telha_jobs.engine.rows import ids_value
from telha_jobs.keys import (
    ID_BYTES,
    LAST_ID,
    LAST_SERVED,
    CountKey,
    QuarantineKey,
    count_key,
    parse_quarantine_key,
    quarantine_key,
)
from telha_jobs.kinds import Kinds
from telha_jobs.store.port import Delete, Family, Put, Store

Kept = tuple[bytes, QuarantineKey, bytes]
"""An entry of quarantine: its key, the same taken apart, and its value."""


class Quarantine:
    """Restores what can be read again, and knows which jobs are left: `standing` are those of them that have no other
    row, `named` those of these that `ids` has.
    """

    def __init__(self, writer: Writer, kinds: Kinds, mender: RowMender) -> None:
        self.jobs: set[bytes] = set()
        self.standing: set[bytes] = set()
        self.named: set[bytes] = set()
        self._writer = writer
        self._kinds = kinds
        self._mender = mender
        self._rows = Rows(writer.get)

    def mend_all(self, store: Store) -> None:
        """Every row in quarantine, those of one job together."""
        for job_id, rows in groupby(_quarantined(store), key=lambda one: one[1].job_id):
            self._writer.begin()
            self._mend(job_id, list(rows))
        self._writer.commit()

    def _mend(self, job_id: bytes, rows: list[Kept]) -> None:
        candidates = [one for one in rows if not one[1].superseded]
        readable = [(row, one) for one in candidates if (row := self._readable(one)) is not None]
        readable.sort(key=lambda pair: strength(pair[0].record), reverse=True)
        stands = self._rows.named(job_id)
        if stands is None and readable and self._restored(*readable[0]):
            stands, restored = readable[0]
            rows.remove(restored)
            candidates.remove(restored)
        if stands is not None:
            for key, kept, value in candidates:
                marked = quarantine_key(kept.row_key, superseded=True)
                self._writer.change(
                    [Delete(Family.QUARANTINE, key), Put(Family.QUARANTINE, marked, value)],
                    f"job {UUID(bytes=job_id)}: its row {kept.row_key.hex()} stays in quarantine for good: "
                    "the job has another row",
                )
        elif candidates:
            self.standing.add(job_id)
            self._keep_place(job_id, candidates)
        if rows:
            self.jobs.add(job_id)

    def _readable(self, kept: Kept) -> Row | None:
        record = read_record(kept[1].row_key, kept[2])
        return None if isinstance(record, str) or self._rows.unreadable(record) else Row(kept[1].row_key, record)

    def _restored(self, row: Row, kept: Kept) -> bool:
        """Bring a row back, unless another job has its key by now."""
        record = row.record
        if self._rows.holder(record) is not None:
            return False
        kind = self._kinds.numbers[record.kind]
        self._writer.change(
            [
                Delete(Family.QUARANTINE, kept[0]),
                Put(Family.JOBS, row.key, kept[2]),
                *self._mender.counted(CountKey(record.scope, kind, record.state), 1),
                *(Put(*entry) for entry in entries_of(record, row.key, kind)),
            ],
            f"job {UUID(bytes=record.job_id)}: its row in quarantine can be read again, restored as "
            f"{record.state.value}",
        )
        self._mender.stand(row)
        return True

    def _keep_place(self, job_id: bytes, candidates: list[Kept]) -> None:
        """A job that is in quarantine only has an entry in `ids` that says so."""
        place = place_of(self._writer.get(Family.IDS, job_id), job_id)
        possible = names_a_job if place is None else is_job_key
        keys = [kept.row_key for _, kept, _ in candidates if possible(kept.row_key)]
        if keys or place is not None:
            self.named.add(job_id)
            self._mender.totals.see(job_id)
        if keys and (place is None or place[0] not in keys):
            kind = UNKNOWN_KIND if place is None else place[1]
            self._writer.change(
                [Put(Family.IDS, job_id, ids_value(keys[0], kind))],
                f"job {UUID(bytes=job_id)}: it is in quarantine, and ids says so again",
            )


class Orphans:
    """Entries that no row explains."""

    def __init__(self, writer: Writer, kinds: Kinds, totals: Totals, quarantine: Quarantine) -> None:
        self._writer = writer
        self._kinds = kinds
        self._totals = totals
        self._quarantine = quarantine
        self._rows = Rows(writer.get)

    def remove_all(self, store: Store) -> None:
        """From each family that has more entries than are explained. `ids` first: it may tell of a job that is lost."""
        for family in (Family.IDS, *(one for one in DERIVED if one is not Family.IDS)):
            if self._surplus(store, family):
                for page in paged(store, family):
                    for key, value in page:
                        self._writer.begin()
                        self._look(family, key, value)
                self._writer.commit()

    def _surplus(self, store: Store, family: Family) -> bool:
        entries = 0
        for page in paged(store, family):
            entries += len(page) - sum(self._is_kept(family, key, value) for key, value in page)
        return entries != self._totals.expected[family]

    def _is_kept(self, family: Family, key: bytes, value: bytes) -> bool:
        """Whether a job in quarantine keeps the entry, and no row in `jobs` accounts for it."""
        match family:
            case Family.IDS:
                return key in self._quarantine.named
            case Family.IDEM:
                return value in self._quarantine.standing
            case Family.PAYLOADS:
                return key in self._quarantine.jobs and not self._carried(key)
            case Family.READY | Family.TIMERS | Family.JOBS | Family.QUARANTINE | Family.META:
                return False

    def _carried(self, job_id: bytes) -> bool:
        named = self._rows.named(job_id)
        return named is not None and named.record.payload is None

    def _look(self, family: Family, key: bytes, value: bytes) -> None:
        if self._is_kept(family, key, value) or self._is_explained(family, key, value):
            return
        if family is Family.IDS:
            place = place_of(value, key)
            if place is not None and names_a_job(place[0]):
                self._lose(place[0], key)
                return
        job_id = value if family is Family.IDEM else key[-ID_BYTES:]
        self._writer.change(
            [Delete(family, key)], f"{family.value}: the entry {key.hex()} of job {job_id.hex()} has no row, removed"
        )

    def _is_explained(self, family: Family, key: bytes, value: bytes) -> bool:
        job_id = value if family is Family.IDEM else key[-ID_BYTES:]
        row = self._rows.named(job_id)
        if row is None:
            return False
        if family is Family.PAYLOADS:
            return key == job_id and row.record.payload is None
        return (family, key, value) in entries_of(row.record, row.key, self._kinds.numbers[row.record.kind])

    def _lose(self, row_key: bytes, job_id: bytes) -> None:
        """A job was made here, and its row is gone: it is listed in quarantine, with an empty row, not forgotten."""
        self._quarantine.jobs.add(job_id)
        self._quarantine.standing.add(job_id)
        self._quarantine.named.add(job_id)
        self._totals.see(job_id)
        self._writer.change(
            [Put(Family.QUARANTINE, quarantine_key(row_key), b"")],
            f"job {UUID(bytes=job_id)}: its row {row_key.hex()} is gone, kept in quarantine as lost",
        )


def mend_counters(store: Store, writer: Writer, totals: Totals) -> None:
    """The counters say what the rows say."""
    stored, wrong = stored_counters(store)
    counts = {place: number for place, number in totals.counts.items() if number}
    damaged = dict(wrong)
    for place in sorted(stored.keys() | counts.keys(), key=lambda one: count_key(*one)):
        key, wanted, found = count_key(*place), counts.get(place, 0), stored.get(place, 0)
        if wanted == found:
            continue
        writer.begin()
        damaged.pop(key, None)  # adding to one that makes no sense begins at zero
        writer.change(
            [Add(key, wanted - found)],
            f"counter of scope {UUID(bytes=place.scope)}, kind {place.kind}, {place.state.value}: "
            f"said {found}, says {wanted}",
        )
    for key, why in damaged.items():
        writer.begin()
        writer.change([Delete(Family.META, key)], f"meta: the counter at {key.hex()} made no sense ({why}), removed")
    writer.commit()


def mend_last(store: Store, writer: Writer, totals: Totals) -> None:
    """`last_id` is no lower than any id, and is one; `last_served` is a scope."""
    writer.begin()
    last, served = writer.get(Family.META, LAST_ID), writer.get(Family.META, LAST_SERVED)
    sane = last is None or sane_last_id(store, last)
    if not sane or (totals.newest and (last is None or last < totals.newest)):
        told = "missing" if last is None else last.hex()
        writes: list[Change] = (
            [Put(Family.META, LAST_ID, totals.newest)] if totals.newest else [Delete(Family.META, LAST_ID)]
        )
        writer.change(writes, f"meta: last_id was {told}, is {totals.newest.hex() or 'gone'}")
    if served is not None and len(served) != ID_BYTES:
        writer.change([Delete(Family.META, LAST_SERVED)], "meta: last_served was no scope, removed")
    writer.commit()


def _quarantined(store: Store) -> Iterator[Kept]:
    for page in paged(store, Family.QUARANTINE):
        for key, value in page:
            yield key, parse_quarantine_key(key), value
