"""Exhaustive search: every state of a universe, every operation offered in it, every promise asked.

Breadth first, so that the trace to a violation is a shortest one. The search takes the same `step` as everybody else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.alphabet import offers
from telha_model.invariants import ALWAYS, GOALS
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


class _Asked:
    """What is asked about one type of operation: predicates, situations not seen yet; whether it answers a lease."""

    __slots__ = ("answers", "awaited", "on_change", "on_reply", "on_step")

    def __init__(self, op: type[Op], sometimes: tuple[str, ...]) -> None:
        every = ALWAYS.values()
        self.on_reply = [check for always in every for check, ops in always.on_reply if ops is None or op in ops]
        self.on_step = [check for always in every for check, ops in always.on_step if ops is None or op in ops]
        self.on_change = [check for always in every for check, ops in always.on_change if ops is None or op in ops]
        self.awaited = [(name, SOMETIMES[name]) for name in sometimes if op in SOMETIMES[name].ops]
        self.answers = op in PROGRESS.ops


class _Search:
    """One breadth-first search; the mutable part of `explore`."""

    def __init__(self, universe: Universe, take: Step) -> None:
        self.config = universe.config
        self.take = take
        self.offer = offers(universe.alphabet)
        self.classify = Classifier(universe.config, universe.quotient)
        self.asked = {op: _Asked(op, universe.sometimes) for op in RULES}
        self.on_state = [check for always in ALWAYS.values() for check in always.on_state]
        self.on_job = [check for always in ALWAYS.values() for check in always.on_job]
        self.on_coming = [check for always in ALWAYS.values() for check in always.on_coming]
        start = new_queue(universe.start_ms)
        self.states = [start]
        self.parents: list[tuple[int, Op] | None] = [None]
        self.places = {self.classify(start): 0}
        self.targets: list[list[int]] = []
        self.answering: list[list[int]] = [[]]
        self.violations: list[Violation] = []

    def expand(self, place: int) -> None:
        """Take every operation offered in one state."""
        states, places, classify, answering = self.states, self.places, self.classify, self.answering
        before, config, take, asked_about = states[place], self.config, self.take, self.asked
        row: list[int] = []
        classify.focus(before)
        for op in self.offer(before):
            asked = asked_about[type(op)]
            reply, after = take(config, before, op)
            for check in asked.on_reply:
                if (broken := check(before, op, reply)) is not None:
                    self._violated(place, op, check, broken)
            target = place
            if after is not before:
                taken = make(Taken, (config, before, op, reply, after, changes(before, after)))
                self._judge(place, op, taken, asked)
                target = places.setdefault(classify(after), len(states))
                if target == len(states):
                    self._found(place, op, taken)
                if target != place and asked.answers:
                    answering[target].append(place)
            elif asked.awaited:
                self._notice(make(Taken, (config, before, op, reply, after, [])), asked)
            row.append(target)
        self.targets.append(row)

    def _judge(self, place: int, op: Op, taken: Taken, asked: _Asked) -> None:
        """Judge a step that changed something."""
        for check in asked.on_step:
            if (broken := check(taken)) is not None:
                self._violated(place, op, check, broken)
        for was, now in taken.changed:
            if was is not None and now is not None:
                for check_change in asked.on_change:
                    if (broken := check_change(taken, was, now)) is not None:
                        self._violated(place, op, check_change, broken)
            else:
                for check_coming in self.on_coming:
                    if (broken := check_coming(taken, was, now)) is not None:
                        self._violated(place, op, check_coming, broken)
        if asked.awaited:
            self._notice(taken, asked)

    def _found(self, place: int, op: Op, taken: Taken) -> None:
        """Keep and judge a new state. Its unchanged jobs were judged when they came into the state before."""
        self.states.append(taken.after)
        self.parents.append((place, op))
        self.answering.append([])
        for check_state in self.on_state:
            if (broken := check_state(self.config, taken.after)) is not None:
                self._violated(place, op, check_state, broken)
        for _, job in taken.changed:
            for check_job in self.on_job if job is not None else ():
                if job is not None and (broken := check_job(self.config, job)) is not None:
                    self._violated(place, op, check_job, broken)

    def _notice(self, taken: Taken, asked: _Asked) -> None:
        """Cross off the awaited situations that this step is."""
        for name, situation in [*asked.awaited]:
            if situation.holds(taken):
                for op in situation.ops:
                    self.asked[op].awaited.remove((name, situation))

    def _violated(self, place: int, op: Op, check: object, broken: str) -> None:
        name = next(name for name, always in ALWAYS.items() if check in always.predicates())
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
    """Visit every state of a universe. Stops at the first state with a step that breaks a promise."""
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
    left = {name for asked in search.asked.values() for name, _ in asked.awaited}
    return Report(graph, search.stuck(), tuple([name for name in universe.sometimes if name in left]))
