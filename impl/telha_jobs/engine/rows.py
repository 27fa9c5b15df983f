"""From a record to everything on disk that follows from it: the one place that keeps the families in step."""

from telha_jobs.agenda import Row, make_row
from telha_jobs.codec import encode_record
from telha_jobs.core.record import WAITING, Record, timer_of
from telha_jobs.keys import idem_key, job_key, ready_key, timer_key, u64
from telha_jobs.store.port import Family, Write, make_delete, make_put

INLINE_PAYLOAD_BYTES_MAX = 512
"""A larger payload lives in its own family and is written once."""


def row_key(record: Record) -> bytes:
    """The record's key in `jobs`."""
    return job_key(*record[:5])


def ready_row(record: Record, kind: int) -> Row | None:
    """The record's entry in `ready` and in the agenda; None when it is not waiting."""
    if record.state not in WAITING:
        return None
    return make_row((record.scope, kind, record.priority, record.due, record.job_id))


def ids_value(key: bytes, kind: int) -> bytes:
    """What `ids` holds: the row's key, and the kind so that an unreadable row can still be told apart."""
    return key + u64(kind)


def writes_for(
    writes: list[Write], old: Record | None, new: Record | None, kind: int, *, sequence: int, token: bytes
) -> int:
    """Add the writes that turn the families that follow from `old` into those of `new` (None: no such job).

    Returns the size of the new row in bytes.
    """
    if new is None:
        if old is not None:
            _remove(writes, old, kind)
        return 0
    key, value = encode_record(new, sequence=sequence, token=token)
    writes.append(make_put((Family.JOBS, key, value)))
    ready, timer = _entries(new, kind)
    old_ready, old_timer = (None, None) if old is None else _entries(old, kind)
    if old is None or old.state is not new.state:
        writes.append(make_put((Family.IDS, new.job_id, key + u64(kind))))
        if old is not None:
            writes.append(make_delete((Family.JOBS, row_key(old))))
        elif new.key is not None:
            writes.append(make_put((Family.IDEM, idem_key(new.scope, new.key), new.job_id)))
    if ready != old_ready:
        _move(writes, Family.READY, old_ready, ready)
    if timer != old_timer:
        _move(writes, Family.TIMERS, old_timer, timer)
    return len(value)


def _remove(writes: list[Write], old: Record, kind: int) -> None:
    writes += [make_delete((Family.JOBS, row_key(old))), make_delete((Family.IDS, old.job_id))]
    if old.key is not None:
        writes.append(make_delete((Family.IDEM, idem_key(old.scope, old.key))))
    if old.payload is None:
        writes.append(make_delete((Family.PAYLOADS, old.job_id)))
    ready, timer = _entries(old, kind)
    _move(writes, Family.READY, ready, None)
    _move(writes, Family.TIMERS, timer, None)


def _entries(record: Record, kind: int) -> tuple[bytes | None, bytes | None]:
    """The record's keys in `ready` and `timers`; None where it has no entry."""
    job_id, time = record.job_id, timer_of(record)
    ready = None
    if record.state in WAITING:
        ready = ready_key(record.scope, kind, record.priority, record.due, job_id)
    return ready, None if time is None else timer_key(time, job_id)


def _move(writes: list[Write], family: Family, old: bytes | None, new: bytes | None) -> None:
    if old is not None:
        writes.append(make_delete((family, old)))
    if new is not None:
        writes.append(make_put((family, new, b"")))
