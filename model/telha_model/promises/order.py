"""Predicates about who runs when: order, due times, fairness."""

from collections.abc import Iterator

from telha_model.ops import Lease, Op, Reopen
from telha_model.promises.evidence import Taken, grants
from telha_model.replies import Grant, Leased, Reply
from telha_model.state import Job, Queue, is_ready
from telha_model.states import FAILED, LEASED, PENDING
from telha_model.types import Config, matches


def _acceptable(op: Lease, queue: Queue, granted: set[int]) -> list[Job]:
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


def _grants_with_choice(before: Queue, op: Op, reply: Reply) -> Iterator[tuple[Grant, list[Job]]]:
    """Each grant with the jobs it could have taken."""
    if isinstance(op, Lease):
        granted: set[int] = set()
        for grant in grants(reply):
            yield grant, _acceptable(op, before, granted)
            granted.add(grant.job_id)


def nothing_is_left_behind(before: Queue, op: Op, reply: Reply) -> str | None:
    """A lease that grants fewer than asked for leaves no acceptable job."""
    if not isinstance(op, Lease) or not isinstance(reply, Leased) or len(reply.grants) >= op.limit:
        return None
    left = _acceptable(op, before, {grant.job_id for grant in reply.grants})
    return f"job {left[0].job_id} was ready and left behind" if left else None


def least_first(taken: Taken) -> str | None:
    """Each grant takes the least of its scope by priority, due time, job id."""
    for grant, choice in _grants_with_choice(taken.before, taken.op, taken.reply):
        places = sorted([(j.spec.priority, j.due_ms, j.job_id) for j in choice if j.spec.scope == grant.scope])
        if not places or places[0][2] != grant.job_id:
            return f"job {grant.job_id} was leased before its turn: {places}"
    return None


def ids_rise(taken: Taken) -> str | None:
    """New jobs get the next numbers, without a gap."""
    fresh = [now.job_id for was, now in taken.changed if was is None and now is not None]
    first = taken.before.next_job_id
    if fresh != list(range(first, first + len(fresh))) or taken.after.next_job_id != first + len(fresh):
        return f"new jobs got the numbers {fresh}, the next one was {first}"
    return None


def only_when_due(taken: Taken, was: Job, now: Job) -> str | None:
    """Leased from pending or failed and due; promoted when due, and not to another place."""
    now_ms = taken.before.now_ms
    early = was.due_ms is None or was.due_ms > now_ms
    if now.state is LEASED and was.state is not LEASED and (early or was.state not in (PENDING, FAILED)):
        return f"job {was.job_id} was leased at {now_ms} from {was.state}, due {was.due_ms}"
    if was.state is FAILED and now.state is PENDING and (early or now.due_ms != was.due_ms):
        return f"job {was.job_id} was promoted at {now_ms}, due {was.due_ms} then {now.due_ms}"
    return None


def ring_is_who_waits(_config: Config, queue: Queue) -> str | None:
    """The ring holds exactly the scopes with a ready job, once each."""
    waiting = {job.spec.scope for job in queue.jobs if is_ready(job, queue.now_ms)}
    if set(queue.ring) != waiting or len(queue.ring) != len(waiting):
        return f"the ring is {queue.ring}, ready jobs are in {sorted(waiting)}"
    return None


def nobody_is_overtaken(taken: Taken) -> str | None:
    """Who waits never gets more scopes ahead; with `first_eligible` its place at joining bounds its wait."""
    was, now = taken.before.ring, taken.after.ring
    if was is now or isinstance(taken.op, Reopen):
        return None
    served = {grant.scope for grant in grants(taken.reply)}
    for place, scope in enumerate(was):
        if scope in now and scope not in served and not set(now[: now.index(scope)]) <= set(was[:place]):
            return f"scope {scope} was overtaken: {was} became {now}"
    return None


def first_eligible(taken: Taken) -> str | None:
    """Each grant serves the first scope of the ring that has something for it, and writes that scope down."""
    ring = list(taken.before.ring)
    for grant, choice in _grants_with_choice(taken.before, taken.op, taken.reply):
        eligible = {job.spec.scope for job in choice}
        if next((scope for scope in ring if scope in eligible), None) != grant.scope:
            return f"scope {grant.scope} was served out of turn, the ring was {ring}"
        ring.remove(grant.scope)
        ring.append(grant.scope)
    served = grants(taken.reply)
    if served and taken.after.last_served != served[-1].scope:
        return "the last served scope was not written down"
    return None
