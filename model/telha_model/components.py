"""Strongly connected components of a part of a graph kept in flat arrays (Tarjan, without recursion).

The edges of state s stand at `first[s]` up to `first[s + 1]`; a part is a list of states, less the edges that carry a
removed mark. A single state is a component when it has an edge to itself.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

_OUTSIDE: Final = 0
_UNSEEN: Final = -1
_DONE: Final = -2


class Edges(NamedTuple):
    """A graph with marked edges."""

    first: "array[int]"
    targets: "array[int]"
    marks: "array[int]"


class Component(NamedTuple):
    """States each of which leads to every other, and the marks of the edges among them."""

    places: list[int]
    seen: int


def components(edges: Edges, inside: list[int], removed: int) -> Iterator[Component]:
    """Those in which an edge can be taken again and again."""
    for places in _tarjan(edges, inside, removed):
        members, seen, any_edge = set(places), 0, False
        for edge in edges_within(edges, places, members, removed):
            seen |= edges.marks[edge]
            any_edge = True
        if any_edge:
            yield Component(places, seen)


def edges_within(edges: Edges, places: list[int], members: set[int], removed: int) -> Iterator[int]:
    """The edges from some of `places` that stay among `members` and carry no removed mark."""
    first, targets, marks = edges
    for place in places:
        for edge in range(first[place], first[place + 1]):
            if targets[edge] in members and not marks[edge] & removed:
                yield edge


def _tarjan(edges: Edges, inside: list[int], removed: int) -> Iterator[list[int]]:
    first, targets, marks = edges
    number = array("q", [_OUTSIDE]) * (len(first) - 1)
    for place in inside:
        number[place] = _UNSEEN
    low: dict[int, int] = {}
    count = 0
    stack: list[int] = []
    for root in inside:
        if number[root] != _UNSEEN:
            continue
        path, at = [root], [first[root]]
        while path:
            place, edge = path[-1], at[-1]
            if number[place] == _UNSEEN:
                count += 1
                number[place] = low[place] = count
                stack.append(place)
            if edge < first[place + 1]:
                at[-1] += 1
                target = targets[edge]
                seen = number[target]
                if marks[edge] & removed:
                    continue
                if seen == _UNSEEN:
                    path.append(target)
                    at.append(first[target])
                elif seen > 0:
                    low[place] = min(low[place], seen)
                continue
            path.pop()
            at.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[place])
            if low[place] == number[place]:
                found = [stack.pop()]
                while found[-1] != place:
                    found.append(stack.pop())
                for member in found:
                    number[member] = _DONE
                yield found
