"""Look a job up for a call that names it, and the fence that every use of a lease passes."""

from uuid import UUID

from telha_jobs.core import decide
from telha_jobs.core.record import Record
from telha_jobs.engine.commands import Ref
from telha_jobs.engine.observer import LeaseUse
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.errors import JobNotFoundError, JobUnreadableError, StaleLeaseError, WrongStateError
from telha_jobs.types import State


class BadRowError(JobUnreadableError):
    """A call by id met an unreadable row that is not in quarantine yet: the engine moves it there in a commit of its
    own.
    """


def find_job(unit: Unit, job_id: bytes) -> Record:
    """The job. Raises `JobNotFoundError`, or `JobUnreadableError` when its row is bad."""
    record = unit.find(job_id)
    if record is None:
        raise JobNotFoundError(UUID(bytes=job_id))
    if isinstance(record, Unreadable):
        if record.value is not None:
            raise BadRowError(UUID(bytes=job_id))
        raise JobUnreadableError(UUID(bytes=job_id))
    return record


def stale_error(unit: Unit, record: Record, ref: Ref, use: LeaseUse) -> StaleLeaseError | None:
    """The refusal of a lease that is not current; None when it is."""
    stale = decide.stale(record, ref.generation)
    if stale is None:
        return None
    unit.refusals.append((use, stale.why))
    return StaleLeaseError(
        UUID(bytes=ref.job_id),
        generation=ref.generation,
        current_generation=record.generation,
        state=record.state,
        why=stale.why,
    )


def require_current(unit: Unit, record: Record, ref: Ref, use: LeaseUse) -> None:
    """The fence: raise `StaleLeaseError` unless the lease is current."""
    error = stale_error(unit, record, ref, use)
    if error is not None:
        raise error


def require_state(record: Record, needed: frozenset[State]) -> None:
    """Raise `WrongStateError` unless the job is in one of the states."""
    if record.state not in needed:
        raise WrongStateError(UUID(bytes=record.job_id), record.state, needed)
