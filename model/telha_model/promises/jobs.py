"""Predicates about jobs as such: none is lost, logs are true, keys are unique."""

from typing import Final

from telha_model.ops import Complete, Discard, Enqueue, EnqueueMany, Reap, Reopen
from telha_model.promises.evidence import Taken
from telha_model.replies import Completed, Enqueued, Reply
from telha_model.state import Event, Job, Queue, find
from telha_model.states import COMPLETED, DEAD, ENDED, LEASED, PENDING, TARGETS, State, Transition
from telha_model.types import Config

ELIDED: Final = Transition.ELIDED

# no job is lost


def numbers_in_order(_config: Config, queue: Queue) -> str | None:
    """Every job once, in the order of creation."""
    last = 0
    for job in queue.jobs:
        if not last < job.job_id < queue.next_job_id:
            return f"job {job.job_id} is out of order or not yet created"
        last = job.job_id
    return None


def one_state_well_formed(_config: Config, job: Job) -> str | None:
    """A job has the fields of its one state."""
    state = job.state
    leased, over = state is LEASED, state in ENDED
    if over is not (job.due_ms is None) or over is not (job.ended_at_ms is not None):
        return f"job {job.job_id} is {job.state} with due {job.due_ms}, ended {job.ended_at_ms}"
    if not (leased is (job.worker is not None) is (job.deadline_ms is not None) is (job.leased_at_ms is not None)):
        return f"job {job.job_id} is {job.state} with worker {job.worker}, deadline {job.deadline_ms}"
    if (state is DEAD) is not (job.dead_reason is not None):
        return f"job {job.job_id} is {job.state} with dead reason {job.dead_reason}"
    if (job.purge_at_ms is not None and not over) or (job.result is not None and state is not COMPLETED):
        return f"job {job.job_id} is {job.state} with purge {job.purge_at_ms} and result {job.result}"
    return None


def comes_and_goes_by_the_doors(taken: Taken, was: Job | None, now: Job | None) -> str | None:
    """Jobs appear by enqueue and completion, pending and never leased; they leave by discard and purge, once ended."""
    op = taken.op
    if now is not None:
        if now.generation != 0 or now.state is not PENDING or type(op) not in (Enqueue, EnqueueMany, Complete):
            return f"job {now.job_id} appeared {now.state} under generation {now.generation}"
    elif was is not None:
        by_hand = type(op) is Discard and was.job_id == op.job_id
        purged = type(op) is Reap and was.purge_at_ms is not None and was.purge_at_ms <= taken.before.now_ms
        if was.state not in ENDED or not (by_hand or purged):
            return f"job {was.job_id} vanished from {was.state}"
    return None


def acknowledged_exist(taken: Taken) -> str | None:
    """A receipt names a job that is there."""
    for receipt in taken.reply.receipts if isinstance(taken.reply, (Enqueued, Completed)) else ():
        if find(taken.after, receipt.job_id) is None:
            return f"job {receipt.job_id} was acknowledged but does not exist"
    return None


def reopening_keeps_everything(taken: Taken) -> str | None:
    """Jobs, time and the scope served last outlive the process; the ring is rebuilt, the incarnation may rise."""
    before, after = taken.before, taken.after
    unclean = isinstance(taken.op, Reopen) and not taken.op.clean
    if after.jobs != before.jobs or after.next_job_id != before.next_job_id:
        return "reopening changed a job"
    if after.now_ms != before.now_ms or after.last_served != before.last_served:
        return "reopening changed the time or the scope served last"
    return None if after.incarnation == before.incarnation + unclean else "wrong incarnation after reopening"


# the event log tells the truth


def _replayed(state: State | None, events: tuple[Event, ...]) -> State | str | None:
    for event in events:
        transition = event.transition
        if transition is ELIDED:
            state = State(str(dict(event.detail)["state"]))
            continue
        target = TARGETS.get((state, transition))
        if target is None:
            return f"{transition} does not leave {state}"
        state = target
    return state


def logs_replay(config: Config, job: Job) -> str | None:
    """From its first entry to its last, a log leads to the job's state, and it stays within its cap."""
    told = _replayed(None, job.events)
    if told is not job.state:
        return f"the log of job {job.job_id} ends in {told}, the job is {job.state}"
    if len(job.events) > config.events_max:
        return f"the log of job {job.job_id} has {len(job.events)} entries"
    return None


def log_grows_truly(taken: Taken, was: Job, now: Job) -> str | None:
    """What a step appends leads from the state before to the state after; nothing older is rewritten below the cap."""
    old, new = was.events, now.events
    if new is old:
        return None if now.state is was.state else f"job {now.job_id} moved to {now.state} without an event"
    kept = len(old)
    if old == new[:kept]:
        told = _replayed(was.state, new[kept:])
        return None if told is now.state else f"the log of job {now.job_id} tells {told}, the job is {now.state}"
    return None if len(new) == taken.config.events_max else f"the log of job {now.job_id} was rewritten below its cap"


# one key, one job


def keys_are_unique(_config: Config, queue: Queue) -> str | None:
    """No two jobs of a scope hold the same key."""
    specs = [job.spec for job in queue.jobs]
    keys = [(spec.scope, spec.idempotency_key) for spec in specs if spec.idempotency_key is not None]
    return None if len(keys) < 2 or len(set(keys)) == len(keys) else f"a key is held twice: {sorted(keys)}"


def key_answers_with_its_job(before: Queue, op: Enqueue, reply: Reply) -> str | None:
    """Enqueueing under a held key gives its holder and creates nothing; under a free one it creates."""
    if not isinstance(reply, Enqueued) or op.job.idempotency_key is None:
        return None
    key = (op.job.scope, op.job.idempotency_key)
    held = [j.job_id for j in before.jobs if (j.spec.scope, j.spec.idempotency_key) == key]
    receipt = reply.receipts[0]
    if receipt.created is bool(held) or (held and receipt.job_id != held[0]):
        return f"the key {key} is held by {held}, the receipt says {receipt}"
    return None
