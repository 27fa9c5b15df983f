"""Prove that every derived family follows from the rows of `jobs` (and `payloads`, and what is in `quarantine`).

For each row every entry that follows from it must be there; and each family must have exactly as many entries as follow
from rows. Together that makes the families equal to what the rows say. Bounded memory: only the counters are held, the
ids of the rows that cannot be read, and those in quarantine.
"""

from dataclasses import dataclass, field
from uuid import UUID

from telha_jobs.consistency.follows import (
    AHEAD_MAX_MS,
    Rows,
    entries_of,
    is_job_key,
    names_a_job,
    paged,
    place_of,
    read_record,
    wrong_log,
)
from telha_jobs.core.record import Record
from telha_jobs.keys import (
    COUNT_PREFIX,
    ID_BYTES,
    JOB_KEY_BYTES,
    KIND_PREFIX,
    LAST_ID,
    LAST_SERVED,
    CountKey,
    QuarantineKey,
    after,
    count_key,
    parse_count_key,
    parse_job_key,
    parse_quarantine_key,
)
from telha_jobs.kinds import Kinds, read_kinds
from telha_jobs.recovery import pages
from telha_jobs.store.port import Family, Store
from telha_jobs.types import CheckReport

PROBLEMS_MAX = 1_000
"""Sentences in a report; a last one says that there are more."""
DERIVED = (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM, Family.PAYLOADS)
"""The families whose entries are counted."""


@dataclass(slots=True)
class Findings:
    """What a check found, and what a repair needs to know before it begins.

    `damaged` are the jobs with a row in `jobs` that cannot be read, `unread` those of them that `ids` tells to have no
    other; `quarantined` the jobs with a row in quarantine (True: it is what is left of the job, False: the job has, or
    had, another row); `payloads_kept` those of these whose payload no row in `jobs` accounts for. `kinds_wrong`: the
    kinds in `meta` need mending.
    """

    rows: int = 0
    problems: list[str] = field(default_factory=list)
    more: int = 0
    expected: dict[Family, int] = field(default_factory=lambda: dict.fromkeys(DERIVED, 0))
    counts: dict[CountKey, int] = field(default_factory=dict)
    damaged: set[bytes] = field(default_factory=set)
    unread: set[bytes] = field(default_factory=set)
    quarantined: dict[bytes, bool] = field(default_factory=dict)
    payloads_kept: set[bytes] = field(default_factory=set)
    kinds_wrong: bool = False

    def add(self, problem: str) -> None:
        """One thing that is wrong."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.more += 1

    def count(self, place: CountKey) -> None:
        """One job more of a scope, kind and state."""
        self.counts[place] = self.counts.get(place, 0) + 1

    def report(self, *, repaired: int = 0) -> CheckReport:
        """What callers get."""
        told = (*self.problems, f"and {self.more:,} more") if self.more else tuple(self.problems)
        return CheckReport(self.rows, told, repaired, tuple(UUID(bytes=job_id) for job_id in self.quarantined))


def check(store: Store) -> CheckReport:
    """Read everything and compare. Changes nothing."""
    return examine(store).report()


def examine(store: Store) -> Findings:
    """The same, with all that was found."""
    findings = Findings()
    table = read_kinds(pages(store, Family.META, KIND_PREFIX, after(KIND_PREFIX)))
    for key, why in table.wrong:
        findings.kinds_wrong = True
        findings.add(f"meta: the kind at {key.hex()} makes no sense: {why}")
    looking = _Looking(store, Kinds(table.names), findings)
    for page in paged(store, Family.JOBS):
        for key, value in page:
            looking.at_row(key, value)
    for key, value in pages(store, Family.QUARANTINE, b"", None):
        looking.at_quarantined(parse_quarantine_key(key), value)
    _check_families(store, findings)
    _check_counters(store, findings)
    _check_last(store, findings)
    return findings


class _Looking:
    """The part of a check that goes row by row."""

    def __init__(self, store: Store, kinds: Kinds, findings: Findings) -> None:
        self._store = store
        self._kinds = kinds
        self._findings = findings
        self._rows = Rows(lambda family, key: store.read(((family, key),))[0].value)
        self._ids_kept: set[bytes] = set()

    def at_row(self, key: bytes, value: bytes) -> None:
        """A row of `jobs`."""
        findings = self._findings
        findings.rows += 1
        record = read_record(key, value)
        if isinstance(record, str):
            findings.add(
                f"jobs {key.hex()}: the row cannot be read ({record}); "
                "the next writer that meets it moves it to quarantine"
            )
            self._expect_of_unreadable(key)
            return
        job = UUID(bytes=record.job_id)
        number = self._kinds.numbers.get(record.kind)
        if number is None:
            findings.kinds_wrong = True
            findings.add(f"job {job}: its kind {record.kind!r} is not interned in meta")
            return
        place = place_of(self._rows.get(Family.IDS, record.job_id), record.job_id)
        if place is not None and place[0] != key and self._rows.row(place[0]) is not None:
            findings.add(f"job {job}: it has two rows, {key.hex()} and {place[0].hex()}, which ids names")
            return
        holder = self._rows.holder(record)
        for family, entry, wanted in entries_of(record, key, number):
            if family is Family.IDEM and holder is not None:
                findings.add(
                    f"job {job}: its idempotency key is that of job {UUID(bytes=holder)} too, which idem names; "
                    "end and discard one of them"
                )
                continue
            findings.expected[family] += 1
            found = self._rows.get(family, entry)
            if found != wanted:
                told = "is missing" if found is None else f"says {found.hex() or 'nothing'}"
                should = "" if found is None and not wanted else f", it should say {wanted.hex() or 'nothing'}"
                findings.add(f"job {job}: its entry in {family.value} ({entry.hex()}) {told}{should}")
        self._check_values(record)
        findings.count(CountKey(record.scope, number, record.state))

    def _check_values(self, record: Record) -> None:
        """The payload, result and progress decode, and the event log ends in the job's state."""
        if record.payload is None:
            self._findings.expected[Family.PAYLOADS] += 1
        wrong = self._rows.unreadable(record)
        log = wrong_log(record)
        for sentence in (*wrong, log):
            if sentence is not None:
                self._findings.add(f"job {UUID(bytes=record.job_id)}: {sentence}")

    def _expect_of_unreadable(self, key: bytes) -> None:
        """A row that cannot be read still explains the entries that name it: they are no orphans until it is moved."""
        if len(key) != JOB_KEY_BYTES:
            return
        job_id = key[-ID_BYTES:]
        self._findings.damaged.add(job_id)
        place = place_of(self._rows.get(Family.IDS, job_id), job_id)
        if place is None or place[0] != key:
            return
        self._findings.expected[Family.IDS] += 1
        self._findings.unread.add(job_id)
        named = parse_job_key(key)
        self._findings.count(CountKey(named.scope, place[1], named.state))

    def at_quarantined(self, kept: QuarantineKey, value: bytes) -> None:
        """A row in quarantine. Its job keeps `ids`, `idem` and its payload, and is counted nowhere."""
        findings, job = self._findings, UUID(bytes=kept.job_id)
        standing = findings.quarantined.get(kept.job_id, False)
        findings.quarantined[kept.job_id] = standing or not kept.superseded
        named = self._rows.named(kept.job_id)
        if named is None or named.record.payload is not None:
            findings.payloads_kept.add(kept.job_id)
        if kept.superseded:
            return
        if named is not None:
            findings.add(f"job {job}: a row of it is in quarantine ({kept.row_key.hex()}) beside the one that stands")
            return
        place = place_of(self._rows.get(Family.IDS, kept.job_id), kept.job_id)
        named_here = place is not None and (place[0] == kept.row_key or not is_job_key(kept.row_key))
        if named_here and kept.job_id not in self._ids_kept:
            findings.expected[Family.IDS] += 1
            self._ids_kept.add(kept.job_id)
        elif place is None and names_a_job(kept.row_key):
            findings.add(f"job {job}: it is in quarantine, and its entry in ids does not say so")
        record = read_record(kept.row_key, value)
        if isinstance(record, str) or self._rows.unreadable(record):
            return
        holder = self._rows.holder(record)
        if holder is None:
            findings.add(f"job {job}: its row in quarantine can be read again: a repair restores it")
            findings.kinds_wrong |= record.kind not in self._kinds.numbers
        else:
            findings.add(
                f"job {job}: its row in quarantine can be read again, but its idempotency key is that of "
                f"job {UUID(bytes=holder)} now: discard that one once it has ended, and repair"
            )


def _check_families(store: Store, findings: Findings) -> None:
    for family in DERIVED:
        entries = 0
        for page in paged(store, family):
            for key, value in page:
                entries += 1
                findings.expected[family] += _explained(findings, family, key, value)
        if entries != findings.expected[family]:
            findings.add(f"{family.value}: {entries} entries, {findings.expected[family]} follow from the rows")


def _explained(findings: Findings, family: Family, key: bytes, value: bytes) -> bool:
    """Whether a row that cannot be read accounts for the entry: nobody can say more of it than whose it is."""
    match family:
        case Family.READY | Family.TIMERS:
            return key[-ID_BYTES:] in findings.unread
        case Family.IDEM:
            return value in findings.unread or findings.quarantined.get(value, False)
        case Family.PAYLOADS:
            return key in findings.unread or key in findings.payloads_kept
        case Family.JOBS | Family.IDS | Family.QUARANTINE | Family.META:
            return False


def stored_counters(store: Store) -> tuple[dict[CountKey, int], list[tuple[bytes, str]]]:
    """The counters of `meta`, and the entries that are none (their key, and why)."""
    stored: dict[CountKey, int] = {}
    wrong: list[tuple[bytes, str]] = []
    for key, value in pages(store, Family.META, COUNT_PREFIX, after(COUNT_PREFIX)):
        try:
            place = parse_count_key(key)
        except ValueError as error:
            wrong.append((key, str(error)))
            continue
        number = int.from_bytes(value, "big", signed=True)
        if len(value) == 8 and number:
            stored[place] = number
        else:
            wrong.append((key, f"its value is {value[:32].hex() or 'nothing'}" if number else "it is zero"))
    return stored, wrong


def _check_counters(store: Store, findings: Findings) -> None:
    stored, wrong = stored_counters(store)
    for key, why in wrong:
        findings.add(f"meta: the counter at {key.hex()} makes no sense: {why}")
    for place in sorted(stored.keys() | findings.counts.keys(), key=lambda one: count_key(*one)):
        if stored.get(place, 0) != findings.counts.get(place, 0):
            findings.add(
                f"counter of scope {UUID(bytes=place.scope)}, kind {place.kind}, {place.state.value}: "
                f"says {stored.get(place, 0)}, the rows say {findings.counts.get(place, 0)}"
            )


def _check_last(store: Store, findings: Findings) -> None:
    """New ids rise above `last_id`, so no job may stand above it; the ring starts behind the scope `last_served`."""
    last, served = (one.value for one in store.read(((Family.META, LAST_ID), (Family.META, LAST_SERVED))))
    above = store.scan(Family.IDS, (last or b"") + b"\0", None, 1)
    if above:
        findings.add(f"meta: last_id is {(last or b'').hex() or 'missing'}, below job {above[0][0].hex()}")
    elif last is not None and not sane_last_id(store, last):
        findings.add(f"meta: last_id is {last.hex()}, which is no id that was made before now")
    if served is not None and len(served) != ID_BYTES:
        findings.add(f"meta: last_served is {served.hex()}, which is no scope")


def sane_last_id(store: Store, last: bytes) -> bool:
    """Whether these bytes can be the newest id."""
    number = int.from_bytes(last, "big")
    is_id = len(last) == ID_BYTES and (number >> 76 & 0xF, number >> 62 & 0b11) == (7, 0b10)
    return is_id and number >> 80 <= store.now() + AHEAD_MAX_MS
