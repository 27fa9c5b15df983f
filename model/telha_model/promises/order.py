"""Predicates about who runs when: order, due times, fairness."""

from collections.abc import Iterator

from telha_model.ops import (
    Lease,
    Reopen,
)
from telha_model.promises.evidence import Taken, grants
from telha_model.replies import (
    Grant,
    Leased,
)
from telha_model.state import Job, Queue, is_ready
from telha_model.states import FAILED, LEASED, PENDING
from telha_model.types import Config, matches

# 7. order, 8. no early run, 9. fair scopes


def _accepted(op: Lease, queue: Queue, granted: set[int]) -> list[Job]:
    """The jobs a lease may take: ready, within its filters, not granted yet."""
    scopes, kinds = op.scopes, op.kinds
    return [
        job
        for job in queue.jobs
        if is_ready(job, queue.now_ms)
        and job.job_id not in granted
        and (scopes is None or job.spec.scope in scopes)
        and (kinds is None or any(matches(pattern, job.spec.kind) for pattern in kinds))
    ]


def _grants_with_choice(taken: Taken) -> Iterator[tuple[Grant | None, list[Job]]]:
    """Each grant with the jobs it could have taken; at the end None with what is left, if more could have been granted."""
    op, reply = taken.op, taken.reply
    if not isinstance(op, Lease) or not isinstance(reply, Leased):
        return
    granted: set[int] = set()
    for grant in reply.grants:
        yield grant, _accepted(op, taken.before, granted)
        granted.add(grant.job_id)
    if len(granted) < op.limit:
        yield None, _accepted(op, taken.before, granted)


def least_first(taken: Taken) -> str | None:
    for grant, choice in _grants_with_choice(taken):
        if grant is None:
            if choice:
                return f"job {choice[0].job_id} was ready and left behind"
            continue
        places = sorted((j.spec.priority, j.due_ms, j.job_id) for j in choice if j.spec.scope == grant.scope)
        if not places or places[0][2] != grant.job_id:
            return f"job {grant.job_id} was leased before its turn: {places}"
    return None


def ids_rise(taken: Taken) -> str | None:
    fresh = [now.job_id for was, now in taken.changed if was is None and now is not None]
    first = taken.before.next_job_id
    if fresh != list(range(first, first + len(fresh))) or taken.after.next_job_id != first + len(fresh):
        return f"new jobs got the numbers {fresh}, the next one was {first}"
    return None


def only_when_due(taken: Taken) -> str | None:
    now_ms = taken.before.now_ms
    for was, now in taken.changed:
        if was is not None and now is not None and now.state is LEASED and was.state is not LEASED:
            if was.state not in (PENDING, FAILED) or was.due_ms is None or was.due_ms > now_ms:
                return f"job {was.job_id} was leased at {now_ms} from {was.state}, due {was.due_ms}"
        elif was is not None and now is not None and was.state is FAILED and now.state is PENDING:
            if was.due_ms is None or was.due_ms > now_ms or now.due_ms != was.due_ms:
                return f"job {was.job_id} was promoted at {now_ms}, due {was.due_ms} then {now.due_ms}"
    return None


def ring_is_who_waits(_config: Config, queue: Queue) -> str | None:
    waiting = {job.spec.scope for job in queue.jobs if is_ready(job, queue.now_ms)}
    if set(queue.ring) != waiting or len(queue.ring) != len(waiting):
        return f"the ring is {queue.ring}, ready jobs are in {sorted(waiting)}"
    return None


def nobody_overtakes(taken: Taken) -> str | None:
    """Whoever waits never gets more scopes ahead of it; with `first_eligible` that bounds its wait by its place at joining."""
    was, now = taken.before.ring, taken.after.ring
    if was is now or isinstance(taken.op, Reopen):
        return None
    served = {grant.scope for grant in grants(taken.reply)}
    for place, scope in enumerate(was):
        if scope in now and scope not in served and not set(now[: now.index(scope)]) <= set(was[:place]):
            return f"scope {scope} was overtaken: {was} became {now}"
    return None


def first_eligible(taken: Taken) -> str | None:
    ring = list(taken.before.ring)
    for grant, choice in _grants_with_choice(taken):
        if grant is None:
            break
        eligible = {job.spec.scope for job in choice}
        if next((scope for scope in ring if scope in eligible), None) != grant.scope:
            return f"scope {grant.scope} was served out of turn, the ring was {ring}"
        ring.remove(grant.scope)
        ring.append(grant.scope)
    served = grants(taken.reply)
    if served and taken.after.last_served != served[-1].scope:
        return "the last served scope was not written down"
    return None
