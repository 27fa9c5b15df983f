"""The explored graphs of the universes, and walks over them cut into parts. Knows only the model."""

import gc
from collections import deque
from functools import cache
from typing import Final

from telha_model.explore import Graph, explore
from telha_model.tours import Walk, walks
from telha_model.universe import Universe
from telha_model.universes import universes

START: Final = 0


def ci_names() -> set[str]:
    """The universes CI tours."""
    return set(universes("ci"))


@cache
def ci_graph(name: str) -> Graph:
    """A universe in CI's size, explored once per process."""
    graph = graph_of(universes("ci")[name])
    gc.freeze()  # it stays as long as the process: the collector need not walk it again and again
    return graph


def graph_of(universe: Universe) -> Graph:
    """The universe explored; ValueError when it breaks a promise, for then there is nothing to compare with."""
    report = explore(universe)
    if not report.holds:
        raise ValueError(f"universe {universe.name} does not hold: {report.violations} {report.missed}")
    return report.graph


_WALKS: Final[dict[int, tuple[Graph, list[Walk]]]] = {}
"""By the identity of the graph, which is held so that it stays one."""


def _walks_of(graph: Graph) -> list[Walk]:
    known = _WALKS.get(id(graph))
    if known is None:
        known = _WALKS[id(graph)] = (graph, walks(graph))
    return known[1]


def plan(graph: Graph, *, shard: int = 0, shards: int = 1) -> list[Walk]:
    """The walks of one shard; all shards together take every edge."""
    parts: list[Walk] = []
    found = _walks_of(graph)
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
