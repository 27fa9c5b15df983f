"""Whether what many callers at once were told, and the rows that were found, can be explained: job by job.

A history of concurrent calls has no order of its own; each call happened somewhere between being asked and being
answered, and one that nobody was answered happened somewhere before its process died, or not at all. The whole queue's
order could be searched for, but most of it does not matter: apart from who is served next, the jobs of a queue do not
bear on one another. So the history is projected on each job (`Asked` says what a call was to this one job), and the
model, with this one job in it, is searched for an order of its calls that

- keeps real time: a call that was answered before another was asked comes first,
- gives every answered call the answer it got,
- leaves the job exactly as its row was found, its log included.

The row's log guides the search: it tells which events there were and when, so that at each place few calls can come
next. It is no more than a guide; what counts is that the model, led along it, arrives at that very row. The sweep is
nobody's call and may come in wherever the log has it.

Sound: a history of a right queue is always explained, whatever the interleaving. What the projection gives up: which of
several ready jobs a lease gets (tours prove the order), and that the parts of one call on several jobs happened
together; `agreed` asks for the latter. An extension that nobody was told of is placed where the row's deadline puts it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from telha_model.ops import Advance, Extend, Op, Reap
from telha_model.policy import lease_ttl_ms
from telha_model.replies import Reply
from telha_model.state import Job, Queue, find
from telha_model.step import step
from telha_model.types import Config

NODES_MAX: Final = 50_000
JOB: Final = 1
"""The number of the one job in its projection."""


class Asked(NamedTuple):
    """What a call was to one job.

    `fits` tells whether a reply of the model is the one that was told; None when nobody was told. `at_ms` is the
    queue's time of the call where the answer tells it. `asked` and `told` are places in real time; of a call without an
    answer `told` is when its process died.
    """

    name: str
    op: Op
    fits: Callable[[Reply], bool] | None
    asked: float
    told: float
    at_ms: int | None = None


class Found(NamedTuple):
    """What a search found: the sets of unanswered calls with which there is an explanation; none: there is none."""

    happened: frozenset[frozenset[str]]


class UndecidedError(Exception):
    """The search was given up: it says nothing, and must never be taken for a pass."""


class _Node(NamedTuple):
    queue: Queue
    left: frozenset[int]
    happened: frozenset[str]


def explained(config: Config, before: Queue, calls: Sequence[Asked], after: Job | None) -> Found:
    """Search for orders of the calls that lead from `before` (with this one job or none) to `after` (None: no row).

    The recorded submit is not compared: it names follow-up jobs, which are not there.
    """
    required = frozenset(i for i, call in enumerate(calls) if call.fits is not None)
    start = _Node(before, frozenset(range(len(calls))), frozenset())
    seen, todo = {start}, [start]
    found = set[frozenset[str]]()
    while todo:
        node = todo.pop()
        if not node.left & required and _same(find(node.queue, JOB), after):
            found.add(node.happened)
        for one in _moves(config, node, calls, required, after):
            if one not in seen:
                if len(seen) >= NODES_MAX:
                    raise UndecidedError(f"more than {NODES_MAX} orders of {len(calls)} calls")
                seen.add(one)
                todo.append(one)
    return Found(frozenset(found))


def agreed(explanations: Mapping[str, Found], concerned: Mapping[str, Iterable[str]]) -> list[str]:
    """Calls of several jobs that can only have happened to some of them, one sentence each.

    `explanations` are by job, `concerned` are the jobs of each unanswered call that happens to all or to none.
    """
    found = []
    for call, jobs in concerned.items():
        certain = [name for name in jobs if all(call in happened for happened in explanations[name].happened)]
        never = [name for name in jobs if not any(call in happened for happened in explanations[name].happened)]
        if certain and never:
            found.append(f"{call} happened to {', '.join(certain)} and not to {', '.join(never)}")
    return found


def _moves(
    config: Config, node: _Node, calls: Sequence[Asked], required: frozenset[int], after: Job | None
) -> Iterable[_Node]:
    """The nodes one call, or one piece of a sweep, further on."""
    at_ms = _next_event_ms(node.queue, after)
    # Nothing may overtake a call that was answered before it was asked.
    horizon = min((calls[i].told for i in node.left & required), default=float("inf"))
    for i in node.left:
        call = calls[i]
        if call.asked > horizon:
            continue
        for moment in _moments(config, call, node.queue, at_ms, after):
            queue = _at(config, node.queue, moment)
            if queue is None:
                continue
            reply, queue = step(config, queue, call.op)
            if call.fits is not None and not call.fits(reply):
                continue
            if not _on_the_way(find(queue, JOB), after):
                continue
            if call.fits is not None:
                yield _Node(queue, node.left - {i}, node.happened)
            elif find(queue, JOB) != find(node.queue, JOB):
                yield _Node(queue, node.left - {i}, node.happened | {call.name})
    if at_ms is not None and (queue := _at(config, node.queue, at_ms)) is not None:
        swept = step(config, queue, Reap(1))[1]
        if swept.jobs != queue.jobs and _on_the_way(find(swept, JOB), after):
            yield node._replace(queue=swept)


def _moments(config: Config, call: Asked, queue: Queue, at_ms: int | None, after: Job | None) -> set[int]:
    """The queue's times at which a call may have happened, as far as it matters."""
    if call.at_ms is not None:
        return {call.at_ms}
    moments = {queue.now_ms}
    if at_ms is not None:
        moments.add(at_ms)
    if isinstance(call.op, Extend) and after is not None and after.deadline_ms is not None:
        moments.add(after.deadline_ms - lease_ttl_ms(config, after.spec.kind))
    return moments


def _at(config: Config, queue: Queue, at_ms: int) -> Queue | None:
    if at_ms < queue.now_ms:
        return None
    return queue if at_ms == queue.now_ms else step(config, queue, Advance(at_ms - queue.now_ms))[1]


def _next_event_ms(queue: Queue, after: Job | None) -> int | None:
    if after is None:
        return None
    job = find(queue, JOB)
    place = 0 if job is None else len(job.events)
    return after.events[place].at_ms if place < len(after.events) else None


def _on_the_way(job: Job | None, after: Job | None) -> bool:
    """Whether the job's log is a beginning of the log that was found."""
    if job is None:
        return True
    return after is not None and after.events[: len(job.events)] == job.events


def _same(job: Job | None, after: Job | None) -> bool:
    if job is None or after is None:
        return job is after
    return job._replace(submit=None) == after
