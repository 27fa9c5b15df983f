"""What an operator does to a job by its number: retry, cancel, discard."""

from collections.abc import Callable
from typing import Final

from telha_model.ops import Cancel, Discard, Retry
from telha_model.replies import Cancelled, Discarded, NotFound, Reply, Retried, Ruling, WrongState
from telha_model.rules import Rule, id_unknown, job_of_id, rule
from telha_model.state import Event, Job, Queue, ended, logged, waiting, with_job, without_job
from telha_model.states import CANCELLABLE, DEAD, ENDED, LEASED, PENDING, RETRYABLE, State, Transition
from telha_model.types import Config, add_ms, make

ById = Retry | Cancel | Discard


def _needs(needed: frozenset[State]) -> Callable[[Config, Queue, ById, Job | None], Reply | None]:
    def check(_config: Config, _queue: Queue, _op: ById, job: Job | None) -> Reply | None:
        return None if job is None or job.state in needed else make(WrongState, (job.job_id, job.state, needed))

    return check


def _retry(config: Config, queue: Queue, op: Retry, job: Job | None) -> tuple[Reply, Queue]:
    if job is None:
        return NotFound(op.job_id), queue
    now_ms, run_at_ms = queue.now_ms, job.spec.run_at_ms
    due_ms = now_ms if run_at_ms is None or run_at_ms < now_ms else run_at_ms
    new = waiting(
        job,
        PENDING,
        due_ms=due_ms,
        attempts=0,
        lease_end=job.lease_end,
        submit=job.submit,
        events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.RETRIED, (("due", due_ms),)))),
    )
    return Retried(), with_job(queue, job, new)


def _cancel(config: Config, queue: Queue, op: Cancel, job: Job | None) -> tuple[Reply, Queue]:
    if job is None:
        return NotFound(op.job_id), queue
    now_ms, retention = queue.now_ms, config.retention_dead_ms
    detail = (("reason", "cancelled"), ("generation", job.generation), ("attempts", job.attempts))
    new = ended(
        job,
        DEAD,
        now_ms=now_ms,
        purge_at_ms=None if retention is None else add_ms(now_ms, retention),
        attempts=job.attempts,
        dead_reason="cancelled",
        result=None,
        lease_end="cancelled" if job.state is LEASED else job.lease_end,
        submit=job.submit,
        events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.CANCELLED, detail))),
    )
    return Cancelled(), with_job(queue, job, new)


def _discard(_config: Config, queue: Queue, op: Discard, job: Job | None) -> tuple[Reply, Queue]:
    if job is None:
        return NotFound(op.job_id), queue
    return Discarded(), without_job(queue, job)


RETRY: Final[Rule[Retry]] = rule(
    _retry, [(Ruling.NOT_FOUND, id_unknown), (Ruling.WRONG_STATE, _needs(RETRYABLE))], job_of_id
)
CANCEL: Final[Rule[Cancel]] = rule(
    _cancel, [(Ruling.NOT_FOUND, id_unknown), (Ruling.WRONG_STATE, _needs(CANCELLABLE))], job_of_id
)
DISCARD: Final[Rule[Discard]] = rule(
    _discard, [(Ruling.NOT_FOUND, id_unknown), (Ruling.WRONG_STATE, _needs(ENDED))], job_of_id
)
