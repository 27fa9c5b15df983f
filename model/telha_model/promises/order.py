"""Predicates about who runs when: order, due times, fairness."""

from telha_model.ops import Lease, Reopen
from telha_model.promises.evidence import Taken, grants
from telha_model.replies import Leased, Reply
from telha_model.state import Job, Queue, find, is_ready
from telha_model.states import FAILED, LEASED, PENDING
from telha_model.types import Config, matches


def _may_take(op: Lease, job: Job, now_ms: int) -> bool:
    """Whether a lease may take a job: ready, and within the filters."""
    if not is_ready(job, now_ms):
        return False
    spec, scopes, kinds = job.spec, op.scopes, op.kinds
    if scopes is not None and spec.scope not in scopes:
        return False
    if kinds is None:
        return True
    kind = spec.kind
    for pattern in kinds:
        if matches(pattern, kind):
            return True
    return False


def nothing_is_left_behind(before: Queue, op: Lease, reply: Reply) -> str | None:
    """A lease that grants fewer than asked for leaves no job it may take."""
    if not isinstance(reply, Leased) or len(reply.grants) >= op.limit:
        return None
    now_ms = before.now_ms
    granted = [grant.job_id for grant in reply.grants] if reply.grants else ()
    for job in before.jobs:
        if _may_take(op, job, now_ms) and job.job_id not in granted:
            return f"job {job.job_id} was ready and left behind"
    return None


def least_first(taken: Taken) -> str | None:
    """Each grant takes the least of its scope by priority, due time, job id."""
    before, op, granted = taken.before, taken.op, set()
    if not isinstance(op, Lease):
        return None
    for grant in grants(taken.reply):
        granted.add(grant.job_id)
        job = find(before, grant.job_id)
        if job is None or job.due_ms is None:
            return f"job {grant.job_id} could not be leased at all"
        place = (job.spec.priority, job.due_ms, job.job_id)
        for other in before.jobs:
            spec, due_ms = other.spec, other.due_ms
            if other is job or due_ms is None or spec.scope != grant.scope:
                continue
            if (spec.priority, due_ms, other.job_id) >= place:
                continue
            if other.job_id not in granted and _may_take(op, other, before.now_ms):
                return f"job {job.job_id} was leased before job {other.job_id}"
    return None


def ids_rise(taken: Taken) -> str | None:
    """New jobs get the next numbers, without a gap."""
    first = expected = taken.before.next_job_id
    for was, now in taken.changed:
        if was is None and now is not None:
            if now.job_id != expected:
                return f"a new job got the number {now.job_id}, the next one was {expected}"
            expected += 1
    if taken.after.next_job_id != expected:
        return f"after {expected - first} new jobs the next number went from {first} to {taken.after.next_job_id}"
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
    now_ms, ring = queue.now_ms, queue.ring
    waiting = {job.spec.scope for job in queue.jobs if is_ready(job, now_ms)}
    if len(ring) != len(waiting) or set(ring) != waiting:
        return f"the ring is {ring}, ready jobs are in {sorted(waiting)}"
    return None


def nobody_is_overtaken(taken: Taken) -> str | None:
    """Who waits never gets more scopes ahead; with `first_eligible` its place at joining bounds its wait."""
    was, now = taken.before.ring, taken.after.ring
    if was is now or now[: len(was)] == was or isinstance(taken.op, Reopen):
        return None
    served = [grant.scope for grant in grants(taken.reply)]
    for place, scope in enumerate(was):
        if scope in now and scope not in served:
            for ahead in now[: now.index(scope)]:
                if ahead not in was[:place]:
                    return f"scope {scope} was overtaken: {was} became {now}"
    return None


def first_eligible(taken: Taken) -> str | None:
    """Each grant serves the first scope of the ring that has something for it, and writes that scope down."""
    before, op, granted = taken.before, taken.op, set()
    if not isinstance(op, Lease):
        return None
    ring = list(before.ring)
    served = grants(taken.reply)
    for grant in served:
        scope = grant.scope
        if scope not in ring:
            return f"scope {scope} was served, but does not wait in {ring}"
        place = ring.index(scope)
        for job in before.jobs if place else ():
            ahead = job.spec.scope in ring[:place]
            if ahead and job.job_id not in granted and _may_take(op, job, before.now_ms):
                return f"scope {grant.scope} was served out of turn, the ring was {ring}"
        ring.append(ring.pop(place))
        granted.add(grant.job_id)
    if served and taken.after.last_served != served[-1].scope:
        return "the last served scope was not written down"
    return None
