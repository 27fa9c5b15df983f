"""What a row says, and which entries of the derived families follow from it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from telha_jobs.codec import UnreadableError, decode_record, unpack_value
from telha_jobs.core.log import state_after
from telha_jobs.core.record import ELIDED, Record, timer_of
from telha_jobs.engine.rows import ids_value, ready_row
from telha_jobs.keys import (
    JOB_KEY_BYTES,
    idem_key,
    parse_job_key,
    parse_place,
    ready_key,
    timer_key,
)
from telha_jobs.store.port import Family, Store

Get = Callable[[Family, bytes], bytes | None]
"""Reads one value; None: absent."""

AHEAD_MAX_MS = 86_400_000
"""Ids may borrow from the milliseconds to come, but never a day's worth."""
PAGE_ROWS_MAX = 1_000
PAGE_BYTES = 4 * 1024 * 1024
"""What a page of rows should hold. The rows of the page before tell how many that are, so a page may hold more."""


class Entry(NamedTuple):
    """One pair of a derived family."""

    family: Family
    key: bytes
    value: bytes


class Row(NamedTuple):
    """A row of `jobs` that can be read."""

    key: bytes
    record: Record


def paged(store: Store, family: Family) -> Iterator[list[tuple[bytes, bytes]]]:
    """A whole family, a page at a time, so that large values cost no more memory than small ones."""
    start, limit = b"", 16
    while page := store.scan(family, start, None, limit):
        yield page
        if len(page) < limit:
            return
        start = page[-1][0] + b"\0"
        held = sum(len(key) + len(value) for key, value in page)
        limit = max(1, min(PAGE_ROWS_MAX, 4 * limit, limit * PAGE_BYTES // held))


def entries_of(record: Record, key: bytes, kind: int) -> list[Entry]:
    """What follows from a row at `key` in `ids`, `ready`, `timers` and `idem`."""
    entries = [Entry(Family.IDS, record.job_id, ids_value(key, kind))]
    row = ready_row(record, kind)
    if row is not None:
        entries.append(Entry(Family.READY, ready_key(*row), b""))
    time = timer_of(record)
    if time is not None:
        entries.append(Entry(Family.TIMERS, timer_key(time, record.job_id), b""))
    if record.key is not None:
        entries.append(Entry(Family.IDEM, idem_key(record.scope, record.key), record.job_id))
    return entries


def read_record(key: bytes, value: bytes | None) -> Record | str:
    """The record of a row, or what is wrong with it."""
    if value is None:
        return "there is none"
    try:
        return decode_record(key, value)
    except UnreadableError as error:
        return str(error)


def unreadable_values(record: Record, payload: bytes | None) -> list[str]:
    """What is wrong with the values that a record carries; `payload` is that of `payloads` where it belongs there."""
    packed = payload if record.payload is None else record.payload
    if packed is None:
        return ["its payload is missing"]
    wrong: list[str] = []
    for what, value in (("payload", packed), ("result", record.result), ("progress", record.progress)):
        try:
            if value is not None:
                unpack_value(value)
        except UnreadableError as error:
            wrong.append(f"its {what} cannot be read ({error})")
    return wrong


def wrong_log(record: Record) -> str | None:
    """What is wrong with a record's log: it has to end in the record's state."""
    try:
        told = state_after(record.events)
    except (LookupError, TypeError, ValueError):
        return "its log holds an event that this version does not know"
    if told is record.state:
        return None
    ends = told.value if told else "an impossible move"
    return f"its log ends in {ends}, the row says {record.state.value}"


def strength(record: Record) -> tuple[int, int, int]:
    """Of two rows of one job the stronger one stands: by generation, then by the length of the log, then the later.

    An elided entry of a log counts for the events that it swallowed.
    """
    events = sum(one.detail["count"] if one.transition == ELIDED else 1 for one in record.events)
    return record.generation, events, record.sequence


def place_of(value: bytes | None, job_id: bytes) -> tuple[bytes, int] | None:
    """The row's key and kind in a value of `ids`; None when it is none, or not of this job."""
    try:
        return parse_place(value or b"", job_id)
    except ValueError:
        return None


def is_job_key(key: bytes) -> bool:
    """Whether these bytes can be the key of a row: then `ids` can name it."""
    try:
        parse_job_key(key)
    except ValueError:
        return False
    return True


def names_a_job(key: bytes) -> bool:
    """Whether the key of a row is one that this library could have made: the id is of its scope, and of its time."""
    if not is_job_key(key):
        return False
    job = parse_job_key(key)
    number = int.from_bytes(job.job_id, "big")
    scope_bits = int.from_bytes(hashlib.sha256(job.scope).digest()[:2], "big")
    is_of_scope = (number >> 76 & 0xF, number >> 62 & 0b11, number >> 36 & 0xFFFF) == (7, 0b10, scope_bits)
    return is_of_scope and 0 <= (number >> 80) - job.created_at < AHEAD_MAX_MS


class Rows:
    """Looks rows up through `get`."""

    def __init__(self, get: Get) -> None:
        self.get = get

    def row(self, key: bytes, *, whole: bool = False) -> Row | None:
        """The row at `key`; None when there is none that can be read (`whole`: with everything it carries)."""
        record = read_record(key, self.get(Family.JOBS, key)) if len(key) == JOB_KEY_BYTES else "no key"
        if isinstance(record, str) or (whole and self.unreadable(record)):
            return None
        return Row(key, record)

    def named(self, job_id: bytes, *, whole: bool = False) -> Row | None:
        """The row that `ids` names for a job; None when there is none that can be read."""
        place = place_of(self.get(Family.IDS, job_id), job_id)
        return None if place is None else self.row(place[0], whole=whole)

    def unreadable(self, record: Record) -> list[str]:
        """What of the values that a record carries cannot be read."""
        return unreadable_values(record, self.get(Family.PAYLOADS, record.job_id) if record.payload is None else None)

    def holder(self, record: Record) -> bytes | None:
        """Another job that has the record's idempotency key, as `idem` tells; None when there is none."""
        if record.key is None:
            return None
        job_id = self.get(Family.IDEM, idem_key(record.scope, record.key))
        if job_id is None or job_id == record.job_id:
            return None
        other = self.named(job_id)
        same = other is not None and (other.record.scope, other.record.key) == (record.scope, record.key)
        return job_id if same else None
