"""Whether every job ends: the search for a fair cycle on which one never does.

Safety promises say what no step does; this one is about behaviour without end. A finite model can only go on for ever
by going round a cycle, so the search looks for cycles on which one job lives and never ends, and which are *fair*: what
the queue's surroundings promise to do again and again does happen on them. The promises are

- time passes, the sweep runs, and a worker polls without filters, each again and again (`ALWAYS_AGAIN`)
- `HEARTBEATS_END`: nobody extends one lease for ever; it is answered, given back, or falls silent
- `GIVING_BACK_ENDS`: nobody gives a job back for ever; a lease of it is in the end answered or falls silent

The first of these two is asked of the workers of the watched job only; the second of all, since a job that is given
back keeps its place before the others of its scope. A job that is completed or dead has ended, whatever comes later.

Cycles are sought in strongly connected components: inside one, every edge can be taken again and again. Where a
component breaks one of the last two promises (it extends, but no lease ends), the edges in question cannot be taken
for ever, so they are removed and what is left is searched again (Streett's condition). Jobs are told apart by their
idempotency keys, and the universe has no symmetry to fold: with slots renamed on the way round, the job that waits at
the end of a cycle would not have to be the one that waited at its beginning.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.components import Component, Edges, components, edges_within
from telha_model.explore import Progress, Step
from telha_model.ops import Advance, Extend, Lease, Op, Reap, Release
from telha_model.quotient import Classifier
from telha_model.state import Job, Queue, find, new_queue
from telha_model.states import ENDED, LEASED
from telha_model.universe import Universe

TIME, SWEEP, POLL = 1, 2, 4
ALWAYS_AGAIN: Final = (TIME, SWEEP, POLL)
_EXTENDED, _GIVEN_BACK, _OVER = 8, 16, 32
_MARKS_PER_JOB: Final = 3
_PROGRESS_EVERY: Final = 1_024


class Promise(NamedTuple):
    """What workers promise: `forbidden` is not done for ever to a job unless `unless` is too.

    `of_all`: to any job, not only to the watched one. The marks are those of job 0, the others' are shifted.
    """

    sentence: str
    forbidden: int
    unless: int
    of_all: bool


HEARTBEATS_END: Final = Promise("nobody extends a lease for ever", _EXTENDED, _GIVEN_BACK | _OVER, of_all=False)
GIVING_BACK_ENDS: Final = Promise("nobody gives a job back for ever", _GIVEN_BACK, _OVER, of_all=True)


class Net(NamedTuple):
    """An explored universe with marked edges, those of a state in the order of its offers.

    `sources[e]` is the state edge e leaves; `came[s]` the edge by which the search met s, -1 for the fresh queue.
    """

    universe: Universe
    take: Step
    names: tuple[str, ...]
    states: list[Queue]
    edges: Edges
    sources: "array[int]"
    came: "array[int]"


class Lasso(NamedTuple):
    """A way to a cycle, and once round it.

    `among` are the states in which `job` is anywhere on the component; `extends` says whether the cycle extends its
    lease.
    """

    job: str
    among: tuple[str, ...]
    prefix: tuple[Op, ...]
    loop: tuple[Op, ...]
    extends: bool


def net_of(universe: Universe, take: Step, *, on_progress: Progress | None = None) -> Net:
    """Visit every state, mark every edge. The same search as `explore`, without its questions."""
    offer, classify = offers(universe.alphabet), Classifier(universe.config, universe.quotient)
    names = tuple([item.creates[0].idempotency_key or "" for item in universe.alphabet.fixed if item.creates])
    start = new_queue(universe.start_ms)
    states, places = [start], {classify(start): 0}
    edges = Edges(array("q", [0]), array("q"), array("q"))
    sources, came = array("q"), array("q", [-1])
    for place, before in enumerate(states):  # grows while it is walked
        classify.focus(before)
        for op in offer(before):
            _, after = take(universe.config, before, op)
            target, fresh = place, len(states)
            if after is not before:
                target = places.setdefault(classify(after), fresh)
                if target == fresh:
                    states.append(after)
                    came.append(len(sources))
            sources.append(place)
            edges.targets.append(target)
            edges.marks.append(_mark(names, before, op, after))
        edges.first.append(len(sources))
        if on_progress is not None and (place + 1) % _PROGRESS_EVERY == 0:
            on_progress(place, len(states), len(sources))
    return Net(universe, take, names, states, edges, sources, came)


def _mark(names: tuple[str, ...], before: Queue, op: Op, after: Queue) -> int:
    """What an edge is to fairness. What is refused, or changes nothing, neither holds a lease nor ends one."""
    mark = 0
    match op:
        case Advance():
            return TIME
        case Lease():
            return POLL if op.scopes is None and op.kinds is None else 0
        case Reap():
            mark = SWEEP
        case _:
            pass
    if after is before:
        return mark
    for was in before.jobs:
        if was.state is not LEASED:
            continue
        new, index = find(after, was.job_id), names.index(was.spec.idempotency_key or "")
        if new is was:
            continue
        if isinstance(op, Extend):
            mark |= _of_job(_EXTENDED, index)
        elif isinstance(op, Release) and new is not None and new.attempts == was.attempts:
            mark |= _of_job(_GIVEN_BACK, index)
        else:
            mark |= _of_job(_OVER, index)
    return mark


def _of_job(mark: int, index: int) -> int:
    return mark << (_MARKS_PER_JOB * index)


def _named(queue: Queue, name: str) -> Job | None:
    for job in queue.jobs:
        if job.spec.idempotency_key == name:
            return job
    return None


def lassos(net: Net, promises: Iterable[Promise]) -> Iterator[Lasso]:
    """One lasso for every maximal set of states among which some job can stay for ever, alive, fairly."""
    promised = tuple(promises)
    for index, name in enumerate(net.names):
        pairs = [
            (_of_job(promise.forbidden, other), _of_job(promise.unless, other))
            for promise in promised
            for other in (range(len(net.names)) if promise.of_all else (index,))
        ]
        alive = []
        for place, queue in enumerate(net.states):
            job = _named(queue, name)
            if job is not None and job.state not in ENDED:
                alive.append(place)
        for component, removed in _fair(net.edges, alive, pairs):
            yield _lasso(net, index, component, removed, pairs)


def _fair(edges: Edges, alive: list[int], pairs: list[tuple[int, int]]) -> Iterator[tuple[Component, int]]:
    """The components that have a fair cycle, each with the marks of the edges it may not use."""
    work = [(alive, 0)]
    while work:
        inside, removed = work.pop()
        for component in components(edges, inside, removed):
            if not _is_fair(component):
                continue
            broken = 0
            for forbidden, unless in pairs:
                if component.seen & forbidden and not component.seen & unless:
                    broken |= forbidden
            if broken:
                work.append((component.places, removed | broken))
            else:
                yield component, removed


def _lasso(net: Net, index: int, component: Component, removed: int, pairs: list[tuple[int, int]]) -> Lasso:
    """A short way into a component, and a cycle in it that takes an edge of every mark it owes."""
    name = net.names[index]
    jobs = [_named(net.states[place], name) for place in component.places]
    among = tuple(sorted({job.state.value for job in jobs if job is not None}))
    owed = [*ALWAYS_AGAIN, *[unless for forbidden, unless in pairs if component.seen & forbidden]]
    # A cycle that does without what workers may not do for ever owes less, and says more.
    without = removed
    for forbidden, _ in pairs:
        without |= forbidden
    plain = [part for part in components(net.edges, component.places, without) if _is_fair(part)]
    if plain:
        component, removed, owed = min(plain, key=lambda part: min(part.places)), without, [*ALWAYS_AGAIN]
    members, entry = set(component.places), min(component.places)
    cycle: list[int] = []
    place, taken = entry, 0
    while wanted := [mark for mark in owed if not taken & mark]:
        ends = {e for e in edges_within(net.edges, component.places, members, removed) if _any(net, e, wanted)}
        cycle += _way(net, place, members, removed, ends)
        place = net.edges.targets[cycle[-1]]
        taken = 0
        for edge in cycle:
            taken |= net.edges.marks[edge]
    if place != entry:
        ends = {e for e in edges_within(net.edges, component.places, members, removed) if net.edges.targets[e] == entry}
        cycle += _way(net, place, members, removed, ends)
        for edge in cycle:
            taken |= net.edges.marks[edge]
    prefix, loop = _walked(net, entry, cycle)
    return Lasso(name, among, prefix, loop, extends=bool(taken & _of_job(_EXTENDED, index)))


def _is_fair(component: Component) -> bool:
    return all(component.seen & mark for mark in ALWAYS_AGAIN)


def _any(net: Net, edge: int, wanted: list[int]) -> bool:
    return any(net.edges.marks[edge] & mark for mark in wanted)


def _way(net: Net, start: int, members: set[int], removed: int, ends: set[int]) -> list[int]:
    """The shortest path of edges within a component whose last one is one of `ends`."""
    came: dict[int, int] = {}
    queue, seen = deque([start]), {start}
    while queue:
        place = queue.popleft()
        for edge in edges_within(net.edges, [place], members, removed):
            if edge in ends:
                path = [edge]
                while net.sources[path[-1]] != start:
                    path.append(came[net.sources[path[-1]]])
                return path[::-1]
            target = net.edges.targets[edge]
            if target not in seen:
                seen.add(target)
                came[target] = edge
                queue.append(target)
    raise ValueError("a strongly connected component has no such way")


def _walked(net: Net, entry: int, cycle: list[int]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The operations of a lasso, walked from the fresh queue: only symbols hold for a whole class, numbers do not."""
    way: list[int] = []
    edge = net.came[entry]
    while edge >= 0:
        way.append(edge)
        edge = net.came[net.sources[edge]]
    way = [*reversed(way), *cycle]
    offer, classify = offers(net.universe.alphabet), Classifier(net.universe.config, net.universe.quotient)
    queue, ops = new_queue(net.universe.start_ms), list[Op]()
    met = []
    for edge in way:
        if len(ops) == len(way) - len(cycle):
            met.append(classify(queue))
        op = offer(queue)[edge - net.edges.first[net.sources[edge]]]
        ops.append(op)
        queue = net.take(net.universe.config, queue, op)[1]
    if classify(queue) != met[0]:
        raise ValueError("the cycle does not lead back to where it began")
    return tuple(ops[: -len(cycle)]), tuple(ops[-len(cycle) :])
