"""A unit of work: what one call read and decided, and the one commit that writes it.

Records are read through the unit, so that a call which meets a job twice sees its own change; moves reach the agenda at
once (a batch of grants needs that) and are rolled back when the commit is refused.
"""

from collections.abc import Iterable
from typing import NamedTuple

from telha_jobs.agenda import Row, Step
from telha_jobs.codec import UnreadableError, decode_record
from telha_jobs.config import Policy
from telha_jobs.core.record import WAITING, Record
from telha_jobs.engine.observer import Change, LeaseUse
from telha_jobs.engine.rows import Slot, ready_row, row_key, slot_of, write_slot
from telha_jobs.engine.shared import Shared
from telha_jobs.errors import InvalidArgumentError, LeaseEnd
from telha_jobs.invariant import invariant
from telha_jobs.keys import (
    LAST_ID,
    LAST_SERVED,
    count_key,
    idem_key,
    kind_key,
    parse_job_key,
    parse_place,
    quarantine_key,
    ready_key,
)
from telha_jobs.kinds import Kinds
from telha_jobs.rules import KINDS_MAX
from telha_jobs.store.port import (
    IDEM,
    IDS,
    JOBS,
    META,
    PAYLOADS,
    QUARANTINE,
    READY,
    TIMERS,
    Committed,
    Conflict,
    Family,
    Guard,
    Write,
)
from telha_jobs.types import PENDING


class Unreadable(NamedTuple):
    """A row that exists and cannot be decoded, or that is in quarantine already (`value` None)."""

    key: bytes
    value: bytes | None
    kind: int


class Unit:
    """One call's work at one time. Lives and dies under the engine's lock."""

    __slots__ = (
        "_checks",
        "_counts",
        "_last_id",
        "_made",
        "_moves",
        "_new_kinds",
        "_quarantined",
        "_served",
        "_slots",
        "_steps",
        "_writes",
        "bytes_found",
        "inserted",
        "now",
        "refusals",
        "sequence",
        "shared",
    )

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        newest, self.now = shared.store.moment()
        self.sequence = newest + 1
        if shared.known.sequence != newest:
            shared.known.forget(newest)
        self._slots: dict[bytes, Slot] = {}
        self._checks: list[Guard] = []
        self._writes: list[Write] = []
        self._counts: dict[bytes, int] = {}
        self._new_kinds: dict[str, int] = {}
        self._made: dict[tuple[Family, bytes], bytes] = {}  # what jobs created here leave for later reads
        self._quarantined: dict[bytes, Unreadable] = {}
        self._steps: list[Step] = []  # what it did to the agenda
        self.bytes_found = 0  # of the rows that `find` found
        self.inserted = False  # a waiting row came: a waiting poll should look again
        self._served: bytes | None = None
        self._last_id: bytes | None = None  # of those made here
        self._moves: list[Change] = []
        self.refusals: list[tuple[LeaseUse, LeaseEnd]] = []  # of leases that are not current
        shared.agenda.begin(self.now)

    def policy(self, kind: str) -> Policy:
        """The rules in force for a kind."""
        return self.shared.policies.get(kind) or self.shared.policy(kind)

    # -- reading

    def find(self, job_id: bytes) -> Record | Unreadable | None:
        """The job as this unit has it; None: there is no such job."""
        slot = self._slots.get(job_id)
        if slot is not None:
            return slot.now
        if job_id in self._quarantined:
            return self._quarantined[job_id]
        slot = self.shared.known.take(job_id)
        if slot is not None and slot.key is not None:
            self._slots[job_id] = slot
            self.bytes_found += slot.size
            self._checks.append((JOBS, slot.key, self.sequence - 1))
            return slot.now
        place = self.read(IDS, job_id)
        if place is None:
            return None
        try:
            key, kind = parse_place(place, job_id)
        except ValueError:
            return Unreadable(place, None, 0)
        value = self.read(JOBS, key)
        if value is None:
            # In quarantine, unless another writer moved the row between the two reads: then look again.
            return Unreadable(key, None, kind) if self.read(IDS, job_id) == place else self.find(job_id)
        self.bytes_found += len(value)
        try:
            record = decode_record(key, value)
        except UnreadableError:
            return Unreadable(key, value, kind)
        self._slots[job_id] = slot_of(record, kind, key)
        return record

    def row_of(self, record: Record) -> Row | None:
        """The place in the agenda of a job found before, by the kind under which its entries stand."""
        return self._slots[record.job_id].row

    def read(self, family: Family, key: bytes) -> bytes | None:
        """One value, guarded: the commit fails if it changes before."""
        [(value, version)] = self.shared.store.read(((family, key),))
        self._checks.append((family, key, version))
        return value

    def _made_or_read(self, family: Family, key: bytes) -> bytes | None:
        return self._made.get((family, key)) or self.read(family, key)

    def named(self, scope: bytes, key: str) -> bytes | None:
        """The job that an idempotency key of a scope points to."""
        return self._made_or_read(IDEM, idem_key(scope, key))

    def payload(self, record: Record) -> bytes | None:
        """The encoded payload, wherever it lives; None: it is missing."""
        if record.payload is not None:
            return record.payload
        return self._made_or_read(PAYLOADS, record.job_id)

    # -- deciding

    def kind_number(self, kind: str) -> int:
        """The number of a kind, new ones interned by this unit's commit."""
        return self.intern(kind, "")

    def kinds_matching(self, patterns: Iterable[str]) -> frozenset[int]:
        """The numbers of the kinds that exact names and families accept, new ones of this unit among them."""
        found = self.shared.kinds.matching(patterns)
        if self._new_kinds:
            found |= Kinds({number: name for name, number in self._new_kinds.items()}).matching(patterns)
        return found

    def intern(self, kind: str, where: str) -> int:
        """The number of a kind. `where` is put before the field's name when there is no room for a new one."""
        number = self.shared.kinds.numbers.get(kind) or self._new_kinds.get(kind)
        if number is None:
            number = self.shared.kinds.next_number() + len(self._new_kinds)
            if number > KINDS_MAX:
                raise InvalidArgumentError(
                    f"{where}kind", f"would be number {number}; a queue knows at most {KINDS_MAX} kinds"
                )
            self._new_kinds[kind] = number
            self._writes.append((META, kind_key(number), kind.encode("utf-8")))
        return number

    def make_id(self, scope: bytes) -> bytes:
        """A new job id, above every other."""
        self._last_id = made = self.shared.ids.make(self.now, scope)
        return made

    def create(self, record: Record, kind: int, payload: bytes) -> None:
        """A new job of an interned kind. Its payload goes to a family of its own when the record does not hold it."""
        if record.key is not None:
            self._made[IDEM, idem_key(record.scope, record.key)] = record.job_id
        if record.payload is None:
            self._made[PAYLOADS, record.job_id] = payload
            self._writes.append((PAYLOADS, record.job_id, payload))
        self._slots[record.job_id] = Slot(kind)
        self.move(record.job_id, record)

    def move(self, job_id: bytes, record: Record | None) -> None:
        """The job found before becomes `record`; None: it goes."""
        slot = self._slots[job_id]
        old, kind, counts = slot.now, slot.kind, self._counts
        slot.now = record
        self._moves.append((kind, old, record))
        if old is None or record is None or old.state is not record.state:  # scope and kind never change
            if old is not None:
                counter = count_key(old.scope, kind, old.state)
                counts[counter] = counts.get(counter, 0) - 1
            if record is not None:
                counter = count_key(record.scope, kind, record.state)
                counts[counter] = counts.get(counter, 0) + 1
        if old is not None and record is not None:
            invariant(record.generation >= old.generation, "a generation never falls")
        row = None if record is None else ready_row(record, kind)
        if slot.row is not None:
            if row == slot.row:
                return
            self._leave(slot.row)
        if row is not None:
            self.inserted = True
            self._steps.append((row, True))
            self.shared.agenda.insert(row)
        slot.row = row

    def served(self, scope: bytes) -> None:
        """The scope got a grant: it goes to the tail of the ring, and the next open starts behind it."""
        self._served = scope
        self.shared.agenda.served(scope)

    # -- rows that are not what they should be

    def quarantine(self, bad: Unreadable, *, time: int | None = None) -> bool:
        """Move an unreadable row to quarantine; False when it is there already. `ids` and `idem` keep the job's place.

        `time`: where its entry in `ready` or `timers` stands, if the caller came from there; else it is searched for.
        """
        if bad.value is None:
            return False
        place = parse_job_key(bad.key)
        self._slots.pop(place.job_id, None)
        self._quarantined[place.job_id] = Unreadable(bad.key, None, bad.kind)
        self._writes += [
            (JOBS, bad.key, None),
            (QUARANTINE, quarantine_key(bad.key), bad.value),
        ]
        counter = count_key(place.scope, bad.kind, place.state)
        self._counts[counter] = self._counts.get(counter, 0) - 1
        if place.state in WAITING:
            for row in self.shared.ready_rows_of(place, bad.kind, time):
                self.drop_ready(row)
        if place.state is not PENDING:
            self._writes += [(TIMERS, key, None) for key in self.shared.timers_of(place.job_id, time)]
        self.shared.log_quarantine(place.job_id)
        return True

    def quarantine_found(self, record: Record) -> bool:
        """The same for a row that decodes but carries values that do not. False when the row is there no more."""
        key = row_key(record)
        return self.quarantine(Unreadable(key, self.read(JOBS, key), self.kind_number(record.kind)))

    def drop_ready(self, row: Row) -> None:
        """Remove a `ready` entry that no row explains."""
        self._writes.append((READY, ready_key(*row), None))
        self._leave(row)

    def drop_timer(self, key: bytes) -> None:
        """Remove a `timers` entry that no row explains."""
        self._writes.append((TIMERS, key, None))

    # -- the commit

    def commit(self) -> Conflict | None:
        """Write everything at once, or, when there is nothing to write, nothing.

        A conflict leaves everything as it was.
        """
        shared = self.shared
        token = shared.next_token()
        writes = self._all_writes(token)
        if not writes:
            return None
        adds = self._counts
        if len(self._moves) > 1:  # of several, some may come out even
            adds = {counter: delta for counter, delta in adds.items() if delta}
        answer = shared.commit(self._checks, writes, token, adds)
        if not isinstance(answer, Committed):
            self.roll_back()
            return answer
        for name, number in self._new_kinds.items():
            shared.kinds.add(number, name)
        if shared.observer is not None:
            shared.observer.committed(self._moves, len(self._quarantined))
        shared.counters.add(adds)
        self._remember(answer.sequence)
        return None

    def tell_refusals(self) -> None:
        """The reply is final: tell of the leases that it refuses."""
        if self.shared.observer is not None:
            for use, why in self.refusals:
                self.shared.observer.refused(use, why)

    def roll_back(self) -> None:
        """Forget what was decided; the agenda is as it was before."""
        self.shared.agenda.roll_back(self._steps)

    @property
    def mark(self) -> tuple[int, int]:
        """What it was before tells, by being equal, that nothing was changed since."""
        return len(self._moves), len(self._writes)

    def _all_writes(self, token: bytes) -> list[Write]:
        writes, sequence, pack = self._writes, self.sequence, self.shared.pack
        for slot in self._slots.values():
            if slot.before is not slot.now:
                write_slot(writes, slot, sequence, token, pack)
        if not writes:
            return writes
        if self._last_id is not None:
            writes.append((META, LAST_ID, self._last_id))
        if self._served is not None:
            writes.append((META, LAST_SERVED, self._served))
        return writes

    def _remember(self, sequence: int) -> None:
        """What this commit wrote is known, unless somebody else's commit came between."""
        known = self.shared.known
        if sequence != self.sequence:
            known.forget(sequence)
            return
        known.sequence = sequence
        known.keep(self._slots)

    def _leave(self, row: Row) -> None:
        self._steps.append((row, False))
        self.shared.agenda.remove(row)
