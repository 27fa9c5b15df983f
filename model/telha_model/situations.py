"""`SOMETIMES`: situations a run must reach, by name.

An invariant that was never put to the test proves nothing: a universe declares which situations it is for, and an
exploration that does not reach one of them fails.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.ops import (
    Advance,
    Cancel,
    Complete,
    CompleteMany,
    Discard,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
    Retry,
)
from telha_model.promises.evidence import Taken, grants, is_current
from telha_model.replies import (
    Completed,
    CompletedMany,
    Enqueued,
    Extended,
    Failed,
    KeyConflict,
    Reaped,
    Released,
    StaleLease,
    WrongState,
)
from telha_model.state import Job, find
from telha_model.states import COMPLETED, DEAD, FAILED, LEASED, PENDING, State, Transition

Holds = Callable[[Taken], bool]


class Situation(NamedTuple):
    """A predicate over steps, and the operations it can be true of."""

    holds: Holds
    ops: tuple[type[Op], ...]


def _granted_jobs(taken: Taken) -> list[Job]:
    found = [find(taken.before, grant.job_id) for grant in grants(taken.reply)]
    return [job for job in found if job is not None]


def _granted_after(lease_end: str) -> Holds:
    return lambda taken: any(job.lease_end == lease_end for job in _granted_jobs(taken))


def _died_of(reason: str) -> Holds:
    def died(taken: Taken) -> bool:
        return any(
            now is not None and now.dead_reason == reason and (was is None or was.state is not DEAD)
            for was, now in taken.changed
        )

    return died


def _ref_job(taken: Taken) -> Job | None:
    op = taken.op
    return find(taken.before, op.ref.job_id) if isinstance(op, (Complete, Fail, Release)) else None


def _stale_under_higher(taken: Taken) -> bool:
    job, reply = _ref_job(taken), taken.reply
    return job is not None and job.state is LEASED and isinstance(reply, StaleLease) and reply.why == "superseded"


def _stale_because(why: str) -> Holds:
    return lambda taken: isinstance(taken.reply, StaleLease) and taken.reply.why == why


def _repeated(*, under_higher: bool) -> Holds:
    def repeated(taken: Taken) -> bool:
        op, job = taken.op, _ref_job(taken)
        if job is None or not isinstance(op, (Complete, Fail)) or not isinstance(taken.reply, (Completed, Failed)):
            return False
        if is_current(taken.before, op.ref):
            return False
        return not under_higher or (job.state is LEASED and job.generation > op.ref.generation)

    return repeated


def _past_deadline(taken: Taken) -> bool:
    job = _ref_job(taken)
    return job is not None and job.deadline_ms is not None and job.deadline_ms <= taken.before.now_ms


def _late_release(taken: Taken) -> bool:
    return isinstance(taken.reply, Released) and _past_deadline(taken)


def _late_submit(taken: Taken) -> bool:
    return isinstance(taken.reply, (Completed, Failed)) and bool(taken.changed) and _past_deadline(taken)


def _late_extend(taken: Taken) -> bool:
    return isinstance(taken.op, Extend) and any(
        was is not None and was.deadline_ms is not None and was.deadline_ms <= taken.before.now_ms
        for was, _ in taken.changed
    )


def _at_limit(taken: Taken) -> bool:
    return isinstance(taken.reply, Extended) and any(item.status == "at_limit" for item in taken.reply.outcomes)


def _key_met(state: State) -> Holds:
    def met(taken: Taken) -> bool:
        reply = taken.reply
        return isinstance(reply, Enqueued) and any(not r.created and r.state is state for r in reply.receipts)

    return met


def _key_conflict(taken: Taken) -> bool:
    return isinstance(taken.reply, KeyConflict) and isinstance(taken.op, (Enqueue, EnqueueMany))


def _follow_up_met(taken: Taken) -> bool:
    reply = taken.reply
    return isinstance(reply, Completed) and any(not receipt.created for receipt in reply.receipts)


def _follow_up_met_itself(taken: Taken) -> bool:
    reply, job = taken.reply, _ref_job(taken)
    return isinstance(reply, Completed) and job is not None and job.job_id in [r.job_id for r in reply.receipts]


def _follow_up_conflict(taken: Taken) -> bool:
    return isinstance(taken.reply, KeyConflict) and isinstance(taken.op, Complete)


def _incarnation_jump(taken: Taken) -> bool:
    floor = taken.before.incarnation << 32
    return any(0 < job.generation < floor - 1 for job in _granted_jobs(taken))


def _reopened(*, clean: bool, needs: State) -> Holds:
    return lambda taken: (
        isinstance(taken.op, Reopen)
        and taken.op.clean is clean
        and any(job.state is needs for job in taken.before.jobs)
    )


def _reopened_turned(taken: Taken) -> bool:
    return isinstance(taken.op, Reopen) and taken.before.ring != taken.after.ring


def _elided(taken: Taken) -> bool:
    return any(
        was is not None
        and now is not None
        and len(was.events) == len(now.events) == taken.config.events_max
        and any(event.transition is Transition.ELIDED for event in was.events)
        for was, now in taken.changed
    )


def _ring_turns(taken: Taken) -> bool:
    ring = taken.before.ring
    return len(ring) > 1 and bool(grants(taken.reply)) and taken.after.ring == (*ring[1:], ring[0])


def _passed_over(taken: Taken) -> bool:
    served = grants(taken.reply)
    return bool(served) and served[0].scope != taken.before.ring[0]


def _batch_turns(taken: Taken) -> bool:
    return len({grant.scope for grant in grants(taken.reply)}) > 1


def _joined_together(taken: Taken) -> bool:
    return len(taken.after.ring) >= len(taken.before.ring) + 2


def _failed_leased(taken: Taken) -> bool:
    return any(job.state is FAILED for job in _granted_jobs(taken))


def _jumped_queue(taken: Taken) -> bool:
    """A later job went first because it is more urgent."""
    before = taken.before
    return any(
        job.job_id < granted.job_id
        and job.spec.scope == granted.spec.scope
        and job.spec.priority > granted.spec.priority
        for granted in _granted_jobs(taken)
        for job in before.jobs
        if job.state is PENDING and job.due_ms is not None and job.due_ms <= before.now_ms
    )


def _due_beats_id(taken: Taken) -> bool:
    """A later job of the same priority went first because it was due earlier."""
    before = taken.before
    return any(
        job.job_id < granted.job_id
        and (job.spec.scope, job.spec.priority) == (granted.spec.scope, granted.spec.priority)
        and job.due_ms is not None
        and granted.due_ms is not None
        and granted.due_ms < job.due_ms <= before.now_ms
        for granted in _granted_jobs(taken)
        for job in before.jobs
        if job.state in (PENDING, FAILED)
    )


def _reaped(name: str) -> Holds:
    return lambda taken: isinstance(taken.reply, Reaped) and bool(getattr(taken.reply, name))


def _mixed_sweep(taken: Taken) -> bool:
    reply = taken.reply
    return isinstance(reply, Reaped) and sum(count > 0 for count in reply[:4]) > 1


def _mixed_bulk(taken: Taken) -> bool:
    reply = taken.reply
    return isinstance(reply, (CompletedMany, Extended)) and len({item.status for item in reply.outcomes}) > 1


def _wrong_state(taken: Taken) -> bool:
    return isinstance(taken.reply, WrongState)


def _retried_after(reason: str) -> Holds:
    return lambda taken: any(
        was is not None and now is not None and was.dead_reason == reason and now.state is PENDING
        for was, now in taken.changed
    )


def _empty_poll(taken: Taken) -> bool:
    return isinstance(taken.op, Lease) and not grants(taken.reply) and bool(taken.before.ring)


def _reap_nothing(taken: Taken) -> bool:
    return isinstance(taken.op, Reap) and not taken.changed


_SUBMITS: Final = (Complete, Fail, Release)

SOMETIMES: Final[dict[str, Situation]] = {
    "a lease expires and is granted again": Situation(_granted_after("reaped"), (Lease,)),
    "a released job is granted again": Situation(_granted_after("released"), (Lease,)),
    "a due failed job is leased directly": Situation(_failed_leased, (Lease,)),
    "a stale submit meets a higher generation's lease": Situation(_stale_under_higher, _SUBMITS),
    "a submit after reap is stale": Situation(_stale_because("reaped"), _SUBMITS),
    "a submit after release is stale": Situation(_stale_because("released"), _SUBMITS),
    "a submit after cancel is stale": Situation(_stale_because("cancelled"), _SUBMITS),
    "a token that was never issued": Situation(_stale_because("never_leased"), _SUBMITS),
    "a submit repeats": Situation(_repeated(under_higher=False), (Complete, Fail)),
    "a submit repeats under a new lease": Situation(_repeated(under_higher=True), (Complete, Fail)),
    "a release after the deadline": Situation(_late_release, (Release,)),
    "a submit after the deadline, before the sweep": Situation(_late_submit, (Complete, Fail)),
    "an extension after the deadline, before the sweep": Situation(_late_extend, (Extend,)),
    "an extension at its limit": Situation(_at_limit, (Extend,)),
    "death by attempts": Situation(_died_of("attempts"), (Fail,)),
    "death by expiry": Situation(_died_of("expired"), (Reap, Release)),
    "death by rejection": Situation(_died_of("rejected"), (Fail,)),
    "death by cancel": Situation(_died_of("cancelled"), (Cancel,)),
    "a retry after death by expiry": Situation(_retried_after("expired"), (Retry,)),
    "an operator meets the wrong state": Situation(_wrong_state, (Retry, Cancel, Discard)),
    "a key is met pending": Situation(_key_met(PENDING), (Enqueue, EnqueueMany)),
    "a key is met leased": Situation(_key_met(LEASED), (Enqueue, EnqueueMany)),
    "a key is met failed": Situation(_key_met(FAILED), (Enqueue, EnqueueMany)),
    "a key is met completed": Situation(_key_met(COMPLETED), (Enqueue, EnqueueMany)),
    "a key is met dead": Situation(_key_met(DEAD), (Enqueue, EnqueueMany)),
    "a key conflicts": Situation(_key_conflict, (Enqueue, EnqueueMany)),
    "a follow-up meets a key": Situation(_follow_up_met, (Complete,)),
    "a follow-up meets the completed job itself": Situation(_follow_up_met_itself, (Complete,)),
    "a follow-up conflicts": Situation(_follow_up_conflict, (Complete,)),
    "the incarnation makes a generation jump": Situation(_incarnation_jump, (Lease,)),
    "an unclean end with a lease out": Situation(_reopened(clean=False, needs=LEASED), (Reopen,)),
    "a clean reopening with a lease out": Situation(_reopened(clean=True, needs=LEASED), (Reopen,)),
    "reopening turns the ring": Situation(_reopened_turned, (Reopen,)),
    "a full log swallows more": Situation(_elided, (Lease, Complete, Fail, Release, Reap, Retry, Cancel)),
    "the ring turns": Situation(_ring_turns, (Lease,)),
    "a filter passes the head of the ring over": Situation(_passed_over, (Lease,)),
    "a batch serves several scopes": Situation(_batch_turns, (Lease,)),
    "two scopes join at once": Situation(_joined_together, (Advance,)),
    "a poll comes back empty although work waits": Situation(_empty_poll, (Lease,)),
    "an urgent job goes first": Situation(_jumped_queue, (Lease,)),
    "an earlier due time goes first": Situation(_due_beats_id, (Lease,)),
    "a sweep finds nothing": Situation(_reap_nothing, (Reap,)),
    "a sweep promotes": Situation(_reaped("promoted"), (Reap,)),
    "a sweep purges": Situation(_reaped("purged"), (Reap,)),
    "a sweep leaves work behind": Situation(_reaped("more"), (Reap,)),
    "a sweep does several kinds of work": Situation(_mixed_sweep, (Reap,)),
    "a bulk call has several outcomes": Situation(_mixed_bulk, (CompleteMany, Extend)),
}
