"""Tours on a subject: the walks of `telha_model.tours`, every step compared.

A long walk can be cut into shards of equal length: each goes the shortest way to the state where its part begins.
"""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.explore import Graph, explore
from telha_model.ops import Op
from telha_model.quotient import Classifier
from telha_model.tours import Walk, walks
from telha_model.universe import Universe
from telha_model.universes import universes
from tests.harness.classes import Hits
from tests.harness.lockstep import DisagreementError, Keep, Lockstep, Subjects

OnStep = Callable[[int], None]
START: Final = 0
SHARDS: Final = {
    "protocol": 1,
    "death": 2,
    "keys": 1,
    "fairness": 3,
    "order": 2,
    "sweep": 2,
    "reopen": 4,
    "bulk": 1,
    "agenda": 1,
}
"""In how many parts the tour of each universe is walked, so that no part takes much longer than the others."""


class Shard(NamedTuple):
    """One part of a universe's tour."""

    universe: str
    part: int
    parts: int

    def __str__(self) -> str:
        return self.universe if self.parts == 1 else f"{self.universe}-{self.part + 1}of{self.parts}"


class Walked(NamedTuple):
    """What a tour did: steps taken, and different edges among them."""

    steps: int
    edges: int


def shards_of(name: str) -> list[Shard]:
    """The parts of a universe's tour."""
    return [Shard(name, part, SHARDS[name]) for part in range(SHARDS[name])]


def ci_names() -> set[str]:
    """The universes CI tours."""
    return set(universes("ci"))


@cache
def ci_graph(name: str) -> Graph:
    """A universe in CI's size, explored once per process."""
    return graph_of(universes("ci")[name])


def graph_of(universe: Universe) -> Graph:
    """The universe explored; ValueError when it breaks a promise, for then there is nothing to compare with."""
    report = explore(universe)
    if not report.holds:
        raise ValueError(f"universe {universe.name} does not hold: {report.violations} {report.missed}")
    return report.graph


def plan(graph: Graph, *, shard: int = 0, shards: int = 1) -> list[Walk]:
    """The walks of one shard; all shards together take every edge."""
    parts: list[Walk] = []
    found = walks(graph)
    size = -(-sum(len(walk.steps) for walk in found) // shards)
    first, last = shard * size, (shard + 1) * size
    passed = 0
    for walk in found:
        low, high = max(first - passed, 0), min(last - passed, len(walk.steps))
        passed += len(walk.steps)
        if low < high:
            parts.append(_part(graph, walk, low, high))
    return parts


def _part(graph: Graph, walk: Walk, low: int, high: int) -> Walk:
    way = way_to(graph, walk.places[low]) if low else []
    places = [START]
    for step in way:
        places.append(graph.targets[places[-1]][step])
    return Walk(way + walk.steps[low:high], places + walk.places[low + 1 : high + 1])


def way_to(graph: Graph, wanted: int) -> list[int]:
    """The steps of the shortest way from the fresh queue to a state."""
    came: dict[int, tuple[int, int]] = {START: (START, START)}
    work = deque([START])
    while wanted not in came:
        place = work.popleft()
        for step, target in enumerate(graph.targets[place]):
            if target not in came:
                came[target] = (place, step)
                work.append(target)
    way: list[int] = []
    while wanted != START:
        wanted, step = came[wanted]
        way.append(step)
    way.reverse()
    return way


def walk_all(
    graph: Graph,
    parts: list[Walk],
    subjects: Subjects,
    *,
    on_step: OnStep | None = None,
    keep: Keep | None = None,
    hits: Hits | None = None,
) -> Walked:
    """Walk each part on a fresh subject. A disagreement goes to `keep`, and is raised with the shortest program that
    shows it; steps that agree go to `hits`.
    """
    universe = graph.universe
    classify = Classifier(universe.config, universe.quotient)
    classes = list(map(classify, graph.states))
    offer = offers(universe.alphabet)
    taken: set[tuple[int, int]] = set()
    steps = 0
    for part in parts:
        lockstep = Lockstep(universe.config, subjects, start_ms=universe.start_ms, hits=hits)
        try:
            for place, step, target in zip(part.places, part.steps, part.places[1:], strict=False):
                steps += 1
                if on_step is not None:
                    on_step(steps)
                before = lockstep.queue
                try:
                    lockstep.step(offer(before)[step])
                except DisagreementError as error:
                    found = shortest(graph, place, step, error, subjects)
                    if keep is not None:
                        keep(found)
                    raise found from None
                if lockstep.queue is not before and classify(lockstep.queue) != classes[target]:
                    raise AssertionError(f"step {steps} does not lead where the graph says: the quotient is too coarse")
        finally:
            lockstep.close()
        taken.update(zip(part.places, part.steps, strict=False))
    return Walked(steps, len(taken))


def shortest(graph: Graph, place: int, step: int, error: DisagreementError, subjects: Subjects) -> DisagreementError:
    """The same difference by the shortest way through the graph, if it shows there too; else the one found."""
    universe = graph.universe
    offer = offers(universe.alphabet)
    ops: list[Op] = []
    again = Lockstep(universe.config, subjects, start_ms=universe.start_ms)
    try:
        for at in [*way_to(graph, place), step]:
            ops.append(offer(again.queue)[at])
            again.step(ops[-1])
    except DisagreementError as shorter:
        return shorter if len(shorter.ops) < len(error.ops) else error
    finally:
        again.close()
    return error
