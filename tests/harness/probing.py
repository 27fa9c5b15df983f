"""Probes on a subject: the transition classes that no edge of a universe has, each taken once, everything compared.

A tour takes what its universe offers. What its states would allow besides (`telha_model.reachable`) has classes of its
own: a token that was never issued among the items of a bulk call, a reopening with an expired lease out, a refused
argument under an old token. For each of them the shortest way leads to the first state that has it, and the last step
is the probe.
"""

from typing import NamedTuple

from telha_model.alphabet import offers
from telha_model.classes import TransitionClass, classes
from telha_model.explore import Graph
from telha_model.ops import Op
from telha_model.reachable import of_edges, of_probes, probes
from telha_model.state import Queue
from telha_model.step import step
from tests.harness.classes import Hits
from tests.harness.lockstep import Keep, Lockstep, Subjects
from tests.harness.walking import way_to


class Probe(NamedTuple):
    """A class, and the first state in the graph of a universe in which a probe has it."""

    wanted: TransitionClass
    graph: Graph
    place: int


def probes_of(*graphs: Graph) -> list[Probe]:
    """The classes that only probes of these universes have, each once."""
    known = {one for graph in graphs for one in of_edges(graph)}
    found: list[Probe] = []
    for graph in graphs:
        tried = sorted(of_probes(graph).items())
        found += [Probe(one, graph, first.place) for one, first in tried if one not in known]
        known.update(one for one, _ in tried)
    return found


def take(probe: Probe, subjects: Subjects, *, keep: Keep | None = None, hits: Hits | None = None) -> None:
    """Go to the state and take the probe. Raises `DisagreementError`, once `keep` has it."""
    graph = probe.graph
    universe = graph.universe
    offer = offers(universe.alphabet)
    lockstep = Lockstep(universe.config, subjects, start_ms=universe.start_ms, keep=keep, hits=hits)
    try:
        for place in way_to(graph, probe.place):
            lockstep.step(offer(lockstep.queue)[place])
        lockstep.step(_op_of(graph, lockstep.queue, probe.wanted))
    finally:
        lockstep.close()


def _op_of(graph: Graph, queue: Queue, wanted: TransitionClass) -> Op:
    config = graph.universe.config
    for op in probes(queue):
        if wanted in classes(config, queue, op, *step(config, queue, op)):
            return op
    raise AssertionError(f"the way to a state with {wanted} led to another: the quotient is too coarse for it")
