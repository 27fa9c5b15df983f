"""What becomes of a record: one pure function for each move of the state machine (seed §3; docs/semantics.md has the
table).

Each takes the record as read and returns the record to write. Whether a call is admitted at all is decided by the
admission functions at the end;
they return a `Refused` or None.
"""

from dataclasses import dataclass
from typing import NamedTuple

from telha_jobs.config import Policy
from telha_jobs.core import record as log
from telha_jobs.core.backoff import backoff_ms
from telha_jobs.core.log import appended
from telha_jobs.core.record import LogEntry, Record, Submit
from telha_jobs.errors import LeaseEnd
from telha_jobs.rules import later
from telha_jobs.types import State


class Terms(NamedTuple):
    """What a decision needs to know besides the record: the time and the rules in force for the job's kind."""

    now: int
    policy: Policy
    events_max: int
    retention_completed_ms: int | None
    retention_dead_ms: int | None

    def purge_at(self, retention_ms: int | None) -> int | None:
        """When a job that ends now is purged."""
        return None if retention_ms is None else later(self.now, retention_ms)


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease is not current, and how it came to its end."""

    why: LeaseEnd


def enqueued(now: int, *, due: int) -> tuple[LogEntry, ...]:
    """The log of a new job."""
    return (LogEntry(now, log.ENQUEUED, {"due": due}),)


def granted(record: Record, terms: Terms, *, worker: str, incarnation: int) -> Record:
    """Lease a due job. The generation rises past every one that an earlier incarnation may have handed out and lost."""
    generation = max(record.generation + 1, incarnation << 32)
    leased = LogEntry(
        terms.now, log.LEASED, {"worker": worker, "generation": generation, "attempt": record.attempts + 1}
    )
    promoted = (LogEntry(terms.now, log.PROMOTED, {}),) if record.state is State.FAILED else ()
    return record._replace(
        state=State.LEASED,
        generation=generation,
        lease_end=None,
        worker=worker,
        leased_at=terms.now,
        deadline=later(terms.now, terms.policy.lease_ttl_ms),
        events=appended(record.events, (*promoted, leased), terms.events_max),
    )


def extended(record: Record, terms: Terms, *, progress: bytes | None) -> tuple[Record, bool]:
    """Move the deadline on, never back; True when `max_lease_age` held it."""
    target = later(terms.now, terms.policy.lease_ttl_ms)
    at_limit = False
    if terms.policy.max_lease_age_ms is not None:
        limit = later(record.leased_at or 0, terms.policy.max_lease_age_ms)
        at_limit = target > limit
        target = min(target, limit)
    deadline = max(record.deadline or 0, target)
    kept = record.progress if progress is None else progress
    return record._replace(deadline=deadline, progress=kept), at_limit


def completed(record: Record, terms: Terms, *, result: bytes, submit: Submit) -> Record:
    """The worker's result is in."""
    detail = {"generation": record.generation, "attempts": record.attempts}
    ended = _unleased(record, terms, LogEntry(terms.now, log.COMPLETED, detail), end="completed")
    return ended._replace(
        state=State.COMPLETED,
        result=result,
        submit=submit,
        ended_at=terms.now,
        purge_at=terms.purge_at(terms.retention_completed_ms),
    )


def failed(record: Record, terms: Terms, *, reason: str, retryable: bool) -> Record:
    """The worker reports a failure: back-off, or death when it is final. The caller adds the submit."""
    attempts = record.attempts + 1
    if not retryable:
        return _died(record, terms, attempts=attempts, reason=reason, dead_reason="rejected", end="failed")
    if attempts >= _ceiling(record, terms):
        return _died(record, terms, attempts=attempts, reason=reason, dead_reason="attempts", end="failed")
    return _retrying(record, terms, attempts=attempts, reason=reason, state=State.FAILED)


def reaped(record: Record, terms: Terms) -> Record:
    """The lease ran out: the attempt counts, and the job waits out a back-off or is dead."""
    attempts = record.attempts + 1
    if attempts >= _ceiling(record, terms):
        return _died(record, terms, attempts=attempts, reason="expired", dead_reason="expired", end="reaped")
    return _retrying(record, terms, attempts=attempts, reason="expired", state=State.PENDING)


def released(record: Record, terms: Terms, *, delay_ms: int) -> Record:
    """The worker gives the job back untried: the same place in the order, or a later one. Late, it is an expiry."""
    if record.deadline is not None and record.deadline <= terms.now:
        return reaped(record, terms)
    due = max(record.due, later(terms.now, delay_ms)) if delay_ms > 0 else record.due
    detail = {"generation": record.generation, "attempts": record.attempts, "due": due}
    back = _unleased(record, terms, LogEntry(terms.now, log.RELEASED, detail), end="released")
    return back._replace(state=State.PENDING, due=due)


def promoted(record: Record, terms: Terms) -> Record:
    """The back-off is over. The due time stays, so the order does not depend on when the sweep ran."""
    events = appended(record.events, (LogEntry(terms.now, log.PROMOTED, {}),), terms.events_max)
    return record._replace(state=State.PENDING, events=events)


def retried(record: Record, terms: Terms) -> Record:
    """An operator gives a dead job a fresh budget. The generation is never reset."""
    due = max(terms.now, record.run_at or 0)
    events = appended(record.events, (LogEntry(terms.now, log.RETRIED, {"due": due}),), terms.events_max)
    return record._replace(
        state=State.PENDING, attempts=0, due=due, ended_at=None, purge_at=None, dead_reason=None, events=events
    )


def cancelled(record: Record, terms: Terms) -> Record:
    """An operator ends a live job; a lease on it is no longer current."""
    detail = {"reason": "cancelled", "generation": record.generation, "attempts": record.attempts}
    entry = LogEntry(terms.now, log.CANCELLED, detail)
    end = "cancelled" if record.state is State.LEASED else record.lease_end
    return _unleased(record, terms, entry, end=end)._replace(
        state=State.DEAD,
        dead_reason="cancelled",
        ended_at=terms.now,
        purge_at=terms.purge_at(terms.retention_dead_ms),
    )


def stale(record: Record, generation: int) -> Stale | None:
    """The fence: None when (job, generation) is the current lease, else why it is not.

    The worker's name plays no part.
    """
    if generation == 0 or generation > record.generation:
        return Stale("never_leased")
    if generation < record.generation:
        return Stale("superseded")
    if record.state is State.LEASED:
        return None
    return Stale(_END_NAMES[record.lease_end or "never_leased"])


_END_NAMES: dict[str, LeaseEnd] = {
    "reaped": "reaped",
    "released": "released",
    "cancelled": "cancelled",
    "completed": "completed",
    "failed": "failed",
    "never_leased": "never_leased",
}


def _ceiling(record: Record, terms: Terms) -> int:
    return terms.policy.max_attempts if record.max_attempts is None else record.max_attempts


def _unleased(record: Record, terms: Terms, entry: LogEntry, *, end: str | None) -> Record:
    return record._replace(
        worker=None,
        leased_at=None,
        deadline=None,
        lease_end=end,
        events=appended(record.events, (entry,), terms.events_max),
    )


def _retrying(record: Record, terms: Terms, *, attempts: int, reason: str, state: State) -> Record:
    due = later(terms.now, backoff_ms(terms.policy.backoff, attempts))
    detail = {"reason": reason, "generation": record.generation, "attempts": attempts, "due": due}
    failed_now = state is State.FAILED
    entry = LogEntry(terms.now, log.FAILED if failed_now else log.REAPED, detail)
    after = _unleased(record, terms, entry, end="failed" if failed_now else "reaped")
    return after._replace(state=state, attempts=attempts, due=due)


def _died(record: Record, terms: Terms, *, attempts: int, reason: str, dead_reason: str, end: str) -> Record:
    detail = {"reason": reason, "generation": record.generation, "attempts": attempts, "dead_reason": dead_reason}
    return _unleased(record, terms, LogEntry(terms.now, log.DEAD, detail), end=end)._replace(
        state=State.DEAD,
        attempts=attempts,
        dead_reason=dead_reason,
        ended_at=terms.now,
        purge_at=terms.purge_at(terms.retention_dead_ms),
    )
