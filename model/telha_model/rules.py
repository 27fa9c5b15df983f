"""How an operation is described: what may answer it without acting, and what it does otherwise.

A `Rule` pairs each check with the `Ruling` it belongs to; `rule` sorts the checks into the one order of precedence, so
no operation can have an order of its own.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from telha_model.ops import Cancel, Complete, Discard, Fail, Release, Retry
from telha_model.policy import max_attempts
from telha_model.replies import BadArgument, KeyConflict, NotFound, Reply, Ruling, StaleLease, Why
from telha_model.state import Job, Queue, holder
from telha_model.states import LEASED
from telha_model.types import (
    DURATION_MS_MAX,
    EVENTS_PER_ATTEMPT,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    KIND_CHARS_MAX,
    NIL_SCOPE,
    OVERSIZE,
    PRIORITY_MAX,
    TIME_MS_MAX,
    WORKER_CHARS_MAX,
    Config,
    NewJob,
    Ref,
    make,
)

O = TypeVar("O")  # noqa: E741  the type of one operation

Check = Callable[[Config, Queue, O, Job | None], Reply | None]
Apply = Callable[[Config, Queue, O, Job | None], tuple[Reply, Queue]]
Subject = Callable[[Queue, O], Job | None]

KIND: Final = re.compile(f"[A-Za-z0-9_.:/+-]{{1,{KIND_CHARS_MAX}}}")


class Rule(NamedTuple, Generic[O]):
    """An operation: the job it is about, its checks in order of precedence, its effect when none of them answers."""

    subject: Subject[O] | None
    checks: tuple[Check[O], ...]
    apply: Apply[O]


def rule(apply: Apply[O], checks: Iterable[tuple[Ruling, Check[O]]], subject: Subject[O] | None = None) -> Rule[O]:
    """A rule whose checks run in the order of `Ruling`, whatever order they are listed in."""
    return Rule(subject, tuple([check for _, check in sorted(checks, key=lambda pair: pair[0])]), apply)


def job_of_ref(queue: Queue, op: Complete | Fail | Release) -> Job | None:
    """The job a token names."""
    number = op.ref.job_id
    for job in queue.jobs:  # as `find` does, without a call: most edges of most universes come by here
        if job.job_id == number:
            return job
    return None


def job_of_id(queue: Queue, op: Retry | Cancel | Discard) -> Job | None:
    """The job an operator names."""
    number = op.job_id
    for job in queue.jobs:
        if job.job_id == number:
            return job
    return None


def ref_unknown(_config: Config, _queue: Queue, op: Complete | Fail | Release, job: Job | None) -> Reply | None:
    """NOT_FOUND for a token of a job that is not there."""
    return make(NotFound, (op.ref.job_id,)) if job is None else None


def id_unknown(_config: Config, _queue: Queue, op: Retry | Cancel | Discard, job: Job | None) -> Reply | None:
    """NOT_FOUND for the number of a job that is not there."""
    return make(NotFound, (op.job_id,)) if job is None else None


def ref_stale(_config: Config, _queue: Queue, op: Complete | Fail | Release, job: Job | None) -> Reply | None:
    """STALE for a token that is not the job's current lease."""
    return None if job is None else staleness(job, op.ref)


def staleness(job: Job, ref: Ref) -> StaleLease | None:
    """Why a token is not the current lease, or None when it is. Expiry plays no part: the fence is the generation."""
    generation, claimed, state = job.generation, ref.generation, job.state
    if state is LEASED and generation == claimed:
        return None
    why: Why = "never_leased"
    if claimed == generation and generation > 0 and job.lease_end is not None:
        why = job.lease_end
    elif 0 < claimed < generation:
        why = "superseded"
    return make(StaleLease, (job.job_id, claimed, generation, state, why))


def worker_problem(worker: str) -> BadArgument | None:
    """A worker has a name of 1 to 256 characters."""
    return None if 0 < len(worker) <= WORKER_CHARS_MAX else BadArgument("worker")


def new_job_problem(config: Config, new: NewJob) -> str | None:
    """The first field of a new job that breaks a rule, or None."""
    if new.scope < NIL_SCOPE:
        return "scope"
    if not KIND.fullmatch(new.kind) or (new.kind.startswith("system:") and new.scope != NIL_SCOPE):
        return "kind"
    if new.payload is OVERSIZE:
        return "payload"
    if not 0 <= new.priority <= PRIORITY_MAX:
        return "priority"
    if new.run_at_ms is not None and not 0 <= new.run_at_ms <= TIME_MS_MAX:
        return "run_at_ms"
    if new.delay_ms is not None and (new.run_at_ms is not None or not 0 <= new.delay_ms <= DURATION_MS_MAX):
        return "delay_ms"
    if new.max_attempts is not None and (
        new.max_attempts < 1
        or EVENTS_PER_ATTEMPT * max_attempts(config, new.kind, new.max_attempts) + EVENTS_PER_ATTEMPT
        > config.events_max
    ):
        return "max_attempts"
    if new.idempotency_key is not None and not 0 < len(new.idempotency_key.encode()) <= KEY_BYTES_MAX:
        return "idempotency_key"
    if new.headers:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in new.headers)
        if len(new.headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
            return "headers"
    return None if new.payload_version >= 0 else "payload_version"


def new_jobs_problem(config: Config, jobs: tuple[NewJob, ...], name: str) -> BadArgument | None:
    """The first wrong field among several new jobs, with the item's index, or None."""
    for index, new in enumerate(jobs):
        field = new_job_problem(config, new)
        if field is not None:
            return BadArgument(f"{name}[{index}].{field}")
    return None


def key_conflict(queue: Queue, jobs: tuple[NewJob, ...], *, indexed: bool) -> KeyConflict | None:
    """The first of several new jobs whose key belongs to other work, earlier items of the same call included."""
    fresh: dict[tuple[int, str], tuple[int, NewJob]] = {}
    created = 0
    for index, new in enumerate(jobs):
        key = new.idempotency_key
        if key is None:
            created += 1
            continue
        job = holder(queue.jobs, new.scope, key)
        if job is not None:
            spec = job.spec
            held_by, same = job.job_id, same_work(spec.kind, spec.payload, spec.payload_version, new)
        elif (new.scope, key) in fresh:
            held_by, first = fresh[new.scope, key]
            same = same_work(first.kind, first.payload, first.payload_version, new)
        else:
            fresh[new.scope, key] = (queue.next_job_id + created, new)
            created += 1
            continue
        if not same:
            return KeyConflict(held_by, key, index if indexed else None)
    return None


def same_work(kind: str, payload: object, payload_version: int, new: NewJob) -> bool:
    """What a key is compared by; priority, times, headers and attempts do not matter."""
    return kind == new.kind and payload_version == new.payload_version and payload == new.payload
