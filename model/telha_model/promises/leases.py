"""Predicates about leases, submits and attempts."""

from telha_model.ops import Complete, CompleteMany, Extend, Fail, Lease, Release
from telha_model.policy import max_attempts
from telha_model.promises.evidence import Taken, grants, is_current
from telha_model.replies import (
    BadArgument,
    Completed,
    CompletedMany,
    Extended,
    KeyConflict,
    NotFound,
    Reply,
    StaleLease,
    WrongState,
)
from telha_model.state import Digest, Queue, find
from telha_model.states import DEAD, LEASED, PENDING
from telha_model.types import Config, Ref, Value

# 1. exclusive lease


def generations_rise(taken: Taken) -> str | None:
    for was, now in taken.changed:
        if now is None or was is None:
            if now is not None and (now.generation != 0 or now.state is not PENDING):
                return f"job {now.job_id} was not created pending under generation 0"
            continue
        if now.generation == was.generation:
            if now.state is LEASED and was.state is not LEASED:
                return f"job {now.job_id} was leased under generation {now.generation} a second time"
        elif now.generation < was.generation:
            return f"the generation of job {now.job_id} went back from {was.generation} to {now.generation}"
        elif was.state is LEASED or now.state is not LEASED or type(taken.op) is not Lease:
            return f"job {now.job_id} got generation {now.generation} without a new lease"
        elif now.generation < taken.before.incarnation << 32:
            return f"job {now.job_id} was leased below the incarnation's range"
    return None


def grants_are_the_leases(taken: Taken) -> str | None:
    """What was handed out is what the jobs say, no job twice."""
    granted = [(grant.job_id, grant.generation, grant.deadline_ms) for grant in grants(taken.reply)]
    leased = [(now.job_id, now.generation, now.deadline_ms) for _, now in taken.changed if now is not None]
    return None if sorted(granted) == leased else f"granted {granted}, but leased {leased}"


# 2. stale submit


def stale_changes_nothing(taken: Taken) -> str | None:
    op, reply = taken.op, taken.reply
    if not isinstance(op, (Complete, Fail, Release)):
        return None
    if is_current(taken.before, op.ref):
        return f"the current lease was called stale ({reply.why})" if type(reply) is StaleLease else None
    if taken.changed or taken.after is not taken.before:
        return f"{op.ref} is not current, yet something changed"
    if type(reply) in (StaleLease, NotFound, BadArgument):
        return None
    return None if _is_repeat(taken.before, op, reply) else f"{op.ref} is not current, yet the reply was {reply}"


def _is_repeat(before: Queue, op: Complete | Fail | Release, reply: Reply) -> bool:
    job = find(before, op.ref.job_id)
    if job is None or job.submit is None:
        return False
    digest, recorded = job.submit
    match op:
        case Complete(ref, result, follow_ups):
            return digest == Digest("complete", ref.generation, (result, follow_ups)) and reply == (recorded,)
        case Fail(ref, reason, retryable):
            return digest == Digest("fail", ref.generation, (reason, retryable)) and reply == (recorded,)
        case Release():
            return False


def bulk_items_fenced(taken: Taken) -> str | None:
    op, before = taken.op, taken.before
    items: list[tuple[Ref, Value]] = []
    if isinstance(op, Extend):
        items = [(ref, None) for ref in op.refs]
    elif isinstance(op, CompleteMany):
        items = list(op.items)
    if not isinstance(taken.reply, (Extended, CompletedMany)):
        return None
    current = {ref.job_id for ref, _ in items if is_current(before, ref)}
    for was, now in taken.changed:
        if was is None or now is None or was.job_id not in current:
            return "a bulk call changed a job for which it had no current lease"
    for (ref, result), outcome in zip(items, taken.reply.outcomes, strict=True):
        accepted = outcome.status not in ("stale", "not_found")
        if is_current(before, ref):
            first = [item for item in items if item[0] == ref][0][1]
            if not accepted and (isinstance(op, Extend) or result == first):
                return f"{ref} is current, yet {outcome.status}"
        elif accepted and not (
            isinstance(op, CompleteMany) and _is_repeat(before, Complete(ref, result), Completed(()))
        ):
            return f"{ref} is not current, yet {outcome.status}"
    return None


def refusal_changes_nothing(taken: Taken) -> str | None:
    refused = type(taken.reply) in (BadArgument, NotFound, StaleLease, WrongState, KeyConflict)
    return "a refused call changed something" if refused else None


# 5. attempts are exact


def attempts_within_budget(config: Config, queue: Queue) -> str | None:
    for job in queue.jobs:
        budget = max_attempts(config, job.spec.kind, job.spec.max_attempts)
        if job.attempts > budget or (job.attempts == budget and job.state is not DEAD):
            return f"job {job.job_id} is {job.state} after {job.attempts} of {budget} attempts"
        if job.dead_reason in ("attempts", "expired") and job.attempts != budget:
            return f"job {job.job_id} died of {job.dead_reason} after {job.attempts} of {budget} attempts"
    return None


def attempts_counted(taken: Taken) -> str | None:
    for was, now in taken.changed:
        if was is None or now is None:
            continue
        expected = was.attempts
        if was.state is DEAD and now.state is PENDING:
            expected = 0
        elif was.state is LEASED and now.lease_end in ("failed", "reaped"):
            expected += 1
        if now.attempts != expected:
            return f"job {now.job_id} went from {was.attempts} to {now.attempts} attempts, expected {expected}"
    return None


def expiry_is_not_early(taken: Taken) -> str | None:
    for was, now in taken.changed:
        if was is not None and now is not None and was.state is LEASED and now.lease_end == "reaped":
            if was.deadline_ms is None or was.deadline_ms > taken.before.now_ms:
                return f"job {now.job_id} was reaped before its deadline"
        elif was is not None and now is not None and was.state is LEASED and now.state is LEASED:
            if was.deadline_ms is None or now.deadline_ms is None or now.deadline_ms < was.deadline_ms:
                return f"the deadline of job {now.job_id} moved back"
    return None
