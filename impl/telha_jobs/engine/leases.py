"""Grant, extend and release leases (seed §3, §6)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from telha_jobs.agenda import Row
from telha_jobs.codec import UnreadableError, unpack_value
from telha_jobs.core import decide
from telha_jobs.core.record import Record
from telha_jobs.engine.commands import Filters, Ref
from telha_jobs.engine.find import find_job, require_current, stale_error
from telha_jobs.engine.rows import ready_row
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.errors import JobNotFoundError, JobUnreadableError, QueueError
from telha_jobs.keys import ready_key
from telha_jobs.store.port import Family
from telha_jobs.types import Lease, Outcome, OutcomeStatus, over_fields, uuid_of


class Grant(NamedTuple):
    """A leased record and its decoded payload and progress."""

    record: Record
    payload: Any
    progress: Any


def grant(unit: Unit, worker: str, limit: int, filters: Filters) -> list[Lease]:
    """Lease up to `limit` jobs, one after another in exact order.

    Rows that cannot be read go to quarantine on the way.
    """
    return grant_kinds(unit, worker, limit, kinds_of(unit, filters), filters.scopes)


def kinds_of(unit: Unit, filters: Filters) -> frozenset[int] | None:
    """The numbers of the kinds that the filters accept; None: every kind."""
    return None if filters.kinds is None else unit.kinds_matching(filters.kinds)


def grant_kinds(
    unit: Unit, worker: str, limit: int, kinds: frozenset[int] | None, scopes: frozenset[bytes] | None
) -> list[Lease]:
    """The same for who grants again and again under the same filters."""
    leases: list[Lease] = []
    shared = unit.shared
    incarnation = shared.store.incarnation
    while len(leases) < limit:
        row = shared.agenda.first(kinds, scopes)
        if row is None:
            break
        record = _candidate(unit, row)
        if record is None:
            continue
        carried = _carried(unit, row, record)
        if carried is None:
            continue
        leased = decide.granted(record, unit.now, unit.policy(record.kind), worker=worker, incarnation=incarnation)
        unit.move(record.job_id, leased)
        unit.served(record.scope)
        leases.append(_lease(leased, *carried))
    return leases


def _candidate(unit: Unit, row: Row) -> Record | None:
    """The record behind an agenda row; None after getting a row out of the way that no record explains."""
    _, _, _, due, job_id = row
    record = unit.find(job_id)
    if isinstance(record, Unreadable) and unit.quarantine(record, time=due):
        return None
    # By the kind that `ids` has, or by that of `meta`: neither being damaged costs a job its place.
    if isinstance(record, Record) and (
        unit.row_of(record) == row or ready_row(record, unit.shared.kinds.numbers.get(record.kind, 0)) == row
    ):
        return record
    unit.drop_ready(row)
    unit.shared.count_orphan(Family.READY, ready_key(*row))
    return None


def _carried(unit: Unit, row: Row, record: Record) -> tuple[Any, Any] | None:
    """Payload and progress; None after moving a row to quarantine whose values cannot be decoded."""
    payload = unit.payload(record) or b""  # a missing one reads as an empty one: unreadable
    try:
        return unpack_value(payload), None if record.progress is None else unpack_value(record.progress)
    except UnreadableError:
        if not unit.quarantine_found(record):
            unit.drop_ready(row)  # another writer took the row meanwhile: the commit will meet that, and look again
        return None


_make_lease = over_fields(Lease)
_scope_uuid = lru_cache(maxsize=4_096)(uuid_of)


def _lease(record: Record, payload: Any, progress: Any) -> Lease:
    fields = {
        "job_id": uuid_of(record.job_id),
        "generation": record.generation,
        "scope": _scope_uuid(record.scope),
        "kind": record.kind,
        "payload": payload,
        "payload_version": record.payload_version,
        "headers": dict(record.headers),
        "attempt": record.attempts + 1,
        "deadline_ms": record.deadline or 0,
        "worker": record.worker or "",
        "progress": progress,
    }
    return _make_lease(fields)


def extend(unit: Unit, refs: Sequence[Ref], progress: Mapping[bytes, bytes]) -> list[Outcome]:
    """Move deadlines on; one outcome per lease, in order, as the singles would give them."""
    return [_extend_one(unit, ref, progress.get(ref.job_id)) for ref in refs]


def _extend_one(unit: Unit, ref: Ref, progress: bytes | None) -> Outcome:
    record = readable(unit, ref.job_id)
    if isinstance(record, Outcome):
        return record
    error = stale_error(unit, record, ref, "extend")
    if error is not None:
        return outcome(ref.job_id, "stale", error=error)
    extended, at_limit = decide.extended(record, unit.now, unit.policy(record.kind), progress=progress)
    unit.move(ref.job_id, extended)
    return outcome(ref.job_id, "at_limit" if at_limit else "extended", deadline_ms=extended.deadline)


def release(unit: Unit, ref: Ref, delay_ms: int) -> None:
    """Give a job back untried; after its deadline this is an expiry."""
    record = find_job(unit, ref.job_id)
    require_current(unit, record, ref, "release")
    unit.move(ref.job_id, decide.released(record, unit.now, unit.policy(record.kind), delay_ms=delay_ms))


def readable(unit: Unit, job_id: bytes) -> Record | Outcome:
    """The job for one item of a bulk call, or the outcome that says it is not there (or cannot be read)."""
    record = unit.find(job_id)
    if record is None:
        return outcome(job_id, "not_found", error=JobNotFoundError(UUID(bytes=job_id)))
    if isinstance(record, Unreadable):
        unit.quarantine(record)
        return outcome(job_id, "not_found", error=JobUnreadableError(UUID(bytes=job_id)))
    return record


def outcome(
    job_id: bytes, status: OutcomeStatus, *, deadline_ms: int | None = None, error: QueueError | None = None
) -> Outcome:
    """One item's outcome."""
    return Outcome(UUID(bytes=job_id), status, deadline_ms, error)
