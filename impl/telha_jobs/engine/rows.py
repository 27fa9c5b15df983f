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


def writes_for(old: Record | None, new: Record | None, kind: int, *, sequence: int, token: bytes) -> list[Write]:
    """The writes that turn the families that follow from `old` into those of `new` (None: no such job)."""
    if new is None:
        return [] if old is None else _removal(old, kind)
    new_key, value = encode_record(new, sequence=sequence, token=token)
    writes: list[Write] = [make_put((Family.JOBS, new_key, value))]
    if old is None:
        writes.append(make_put((Family.IDS, new.job_id, new_key + u64(kind))))
        if new.key is not None:
            writes.append(make_put((Family.IDEM, idem_key(new.scope, new.key), new.job_id)))
    elif old.state is not new.state:
        writes.append(make_delete((Family.JOBS, row_key(old))))
        writes.append(make_put((Family.IDS, new.job_id, new_key + u64(kind))))
    _move(writes, Family.READY, _ready(old, kind), _ready(new, kind))
    _move(writes, Family.TIMERS, _timer(old), _timer(new))
    return writes


def _removal(old: Record, kind: int) -> list[Write]:
    writes: list[Write] = [make_delete((Family.JOBS, row_key(old))), make_delete((Family.IDS, old.job_id))]
    if old.key is not None:
        writes.append(make_delete((Family.IDEM, idem_key(old.scope, old.key))))
    if old.payload is None:
        writes.append(make_delete((Family.PAYLOADS, old.job_id)))
    _move(writes, Family.READY, _ready(old, kind), None)
    _move(writes, Family.TIMERS, _timer(old), None)
    return writes


def _ready(record: Record | None, kind: int) -> bytes | None:
    if record is None or record.state not in WAITING:
        return None
    return ready_key(record.scope, kind, record.priority, record.due, record.job_id)


def _timer(record: Record | None) -> bytes | None:
    time = None if record is None else timer_of(record)
    return None if record is None or time is None else timer_key(time, record.job_id)


def _move(writes: list[Write], family: Family, old: bytes | None, new: bytes | None) -> None:
    if old == new:
        return
    if old is not None:
        writes.append(make_delete((family, old)))
    if new is not None:
        writes.append(make_put((family, new, b"")))
