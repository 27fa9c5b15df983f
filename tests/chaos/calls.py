"""Every call of the queue as JSON, there and back, with all that is told: for histories of concurrent callers.

More than `tests.chaos.server.Served` has, which says what its lanes look at: here every field of every reply and
refusal is kept, because the model is held against each of them.
"""

from typing import Any
from uuid import UUID

from telha_jobs import (
    IdempotencyConflictError,
    InvalidArgumentError,
    Job,
    JobNotFoundError,
    Lease,
    NewJob,
    Outcome,
    QueueError,
    StaleLeaseError,
    State,
    WrongStateError,
)
from tests.chaos.server import Data, Served, receipt, ref


class Calls(Served):
    """The calls, by name."""

    def refused(self, error: QueueError) -> Data:
        return refusal(error)

    def do_enqueue(self, asked: Data) -> Any:
        jobs = [new_job(one) for one in asked["jobs"]]
        if len(jobs) != 1:
            return [receipt(one) for one in self._queue.enqueue_many(jobs)]
        [job] = jobs
        given = {name: value for name, value in vars(job).items() if name not in ("scope", "kind", "payload")}
        return [receipt(self._queue.enqueue(job.scope, job.kind, job.payload, **given))]

    def do_lease(self, asked: Data) -> Any:
        scopes = None if asked["scopes"] is None else [scope(number) for number in asked["scopes"]]
        held = self._queue.lease_batch(
            asked["worker"], asked["limit"], scopes=scopes, kinds=asked["kinds"], wait_ms=asked["wait_ms"]
        )
        return [grant(lease) for lease in held]

    def do_extend(self, asked: Data) -> Any:
        progress = {UUID(job): value for job, value in asked["progress"].items()}
        refs = [ref(one) for one in asked["leases"]]
        return [outcome(one) for one in self._queue.extend(asked["worker"], refs, progress=progress or None)]

    def do_complete(self, asked: Data) -> Any:
        follow_ups = [new_job(one) for one in asked["jobs"]]
        return [receipt(one) for one in self._queue.complete(ref(asked), asked["result"], enqueue=follow_ups)]

    def do_complete_many(self, asked: Data) -> Any:
        items = [(ref(one), one["result"]) for one in asked["items"]]
        return [outcome(one) for one in self._queue.complete_many(items)]

    def do_fail(self, asked: Data) -> Any:
        return self._queue.fail(ref(asked), asked["reason"], retryable=asked["retryable"]).value

    def do_release(self, asked: Data) -> Any:
        self._queue.release(ref(asked), delay_ms=asked["delay_ms"])
        return None

    def do_retry(self, asked: Data) -> Any:
        self._queue.retry(UUID(asked["job"]))
        return None

    def do_cancel(self, asked: Data) -> Any:
        self._queue.cancel(UUID(asked["job"]))
        return None

    def do_discard(self, asked: Data) -> Any:
        self._queue.discard(UUID(asked["job"]))
        return None

    def do_reap(self, _asked: Data) -> Any:
        return vars(self._queue.reap())

    def do_get(self, asked: Data) -> Any:
        return view(self._queue.get(UUID(asked["job"])))

    def do_list(self, asked: Data) -> Any:
        state = None if asked["state"] is None else State(asked["state"])
        page = self._queue.list_jobs(state=state, limit=asked["limit"], after=asked["after"])
        return {"jobs": [view(job) for job in page.jobs], "after": page.after}


def scope(number: int) -> UUID:
    """The scope of a number."""
    return UUID(bytes=bytes([number]) * 16)


def new_job(told: Data) -> NewJob:
    """A job to be made."""
    given = {name: value for name, value in told.items() if name not in ("scope", "key")}
    return NewJob(scope=scope(told["scope"]), idempotency_key=told.get("key"), **given)


def grant(lease: Lease) -> Data:
    """A lease, all of it."""
    return {
        "job": lease.job_id.hex,
        "generation": lease.generation,
        "scope": lease.scope.bytes[0],
        "kind": lease.kind,
        "payload": lease.payload,
        "payload_version": lease.payload_version,
        "headers": dict(lease.headers),
        "attempt": lease.attempt,
        "deadline_ms": lease.deadline_ms,
        "worker": lease.worker,
        "progress": lease.progress,
    }


def outcome(one: Outcome) -> Data:
    """One item's outcome."""
    error = None if one.error is None else refusal(one.error)
    return {"job": one.job_id.hex, "status": one.status, "deadline_ms": one.deadline_ms, "error": error}


def refusal(error: QueueError) -> Data:
    """A refusal, its fields by name."""
    told: Data = {"refused": type(error).__name__}
    match error:
        case InvalidArgumentError():
            told |= {"field": error.field}
        case JobNotFoundError():
            told |= {"job": error.job_id.hex}
        case StaleLeaseError():
            told |= {"job": error.job_id.hex, "generation": error.generation, "state": error.state.value}
            told |= {"current": error.current_generation, "why": error.why}
        case WrongStateError():
            told |= {"job": error.job_id.hex, "state": error.state.value}
            told |= {"needed": sorted(state.value for state in error.needed)}
        case IdempotencyConflictError():
            told |= {"job": error.job_id.hex, "key": error.key, "index": error.index}
        case _:
            told |= {"text": str(error)}
    return told


def view(job: Job) -> Data:
    """A job as it was looked at, all of it."""
    events = [[event.at_ms, event.transition, dict(event.detail)] for event in job.events]
    told = dict(vars(job)) | {"job": job.job_id.hex, "scope": job.scope.bytes[0], "state": job.state.value}
    told |= {"headers": dict(job.headers), "events": events}
    del told["job_id"]
    return told
