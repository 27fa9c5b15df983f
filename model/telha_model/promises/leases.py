"""Predicates about leases, submits and attempts."""

from typing import Final

from telha_model.ops import Complete, CompleteMany, Extend, Fail, Lease, Op, Release
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
from telha_model.state import Digest, Job, Queue, find
from telha_model.states import DEAD, LEASED, PENDING
from telha_model.types import Config, Ref, Value

REFUSED: Final = frozenset({BadArgument, NotFound, StaleLease, WrongState, KeyConflict})
UNHEARD: Final = frozenset({NotFound, BadArgument})
"""What any token may be answered, current or not."""
NOT_DONE: Final = frozenset({"stale", "not_found"})

# exclusive lease


def generations_rise(taken: Taken, was: Job, now: Job) -> str | None:
    """A generation changes by a new lease only, upwards, into the incarnation's range; none is leased twice."""
    if now.generation == was.generation:
        if now.state is LEASED and was.state is not LEASED:
            return f"job {now.job_id} was leased under generation {now.generation} a second time"
        return None
    if now.generation < was.generation:
        return f"the generation of job {now.job_id} went back from {was.generation} to {now.generation}"
    if was.state is LEASED or now.state is not LEASED or type(taken.op) is not Lease:
        return f"job {now.job_id} got generation {now.generation} without a new lease"
    if now.generation < taken.before.incarnation << 32:
        return f"job {now.job_id} was leased below the incarnation's range"
    return None


def grants_are_the_leases(taken: Taken) -> str | None:
    """What was handed out is what the jobs say, no job twice."""
    granted = [(grant.job_id, grant.generation, grant.deadline_ms) for grant in grants(taken.reply)]
    leased = [(now.job_id, now.generation, now.deadline_ms) for _, now in taken.changed if now is not None]
    return None if sorted(granted) == leased else f"granted {granted}, but leased {leased}"


# stale submit


def submit_is_judged(before: Queue, op: Complete | Fail | Release, reply: Reply) -> str | None:
    """The current lease is not called stale; any other token is refused or repeats the recorded submit."""
    if type(reply) in UNHEARD:
        return None
    if is_current(before, op.ref):
        return f"the current lease was called stale ({reply.why})" if isinstance(reply, StaleLease) else None
    if isinstance(reply, StaleLease) or _is_repeat(before, op, reply):
        return None
    return f"{op.ref} is not current, yet the reply was {reply}"


def only_the_current_changes(taken: Taken) -> str | None:
    """A submit whose token is not current changes nothing."""
    op = taken.op
    if isinstance(op, (Complete, Fail, Release)) and not is_current(taken.before, op.ref):
        return f"{op.ref} is not current, yet something changed"
    return None


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


def extensions_are_judged(before: Queue, op: Extend, reply: Reply) -> str | None:
    """Exactly the current leases are extended."""
    if not isinstance(reply, Extended):
        return None
    for ref, outcome in zip(op.refs, reply.outcomes, strict=True):
        current = is_current(before, ref)
        if current is (outcome.status in NOT_DONE):
            return f"{ref} is {'' if current else 'not '}current, yet {outcome.status}"
    return None


def completions_are_judged(before: Queue, op: CompleteMany, reply: Reply) -> str | None:
    """Per item what `submit_is_judged` says of a single call; a job's second item repeats the first or is stale."""
    if not isinstance(reply, CompletedMany):
        return None
    first: dict[Ref, Value] = {}
    for (ref, result), outcome in zip(op.items, reply.outcomes, strict=True):
        accepted = outcome.status not in NOT_DONE
        if is_current(before, ref):
            given = first.setdefault(ref, result)
            if not accepted and result == given:
                return f"{ref} is current, yet {outcome.status}"
        elif accepted and not _is_repeat(before, Complete(ref, result), Completed(())):
            return f"{ref} is not current, yet {outcome.status}"
    return None


def _refs(op: Op) -> list[Ref]:
    if isinstance(op, Extend):
        return list(op.refs)
    return [ref for ref, _ in op.items] if isinstance(op, CompleteMany) else []


def bulk_changes_only_current(taken: Taken) -> str | None:
    """A bulk call changes only jobs it has the current lease of."""
    current = {ref.job_id for ref in _refs(taken.op) if is_current(taken.before, ref)}
    for was, now in taken.changed:
        if was is None or now is None or was.job_id not in current:
            return "a bulk call changed a job for which it had no current lease"
    return None


def refusal_changes_nothing(taken: Taken) -> str | None:
    """Whatever the reason of a refusal, nothing moves."""
    return "a refused call changed something" if type(taken.reply) in REFUSED else None


# attempts are exact


def attempts_within_budget(config: Config, job: Job) -> str | None:
    """The living have attempts left; who died of attempts or expiry has used them all."""
    budget = max_attempts(config, job.spec.kind, job.spec.max_attempts)
    if job.attempts > budget or (job.attempts == budget and job.state is not DEAD):
        return f"job {job.job_id} is {job.state} after {job.attempts} of {budget} attempts"
    if job.attempts != budget and (job.dead_reason == "attempts" or job.dead_reason == "expired"):
        return f"job {job.job_id} died of {job.dead_reason} after {job.attempts} of {budget} attempts"
    return None


def attempts_counted(_taken: Taken, was: Job, now: Job) -> str | None:
    """The end of a lease by failure or expiry counts one, a retry resets, nothing else counts."""
    expected, state = was.attempts, was.state
    if state is DEAD and now.state is PENDING:
        expected = 0
    elif state is LEASED and (now.lease_end == "failed" or now.lease_end == "reaped"):
        expected += 1
    if now.attempts != expected:
        return f"job {now.job_id} went from {was.attempts} to {now.attempts} attempts, expected {expected}"
    return None


def deadlines_hold(taken: Taken, was: Job, now: Job) -> str | None:
    """No lease expires before its deadline, and no deadline moves back."""
    if was.state is not LEASED or was.deadline_ms is None:
        return None
    if now.lease_end == "reaped" and was.deadline_ms > taken.before.now_ms:
        return f"job {now.job_id} was reaped before its deadline"
    if now.state is LEASED and (now.deadline_ms is None or now.deadline_ms < was.deadline_ms):
        return f"the deadline of job {now.job_id} moved back"
    return None
