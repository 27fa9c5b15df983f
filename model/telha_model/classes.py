"""Transition classes: what kind of step a step was, so that a lane can say which kinds it must have taken.

A class is (op, reply, state before, token, expiry, attempts): words, and `NONE` where a step has no such thing. A step
about one job has one class, a step about several has one for each of them; `classes` never returns none.

- `op`: the operation. What a completion creates besides is `follow_up`, one class for each.
- `reply`: what became of it: the reply's kind with its reason. A submit answered without acting is a `repeat`.
- `state`: the job's state before, `absent` when there was none. For a key it is the job that holds it.
- `token`: the generation presented, against the newest one granted: `current`, `older`, `never issued`.
- `expiry`: now against the lease's deadline: `before`, `at`, `after`. Of jobs that are not leased only grants and
  sweeps ask for a time: it is the due time, the end of the back-off, or the purge.
- `attempts`: `at max` when the attempt in hand, or the next one, is the last that may fail or expire; for a dead job,
  when all are used up. Else `below max`.

An argument is judged before the job is looked at, so a refused one keeps state and token only; of a fault in an item
the list is told, as in `jobs[]`.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, assert_never

from telha_model.ops import (
    Advance,
    Cancel,
    Complete,
    CompleteMany,
    Discard,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
    Retry,
)
from telha_model.policy import max_attempts
from telha_model.promises.evidence import changes
from telha_model.replies import (
    BadArgument,
    Completed,
    Enqueued,
    Extended,
    KeyConflict,
    Leased,
    NotFound,
    Receipt,
    Refusal,
    Reply,
    StaleLease,
    WrongState,
)
from telha_model.state import Job, Queue, find
from telha_model.states import DEAD, FAILED, LEASED, PENDING
from telha_model.step import step
from telha_model.transitions.sweep import work_due_ms
from telha_model.types import Config, Ref, make

NONE: Final = "-"
ABSENT: Final = "absent"
CURRENT, OLDER, NEVER_ISSUED = "current", "older", "never issued"
BEFORE, AT, AFTER = "before", "at", "after"
BELOW_MAX, AT_MAX = "below max", "at max"

NAMES: Final[dict[type[Op], str]] = {
    Enqueue: "enqueue",
    EnqueueMany: "enqueue_many",
    Lease: "lease",
    Extend: "extend",
    Complete: "complete",
    CompleteMany: "complete_many",
    Fail: "fail",
    Release: "release",
    Reap: "reap",
    Retry: "retry",
    Cancel: "cancel",
    Discard: "discard",
    Advance: "advance",
    Reopen: "reopen",
}
FOLLOW_UP: Final = "follow_up"

_ITEM: Final = re.compile(r"\[\d+\].*")


class TransitionClass(NamedTuple):
    """What kind of step it was; see the module."""

    op: str
    reply: str
    state: str
    token: str
    expiry: str
    attempts: str

    def __str__(self) -> str:
        return ", ".join(self)


def classes(config: Config, before: Queue, op: Op, reply: Reply, after: Queue) -> list[TransitionClass]:
    """The classes of a step, one for each job it was about; the step has to be one of the model's."""
    name = NAMES[type(op)]
    match op:
        case Complete(ref) | Fail(ref) | Release(ref):
            found = [_by_token(config, before, name, ref, _submitted(before, op, reply, after), reply)]
            return found + _follow_ups(op, reply) if after is not before else found
        case Extend():
            return _extended(config, before, op, reply)
        case CompleteMany():
            return _completed_many(config, before, op, reply)
        case Enqueue() | EnqueueMany():
            return _enqueued(before, name, reply)
        case Lease():
            return _leased(config, before, reply)
        case Reap():
            return _reaped(config, before, reply, after)
        case Retry(job_id) | Cancel(job_id) | Discard(job_id):
            job = find(before, job_id)
            return [_of(config, before.now_ms, name, _refused(reply) or _DONE[type(op)], job)]
        case Advance():
            return [_bare(name, _refused(reply) or "advanced")]
        case Reopen(clean):
            word = "clean" if clean else "unclean"
            return [_of(config, before.now_ms, name, word, job) for job in before.jobs] or [_bare(name, word)]
        case _:
            assert_never(op)


_DONE: Final[dict[type[Op], str]] = {Retry: "retried", Cancel: "cancelled", Discard: "discarded"}


def _bare(op: str, reply: str, state: str = NONE) -> TransitionClass:
    return make(TransitionClass, (op, reply, state, NONE, NONE, NONE))


def _of(
    config: Config, now_ms: int, op: str, reply: str, job: Job | None, token: str = NONE, at_ms: int | None = None
) -> TransitionClass:
    """The class of what happened to a job; `at_ms`: the time that it was about, when the job is not leased."""
    if job is None:
        return make(TransitionClass, (op, reply, ABSENT, NONE, NONE, NONE))
    if job.state is LEASED:
        at_ms = job.deadline_ms
    expiry = NONE
    if at_ms is not None:
        expiry = BEFORE if now_ms < at_ms else AT if now_ms == at_ms else AFTER
    used = job.attempts if job.state is DEAD else job.attempts + 1
    most = max_attempts(config, job.spec.kind, job.spec.max_attempts)
    return make(TransitionClass, (op, reply, job.state.value, token, expiry, AT_MAX if used >= most else BELOW_MAX))


def _by_token(config: Config, queue: Queue, op: str, ref: Ref, said: str, reply: Reply) -> TransitionClass:
    job = find(queue, ref.job_id)
    if job is None:
        return make(TransitionClass, (op, said, ABSENT, NONE, NONE, NONE))
    token = NEVER_ISSUED
    if 0 < ref.generation <= job.generation:
        token = CURRENT if ref.generation == job.generation else OLDER
    if isinstance(reply, BadArgument):
        return make(TransitionClass, (op, said, job.state.value, token, NONE, NONE))
    return _of(config, queue.now_ms, op, said, job, token)


def _refused(reply: Reply) -> str | None:
    """The kind of a refusal and its reason, or None."""
    match reply:
        case BadArgument() | NotFound() | StaleLease() | WrongState() | KeyConflict():
            return _reason(reply)
        case _:
            return None


def _reason(refusal: Refusal) -> str:
    match refusal:
        case BadArgument(field):
            return f"argument {_ITEM.sub('[]', field)}"
        case NotFound():
            return "not found"
        case StaleLease():
            return f"stale {refusal.why}"
        case WrongState():
            return "wrong state"
        case KeyConflict():
            return "key conflict"


def _submitted(before: Queue, op: Complete | Fail | Release, reply: Reply, after: Queue) -> str:
    """What became of an answer to a lease."""
    refused = _refused(reply)
    if refused is not None:
        return refused
    if after is before:
        return "repeat"
    job = find(after, op.ref.job_id)
    if job is None:
        return ABSENT
    if job.state is DEAD:
        return f"dead {job.dead_reason}"
    return job.lease_end or NONE


def _follow_ups(op: Op, reply: Reply) -> list[TransitionClass]:
    return _received(FOLLOW_UP, reply.receipts) if isinstance(op, Complete) and isinstance(reply, Completed) else []


def _received(op: str, receipts: tuple[Receipt, ...]) -> list[TransitionClass]:
    return [_bare(op, "created", ABSENT) if one.created else _bare(op, "met", one.state.value) for one in receipts]


def _enqueued(before: Queue, name: str, reply: Reply) -> list[TransitionClass]:
    if isinstance(reply, Enqueued):
        return _received(name, reply.receipts) or [_bare(name, "nothing")]
    if isinstance(reply, KeyConflict):
        job = find(before, reply.job_id)
        return [_bare(name, "key conflict", ABSENT if job is None else job.state.value)]
    return [_bare(name, _refused(reply) or NONE)]


def _extended(config: Config, before: Queue, op: Extend, reply: Reply) -> list[TransitionClass]:
    refs = op.refs
    if not isinstance(reply, Extended):
        said = _refused(reply) or NONE
        return [_by_token(config, before, "extend", ref, said, reply) for ref in refs] or [_bare("extend", said)]
    found: list[TransitionClass] = []
    queue = before
    for ref, outcome in zip(refs, reply.outcomes, strict=True):
        said = outcome.status if outcome.error is None else _reason(outcome.error)
        found.append(_by_token(config, queue, "extend", ref, said, reply))
        if len(refs) > 1:
            told = tuple([one for one in op.progress if one[0] == ref.job_id])
            queue = step(config, queue, Extend(op.worker, (ref,), told))[1]
    return found or [_bare("extend", "nothing")]


def _completed_many(config: Config, before: Queue, op: CompleteMany, reply: Reply) -> list[TransitionClass]:
    name = "complete_many"
    refused = _refused(reply)
    if refused is not None:
        return [_by_token(config, before, name, ref, refused, reply) for ref, _ in op.items] or [_bare(name, refused)]
    found: list[TransitionClass] = []
    queue = before
    for ref, result in op.items:
        single = Complete(ref, result)
        answer, following = step(config, queue, single)
        found.append(_by_token(config, queue, name, ref, _submitted(queue, single, answer, following), answer))
        queue = following
    return found or [_bare(name, "nothing")]


def _leased(config: Config, before: Queue, reply: Reply) -> list[TransitionClass]:
    if not isinstance(reply, Leased):
        return [_bare("lease", _refused(reply) or NONE)]
    if not reply.grants:
        return [_bare("lease", "nothing for these filters" if before.ring else "nothing")]
    jobs = [find(before, grant.job_id) for grant in reply.grants]
    return [
        _of(config, before.now_ms, "lease", "granted", job, NONE, None if job is None else job.due_ms) for job in jobs
    ]


def _reaped(config: Config, before: Queue, reply: Reply, after: Queue) -> list[TransitionClass]:
    refused = _refused(reply)
    if refused is not None:
        return [_bare("reap", refused)]
    now_ms = before.now_ms
    return [_of(config, now_ms, "reap", said, job, NONE, work_due_ms(job)) for said, job in _swept(before, after)] or [
        _bare("reap", "nothing")
    ]


def _swept(before: Queue, after: Queue) -> Iterator[tuple[str, Job]]:
    """The jobs that a sweep did something to, and those that it left for the next one."""
    touched: set[int] = set()
    for was, now in changes(before, after):
        if was is None:
            continue
        touched.add(was.job_id)
        if now is None:
            yield "purged", was
        elif was.state is FAILED:
            yield "promoted", was
        else:
            yield ("requeued" if now.state is PENDING else "dead expired"), was
    for job in before.jobs:
        at_ms = work_due_ms(job)
        if at_ms is not None and at_ms <= before.now_ms and job.job_id not in touched:
            yield "left", job
