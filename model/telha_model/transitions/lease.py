"""Granting leases and keeping them alive: lease, extend."""

from typing import Final

from telha_model.ops import Extend, Lease
from telha_model.policy import latest_deadline_ms, lease_ttl_ms
from telha_model.replies import BadArgument, Extended, Grant, Leased, NotFound, Outcome, Reply, Ruling
from telha_model.rules import KIND, Rule, rule, staleness, worker_problem
from telha_model.state import NO_DETAIL, Event, Job, Queue, find, has_ready, is_ready, logged, replaced
from telha_model.states import FAILED, LEASED, Transition
from telha_model.types import OVERSIZE, Config, Ref, Value, add_ms, make, matches

Filter = tuple[int, ...] | None
Kinds = tuple[str, ...] | None


def _argument(config: Config, _queue: Queue, op: Lease, _job: Job | None) -> Reply | None:
    worker, limit, scopes, kinds = op
    if not 1 <= limit <= config.lease_batch_max:
        return BadArgument("limit")
    if scopes is not None and not scopes:
        return BadArgument("scopes")
    if kinds is not None and not (kinds and all(map(_is_kind_filter, kinds))):
        return BadArgument("kinds")
    return worker_problem(worker)


def _is_kind_filter(pattern: str) -> bool:
    return KIND.fullmatch(pattern.removesuffix("*") if pattern.endswith(":*") else pattern) is not None


def _lease(config: Config, queue: Queue, op: Lease, _job: Job | None) -> tuple[Reply, Queue]:
    worker, limit, scopes, kinds = op
    grants: list[Grant] = []
    while len(grants) < limit:
        candidate = next_candidate(queue, scopes, kinds)
        if candidate is None:
            break
        grant, queue = _granted(config, queue, candidate, worker)
        grants.append(grant)
    return make(Leased, (tuple(grants),)), queue


def next_candidate(queue: Queue, scopes: Filter, kinds: Kinds) -> Job | None:
    """The job the next grant takes: from the first eligible scope of the ring the first in order."""
    for scope in queue.ring:
        if scopes is None or scope in scopes:
            job = _first_ready(queue, scope, kinds)
            if job is not None:
                return job
    return None


def _first_ready(queue: Queue, scope: int, kinds: Kinds) -> Job | None:
    best: Job | None = None
    best_place = (0, 0)
    now_ms = queue.now_ms
    for job in queue.jobs:  # in job-id order, so that a tie keeps the earlier job
        due_ms = job.due_ms
        if due_ms is not None and is_ready(job, now_ms) and (spec := job.spec).scope == scope:
            place = (spec.priority, due_ms)
            if (best is None or place < best_place) and (kinds is None or accepts(kinds, spec.kind)):
                best, best_place = job, place
    return best


def accepts(kinds: tuple[str, ...], kind: str) -> bool:
    """Whether one of the filters covers a kind."""
    for pattern in kinds:
        if matches(pattern, kind):
            return True
    return False


def _granted(config: Config, queue: Queue, job: Job, worker: str) -> tuple[Grant, Queue]:
    now_ms, incarnation, next_job_id, jobs, ring, _ = queue
    spec = job.spec
    scope = spec.scope
    generation = max(job.generation + 1, incarnation << 32)
    deadline_ms = add_ms(now_ms, lease_ttl_ms(config, spec.kind))
    attempt = job.attempts + 1
    leased = make(Event, (
        now_ms, Transition.LEASED, (("worker", worker), ("generation", generation), ("attempt", attempt))))  # fmt: skip
    if job.state is FAILED:
        events = logged(job.events, config.events_max, make(Event, (now_ms, Transition.PROMOTED, NO_DETAIL)), leased)
    else:
        events = logged(job.events, config.events_max, leased)
    new = make(Job, (
        job.job_id, spec, LEASED, job.due_ms, job.attempts, generation, worker, now_ms, deadline_ms,
        None, None, None, None, job.progress, None, job.submit, events,))  # fmt: skip
    jobs = replaced(jobs, job, new)
    ring = tuple([other for other in ring if other != scope])
    if has_ready(jobs, scope, now_ms):
        ring += (scope,)
    grant = make(Grant, (
        job.job_id, generation, scope, spec.kind, spec.payload, spec.payload_version, spec.headers,
        attempt, deadline_ms, worker, job.progress,))  # fmt: skip
    return grant, make(Queue, (now_ms, incarnation, next_job_id, jobs, ring, scope))


def _extend_argument(_config: Config, _queue: Queue, op: Extend, _job: Job | None) -> Reply | None:
    for job_id, value in op.progress:
        if value is OVERSIZE or job_id not in [ref.job_id for ref in op.refs]:
            return BadArgument("progress")
    return worker_problem(op.worker)


def _extend(config: Config, queue: Queue, op: Extend, _job: Job | None) -> tuple[Reply, Queue]:
    progress = dict(op.progress)
    outcomes = []
    for ref in op.refs:
        outcome, queue = _extended(config, queue, ref, progress)
        outcomes.append(outcome)
    return make(Extended, (tuple(outcomes),)), queue


def _extended(config: Config, queue: Queue, ref: Ref, progress: dict[int, Value]) -> tuple[Outcome, Queue]:
    job = find(queue, ref.job_id)
    if job is None:
        return make(Outcome, (ref.job_id, "not_found", None, make(NotFound, (ref.job_id,)))), queue
    stale = staleness(job, ref)
    if stale is not None or job.leased_at_ms is None or job.deadline_ms is None:
        return make(Outcome, (ref.job_id, "stale", None, stale)), queue
    kind = job.spec.kind
    target_ms = add_ms(queue.now_ms, lease_ttl_ms(config, kind))
    limit_ms = latest_deadline_ms(config, kind, job.leased_at_ms)
    at_limit = limit_ms is not None and target_ms > limit_ms
    if limit_ms is not None and at_limit:
        target_ms = limit_ms
    deadline_ms = max(job.deadline_ms, target_ms)
    given = progress.get(ref.job_id, job.progress)
    outcome = make(Outcome, (ref.job_id, "at_limit" if at_limit else "extended", deadline_ms, None))
    if deadline_ms == job.deadline_ms and given is job.progress:
        return outcome, queue
    new = make(Job, (
        job.job_id, job.spec, job.state, job.due_ms, job.attempts, job.generation, job.worker, job.leased_at_ms,
        deadline_ms, None, None, None, None, given, None, job.submit, job.events,))  # fmt: skip
    now_ms, incarnation, next_job_id, jobs, ring, last_served = queue
    return outcome, make(Queue, (now_ms, incarnation, next_job_id, replaced(jobs, job, new), ring, last_served))


LEASE: Final[Rule[Lease]] = rule(_lease, [(Ruling.ARGUMENT, _argument)])
EXTEND: Final[Rule[Extend]] = rule(_extend, [(Ruling.ARGUMENT, _extend_argument)])
