"""Prove that every derived family follows from the rows of `jobs` (and `payloads`): what `check` does.

For each row every entry that follows from it must be there; and each family must have exactly as many entries as follow
from rows. Together that makes the families equal to what the rows say. Bounded memory: only the counters are held, and
the ids of the rows that cannot be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from telha_jobs.codec import UnreadableError, decode_record, unpack_value
from telha_jobs.core.log import state_after
from telha_jobs.core.record import Record, timer_of
from telha_jobs.engine.rows import ids_value, ready_row
from telha_jobs.keys import (
    COUNT_PREFIX,
    ID_BYTES,
    JOB_KEY_BYTES,
    LAST_ID,
    CountKey,
    after,
    count_key,
    idem_key,
    parse_count_key,
    parse_job_key,
    parse_place,
    ready_key,
    timer_key,
)
from telha_jobs.kinds import Kinds
from telha_jobs.recovery import pages
from telha_jobs.store.port import Family, Store
from telha_jobs.types import CheckReport

PROBLEMS_MAX = 1_000
"""Sentences in a report; a last one says that there are more."""

_DERIVED = (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM, Family.PAYLOADS)


@dataclass(slots=True)
class _Findings:
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    more: int = 0
    expected: dict[Family, int] = field(default_factory=lambda: dict.fromkeys(_DERIVED, 0))
    counts: dict[CountKey, int] = field(default_factory=dict)
    unread: set[bytes] = field(default_factory=set)  # jobs whose rows cannot be read and are not in quarantine yet
    quarantined: set[bytes] = field(default_factory=set)

    def add(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.more += 1


def check(store: Store, kinds: Kinds) -> CheckReport:
    """Read everything and compare. Changes nothing."""
    findings = _Findings()
    for key, value in pages(store, Family.JOBS, b"", None):
        findings.rows += 1
        _check_row(store, kinds, findings, key, value)
    quarantined = _quarantined(store, findings)
    _check_families(store, findings)
    _check_counters(store, findings)
    _check_last_id(store, findings)
    if findings.more:
        findings.problems.append(f"and {findings.more} more")
    return CheckReport(findings.rows, tuple(findings.problems), 0, tuple(quarantined))


def _check_row(store: Store, kinds: Kinds, findings: _Findings, key: bytes, value: bytes) -> None:
    try:
        record = decode_record(key, value)
    except UnreadableError as error:
        findings.add(
            f"jobs {key.hex()}: the row cannot be read ({error}); the next writer that meets it moves it to quarantine"
        )
        _expect_of_unreadable(store, findings, key)
        return
    name = UUID(bytes=record.job_id)
    number = kinds.numbers.get(record.kind)
    if number is None:
        findings.add(f"job {name}: its kind {record.kind!r} is not interned in meta")
        return
    for family, entry, wanted in _follows(record, key, number):
        findings.expected[family] += 1
        [found] = store.read(((family, entry),))
        if found.value != wanted:
            told = "is missing" if found.value is None else f"says {found.value.hex()}"
            should = wanted.hex() or "nothing"
            findings.add(f"job {name}: its entry in {family.value} ({entry.hex()}) {told}, it should say {should}")
    _check_values(store, findings, record)
    place = CountKey(record.scope, number, record.state)
    findings.counts[place] = findings.counts.get(place, 0) + 1


def _follows(record: Record, key: bytes, kind: int) -> Iterator[tuple[Family, bytes, bytes]]:
    yield Family.IDS, record.job_id, ids_value(key, kind)
    row = ready_row(record, kind)
    if row is not None:
        yield Family.READY, ready_key(*row), b""
    time = timer_of(record)
    if time is not None:
        yield Family.TIMERS, timer_key(time, record.job_id), b""
    if record.key is not None:
        yield Family.IDEM, idem_key(record.scope, record.key), record.job_id


def _check_values(store: Store, findings: _Findings, record: Record) -> None:
    """The payload, result and progress decode, and the event log ends in the job's state."""
    name = UUID(bytes=record.job_id)
    payload = record.payload
    if payload is None:
        findings.expected[Family.PAYLOADS] += 1
        [stored] = store.read(((Family.PAYLOADS, record.job_id),))
        payload = stored.value
        if payload is None:
            findings.add(f"job {name}: its payload is missing")
    for what, packed in (("payload", payload), ("result", record.result), ("progress", record.progress)):
        try:
            if packed is not None:
                unpack_value(packed)
        except UnreadableError as error:
            findings.add(f"job {name}: its {what} cannot be read ({error})")
    told = state_after(record.events)
    if told is not record.state:
        ends = told.value if told else "an impossible move"
        findings.add(f"job {name}: its log ends in {ends}, the row says {record.state.value}")


def _expect_of_unreadable(store: Store, findings: _Findings, key: bytes) -> None:
    """A row that cannot be read still explains the entries that name it: they are no orphans until it is moved."""
    if len(key) != JOB_KEY_BYTES:
        return
    job_id = key[-ID_BYTES:]
    [place] = store.read(((Family.IDS, job_id),))
    if place.value is None or place.value[:JOB_KEY_BYTES] != key:
        return
    findings.expected[Family.IDS] += 1
    findings.unread.add(job_id)
    _, kind = parse_place(place.value)
    named = parse_job_key(key)
    count = CountKey(named.scope, kind, named.state)
    findings.counts[count] = findings.counts.get(count, 0) + 1


def _quarantined(store: Store, findings: _Findings) -> list[UUID]:
    """The jobs in quarantine. They keep `ids`, `idem` and their payload, and are counted nowhere."""
    found: dict[bytes, None] = {}
    for key, _ in pages(store, Family.QUARANTINE, b"", None):
        job_id, row_key = key[:ID_BYTES], key[ID_BYTES:]
        [place] = store.read(((Family.IDS, job_id),))
        if job_id not in found and place.value is not None and place.value[:JOB_KEY_BYTES] == row_key:
            findings.expected[Family.IDS] += 1
            findings.quarantined.add(job_id)
        found[job_id] = None
    return [UUID(bytes=job_id) for job_id in found]


def _check_families(store: Store, findings: _Findings) -> None:
    for family in _DERIVED:
        entries = 0
        for key, value in pages(store, family, b"", None):
            entries += 1
            findings.expected[family] += _explained_unread(findings, family, key, value)
        if entries != findings.expected[family]:
            findings.add(f"{family.value}: {entries} entries, {findings.expected[family]} follow from the rows")


def _explained_unread(findings: _Findings, family: Family, key: bytes, value: bytes) -> bool:
    """Whether a row that cannot be read accounts for the entry: nobody can say more of it than whose it is."""
    match family:
        case Family.READY | Family.TIMERS:
            return key[-ID_BYTES:] in findings.unread
        case Family.IDEM:
            return value in findings.unread or value in findings.quarantined
        case Family.PAYLOADS:
            return key in findings.unread or key in findings.quarantined
        case Family.JOBS | Family.IDS | Family.QUARANTINE | Family.META:
            return False


def _check_counters(store: Store, findings: _Findings) -> None:
    stored: dict[CountKey, int] = {}
    for key, value in pages(store, Family.META, COUNT_PREFIX, after(COUNT_PREFIX)):
        try:
            stored[parse_count_key(key)] = int.from_bytes(value, "big", signed=True)
        except ValueError as error:
            findings.add(f"meta: {error}")
    for place in sorted(stored.keys() | findings.counts.keys(), key=lambda one: count_key(*one)):
        if stored.get(place, 0) != findings.counts.get(place, 0):
            findings.add(
                f"counter of scope {UUID(bytes=place.scope)}, kind {place.kind}, {place.state.value}: "
                f"says {stored.get(place, 0)}, the rows say {findings.counts.get(place, 0)}"
            )


def _check_last_id(store: Store, findings: _Findings) -> None:
    """New ids rise above `last_id`, so no job may stand above it."""
    [last] = store.read(((Family.META, LAST_ID),))
    above = store.scan(Family.IDS, (last.value or b"") + b"\0", None, 1)
    if above:
        findings.add(f"meta: last_id is {(last.value or b'').hex() or 'missing'}, below job {UUID(bytes=above[0][0])}")
