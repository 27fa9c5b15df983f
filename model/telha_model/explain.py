"""Steps in words: which guard refused a call, what a step changed, which promises it broke. For people with a trace."""

from collections.abc import Iterator

from telha_model.invariants import ALWAYS
from telha_model.ops import Complete, Fail, Op
from telha_model.promises.evidence import Taken, changes
from telha_model.replies import (
    BadArgument,
    Completed,
    CompletedMany,
    Extended,
    Failed,
    KeyConflict,
    NotFound,
    Outcome,
    Refusal,
    Reply,
    StaleLease,
    WrongState,
)
from telha_model.state import Job, Queue, find
from telha_model.types import Config


def guards(queue: Queue, op: Op, reply: Reply) -> list[str]:
    """The guards that kept the call, or items of it, from acting in `queue`; none when all of it acted."""
    match reply:
        case BadArgument() | NotFound() | StaleLease() | WrongState() | KeyConflict():
            return [refused(reply)]
        case Extended(outcomes) | CompletedMany(outcomes):
            return [f"item {place}: {_kept(outcome)}" for place, outcome in enumerate(outcomes) if _kept(outcome)]
        case Completed() | Failed() if isinstance(op, (Complete, Fail)):
            job = find(queue, op.ref.job_id)
            repeats = job is not None and job.submit is not None and not _holds(job, op.ref.generation)
            return ["repeats the recorded submit: answered as then"] if repeats else []
        case _:
            return []


def refused(refusal: Refusal) -> str:
    """The comparison that a refusal comes from."""
    match refusal:
        case BadArgument(field):
            return f"argument {field}"
        case NotFound(job_id):
            return f"job {job_id} does not exist"
        case StaleLease(_, generation, current, _, "superseded"):
            return f"generation {generation} ≠ {current}"
        case StaleLease(_, generation, current, _, "never_leased"):
            return f"generation {generation} ≠ {current}, never granted"
        case StaleLease(job_id, generation, _, state, why):
            return f"generation {generation} is job {job_id}'s newest, but its lease was {why}: {state} ≠ leased"
        case WrongState(_, state, needed):
            return f"state {state} ∉ {{{', '.join(sorted(needed))}}}"
        case KeyConflict(job_id, key, item):
            place = "" if item is None else f"item {item}: "
            return f"{place}key {key!r} is job {job_id}'s, of another kind, payload or payload version"


def changed(before: Queue, after: Queue) -> list[str]:
    """What a step changed, one sentence for each job and for the ring, time and incarnation."""
    found = [_job_changed(was, now) for was, now in changes(before, after)]
    if after.ring != before.ring:
        found.append(f"ring: {_scopes(before.ring)} → {_scopes(after.ring)}")
    if after.last_served != before.last_served:
        found.append(f"served last: {_told(before.last_served)} → {_told(after.last_served)}")
    if after.now_ms != before.now_ms:
        found.append(f"time: {before.now_ms} → {after.now_ms}")
    if after.incarnation != before.incarnation:
        found.append(f"incarnation: {before.incarnation} → {after.incarnation}")
    return found


def broken_promises(config: Config, before: Queue, op: Op, reply: Reply, after: Queue) -> list[str]:
    """The promises of `ALWAYS` that a step breaks: the name of each, and what is broken."""
    taken = Taken(config, before, op, reply, after, changes(before, after))
    return [f"{name}: {broken}" for name, broken in _broken(taken)]


def _broken(taken: Taken) -> Iterator[tuple[str, str]]:
    config, before, op, reply, after, pairs = taken
    for name, always in ALWAYS.items():
        found = [check(before, op, reply) for check, ops in always.on_reply if ops is None or type(op) in ops]
        if after is not before:
            found += [check(taken) for check, ops in always.on_step if ops is None or type(op) in ops]
            found += [check(config, after) for check in always.on_state]
            for was, now in pairs:
                found += [] if now is None else [check(config, now) for check in always.on_job]
                if was is None or now is None:
                    found += [check(taken, was, now) for check in always.on_coming]
                else:
                    asked = [check for check, ops in always.on_change if ops is None or type(op) in ops]
                    found += [check(taken, was, now) for check in asked]
        yield from ((name, sentence) for sentence in found if sentence is not None)


def _kept(outcome: Outcome) -> str:
    if outcome.error is not None:
        return refused(outcome.error)
    return f"at the limit: {outcome.deadline_ms}" if outcome.status == "at_limit" else ""


def _holds(job: Job, generation: int) -> bool:
    return job.deadline_ms is not None and job.generation == generation


def _scopes(ring: tuple[int, ...]) -> str:
    return " ".join(map(str, ring)) or "empty"


def _job_changed(was: Job | None, now: Job | None) -> str:
    if was is None and now is not None:
        due = f", due {now.due_ms}" if now.due_ms is not None else ""
        key = f", key {now.spec.idempotency_key!r}" if now.spec.idempotency_key is not None else ""
        return f"job {now.job_id}: new, {now.state}, scope {now.spec.scope}, kind {now.spec.kind}{due}{key}"
    if was is None or now is None:
        return f"job {was.job_id if was is not None else 0}: gone"
    parts = [
        f"{name.removesuffix('_ms')} {_told(old)} → {_told(new)}"
        for name, old, new in zip(Job._fields, was, now, strict=True)
        if old != new and name not in ("submit", "events")
    ]
    if now.submit != was.submit:
        parts.append("submit recorded")
    logged = [event.transition.value for event in now.events[len(was.events) :]]
    if logged:
        parts.append(f"logged {', '.join(logged)}")
    elif len(now.events) < len(was.events):
        parts.append(f"its log ends with {now.events[-1].transition.value} again")
    elif now.events != was.events:
        parts.append(f"logged {now.events[-1].transition.value}, the middle of the log elided")
    return f"job {now.job_id}: " + "; ".join(parts)


def _told(value: object) -> str:
    return "none" if value is None else str(value)
