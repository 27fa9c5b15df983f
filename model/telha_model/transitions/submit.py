"""What a worker does with its lease in the end: complete, complete_many, fail, release."""

from typing import Final

from telha_model.ops import Complete, CompleteMany, Fail, Release
from telha_model.policy import backoff_ms, max_attempts
from telha_model.replies import (
    BadArgument,
    Completed,
    CompletedMany,
    Failed,
    NotFound,
    Outcome,
    Receipt,
    Released,
    Reply,
    Ruling,
)
from telha_model.rules import (
    Rule,
    job_of_ref,
    key_conflict,
    new_jobs_problem,
    ref_stale,
    ref_unknown,
    rule,
    staleness,
)
from telha_model.state import DeadReason, Digest, Event, Job, Queue, Submit, ended, find, logged, waiting, with_job
from telha_model.states import COMPLETED, DEAD, FAILED, PENDING, State, Transition
from telha_model.transitions.enqueue import all_created
from telha_model.transitions.sweep import expired
from telha_model.types import DURATION_MS_MAX, FOLLOW_UPS_MAX, OVERSIZE, Config, Ref, Value, add_ms, make


def _complete_argument(config: Config, _queue: Queue, op: Complete, _job: Job | None) -> Reply | None:
    if op.result is OVERSIZE:
        return BadArgument("result")
    if not op.follow_ups:
        return None
    if len(op.follow_ups) > FOLLOW_UPS_MAX:
        return BadArgument("enqueue")
    return new_jobs_problem(config, op.follow_ups, "enqueue")


def _complete_digest(op: Complete) -> Digest:
    return make(Digest, ("complete", op.ref.generation, (op.result, op.follow_ups)))


def _complete_repeat(_config: Config, _queue: Queue, op: Complete, job: Job | None) -> Reply | None:
    submit = None if job is None else job.submit
    if submit is None or isinstance(submit.reply, State):
        return None
    return make(Completed, (submit.reply,)) if submit.digest == _complete_digest(op) else None


def _follow_up_conflict(_config: Config, queue: Queue, op: Complete, _job: Job | None) -> Reply | None:
    return key_conflict(queue, op.follow_ups, indexed=True) if op.follow_ups else None


def _complete(config: Config, queue: Queue, op: Complete, job: Job | None) -> tuple[Reply, Queue]:
    if job is None:
        return NotFound(op.ref.job_id), queue
    if not op.follow_ups:
        return make(Completed, ((),)), _completed(config, queue, job, op.result, _complete_digest(op), ())
    # Follow-ups see the completed job (it may hold the key of one of them), and its record holds their receipts.
    receipts, _ = all_created(_completed(config, queue, job, op.result, _complete_digest(op), ()), op.follow_ups)
    queue = _completed(config, queue, job, op.result, _complete_digest(op), receipts)
    return Completed(receipts), all_created(queue, op.follow_ups)[1]


def _completed(
    config: Config, queue: Queue, job: Job, result: Value, digest: Digest, receipts: tuple[Receipt, ...]
) -> Queue:
    now_ms, retention, attempts = queue.now_ms, config.retention_completed_ms, job.attempts
    detail = (("generation", job.generation), ("attempts", attempts))
    new = ended(
        job,
        COMPLETED,
        now_ms=now_ms,
        purge_at_ms=None if retention is None else add_ms(now_ms, retention),
        attempts=attempts,
        dead_reason=None,
        result=result,
        lease_end="completed",
        submit=make(Submit, (digest, receipts)),
        events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.COMPLETED, detail))),
    )
    return with_job(queue, job, new)


def _many_argument(_config: Config, _queue: Queue, op: CompleteMany, _job: Job | None) -> Reply | None:
    for index, (_, result) in enumerate(op.items):
        if result is OVERSIZE:
            return BadArgument(f"items[{index}].result")
    return None


def _complete_many(config: Config, queue: Queue, op: CompleteMany, _job: Job | None) -> tuple[Reply, Queue]:
    outcomes = []
    for ref, result in op.items:
        outcome, queue = _item_completed(config, queue, ref, result)
        outcomes.append(outcome)
    return make(CompletedMany, (tuple(outcomes),)), queue


def _item_completed(config: Config, queue: Queue, ref: Ref, result: Value) -> tuple[Outcome, Queue]:
    """One item exactly as the single completion answers it: the same checks in the same order."""
    op = make(Complete, (ref, result, ()))
    job = find(queue, ref.job_id)
    for check in COMPLETE.checks:
        match check(config, queue, op, job):
            case None:
                continue
            case NotFound() as refusal:
                return make(Outcome, (ref.job_id, "not_found", None, refusal)), queue
            case Completed():
                return make(Outcome, (ref.job_id, "completed", None, None)), queue
            case _:
                stale = None if job is None else staleness(job, ref)
                return make(Outcome, (ref.job_id, "stale", None, stale)), queue
    return make(Outcome, (ref.job_id, "completed", None, None)), _complete(config, queue, op, job)[1]


def _fail_digest(op: Fail) -> Digest:
    return make(Digest, ("fail", op.ref.generation, (op.reason, op.retryable)))


def _fail_repeat(_config: Config, _queue: Queue, op: Fail, job: Job | None) -> Reply | None:
    submit = None if job is None else job.submit
    if submit is None or not isinstance(submit.reply, State):
        return None
    return make(Failed, (submit.reply,)) if submit.digest == _fail_digest(op) else None


def _fail(config: Config, queue: Queue, op: Fail, job: Job | None) -> tuple[Reply, Queue]:
    if job is None:
        return NotFound(op.ref.job_id), queue
    now_ms, kind, attempts = queue.now_ms, job.spec.kind, job.attempts + 1
    reason = op.reason[: config.reason_chars_max]
    detail = (("reason", reason), ("generation", job.generation), ("attempts", attempts))
    dead_reason: DeadReason | None = None
    if not op.retryable:
        dead_reason = "rejected"
    elif attempts >= max_attempts(config, kind, job.spec.max_attempts):
        dead_reason = "attempts"
    if dead_reason is None:
        due_ms = add_ms(now_ms, backoff_ms(config, kind, attempts))
        event = make(Event, (now_ms, Transition.FAILED, (*detail, ("due", due_ms))))
        new = waiting(
            job,
            FAILED,
            due_ms=due_ms,
            attempts=attempts,
            lease_end="failed",
            submit=make(Submit, (_fail_digest(op), FAILED)),
            events=logged(job.events, config.events_max, event),
        )
        return make(Failed, (FAILED,)), with_job(queue, job, new)
    retention = config.retention_dead_ms
    event = make(Event, (now_ms, Transition.DEAD, (*detail, ("dead_reason", dead_reason))))
    new = ended(
        job,
        DEAD,
        now_ms=now_ms,
        purge_at_ms=None if retention is None else add_ms(now_ms, retention),
        attempts=attempts,
        dead_reason=dead_reason,
        result=None,
        lease_end="failed",
        submit=make(Submit, (_fail_digest(op), DEAD)),
        events=logged(job.events, config.events_max, event),
    )
    return make(Failed, (DEAD,)), with_job(queue, job, new)


def _release_argument(_config: Config, _queue: Queue, op: Release, _job: Job | None) -> Reply | None:
    return None if 0 <= op.delay_ms <= DURATION_MS_MAX else BadArgument("delay_ms")


def _release(config: Config, queue: Queue, op: Release, job: Job | None) -> tuple[Reply, Queue]:
    if job is None or job.deadline_ms is None or job.due_ms is None:
        return NotFound(op.ref.job_id), queue
    now_ms = queue.now_ms
    if job.deadline_ms <= now_ms:
        return make(Released, ()), with_job(queue, job, expired(config, now_ms, job))
    due_ms = max(job.due_ms, add_ms(now_ms, op.delay_ms)) if op.delay_ms > 0 else job.due_ms
    detail = (("generation", job.generation), ("attempts", job.attempts), ("due", due_ms))
    new = waiting(
        job,
        PENDING,
        due_ms=due_ms,
        attempts=job.attempts,
        lease_end="released",
        submit=job.submit,
        events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.RELEASED, detail))),
    )
    return make(Released, ()), with_job(queue, job, new)


COMPLETE: Final[Rule[Complete]] = rule(
    _complete,
    [
        (Ruling.ARGUMENT, _complete_argument),
        (Ruling.NOT_FOUND, ref_unknown),
        (Ruling.REPEAT, _complete_repeat),
        (Ruling.STALE, ref_stale),
        (Ruling.KEY_CONFLICT, _follow_up_conflict),
    ],
    job_of_ref,
)
COMPLETE_MANY: Final[Rule[CompleteMany]] = rule(_complete_many, [(Ruling.ARGUMENT, _many_argument)])
FAIL: Final[Rule[Fail]] = rule(
    _fail,
    [(Ruling.NOT_FOUND, ref_unknown), (Ruling.REPEAT, _fail_repeat), (Ruling.STALE, ref_stale)],
    job_of_ref,
)
RELEASE: Final[Rule[Release]] = rule(
    _release,
    [(Ruling.ARGUMENT, _release_argument), (Ruling.NOT_FOUND, ref_unknown), (Ruling.STALE, ref_stale)],
    job_of_ref,
)
