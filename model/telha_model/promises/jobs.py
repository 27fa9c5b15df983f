"""Predicates about jobs as such: none is lost, logs are true, keys are unique."""

from telha_model.ops import Complete, Discard, Enqueue, EnqueueMany, Reap, Reopen
from telha_model.promises.evidence import Taken
from telha_model.replies import Completed, Enqueued, Receipt, Reply
from telha_model.state import Event, Queue, find
from telha_model.states import COMPLETED, DEAD, ENDED, LEASED, TARGETS, State, Transition
from telha_model.types import Config

# 3. no job is lost


def one_state_well_formed(_config: Config, queue: Queue) -> str | None:
    last = 0
    for job in queue.jobs:
        if not last < job.job_id < queue.next_job_id:
            return f"job {job.job_id} is out of order or not yet created"
        last = job.job_id
        leased, over = job.state is LEASED, job.state in ENDED
        if over is not (job.due_ms is None) or over is not (job.ended_at_ms is not None):
            return f"job {job.job_id} is {job.state} with due {job.due_ms}, ended {job.ended_at_ms}"
        if {leased} != {job.worker is not None, job.deadline_ms is not None, job.leased_at_ms is not None}:
            return f"job {job.job_id} is {job.state} with worker {job.worker}, deadline {job.deadline_ms}"
        if (job.state is DEAD) is not (job.dead_reason is not None):
            return f"job {job.job_id} is {job.state} with dead reason {job.dead_reason}"
        if (job.purge_at_ms is not None and not over) or (job.result is not None and job.state is not COMPLETED):
            return f"job {job.job_id} is {job.state} with purge {job.purge_at_ms} and result {job.result}"
    return None


def leaves_only_by_the_doors(taken: Taken) -> str | None:
    op = taken.op
    for was, now in taken.changed:
        if was is not None and now is None:
            by_hand = type(op) is Discard and was.state in ENDED and was.job_id == op.job_id
            due = was.purge_at_ms is not None and was.purge_at_ms <= taken.before.now_ms
            if not by_hand and not (type(op) is Reap and due and was.state in ENDED):
                return f"job {was.job_id} vanished from {was.state}"
        elif was is None and type(op) not in (Enqueue, EnqueueMany, Complete):
            return "a job appeared from nowhere"
    return None


def acknowledged_exist(taken: Taken) -> str | None:
    for receipt in _receipts(taken.reply):
        if find(taken.after, receipt.job_id) is None:
            return f"job {receipt.job_id} was acknowledged but does not exist"
    return None


def _receipts(reply: Reply) -> tuple[Receipt, ...]:
    return reply.receipts if isinstance(reply, (Enqueued, Completed)) else ()


# 4. acknowledged is durable


def reopening_keeps_everything(taken: Taken) -> str | None:
    before, after = taken.before, taken.after
    unclean = isinstance(taken.op, Reopen) and not taken.op.clean
    if after.jobs != before.jobs or after.next_job_id != before.next_job_id:
        return "reopening changed a job"
    if (after.now_ms, after.last_served) != (before.now_ms, before.last_served):
        return "reopening changed the time or the scope served last"
    return None if after.incarnation == before.incarnation + unclean else "wrong incarnation after reopening"


# 6. the event log tells the truth


def _replayed(state: State | None, events: tuple[Event, ...]) -> State | None | str:
    for event in events:
        if event.transition is Transition.ELIDED:
            state = State(str(dict(event.detail)["state"]))
            continue
        target = TARGETS.get((state, event.transition))
        if target is None:
            return f"{event.transition} does not leave {state}"
        state = target
    return state


def logs_replay(config: Config, queue: Queue) -> str | None:
    for job in queue.jobs:
        told = _replayed(None, job.events)
        if told is not job.state:
            return f"the log of job {job.job_id} ends in {told}, the job is {job.state}"
        if len(job.events) > config.events_max:
            return f"the log of job {job.job_id} has {len(job.events)} entries"
    return None


def log_grows_truly(taken: Taken) -> str | None:
    for was, now in taken.changed:
        if was is None or now is None:
            continue
        if now.events is was.events:
            if now.state is not was.state:
                return f"job {now.job_id} moved from {was.state} to {now.state} without an event"
        elif was.events == now.events[: len(was.events)]:
            told = _replayed(was.state, now.events[len(was.events) :])
            if told is not now.state:
                return f"the log of job {now.job_id} tells {told}, the job is {now.state}"
        elif len(now.events) != taken.config.events_max:
            return f"the log of job {now.job_id} was rewritten below its cap"
    return None


# 10. one key, one job


def keys_are_unique(_config: Config, queue: Queue) -> str | None:
    keys = [(j.spec.scope, j.spec.idempotency_key) for j in queue.jobs if j.spec.idempotency_key is not None]
    return None if len(set(keys)) == len(keys) else f"a key is held twice: {sorted(keys)}"


def key_answers_with_its_job(taken: Taken) -> str | None:
    op, reply = taken.op, taken.reply
    if not isinstance(op, Enqueue) or not isinstance(reply, Enqueued) or op.job.idempotency_key is None:
        return None
    key = (op.job.scope, op.job.idempotency_key)
    held = [j.job_id for j in taken.before.jobs if (j.spec.scope, j.spec.idempotency_key) == key]
    receipt = reply.receipts[0]
    if receipt.created is bool(held) or (held and receipt.job_id != held[0]):
        return f"the key {key} is held by {held}, the receipt says {receipt}"
    return None
