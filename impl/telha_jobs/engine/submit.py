"""Complete and fail: the submits (seed §6).

Each is fenced by the lease's generation and remembered, so that a repeat is answered alike.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from telha_jobs.codec import digest, pack_plain, unpack_plain
from telha_jobs.core import decide
from telha_jobs.core.record import Record, Submit
from telha_jobs.engine.commands import CreatedJob, Draft, Ref
from telha_jobs.engine.enqueue import enqueue
from telha_jobs.engine.find import find_job, require_current, stale_error
from telha_jobs.engine.leases import outcome, readable
from telha_jobs.engine.unit import Unit
from telha_jobs.types import Outcome, State


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
        return [CreatedJob(*receipt) for receipt in unpack_plain(repeated)]
    require_current(record, ref)
    _end(unit, record, result, Submit(marked, pack_plain([])))
    if not follow_ups:
        return []
    receipts = enqueue(unit, follow_ups, field="enqueue")
    _remember(unit, ref.job_id, Submit(marked, pack_plain(receipts)))
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
        error = stale_error(record, ref)
        if error is not None:
            return outcome(ref.job_id, "stale", error=error)
        _end(unit, record, result, Submit(marked, pack_plain([])))
    return outcome(ref.job_id, "completed")


def fail(unit: Unit, ref: Ref, reason: str, *, as_given: str, retryable: bool) -> State:
    """Record a failure; the state the job is in afterwards. `as_given` is the reason uncut, for the digest."""
    record = find_job(unit, ref.job_id)
    marked = digest("fail", ref.generation, as_given, retryable)
    repeated = _repeated(record, marked)
    if repeated is not None:
        return State(unpack_plain(repeated))
    require_current(record, ref)
    failed = decide.failed(record, unit.terms(record.kind), reason=reason, retryable=retryable)
    unit.move(ref.job_id, failed._replace(submit=Submit(marked, pack_plain(failed.state.value))))
    return failed.state


def _complete_digest(ref: Ref, result: Result, follow_ups: Sequence[Draft]) -> bytes:
    return digest("complete", ref.generation, result.value, [draft.as_given() for draft in follow_ups])


def _repeated(record: Record, marked: bytes) -> bytes | None:
    """The recorded reply, when this is the newest recorded submit over again."""
    return record.submit.reply if record.submit is not None and record.submit.digest == marked else None


def _end(unit: Unit, record: Record, result: Result, submit: Submit) -> None:
    completed = decide.completed(record, unit.terms(record.kind), result=result.packed, submit=submit)
    unit.move(record.job_id, completed)


def _remember(unit: Unit, job_id: bytes, submit: Submit) -> None:
    unit.move(job_id, find_job(unit, job_id)._replace(submit=submit))
