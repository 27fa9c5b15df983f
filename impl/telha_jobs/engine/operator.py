"""Retry, cancel, discard: what an operator may do to a job (seed §7)."""

from telha_jobs.core import decide
from telha_jobs.core.record import ENDED, LIVE
from telha_jobs.engine.find import find_job, require_state
from telha_jobs.engine.unit import Unit
from telha_jobs.types import State


def retry(unit: Unit, job_id: bytes) -> None:
    """Dead to pending, with a fresh budget of attempts."""
    record = find_job(unit, job_id)
    require_state(record, frozenset({State.DEAD}))
    unit.move(job_id, decide.retried(record, unit.now, unit.policy(record.kind)))


def cancel(unit: Unit, job_id: bytes) -> None:
    """A live job to dead; its lease, if any, is no longer current."""
    record = find_job(unit, job_id)
    require_state(record, LIVE)
    unit.move(job_id, decide.cancelled(record, unit.now, unit.policy(record.kind)))


def discard(unit: Unit, job_id: bytes) -> None:
    """Remove an ended job and everything that follows from it; its key is free."""
    record = find_job(unit, job_id)
    require_state(record, ENDED)
    unit.move(job_id, None)
