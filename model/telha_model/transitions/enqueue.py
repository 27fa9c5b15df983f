"""Creating jobs: enqueue, enqueue_many, and the follow-ups of a completion."""

from typing import Final

from telha_model.ops import Enqueue, EnqueueMany
from telha_model.replies import BadArgument, Enqueued, Receipt, Reply, Ruling
from telha_model.rules import Rule, key_conflict, new_job_problem, new_jobs_problem, rule
from telha_model.state import Event, Job, Queue, Spec, holder, resettled
from telha_model.states import PENDING, Transition
from telha_model.types import ENQUEUE_MANY_MAX, Config, NewJob, add_ms, make


def created(queue: Queue, new: NewJob) -> tuple[Receipt, Queue]:
    """One new job, or the one that holds its key (the caller has ruled out a conflict)."""
    now_ms, incarnation, job_id, jobs, ring, last_served = queue
    met = holder(jobs, new.scope, new.idempotency_key)
    if met is not None:
        return Receipt(met.job_id, created=False, state=met.state), queue
    run_at_ms = new.run_at_ms if new.delay_ms is None else add_ms(now_ms, new.delay_ms)
    due_ms = now_ms if run_at_ms is None or run_at_ms < now_ms else run_at_ms
    spec = make(Spec, (
        new.scope, new.kind, new.priority, new.payload, new.payload_version, new.headers,
        now_ms, run_at_ms, new.max_attempts, new.idempotency_key,))  # fmt: skip
    events = (make(Event, (now_ms, Transition.ENQUEUED, (("due", due_ms),))),)
    jobs += (
        make(
            Job,
            (job_id, spec, PENDING, due_ms, 0, 0, None, None, None, None, None, None, None, None, None, None, events),
        ),
    )
    if due_ms <= now_ms:
        ring = resettled(ring, jobs, new.scope, now_ms)
    return Receipt(job_id, created=True, state=PENDING), make(
        Queue, (now_ms, incarnation, job_id + 1, jobs, ring, last_served)
    )


def all_created(queue: Queue, jobs: tuple[NewJob, ...]) -> tuple[tuple[Receipt, ...], Queue]:
    """Several new jobs, in order."""
    receipts = []
    for new in jobs:
        receipt, queue = created(queue, new)
        receipts.append(receipt)
    return tuple(receipts), queue


def _argument(config: Config, _queue: Queue, op: Enqueue, _job: Job | None) -> Reply | None:
    field = new_job_problem(config, op.job)
    return None if field is None else BadArgument(field)


def _conflict(_config: Config, queue: Queue, op: Enqueue, _job: Job | None) -> Reply | None:
    return None if op.job.idempotency_key is None else key_conflict(queue, (op.job,), indexed=False)


def _enqueue(_config: Config, queue: Queue, op: Enqueue, _job: Job | None) -> tuple[Reply, Queue]:
    receipt, queue = created(queue, op.job)
    return Enqueued((receipt,)), queue


def _many_argument(config: Config, _queue: Queue, op: EnqueueMany, _job: Job | None) -> Reply | None:
    if len(op.jobs) > ENQUEUE_MANY_MAX:
        return BadArgument("jobs")
    return new_jobs_problem(config, op.jobs, "jobs")


def _many_conflict(_config: Config, queue: Queue, op: EnqueueMany, _job: Job | None) -> Reply | None:
    return key_conflict(queue, op.jobs, indexed=True)


def _enqueue_many(_config: Config, queue: Queue, op: EnqueueMany, _job: Job | None) -> tuple[Reply, Queue]:
    receipts, queue = all_created(queue, op.jobs)
    return Enqueued(receipts), queue


ENQUEUE: Final[Rule[Enqueue]] = rule(_enqueue, [(Ruling.ARGUMENT, _argument), (Ruling.KEY_CONFLICT, _conflict)])
ENQUEUE_MANY: Final[Rule[EnqueueMany]] = rule(
    _enqueue_many, [(Ruling.ARGUMENT, _many_argument), (Ruling.KEY_CONFLICT, _many_conflict)]
)
