"""Exhaustive search: every state of a universe, every operation offered in it, every promise asked.

Breadth first, so that the trace to a violation is a shortest one. The search takes the same `step` as everybody else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.invariants import ALWAYS, GOALS, OnJob, OnReply, OnStep
from telha_model.ops import Op
from telha_model.promises.evidence import Taken, changes
from telha_model.quotient import Classifier
from telha_model.replies import Reply
from telha_model.situations import SOMETIMES
from telha_model.state import Queue, new_queue
from telha_model.step import RULES, step
from telha_model.types import Config, make
from telha_model.universe import Universe

Step = Callable[[Config, Queue, Op], tuple[Reply, Queue]]
Progress = Callable[[int, int, int], None]
PROGRESS_EVERY: Final = 256
PROGRESS: Final = GOALS["progress"]


class Violation(NamedTuple):
    """A promise that does not hold: its name, what is broken, and the shortest way there."""

    invariant: str
    sentence: str
    trace: tuple[Op, ...]


class Graph(NamedTuple):
    """The explored universe. State 0 is the fresh queue; edge k of a state is its k-th offer, leading to
    `targets[state][k]`.
    """

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


class _Checks:
    """The predicates, sorted by where they are asked."""

    def __init__(self) -> None:
        self.on_state = [(name, check) for name, always in ALWAYS.items() for check in always.on_state]
        self.on_reply: dict[type[Op], list[tuple[str, OnReply]]] = {op: [] for op in RULES}
        self.on_step: dict[type[Op], list[tuple[str, OnStep]]] = {op: [] for op in RULES}
        self.on_job: dict[type[Op], list[tuple[str, OnJob]]] = {op: [] for op in RULES}
        for name, always in ALWAYS.items():
            for op in RULES:
                self.on_reply[op] += [(name, check) for check, ops in always.on_reply if ops is None or op in ops]
                self.on_step[op] += [(name, check) for check, ops in always.on_step if ops is None or op in ops]
                self.on_job[op] += [(name, check) for check, ops in always.on_job if ops is None or op in ops]


class _Search:
    """One breadth-first search; the mutable part of `explore`."""

    def __init__(self, universe: Universe, take: Step) -> None:
        self.config = universe.config
        self.take = take
        self.offer = offers(universe.alphabet)
        self.classify = Classifier(universe.config, universe.quotient)
        self.checks = _Checks()
        self.awaited: dict[type[Op], list[str]] = {op: [] for op in RULES}
        for name in universe.sometimes:
            for op in SOMETIMES[name].ops:
                self.awaited[op].append(name)
        start = new_queue(universe.start_ms)
        self.states = [start]
        self.parents: list[tuple[int, Op] | None] = [None]
        self.places = {self.classify(start): 0}
        self.targets: list[list[int]] = []
        self.answering: list[list[int]] = [[]]
        self.violations: list[Violation] = []

    def expand(self, place: int) -> None:
        """Take every operation offered in one state."""
        before, config, take, on_reply = self.states[place], self.config, self.take, self.checks.on_reply
        awaited, answering_ops = self.awaited, PROGRESS.ops
        row: list[int] = []
        self.classify.focus(before)
        for op in self.offer(before):
            kind = type(op)
            reply, after = take(config, before, op)
            for name, check in on_reply[kind]:
                broken = check(before, op, reply)
                if broken is not None:
                    self._violated(place, op, name, broken)
            if after is not before:
                target = self._arrive(place, make(Taken, (config, before, op, reply, after, changes(before, after))))
                if target != place and kind in answering_ops:
                    self.answering[target].append(place)
                row.append(target)
            else:
                if awaited[kind]:
                    self._notice(make(Taken, (config, before, op, reply, after, [])))
                row.append(place)
            if self.violations:
                break
        self.targets.append(row)

    def _arrive(self, place: int, taken: Taken) -> int:
        op, checks = taken.op, self.checks
        kind = type(op)
        for name, check in checks.on_step[kind]:
            broken = check(taken)
            if broken is not None:
                self._violated(place, op, name, broken)
        for was, now in taken.changed:
            if was is not None and now is not None:
                for name, check_job in checks.on_job[kind]:
                    broken = check_job(taken, was, now)
                    if broken is not None:
                        self._violated(place, op, name, broken)
        if self.awaited[kind]:
            self._notice(taken)
        fresh = len(self.states)
        target = self.places.setdefault(self.classify(taken.after), fresh)
        if target == fresh:
            self.states.append(taken.after)
            self.parents.append((place, op))
            self.answering.append([])
            for name, check_state in checks.on_state:
                broken = check_state(taken.config, taken.after)
                if broken is not None:
                    self._violated(place, op, name, broken)
        return target

    def _notice(self, taken: Taken) -> None:
        """Cross off the awaited situations that this step is."""
        for name in [name for name in self.awaited[type(taken.op)] if SOMETIMES[name].holds(taken)]:
            for op in SOMETIMES[name].ops:
                self.awaited[op].remove(name)

    def _violated(self, place: int, op: Op, name: str, broken: str) -> None:
        if name not in [violation.invariant for violation in self.violations]:
            self.violations.append(Violation(name, broken, (*self.trace(place), op)))

    def trace(self, place: int) -> tuple[Op, ...]:
        """The shortest way from the fresh queue to a state."""
        ops: list[Op] = []
        came = self.parents[place]
        while came is not None:
            ops.append(came[1])
            came = self.parents[came[0]]
        return tuple(reversed(ops))

    def stuck(self) -> tuple[Violation, ...]:
        """The first state from which no answering operations lead to the goal of progress, if any."""
        seen = {place for place, queue in enumerate(self.states) if PROGRESS.reached(queue)}
        work = list(seen)
        while work:
            for source in self.answering[work.pop()]:
                if source not in seen:
                    seen.add(source)
                    work.append(source)
        for place in range(len(self.states)):
            if place not in seen:
                return (Violation("progress", "no way leads from here to the goal", self.trace(place)),)
        return ()


def explore(universe: Universe, *, take: Step = step, on_progress: Progress | None = None) -> Report:
    """Visit every state of a universe. Stops at the first step that breaks a promise, with all it breaks: a shortest
    way.
    """
    search = _Search(universe, take)
    edges = 0
    while len(search.targets) < len(search.states) and not search.violations:
        search.expand(len(search.targets))
        edges += len(search.targets[-1])
        if on_progress is not None and len(search.targets) % PROGRESS_EVERY == 0:
            on_progress(len(search.targets), len(search.states), edges)
    graph = Graph(universe, search.states, search.targets)
    if search.violations:
        return Report(graph, tuple(search.violations), ())
    left = {name for names in search.awaited.values() for name in names}
    return Report(graph, search.stuck(), tuple([name for name in universe.sometimes if name in left]))
