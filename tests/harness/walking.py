"""Tours on a subject: the walks of `telha_model.tours`, every step compared.

A long walk can be cut into shards of equal length: each goes the shortest way to the state where its part begins.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.explore import Graph
from telha_model.ops import Op
from telha_model.quotient import Classifier
from telha_model.tours import Walk
from tests.harness.classes import Hits
from tests.harness.graphs import ci_graph, ci_names, graph_of, plan, way_to
from tests.harness.lockstep import DisagreementError, Keep, Lockstep, Subjects

__all__ = ["ci_graph", "ci_names", "graph_of", "plan", "shards_of", "slice_of", "walk_all", "way_to"]

OnStep = Callable[[int], None]
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

SLICE_STEPS: Final = 400


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


def slice_of(name: str, steps: int = SLICE_STEPS) -> list[Walk]:
    """About so many steps from the middle of a universe's tour: what a slow subject walks in CI."""
    graph = ci_graph(name)
    shards = max(1, sum(len(row) for row in graph.targets) // steps)
    return plan(graph, shard=shards // 2, shards=shards)


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
        before, offered = lockstep.queue, offer(lockstep.queue)
        try:
            for place, step, target in zip(part.places, part.steps, part.places[1:], strict=False):
                steps += 1
                if on_step is not None:
                    on_step(steps)
                try:
                    lockstep.step(offered[step])
                except DisagreementError as error:
                    found = shortest(graph, place, step, error, subjects)
                    if keep is not None:
                        keep(found)
                    raise found from None
                if lockstep.queue is before:
                    continue  # two steps of three change nothing: the same is offered again
                before, offered = lockstep.queue, offer(lockstep.queue)
                if classify(before) != classes[target]:
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
