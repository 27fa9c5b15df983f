"""How many jobs there are by scope, kind and state, summed up in memory so that no question needs a scan.

On disk there is one counter per (scope, kind, state), written with the rows it counts and removed at zero.
"""

from collections.abc import Iterable

from telha_jobs.keys import CountKey
from telha_jobs.types import State

Totals = dict[State, int]


class Counters:
    """Sums by everything, by scope, by kind, and by both. Not thread-safe: the engine's lock guards it."""

    def __init__(self, counts: Iterable[tuple[CountKey, int]] = ()) -> None:
        self._sums: dict[tuple[bytes | None, int | None], Totals] = {}
        for key, number in counts:
            self.add(key, number)

    def add(self, key: CountKey, delta: int) -> None:
        """Count `delta` jobs more (or less)."""
        for place in ((None, None), (key.scope, None), (None, key.kind), (key.scope, key.kind)):
            totals = self._sums.setdefault(place, {})
            number = totals.get(key.state, 0) + delta
            if number:
                totals[key.state] = number
                continue
            totals.pop(key.state, None)
            if not totals:
                del self._sums[place]

    def totals(self, scope: bytes | None, kinds: frozenset[int] | None) -> Totals:
        """All five states under the filters (None: no filter)."""
        found: Totals = dict.fromkeys(State, 0)
        for kind in (None,) if kinds is None else kinds:
            for state, number in self._sums.get((scope, kind), {}).items():
                found[state] += number
        return found
