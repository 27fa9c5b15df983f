"""Enqueue: one job, many, or the follow-ups of a completion (seed §6, idempotency by key within a scope)."""

from collections.abc import Sequence
from uuid import UUID

from telha_jobs.codec import UnreadableError, canonical, unpack_value
from telha_jobs.core import decide
from telha_jobs.core.record import Record
from telha_jobs.engine.commands import CreatedJob, Draft
from telha_jobs.engine.find import find_job
from telha_jobs.engine.rows import INLINE_PAYLOAD_BYTES_MAX
from telha_jobs.engine.unit import Unit
from telha_jobs.errors import IdempotencyConflictError, JobUnreadableError
from telha_jobs.rules import later
from telha_jobs.types import PENDING


def enqueue(unit: Unit, drafts: Sequence[Draft], *, field: str) -> list[CreatedJob]:
    """Create each job, or find the one its key names. Equals the sequence of singles; the first refusal refuses all.

    `field`: the argument that holds the drafts, so that a refusal names the position (`jobs[3].kind`).
    """
    return [enqueue_one(unit, draft, f"{field}[{index}].", index) for index, draft in enumerate(drafts)]


def enqueue_one(unit: Unit, draft: Draft, where: str = "", index: int | None = None) -> CreatedJob:
    """The same for one job; `where` is put before a field's name."""
    named = None if draft.key is None else unit.named(draft.scope, draft.key)
    if named is None or draft.key is None or unit.find(named) is None:
        return _create(unit, draft, where), True, PENDING
    existing = find_job(unit, named)
    if existing.key != draft.key or not _is_work_of(unit, draft, existing):
        raise IdempotencyConflictError(UUID(bytes=named), draft.key, index=index)
    return named, False, existing.state


def _is_work_of(unit: Unit, draft: Draft, record: Record) -> bool:
    """Whether the draft is the same work as the job: kind, payload version, and payload type for type."""
    if record.kind != draft.kind or record.payload_version != draft.payload_version:
        return False
    stored = unit.payload(record)
    if stored == draft.payload:
        return True
    try:
        return stored is not None and canonical(unpack_value(stored)) == canonical(draft.payload_value)
    except UnreadableError:
        raise JobUnreadableError(UUID(bytes=record.job_id)) from None


def _create(unit: Unit, draft: Draft, where: str) -> bytes:
    scope, kind, payload, _, priority, run_at, delay, max_attempts, key, headers, version = draft
    number = unit.intern(kind, where)
    job_id = unit.make_id(scope)
    now = unit.now
    if delay is not None:
        run_at = later(now, delay)
    due = now if run_at is None or run_at < now else run_at
    inline = payload if len(payload) <= INLINE_PAYLOAD_BYTES_MAX else None
    record = decide.enqueued(
        scope, priority, now, job_id, kind, inline, version, headers, run_at, due, max_attempts, key
    )
    unit.create(record, number, payload)
    return job_id
