"""The public view: what `get`, `list_jobs` and `counts` say against what the model's state implies."""

from collections.abc import Iterator
from typing import Any

import telha_jobs as jobs
from telha_jobs.protocol import Queue as Public
from telha_model.state import Job, Queue
from telha_model.types import matches
from tests.harness.values import Names, packed, scope_number, scope_uuid, value_of

PAGE: int = 2


def public_differences(queue: Public, names: Names, model: Queue) -> Iterator[str]:
    """One sentence for each difference; asks for everything, and for a state, a scope and a kind that exist."""
    wanted = {job.job_id: viewed(job) for job in model.jobs}
    yield from _listed("list_jobs()", wanted, _pages(queue, names))
    for job in model.jobs[:1]:
        kind, scope = job.spec.kind, job.spec.scope
        state = jobs.State(job.state.value)
        family = kind.partition(":")[0] + ":*" if ":" in kind else kind
        some = {
            other.job_id: wanted[other.job_id]
            for other in model.jobs
            if other.state is job.state and other.spec.scope == scope and matches(family, other.spec.kind)
        }
        found = _pages(queue, names, state=state, scope=scope_uuid(scope), kind=family)
        yield from _listed(f"list_jobs({state}, {scope}, {family!r})", some, found)
        got = _view(queue.get(names.job_id(job.job_id)), names)
        if got != wanted[job.job_id]:
            yield f"get({job.job_id}): model {wanted[job.job_id]}, queue {got}"
        yield from _counted(queue, model, scope=scope, kind=None)
        yield from _counted(queue, model, scope=None, kind=family)
        yield from _counted(queue, model, scope=scope, kind=kind)
    yield from _counted(queue, model, scope=None, kind=None)
    if queue.now_ms() != model.now_ms:
        yield f"now_ms(): model {model.now_ms}, queue {queue.now_ms()}"


def viewed(job: Job) -> dict[str, Any]:
    """What the public interface should say of a job of the model."""
    spec = job.spec
    return {
        "job_id": job.job_id,
        "scope": spec.scope,
        "kind": spec.kind,
        "state": job.state.value,
        "priority": spec.priority,
        "payload": spec.payload,
        "payload_version": spec.payload_version,
        "headers": dict(spec.headers),
        "created_at_ms": spec.created_at_ms,
        "due_ms": job.due_ms,
        "deadline_ms": job.deadline_ms,
        "ended_at_ms": job.ended_at_ms,
        "run_at_ms": spec.run_at_ms,
        "attempts": job.attempts,
        "max_attempts": spec.max_attempts,
        "generation": job.generation,
        "worker": job.worker,
        "dead_reason": job.dead_reason,
        "result": job.result,
        "progress": job.progress,
        "idempotency_key": spec.idempotency_key,
        "events": [(event.at_ms, event.transition.value, dict(event.detail)) for event in job.events],
    }


def _view(job: jobs.Job, names: Names) -> dict[str, Any]:
    found = dict(vars(job))
    found["job_id"] = names.number(job.job_id.bytes)
    found["scope"] = scope_number(job.scope.bytes)
    found["state"] = job.state.value
    found["headers"] = dict(job.headers)
    found["events"] = [(event.at_ms, event.transition, dict(event.detail)) for event in job.events]
    for carried in ("payload", "result", "progress"):
        found[carried] = value_of(packed(found[carried]))
    return found


def _pages(queue: Public, names: Names, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = queue.list_jobs(limit=PAGE, after=after, **filters)
        found += [_view(job, names) for job in page.jobs]
        after = page.after
        if after is None:
            return found


def _listed(call: str, wanted: dict[int, dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[str]:
    if list(wanted.values()) == found:
        return
    numbers = [job["job_id"] for job in found]
    if list(wanted) != numbers:
        yield f"{call}: model {list(wanted)}, queue {numbers}"
        return
    for job in found:
        ours = wanted[job["job_id"]]
        for field in ours.keys() | job.keys():
            if ours.get(field) != job.get(field):
                yield f"{call}: job {job['job_id']}: {field}: model {ours.get(field)!r}, queue {job.get(field)!r}"


def _counted(queue: Public, model: Queue, *, scope: int | None, kind: str | None) -> Iterator[str]:
    wanted = {state.value: 0 for state in jobs.State}
    for job in model.jobs:
        if (scope is None or job.spec.scope == scope) and (kind is None or matches(kind, job.spec.kind)):
            wanted[job.state.value] += 1
    counts = queue.counts(scope=None if scope is None else scope_uuid(scope), kind=kind)
    found = {state.value: number for state, number in counts.items()}
    if wanted != found:
        yield f"counts(scope={scope}, kind={kind!r}): model {wanted}, queue {found}"
