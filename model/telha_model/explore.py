"""Exhaustive search: every state of a universe, every operation offered in it, every promise asked.

Breadth first, so that the trace to a violation is a shortest one. The search takes the same `step` as everybody else.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.invariants import ALWAYS, GOALS, Goal, OnStep
from telha_model.ops import Op
from telha_model.promises.evidence import Taken, changes
from telha_model.quotient import classifier
from telha_model.replies import Reply
from telha_model.situations import SOMETIMES
from telha_model.state import Queue, new_queue
from telha_model.step import RULES, step
from telha_model.types import Config
from telha_model.universe import Universe

Step = Callable[[Config, Queue, Op], tuple[Reply, Queue]]
Progress = Callable[[int, int, int], None]
PROGRESS_EVERY: Final = 256


class Violation(NamedTuple):
    """A promise that does not hold: its name, what is broken, and the shortest way there."""

    invariant: str
    sentence: str
    trace: tuple[Op, ...]


class Graph(NamedTuple):
    """The explored universe. State 0 is the fresh queue; edge k of a state is its k-th offer, leading to `targets[state][k]`."""

    universe: Universe
    states: list[Queue]
    targets: list[list[int]]

    def edges(self) -> int:
        """How many edges there are."""
        return sum(map(len, self.targets))


class Report(NamedTuple):
    """What an exploration found; `missed` are declared situations it did not reach."""

    graph: Graph
    violations: tuple[Violation, ...]
    missed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations and not self.missed


class _Checks(NamedTuple):
    """The predicates, sorted by where they are asked."""

    on_state: list[tuple[str, Callable[[Config, Queue], str | None]]]
    moving: dict[type[Op], list[tuple[str, OnStep]]]
    idle: dict[type[Op], list[tuple[str, OnStep]]]


def _checks() -> _Checks:
    found = _Checks([], {op: [] for op in RULES}, {op: [] for op in RULES})
    for name, always in ALWAYS.items():
        found.on_state.extend((name, check) for check in always.on_state)
        for check, ops, idle in always.on_step:
            for op in RULES if ops is None else ops:
                found.moving[op].append((name, check))
                if idle:
                    found.idle[op].append((name, check))
    return found


class _Search:
    """One breadth-first search; the mutable part of `explore`."""

    def __init__(self, universe: Universe, take: Step) -> None:
        self.config = universe.config
        self.take = take
        self.offer = offers(universe.alphabet)
        self.classify = classifier(universe.config, universe.quotient)
        self.checks = _checks()
        self.awaited = [(name, SOMETIMES[name]) for name in universe.sometimes]
        start = new_queue(universe.start_ms)
        self.states = [start]
        self.parents: list[tuple[int, Op] | None] = [None]
        self.places = {self.classify(start): 0}
        self.targets: list[list[int]] = []
        self.violation: Violation | None = None

    def expand(self, place: int) -> None:
        """Take every operation offered in one state."""
        before, config, take, checks = self.states[place], self.config, self.take, self.checks
        classify, places, moving, idle = self.classify, self.places, checks.moving, checks.idle
        row: list[int] = []
        for op in self.offer(before)[1]:
            reply, after = take(config, before, op)
            target = place
            if after is before:
                asked = idle[type(op)]
                if asked or self.awaited:
                    self._ask(place, Taken(config, before, op, reply, after, ()), asked)
            else:
                asked = moving[type(op)]
                self._ask(place, Taken(config, before, op, reply, after, changes(before, after)), asked)
                known = places.setdefault(classify(after), len(self.states))
                if known == len(self.states):
                    self.states.append(after)
                    self.parents.append((place, op))
                    self._inspect(known)
                target = known
            row.append(target)
            if self.violation is not None:
                break
        self.targets.append(row)

    def _ask(self, place: int, taken: Taken, asked: list[tuple[str, OnStep]]) -> None:
        for name, check in asked:
            broken = check(taken)
            if broken is not None:
                self.violation = Violation(name, broken, (*self.trace(place), taken.op))
                return
        if self.awaited:
            self.awaited = [pair for pair in self.awaited if not pair[1](taken)]

    def _inspect(self, place: int) -> None:
        for name, check in self.checks.on_state:
            broken = check(self.config, self.states[place])
            if broken is not None and self.violation is None:
                self.violation = Violation(name, broken, self.trace(place))

    def trace(self, place: int) -> tuple[Op, ...]:
        """The shortest way from the fresh queue to a state."""
        ops: list[Op] = []
        came = self.parents[place]
        while came is not None:
            ops.append(came[1])
            came = self.parents[came[0]]
        return tuple(reversed(ops))


def explore(universe: Universe, *, take: Step = step, on_progress: Progress | None = None) -> Report:
    """Visit every state of a universe. Stops at the first violation, which is a shortest one."""
    search = _Search(universe, take)
    edges = 0
    while len(search.targets) < len(search.states) and search.violation is None:
        search.expand(len(search.targets))
        edges += len(search.targets[-1])
        if on_progress is not None and len(search.targets) % PROGRESS_EVERY == 0:
            on_progress(len(search.targets), len(search.states), edges)
    graph = Graph(universe, search.states, search.targets)
    if search.violation is not None:
        return Report(graph, (search.violation,), ())
    stuck = []
    for name, goal in GOALS.items():
        place = _cannot_reach(graph, goal)
        if place is not None:
            stuck.append(Violation(name, "no way leads from here to the goal", search.trace(place)))
    return Report(graph, tuple(stuck), tuple([name for name, _ in search.awaited]))


def _cannot_reach(graph: Graph, goal: Goal) -> int | None:
    """The first state from which the goal's operations do not lead to the goal, searched backwards from the goal."""
    offer = offers(graph.universe.alphabet)
    sources: list[set[int]] = [set() for _ in graph.states]
    for place, queue in enumerate(graph.states):
        for op, target in zip(offer(queue)[1], graph.targets[place], strict=True):
            if target != place and type(op) in goal.ops:
                sources[target].add(place)
    seen = {place for place, queue in enumerate(graph.states) if goal.reached(queue)}
    work = deque(seen)
    while work:
        for source in sources[work.popleft()] - seen:
            seen.add(source)
            work.append(source)
    return next((place for place in range(len(graph.states)) if place not in seen), None)
