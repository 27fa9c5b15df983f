"""`SOMETIMES`: situations a run must reach, by name.

An invariant that was never put to the test proves nothing: a universe declares which situations it is for, and an exploration that does
not reach one of them fails.
"""

from collections.abc import Callable
from typing import Final

from telha_model.ops import Complete, Enqueue, EnqueueMany, Extend, Fail, Lease, Reap, Release, Reopen
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

Situation = Callable[[Taken], bool]


def _granted_jobs(taken: Taken) -> list[Job]:
    found = [find(taken.before, grant.job_id) for grant in grants(taken.reply)]
    return [job for job in found if job is not None]


def _granted_after(lease_end: str) -> Situation:
    return lambda taken: any(job.lease_end == lease_end for job in _granted_jobs(taken))


def _died_of(reason: str) -> Situation:
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


def _stale_because(why: str) -> Situation:
    return lambda taken: isinstance(taken.reply, StaleLease) and taken.reply.why == why


def _repeated(*, under_higher: bool) -> Situation:
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


def _key_met(state: State) -> Situation:
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


def _reopened(*, clean: bool, needs: State) -> Situation:
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
        job.job_id < granted.job_id and job.spec.scope == granted.spec.scope and job.spec.priority > granted.spec.priority
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


def _reaped(name: str) -> Situation:
    return lambda taken: isinstance(taken.reply, Reaped) and bool(getattr(taken.reply, name))


def _mixed_sweep(taken: Taken) -> bool:
    reply = taken.reply
    return isinstance(reply, Reaped) and sum(count > 0 for count in reply[:4]) > 1


def _mixed_bulk(taken: Taken) -> bool:
    reply = taken.reply
    return isinstance(reply, (CompletedMany, Extended)) and len({item.status for item in reply.outcomes}) > 1


def _wrong_state(taken: Taken) -> bool:
    return isinstance(taken.reply, WrongState)


def _retried_after(reason: str) -> Situation:
    return lambda taken: any(
        was is not None and now is not None and was.dead_reason == reason and now.state is PENDING
        for was, now in taken.changed
    )


def _empty_poll(taken: Taken) -> bool:
    return isinstance(taken.op, Lease) and not grants(taken.reply) and bool(taken.before.ring)


def _reap_nothing(taken: Taken) -> bool:
    return isinstance(taken.op, Reap) and not taken.changed


SOMETIMES: Final[dict[str, Situation]] = {
    "a lease expires and is granted again": _granted_after("reaped"),
    "a released job is granted again": _granted_after("released"),
    "a due failed job is leased directly": _failed_leased,
    "a stale submit meets a higher generation's lease": _stale_under_higher,
    "a submit after reap is stale": _stale_because("reaped"),
    "a submit after release is stale": _stale_because("released"),
    "a submit after cancel is stale": _stale_because("cancelled"),
    "a token that was never issued": _stale_because("never_leased"),
    "a submit repeats": _repeated(under_higher=False),
    "a submit repeats under a new lease": _repeated(under_higher=True),
    "a release after the deadline": _late_release,
    "a submit after the deadline, before the sweep": _late_submit,
    "an extension after the deadline, before the sweep": _late_extend,
    "an extension at its limit": _at_limit,
    "death by attempts": _died_of("attempts"),
    "death by expiry": _died_of("expired"),
    "death by rejection": _died_of("rejected"),
    "death by cancel": _died_of("cancelled"),
    "a retry after death by expiry": _retried_after("expired"),
    "an operator meets the wrong state": _wrong_state,
    "a key is met pending": _key_met(PENDING),
    "a key is met leased": _key_met(LEASED),
    "a key is met failed": _key_met(FAILED),
    "a key is met completed": _key_met(COMPLETED),
    "a key is met dead": _key_met(DEAD),
    "a key conflicts": _key_conflict,
    "a follow-up meets a key": _follow_up_met,
    "a follow-up meets the completed job itself": _follow_up_met_itself,
    "a follow-up conflicts": _follow_up_conflict,
    "the incarnation makes a generation jump": _incarnation_jump,
    "an unclean end with a lease out": _reopened(clean=False, needs=LEASED),
    "a clean reopening with a lease out": _reopened(clean=True, needs=LEASED),
    "reopening turns the ring": _reopened_turned,
    "a full log swallows more": _elided,
    "the ring turns": _ring_turns,
    "a filter passes the head of the ring over": _passed_over,
    "a batch serves several scopes": _batch_turns,
    "two scopes join at once": _joined_together,
    "a poll comes back empty although work waits": _empty_poll,
    "an urgent job goes first": _jumped_queue,
    "an earlier due time goes first": _due_beats_id,
    "a sweep finds nothing": _reap_nothing,
    "a sweep promotes": _reaped("promoted"),
    "a sweep purges": _reaped("purged"),
    "a sweep leaves work behind": _reaped("more"),
    "a sweep does several kinds of work": _mixed_sweep,
    "a bulk call has several outcomes": _mixed_bulk,
}
