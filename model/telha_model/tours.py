"""Tours: walks from a fresh queue that together take every edge of an explored universe.

An edge is named by its state and its place in the state's offer. A walk carries symbols, not operations: job numbers,
generations and times differ from those met while exploring, so `Choice.resolve` looks the operation up in the queue as
it then is. Whoever walks checks that the queue's class is the one the graph promises (`Walk.places`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from telha_model.alphabet import offers, symbols
from telha_model.explore import Graph, explore
from telha_model.ops import Op
from telha_model.state import Queue
from telha_model.universe import Universe

RESTART: Final = -1
STAY: Final = -2
Move = tuple[int, int]
"""A step (or RESTART) and the state it leads to."""


class Choice(NamedTuple):
    """One step of a walk: the k-th offer, whatever operation that is in the queue at hand."""

    offer: Callable[[Queue], list[Op]]
    place: int

    def resolve(self, queue: Queue) -> Op:
        """The operation this step takes in `queue`."""
        return self.offer(queue)[self.place]


class Walk(NamedTuple):
    """Steps from a fresh queue, and the states they lead through (one more than steps, the first is 0)."""

    steps: list[int]
    places: list[int]


def walks(graph: Graph) -> list[Walk]:
    """Walks that take every edge, hardly more often than needed.

    Steps that stay are taken on the first visit of their state. For the others this is the postman's problem: where
    more edges arrive than leave, further copies of edges are laid to where more leave than arrive, near ones first;
    then every state is left as often as it is entered and one round takes all. Where no way leads, a `RESTART` is laid:
    the round is cut there.
    """
    moves = [_moves(place, row) for place, row in enumerate(graph.targets)]
    surplus = [-len(row) for row in moves]
    for row in moves:
        for _, target in row:
            surplus[target] += 1
    _lay_copies(moves, _neighbours(moves), surplus)
    walk = Walk([], [0])
    found = [walk]
    visited: set[int] = set()
    for place, step, target in _round(moves):
        if place not in visited:
            visited.add(place)
            stays = [k for k, to in enumerate(graph.targets[place]) if to == place]
            walk.steps.extend(stays)
            walk.places.extend([place] * len(stays))
        if step == RESTART:
            walk = Walk([], [0])
            found.append(walk)
        elif step != STAY:
            walk.steps.append(step)
            walk.places.append(target)
    return [walk for walk in found if walk.steps]


def _moves(place: int, row: list[int]) -> list[Move]:
    return [(step, target) for step, target in enumerate(row) if target != place]


def _neighbours(moves: list[list[Move]]) -> list[list[Move]]:
    """One move per pair of states: what the search for ways needs to look at."""
    return [list({target: (step, target) for step, target in row}.values()) for row in moves]


def _lay_copies(moves: list[list[Move]], neighbours: list[list[Move]], surplus: list[int]) -> None:
    """Add copies of moves until every state is left as often as it is entered."""
    _lay_near_first(moves, neighbours, surplus, [start for start in range(len(moves)) if surplus[start] > 0])
    for start in range(len(moves)):
        while surplus[start] > 0:
            surplus[start] -= 1
            surplus[0] += 1
            moves[start].append((RESTART, 0))
    _lay_near_first(moves, neighbours, surplus, [0])


def _lay_near_first(
    moves: list[list[Move]], neighbours: list[list[Move]], surplus: list[int], starts: list[int]
) -> None:
    """Lay ways from the states with a surplus to those with the opposite, as far as there are any.

    All of length one first, then all of length two: a state that takes what is near leaves to others what is near them.
    """
    ways = [_Ways(start) for start in starts]
    while ways:
        for one in ways:
            for target in one.go_on(neighbours):
                copies = min(surplus[one.start], -surplus[target])
                if copies > 0:
                    surplus[one.start] -= copies
                    surplus[target] += copies
                    for source, move in one.way(target):
                        moves[source] += [move] * copies
        ways = [one for one in ways if one.edge and surplus[one.start] > 0]


class _Ways:
    """The shortest ways from a state, found breadth first, a step of all of them at a time."""

    __slots__ = ("came", "edge", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.came: dict[int, tuple[int, int]] = {start: (start, STAY)}
        self.edge = [start]

    def go_on(self, neighbours: list[list[Move]]) -> list[int]:
        """The states that are one step further away."""
        found: list[int] = []
        for place in self.edge:
            for step, target in neighbours[place]:
                if target not in self.came:
                    self.came[target] = (place, step)
                    found.append(target)
        self.edge = found
        return found

    def way(self, target: int) -> Iterator[tuple[int, Move]]:
        """The moves of the way to a state, each with the state that it leaves, the last one first."""
        while target != self.start:
            source, step = self.came[target]
            yield source, (step, target)
            target = source


def _round(moves: list[list[Move]]) -> list[tuple[int, int, int]]:
    """One closed walk from state 0 over every move (Hierholzer), as (state, step, next state), with an end."""
    left = [list(row) for row in moves]
    path: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int, int]] = [(0, STAY, 0)]
    while stack:
        here = stack[-1][2]
        if left[here]:
            step, target = left[here].pop()
            stack.append((here, step, target))
        else:
            path.append(stack.pop())
    path.reverse()
    return [*path[1:], (path[-1][2], STAY, path[-1][2])]


def tour(universe: Universe, graph: Graph | None = None) -> Iterable[list[Choice]]:
    """The walks of a universe as choices; each list starts from a fresh queue at `universe.start_ms`."""
    graph = explore(universe).graph if graph is None else graph
    offer = offers(universe.alphabet)
    for walk in walks(graph):
        yield [Choice(offer, step) for step in walk.steps]


def symbol(universe: Universe, queue: Queue, place: int) -> str:
    """The name of an offer in a queue, for people."""
    return symbols(universe.alphabet)(queue)[place]
