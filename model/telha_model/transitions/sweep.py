"""The sweep: expired leases, promotions, purges; oldest due first over all scopes and kinds of work, then by job id."""

from typing import Final

from telha_model.ops import Reap
from telha_model.policy import backoff_ms, max_attempts
from telha_model.replies import BadArgument, Reaped, Reply, Ruling
from telha_model.rules import Rule, rule
from telha_model.state import NO_DETAIL, Event, Job, Queue, ended, find, logged, waiting, with_job, without_job
from telha_model.states import DEAD, FAILED, LEASED, PENDING, Transition
from telha_model.types import Config, add_ms, make


def work_due_ms(job: Job) -> int | None:
    """When the sweep has something to do with the job: deadline, end of back-off, or purge; None for never."""
    if job.state is LEASED:
        return job.deadline_ms
    return job.due_ms if job.state is FAILED else job.purge_at_ms


def _due_work(queue: Queue) -> list[tuple[int, int]]:
    now_ms = queue.now_ms
    work = []
    for job in queue.jobs:
        at_ms = work_due_ms(job)
        if at_ms is not None and at_ms <= now_ms:
            work.append((at_ms, job.job_id))
    return work


def _argument(_config: Config, _queue: Queue, op: Reap, _job: Job | None) -> Reply | None:
    return BadArgument("limit") if op.limit is not None and op.limit < 1 else None


def _reap(config: Config, queue: Queue, op: Reap, job: Job | None) -> tuple[Reply, Queue]:
    work = _due_work(queue)
    if not work:
        return make(Reaped, (0, 0, 0, 0, False)), queue
    work.sort()
    requeued = died = promoted = purged = 0
    for _, job_id in work[: op.limit]:
        job = find(queue, job_id)
        if job is None:
            continue
        if job.state is LEASED:
            new = expired(config, queue.now_ms, job)
            died += new.state is DEAD
            requeued += new.state is PENDING
            queue = with_job(queue, job, new)
        elif job.state is FAILED:
            promoted += 1
            queue = with_job(queue, job, _promoted(config, queue.now_ms, job))
        else:
            purged += 1
            queue = without_job(queue, job)
    return make(Reaped, (requeued, died, promoted, purged, bool(_due_work(queue)))), queue


def expired(config: Config, now_ms: int, job: Job) -> Job:
    """The job after its lease ran out unanswered: an attempt counts, and the last one kills it."""
    kind, attempts = job.spec.kind, job.attempts + 1
    detail = (("reason", "expired"), ("generation", job.generation), ("attempts", attempts))
    if attempts >= max_attempts(config, kind, job.spec.max_attempts):
        event = make(Event, (now_ms, Transition.DEAD, (*detail, ("dead_reason", "expired"))))
        retention = config.retention_dead_ms
        return ended(
            job,
            DEAD,
            now_ms=now_ms,
            purge_at_ms=None if retention is None else add_ms(now_ms, retention),
            attempts=attempts,
            dead_reason="expired",
            result=None,
            lease_end="reaped",
            submit=job.submit,
            events=logged(job.events, config.events_max, event),
        )
    due_ms = add_ms(now_ms, backoff_ms(config, kind, attempts))
    event = make(Event, (now_ms, Transition.REAPED, (*detail, ("due", due_ms))))
    return waiting(
        job,
        PENDING,
        due_ms=due_ms,
        attempts=attempts,
        lease_end="reaped",
        submit=job.submit,
        events=logged(job.events, config.events_max, event),
    )


def _promoted(config: Config, now_ms: int, job: Job) -> Job:
    return waiting(
        job,
        PENDING,
        due_ms=now_ms if job.due_ms is None else job.due_ms,
        attempts=job.attempts,
        lease_end=job.lease_end,
        submit=job.submit,
        events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.PROMOTED, NO_DETAIL))),
    )


REAP: Final[Rule[Reap]] = rule(_reap, [(Ruling.ARGUMENT, _argument)])
