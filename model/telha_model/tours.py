"""Tours: walks from a fresh queue that together take every edge of an explored universe.

An edge is named by its state and its place in the state's offer. A walk carries symbols, not operations: job numbers,
generations and times differ from those met while exploring, so `Choice.resolve` looks the operation up in the queue as
it then is. Whoever walks checks that the queue's class is the one the graph promises (`Walk.places`).
"""

from collections import deque
from collections.abc import Callable, Iterable
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
    for start in range(len(moves)):
        if surplus[start] > 0:
            _lay_from(moves, neighbours, surplus, start)
    for start in range(len(moves)):
        while surplus[start] > 0:
            surplus[start] -= 1
            surplus[0] += 1
            moves[start].append((RESTART, 0))
    if surplus[0] > 0:
        _lay_from(moves, neighbours, surplus, 0)


def _lay_from(moves: list[list[Move]], neighbours: list[list[Move]], surplus: list[int], start: int) -> None:
    """Lay the ways from one state with a surplus to the nearest ones with the opposite, as far as there are any."""
    came: dict[int, tuple[int, int]] = {start: (start, STAY)}
    work = deque([start])
    while work and surplus[start] > 0:
        place = work.popleft()
        for step, target in neighbours[place]:
            if target in came:
                continue
            came[target] = (place, step)
            work.append(target)
            copies = min(surplus[start], -surplus[target])
            if copies > 0:
                surplus[start] -= copies
                surplus[target] += copies
                end = target
                while end != start:
                    source, taken = came[end]
                    moves[source] += [(taken, end)] * copies
                    end = source


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
