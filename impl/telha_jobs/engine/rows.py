"""From a record to everything on disk that follows from it: the one place that keeps the families in step."""

from collections.abc import Callable
from typing import Any

from telha_jobs.agenda import Row
from telha_jobs.codec import encode_record
from telha_jobs.core.record import WAITING, Record, timer_of
from telha_jobs.keys import idem_key, job_key, ready_key, timer_key, u64
from telha_jobs.store.port import IDEM, IDS, JOBS, PAYLOADS, READY, TIMERS, Family, Write

INLINE_PAYLOAD_BYTES_MAX = 512
"""A larger payload lives in its own family and is written once."""


def row_key(record: Record) -> bytes:
    """The record's key in `jobs`."""
    return job_key(*record[:5])


def ready_row(record: Record, kind: int) -> Row | None:
    """The record's entry in `ready` and in the agenda; None when it is not waiting."""
    if record.state not in WAITING:
        return None
    return record.scope, kind, record.priority, record.due, record.job_id


def ids_value(key: bytes, kind: int) -> bytes:
    """What `ids` holds: the row's key, and the kind so that an unreadable row can still be told apart."""
    return key + u64(kind)


class Slot:
    """A job in a unit of work: its record as it was read and as it is now, and what of it is on disk.

    `row`: the entry in the agenda of `now`. `listed`, `key`, `timer`: what is on disk, of `before`: the entry in
    `ready`, the keys in `jobs` and `timers`; `size`: bytes of the row's value as it was written last.
    """

    __slots__ = ("before", "key", "kind", "listed", "now", "row", "size", "timer")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.before: Record | None = None
        self.now: Record | None = None
        self.row: Row | None = None
        self.key: bytes | None = None
        self.listed: Row | None = None
        self.timer: bytes | None = None
        self.size = 0


def slot_of(record: Record, kind: int, key: bytes) -> Slot:
    """The slot of a record that was read from the row at `key`."""
    slot = Slot(kind)
    slot.before = slot.now = record
    slot.key = key
    slot.row = slot.listed = ready_row(record, kind)
    time = timer_of(record)
    slot.timer = None if time is None else timer_key(time, record.job_id)
    return slot


def write_slot(writes: list[Write], slot: Slot, sequence: int, token: bytes, pack: Callable[[Any], bytes]) -> None:
    """Add the writes that make every family follow from `now` (None: no such job) instead of `before`.

    The slot's keys become those of `now`: after a commit that was refused it is of no use any more.
    """
    new = slot.now
    if new is None:
        if slot.before is not None and slot.key is not None:
            _remove(writes, slot, slot.before, slot.key)
        return
    key, value = encode_record(new, sequence, token, pack)
    writes.append((JOBS, key, value))
    row, time = slot.row, timer_of(new)
    timer = None if time is None else timer_key(time, new.job_id)
    if slot.key is None:
        writes.append((IDS, new.job_id, key + u64(slot.kind)))
        if new.key is not None:
            writes.append((IDEM, idem_key(new.scope, new.key), new.job_id))
    elif key != slot.key:
        writes.append((IDS, new.job_id, key + u64(slot.kind)))
        writes.append((JOBS, slot.key, None))
    if row is not slot.listed:
        _move(writes, READY, slot.listed and ready_key(*slot.listed), row and ready_key(*row))
    if timer is not slot.timer:
        _move(writes, TIMERS, slot.timer, timer)
    slot.key, slot.listed, slot.timer, slot.size = key, row, timer, len(value)


def _remove(writes: list[Write], slot: Slot, old: Record, key: bytes) -> None:
    writes += [(JOBS, key, None), (IDS, old.job_id, None)]
    if old.key is not None:
        writes.append((IDEM, idem_key(old.scope, old.key), None))
    if old.payload is None:
        writes.append((PAYLOADS, old.job_id, None))
    _move(writes, READY, slot.listed and ready_key(*slot.listed), None)
    _move(writes, TIMERS, slot.timer, None)


def _move(writes: list[Write], family: Family, old: bytes | None, new: bytes | None) -> None:
    if old is not None:
        if old == new:
            return
        writes.append((family, old, None))
    if new is not None:
        writes.append((family, new, b""))
