"""The state of the whole queue, and the few ways to change it.

`jobs` is sorted by job id, which rises in creation order and is never reused. `ring` holds exactly the scopes that have
a ready job, in the order they will be served: time is part of the state, so a scope joins when `Advance` makes its
first job due, or when an operation gives it its first ready job. Everything here returns new values.
"""

from typing import Final, Literal, NamedTuple

from telha_model.replies import Receipt
from telha_model.states import LEASED, STATE_AFTER, State, Transition
from telha_model.types import Value, make

LeaseEnd = Literal["reaped", "released", "cancelled", "completed", "failed"]
DeadReason = Literal["attempts", "expired", "rejected", "cancelled"]
Detail = tuple[tuple[str, Value], ...]


class Spec(NamedTuple):
    """What a job was created with; never changes."""

    scope: int
    kind: str
    priority: int
    payload: Value
    payload_version: int
    headers: tuple[tuple[str, str], ...]
    created_at_ms: int
    run_at_ms: int | None
    max_attempts: int | None
    idempotency_key: str | None


class Event(NamedTuple):
    """One entry of a job's log; `detail` are pairs of name and value."""

    at_ms: int
    transition: Transition
    detail: Detail


class Digest(NamedTuple):
    """What makes a submit the same submit: verb, generation and the arguments as given, uncut."""

    verb: Literal["complete", "fail"]
    generation: int
    arguments: tuple[Value, ...]


class Submit(NamedTuple):
    """The newest submit that was accepted, and the answer it got: receipts of a completion, state of a failure."""

    digest: Digest
    reply: tuple[Receipt, ...] | State


class Job(NamedTuple):
    """One job. Times are None in the states that have no such time."""

    job_id: int
    spec: Spec
    state: State
    due_ms: int | None
    attempts: int
    generation: int
    worker: str | None
    leased_at_ms: int | None
    deadline_ms: int | None
    ended_at_ms: int | None
    purge_at_ms: int | None
    dead_reason: DeadReason | None
    result: Value
    progress: Value
    lease_end: LeaseEnd | None
    submit: Submit | None
    events: tuple[Event, ...]


class Queue(NamedTuple):
    """The whole state."""

    now_ms: int
    incarnation: int
    next_job_id: int
    jobs: tuple[Job, ...]
    ring: tuple[int, ...]
    last_served: int | None


NO_DETAIL: Final[Detail] = ()


def new_queue(now_ms: int = 0) -> Queue:
    """A queue at its first open."""
    return make(Queue, (now_ms, 0, 1, (), (), None))


def find(queue: Queue, job_id: int) -> Job | None:
    """The job of that number, or None."""
    for job in queue.jobs:
        if job.job_id == job_id:
            return job
    return None


def holder(jobs: tuple[Job, ...], scope: int, key: str | None) -> Job | None:
    """The job that holds an idempotency key in a scope, or None."""
    if key is None:
        return None
    for job in jobs:
        if job.spec.idempotency_key == key and job.spec.scope == scope:
            return job
    return None


def is_ready(job: Job, now_ms: int) -> bool:
    """Whether the job could be leased now: pending or failed, and due."""
    due_ms = job.due_ms  # ended jobs have none
    return due_ms is not None and due_ms <= now_ms and job.state is not LEASED


def has_ready(jobs: tuple[Job, ...], scope: int, now_ms: int) -> bool:
    """Whether a scope has a ready job."""
    for job in jobs:
        if is_ready(job, now_ms) and job.spec.scope == scope:
            return True
    return False


def replaced(jobs: tuple[Job, ...], old: Job, new: Job) -> tuple[Job, ...]:
    """The jobs with one of them replaced."""
    rows = list(jobs)
    rows[rows.index(old)] = new
    return tuple(rows)


def with_job(queue: Queue, old: Job, new: Job) -> Queue:
    """The queue with one job replaced, its scope joining or leaving the ring as its readiness changed."""
    now_ms, incarnation, next_job_id, jobs, ring, last_served = queue
    jobs = replaced(jobs, old, new)
    before, after = is_ready(old, now_ms), is_ready(new, now_ms)
    if before is not after:
        ring = resettled(ring, jobs, new.spec.scope, now_ms)
    return make(Queue, (now_ms, incarnation, next_job_id, jobs, ring, last_served))


def without_job(queue: Queue, old: Job) -> Queue:
    """The queue with one ended job removed; ended jobs never bear on the ring."""
    now_ms, incarnation, next_job_id, jobs, ring, last_served = queue
    return make(Queue, (now_ms, incarnation, next_job_id, tuple([j for j in jobs if j is not old]), ring, last_served))


def resettled(ring: tuple[int, ...], jobs: tuple[Job, ...], scope: int, now_ms: int) -> tuple[int, ...]:
    """The ring after a change in `scope`: it joins the tail with its first ready job and leaves with its last."""
    ready = has_ready(jobs, scope, now_ms)
    if ready is (scope in ring):
        return ring
    return (*ring, scope) if ready else tuple([s for s in ring if s != scope])


def joined(ring: tuple[int, ...], jobs: tuple[Job, ...], now_ms: int) -> tuple[int, ...]:
    """The ring after the scopes whose first job has come due joined it, by due time, then scope."""
    first_due: dict[int, int] = {}
    for job in jobs:
        if job.due_ms is not None and is_ready(job, now_ms):
            scope = job.spec.scope
            if scope not in ring and job.due_ms < first_due.get(scope, now_ms + 1):
                first_due[scope] = job.due_ms
    if not first_due:
        return ring
    return ring + tuple(sorted(first_due, key=lambda scope: (first_due[scope], scope)))


def logged(events: tuple[Event, ...], events_max: int, *new: Event) -> tuple[Event, ...]:
    """The log with `new` appended, its middle collapsed where it would exceed the cap.

    The first half of the cap stays for ever, then one `elided` entry counts what it swallowed and tells the state that
    led to, then come the newest events.
    """
    grown = events + new
    while len(grown) > events_max:
        half = events_max // 2
        first, second = grown[half], grown[half + 1]
        count = 2
        if first.transition is Transition.ELIDED:
            swallowed = first.detail[0][1]
            count = swallowed + 1 if isinstance(swallowed, int) else 2
        state = STATE_AFTER[second.transition]
        elided = make(Event, (second.at_ms, Transition.ELIDED, (("count", count), ("state", state.value))))
        grown = (*grown[:half], elided, *grown[half + 2 :])
    return grown


def ended(
    job: Job,
    state: State,
    *,
    now_ms: int,
    purge_at_ms: int | None,
    attempts: int,
    dead_reason: DeadReason | None,
    result: Value,
    lease_end: LeaseEnd | None,
    submit: Submit | None,
    events: tuple[Event, ...],
) -> Job:
    """The job at its end; what belongs to the living (due, worker, deadline) is gone."""
    return make(Job, (
        job.job_id, job.spec, state, None, attempts, job.generation, None, None, None, now_ms, purge_at_ms,
        dead_reason, result, job.progress, lease_end, submit, events,))  # fmt: skip


def waiting(
    job: Job,
    state: State,
    *,
    due_ms: int,
    attempts: int,
    lease_end: LeaseEnd | None,
    submit: Submit | None,
    events: tuple[Event, ...],
) -> Job:
    """The job waiting to be leased, pending or failed."""
    return make(Job, (
        job.job_id, job.spec, state, due_ms, attempts, job.generation, None, None, None, None, None,
        None, None, job.progress, lease_end, submit, events,))  # fmt: skip
