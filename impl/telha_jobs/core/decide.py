"""What becomes of a record: one pure function for each move of the state machine (seed §3; docs/semantics.md has the
table).

Each takes the record as read, the time and the policy in force for its kind, and returns the record to write. `stale`
is the fence that every use of a lease passes first.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from telha_jobs.config import Policy
from telha_jobs.core import record as log
from telha_jobs.core.backoff import backoff_ms
from telha_jobs.core.log import appended
from telha_jobs.core.record import LogEntry, Record, changed
from telha_jobs.errors import LeaseEnd
from telha_jobs.rules import later
from telha_jobs.types import COMPLETED, DEAD, FAILED, LEASED, PENDING, State, named

_PRIORITY, _GENERATION, _LEASE_END, _ENDED_AT, _PROGRESS, _EVENTS = map(
    Record._fields.index, ("priority", "generation", "lease_end", "ended_at", "progress", "events")
)


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease is not current, and how it came to its end."""

    why: LeaseEnd


def enqueued(
    scope: bytes,
    priority: int,
    now: int,
    job_id: bytes,
    kind: str,
    payload: bytes | None,
    payload_version: int,
    headers: dict[str, str],
    run_at: int | None,
    due: int,
    max_attempts: int | None,
    key: str | None,
) -> Record:
    """A new job, pending."""
    return named(
        Record,
        (
            scope,
            PENDING,
            priority,
            now,
            job_id,
            kind,
            payload,
            payload_version,
            headers,
            run_at,
            due,
            0,  # attempts
            max_attempts,
            0,  # generation
            None,  # lease_end
            None,  # worker
            None,  # leased_at
            None,  # deadline
            None,  # ended_at
            None,  # purge_at
            None,  # dead_reason
            None,  # submit_digest
            None,  # submit_reply
            None,  # result
            None,  # progress
            key,
            0,  # sequence, token: the row's encoding puts them in
            b"",
            _first_entries(now, due),
            (),  # unknown
        ),
    )


@lru_cache(maxsize=1)
def _first_entries(now: int, due: int) -> tuple[LogEntry, ...]:
    """The log of a new job, which jobs of one moment share: a backlog is many of them, in memory at once."""
    return (named(LogEntry, (now, log.ENQUEUED, {"due": due})),)


def granted(record: Record, now: int, policy: Policy, *, worker: str, incarnation: int) -> Record:
    """Lease a due job. The generation rises past every one that an earlier incarnation may have handed out and lost."""
    generation = record.generation + 1
    if generation < incarnation << 32:
        generation = incarnation << 32
    leased = named(
        LogEntry, (now, log.LEASED, {"worker": worker, "generation": generation, "attempt": record.attempts + 1})
    )
    entries = (named(LogEntry, (now, log.PROMOTED, {})), leased) if record.state is FAILED else (leased,)
    # As `changed` would, at a fraction of its cost: every job comes by here, and by `completed`.
    return named(
        Record,
        (
            record.scope,
            LEASED,
            *record[_PRIORITY:_GENERATION],
            generation,
            None,  # lease_end
            worker,
            now,  # leased_at
            later(now, policy.lease_ttl_ms),
            *record[_ENDED_AT:_EVENTS],
            appended(record.events, entries, policy.events_max),
            record.unknown,
        ),
    )


def extended(record: Record, now: int, policy: Policy, *, progress: bytes | None) -> tuple[Record, bool]:
    """Move the deadline on, never back; True when `max_lease_age` held it."""
    target = later(now, policy.lease_ttl_ms)
    at_limit = False
    if policy.max_lease_age_ms is not None:
        limit = later(record.leased_at or 0, policy.max_lease_age_ms)
        at_limit = target > limit
        target = min(target, limit)
    deadline = max(record.deadline or 0, target)
    kept = record.progress if progress is None else progress
    return changed(record, deadline=deadline, progress=kept), at_limit


def completed(record: Record, now: int, policy: Policy, *, result: bytes, digest: bytes, reply: bytes) -> Record:
    """The worker's result is in."""
    entry = named(LogEntry, (now, log.COMPLETED, {"generation": record.generation, "attempts": record.attempts}))
    return named(
        Record,
        (
            record.scope,
            COMPLETED,
            *record[_PRIORITY:_LEASE_END],
            "completed",
            None,  # worker
            None,  # leased_at
            None,  # deadline
            now,  # ended_at
            _purge_at(now, policy.retention_completed_ms),
            record.dead_reason,
            digest,
            reply,
            result,
            *record[_PROGRESS:_EVENTS],
            appended(record.events, (entry,), policy.events_max),
            record.unknown,
        ),
    )


def failed(record: Record, now: int, policy: Policy, *, reason: str, retryable: bool) -> Record:
    """The worker reports a failure: back-off, or death when it is final. The caller adds the submit."""
    attempts = record.attempts + 1
    if not retryable:
        return _died(record, now, policy, attempts=attempts, reason=reason, dead_reason="rejected", end="failed")
    if attempts >= _ceiling(record, policy):
        return _died(record, now, policy, attempts=attempts, reason=reason, dead_reason="attempts", end="failed")
    return _retrying(record, now, policy, attempts=attempts, reason=reason, state=FAILED)


def reaped(record: Record, now: int, policy: Policy) -> Record:
    """The lease ran out: the attempt counts, and the job waits out a back-off or is dead."""
    attempts = record.attempts + 1
    if attempts >= _ceiling(record, policy):
        return _died(record, now, policy, attempts=attempts, reason="expired", dead_reason="expired", end="reaped")
    return _retrying(record, now, policy, attempts=attempts, reason="expired", state=PENDING)


def released(record: Record, now: int, policy: Policy, *, delay_ms: int) -> Record:
    """The worker gives the job back untried: the same place in the order, or a later one. Late, it is an expiry."""
    if record.deadline is not None and record.deadline <= now:
        return reaped(record, now, policy)
    due = max(record.due, later(now, delay_ms)) if delay_ms > 0 else record.due
    detail = {"generation": record.generation, "attempts": record.attempts, "due": due}
    entry = named(LogEntry, (now, log.RELEASED, detail))
    return _unleased(record, policy, entry, end="released", state=PENDING, due=due)


def promoted(record: Record, now: int, policy: Policy) -> Record:
    """The back-off is over. The due time stays, so the order does not depend on when the sweep ran."""
    events = appended(record.events, (named(LogEntry, (now, log.PROMOTED, {})),), policy.events_max)
    return changed(record, state=PENDING, events=events)


def retried(record: Record, now: int, policy: Policy) -> Record:
    """An operator gives a dead job a fresh budget. The generation is never reset."""
    due = max(now, record.run_at or 0)
    events = appended(record.events, (named(LogEntry, (now, log.RETRIED, {"due": due})),), policy.events_max)
    return changed(
        record, state=PENDING, attempts=0, due=due, ended_at=None, purge_at=None, dead_reason=None, events=events
    )


def cancelled(record: Record, now: int, policy: Policy) -> Record:
    """An operator ends a live job; a lease on it is no longer current."""
    detail = {"reason": "cancelled", "generation": record.generation, "attempts": record.attempts}
    entry = named(LogEntry, (now, log.CANCELLED, detail))
    end = "cancelled" if record.state is LEASED else record.lease_end
    return _unleased(
        record,
        policy,
        entry,
        end=end,
        state=DEAD,
        dead_reason="cancelled",
        ended_at=now,
        purge_at=_purge_at(now, policy.retention_dead_ms),
    )


def stale(record: Record, generation: int) -> Stale | None:
    """The fence: None when (job, generation) is the current lease, else why it is not.

    The worker's name plays no part.
    """
    if generation == 0 or generation > record.generation:
        return Stale("never_leased")
    if generation < record.generation:
        return Stale("superseded")
    if record.state is LEASED:
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


def _purge_at(now: int, retention_ms: int | None) -> int | None:
    return None if retention_ms is None else later(now, retention_ms)


def _ceiling(record: Record, policy: Policy) -> int:
    return policy.max_attempts if record.max_attempts is None else record.max_attempts


def _unleased(record: Record, policy: Policy, entry: LogEntry, *, end: str | None, **changes: Any) -> Record:
    """The record without its lease, the event in its log, and what else changes."""
    return changed(
        record,
        worker=None,
        leased_at=None,
        deadline=None,
        lease_end=end,
        events=appended(record.events, (entry,), policy.events_max),
        **changes,
    )


def _retrying(record: Record, now: int, policy: Policy, *, attempts: int, reason: str, state: State) -> Record:
    due = later(now, backoff_ms(policy.backoff, attempts))
    detail = {"reason": reason, "generation": record.generation, "attempts": attempts, "due": due}
    failed_now = state is FAILED
    entry = named(LogEntry, (now, log.FAILED if failed_now else log.REAPED, detail))
    end = "failed" if failed_now else "reaped"
    return _unleased(record, policy, entry, end=end, state=state, attempts=attempts, due=due)


def _died(
    record: Record, now: int, policy: Policy, *, attempts: int, reason: str, dead_reason: str, end: str
) -> Record:
    detail = {"reason": reason, "generation": record.generation, "attempts": attempts, "dead_reason": dead_reason}
    return _unleased(
        record,
        policy,
        named(LogEntry, (now, log.DEAD, detail)),
        end=end,
        state=DEAD,
        attempts=attempts,
        dead_reason=dead_reason,
        ended_at=now,
        purge_at=_purge_at(now, policy.retention_dead_ms),
    )
