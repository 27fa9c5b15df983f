"""Whether an order of concurrent calls is a witness that they are linearizable; and what one order does not show.

Servers name the commit that each answer covers. Sorted by it, the calls are in the order in which they are said to have
happened. That this is so takes two proofs, each one pass: nobody was told before somebody who comes earlier had asked
(`out_of_order`), and the model, played in that order, gives everybody the answer he got (`problems`). Both together
prove linearizability, whoever found the order and however. Where there was no answer, and in what order the leases of
one commit were granted, has to be searched for (`telha_model.linear`).

Linearizability is about answers: a server that never answers breaks nothing. So there is `overlooked`: jobs that lay
ready while somebody waited for just such a job.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from telha_model.linear import Call, Found, Look, same
from telha_model.replies import Leased
from telha_model.state import Queue
from telha_model.step import step
from telha_model.types import Config, matches


class Ready(NamedTuple):
    """A job that could be leased, as its callers knew: from one moment on, and until it was taken (or never)."""

    name: str
    scope: int
    kind: str
    since: float
    until: float


class Waited(NamedTuple):
    """Somebody who waited for jobs, with room for one; None for a filter means everything."""

    name: str
    scopes: tuple[int, ...] | None
    kinds: tuple[str, ...] | None
    since: float
    until: float


def out_of_order(calls: Iterable[Call]) -> list[str]:
    """Answered calls whose commits are in an order that real time excludes: one backward scan."""
    stamped = [(call.commit.sequence, call) for call in calls if call.commit is not None and call.answered]
    stamped.sort(key=lambda one: one[0])
    found, at = list[str](), len(stamped)
    first: Call | None = None  # of those in later commits the one that was told first
    while at:
        sequence, begin = stamped[at - 1][0], at
        while begin and stamped[begin - 1][0] == sequence:
            begin -= 1
        same = [call for _, call in stamped[begin:at]]
        found += [_overtaken(call, first) for call in same if first is not None and first.told < call.asked]
        first = min([*same, *([] if first is None else [first])], key=lambda call: call.told)
        at = begin
    return found


def problems(config: Config, start: Queue, found: Found, calls: Sequence[Call], *, by_commit: bool) -> list[str]:
    """Why an order is no witness, one sentence each; none: the answered calls are linearizable."""
    named = {call.name: call for call in calls}
    order = [named[one.name] for one in found.steps if one.name in named]
    taken = Counter(call.name for call in order)
    wrong = [f"{name} is {number} times in the order" for name, number in taken.items() if number > 1]
    wrong += [f"{call.name} is not in the order" for call in calls if call.answered and call.name not in taken]
    wrong += _backward(order)
    if by_commit:
        sequences = [call.commit.sequence for call in order if call.commit is not None]
        wrong += ["the order is not that of the commits"] if sequences != sorted(sequences) else []
    queue = start
    for op in found.opening:
        queue = step(config, queue, op)[1]
    for one in found.steps:
        reply = None
        for op in one.ops:
            reply, queue = step(config, queue, op)
        call = named.get(one.name)
        if call is None:
            continue
        if isinstance(call.op, Look):
            wrong += [] if call.op.fits(queue) else [f"{call.name} saw what is not so"]
        elif one.ops[-1:] != (call.op,):
            wrong.append(f"{call.name} stands in the order as another call")
        elif call.reply is not None and not same(call.reply, reply):
            wrong.append(f"{call.name} was told {call.reply}, the model answers {reply}")
    return wrong + (["the order leads elsewhere"] if queue != found.queue else [])


def happened(found: Found, calls: Iterable[Call]) -> list[str]:
    """The calls that nobody was answered, and that have happened all the same."""
    steps = {one.name for one in found.steps}
    return [call.name for call in calls if not call.answered and call.name in steps]


def granted_twice(calls: Iterable[Call]) -> list[str]:
    """Leases that more than one answer held."""
    told = Counter(
        (grant.job_id, grant.generation)
        for call in calls
        if isinstance(call.reply, Leased)
        for grant in call.reply.grants
    )
    return [
        f"generation {generation} of job {job} was granted {number} times"
        for (job, generation), number in told.items()
        if number > 1
    ]


def overlooked(jobs: Iterable[Ready], waits: Iterable[Waited], bound_s: float) -> list[str]:
    """Jobs that lay ready for longer than that while somebody waited for such a job from before until after."""
    found, waiting = list[str](), list(waits)
    for job in jobs:
        end = job.since + bound_s
        if job.until <= end:
            continue
        for one in waiting:
            if one.since <= job.since and end <= one.until and _wants(one, job):
                found.append(f"{job.name} lay ready for more than {bound_s:g} s while {one.name} waited for such a job")
                break
    return found


def _wants(one: Waited, job: Ready) -> bool:
    if one.scopes is not None and job.scope not in one.scopes:
        return False
    return one.kinds is None or any(matches(pattern, job.kind) for pattern in one.kinds)


def _backward(order: Sequence[Call]) -> list[str]:
    """The scan for a whole order: who was told before somebody who comes earlier had asked."""
    found, first = list[str](), None
    for call in reversed(order):
        if first is not None and first.told < call.asked:
            found.append(_overtaken(call, first))
        if call.answered and (first is None or call.told < first.told):
            first = call
    return found


def _overtaken(call: Call, first: Call) -> str:
    return f"{call.name} comes before {first.name}, which was told before {call.name} was asked"
