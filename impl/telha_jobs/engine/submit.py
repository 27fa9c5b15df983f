"""Complete and fail: the submits (seed §6).

Each is fenced by the lease's generation and remembered, so that a repeat is answered alike.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from telha_jobs.codec import digest, pack_plain, unpack_plain
from telha_jobs.core import decide
from telha_jobs.core.record import Record, changed
from telha_jobs.engine.commands import CreatedJob, Draft, Ref
from telha_jobs.engine.enqueue import enqueue
from telha_jobs.engine.find import find_job, require_current, stale_error
from telha_jobs.engine.leases import outcome, readable
from telha_jobs.engine.unit import Unit
from telha_jobs.types import Outcome, State

_NO_RECEIPTS = pack_plain([])


class Result(NamedTuple):
    """A result as given (for the digest) and encoded."""

    value: Any
    packed: bytes


def complete(unit: Unit, ref: Ref, result: Result, follow_ups: Sequence[Draft]) -> list[CreatedJob]:
    """End the job as completed and create its follow-ups in the same commit; their receipts in order."""
    record = find_job(unit, ref.job_id)
    marked = _complete_digest(ref, result, follow_ups)
    repeated = _repeated(record, marked)
    if repeated is not None:
        return [(job_id, created, State(state)) for job_id, created, state in unpack_plain(repeated)]
    require_current(unit, record, ref, "complete")
    _end(unit, record, result, marked)
    if not follow_ups:
        return []
    receipts = enqueue(unit, follow_ups, field="enqueue")
    unit.move(
        ref.job_id,
        changed(
            find_job(unit, ref.job_id),
            submit_reply=pack_plain([(job_id, created, state.value) for job_id, created, state in receipts]),
        ),
    )
    return receipts


def complete_many(unit: Unit, items: Sequence[tuple[Ref, Result]]) -> list[Outcome]:
    """Complete each lease; one outcome per item, in order, as the singles would give them."""
    return [_complete_one(unit, ref, result) for ref, result in items]


def _complete_one(unit: Unit, ref: Ref, result: Result) -> Outcome:
    record = readable(unit, ref.job_id)
    if isinstance(record, Outcome):
        return record
    marked = _complete_digest(ref, result, ())
    if _repeated(record, marked) is None:
        error = stale_error(unit, record, ref, "complete")
        if error is not None:
            return outcome(ref.job_id, "stale", error=error)
        _end(unit, record, result, marked)
    return outcome(ref.job_id, "completed")


def fail(unit: Unit, ref: Ref, reason: str, *, as_given: str, retryable: bool) -> State:
    """Record a failure; the state the job is in afterwards. `as_given` is the reason uncut, for the digest."""
    record = find_job(unit, ref.job_id)
    marked = digest("fail", ref.generation, as_given, retryable)
    repeated = _repeated(record, marked)
    if repeated is not None:
        return State(unpack_plain(repeated))
    require_current(unit, record, ref, "fail")
    failed = decide.failed(record, unit.now, unit.policy(record.kind), reason=reason, retryable=retryable)
    unit.move(ref.job_id, changed(failed, submit_digest=marked, submit_reply=pack_plain(failed.state.value)))
    return failed.state


def _complete_digest(ref: Ref, result: Result, follow_ups: Sequence[Draft]) -> bytes:
    return digest("complete", ref.generation, result.value, [draft.as_given() for draft in follow_ups])


def _repeated(record: Record, marked: bytes) -> bytes | None:
    """The recorded reply, when this is the newest recorded submit over again."""
    return record.submit_reply if record.submit_digest == marked else None


def _end(unit: Unit, record: Record, result: Result, marked: bytes) -> None:
    policy = unit.policy(record.kind)
    completed = decide.completed(record, unit.now, policy, result=result.packed, digest=marked, reply=_NO_RECEIPTS)
    unit.move(record.job_id, completed)
