"""How many jobs there are by scope, kind and state, summed up in memory so that no question needs a scan.

On disk there is one counter per (scope, kind, state), written with the rows it counts and removed at zero.
"""

from telha_jobs.keys import parse_count_key
from telha_jobs.store.port import Adds
from telha_jobs.types import State

Totals = dict[State, int]


_UNFOLDED_MAX = 4_096


class Counters:
    """Sums by everything, by scope, by kind, and by both. Not thread-safe: the engine's lock guards it.

    Commits only note what changed; the sums are brought up to date when somebody asks, or when many notes have come.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[bytes | None, int | None], Totals] = {}
        self._unfolded: dict[bytes, int] = {}

    def add(self, adds: Adds) -> None:
        """Count that many jobs more (or less), by the keys of their counters."""
        unfolded = self._unfolded
        for key, delta in adds.items():
            unfolded[key] = unfolded.get(key, 0) + delta
        if len(unfolded) > _UNFOLDED_MAX:
            self._fold()

    def totals(self, scope: bytes | None, kinds: frozenset[int] | None) -> Totals:
        """All five states under the filters (None: no filter)."""
        self._fold()
        found: Totals = dict.fromkeys(State, 0)
        for kind in (None,) if kinds is None else kinds:
            for state, number in self._sums.get((scope, kind), {}).items():
                found[state] += number
        return found

    def _fold(self) -> None:
        deltas, self._unfolded = self._unfolded, {}
        for key, delta in deltas.items():
            if not delta:
                continue
            scope, kind, state = parse_count_key(key)
            for place in ((None, None), (scope, None), (None, kind), (scope, kind)):
                totals = self._sums.setdefault(place, {})
                number = totals.get(state, 0) + delta
                if number:
                    totals[state] = number
                    continue
                totals.pop(state, None)
                if not totals:
                    del self._sums[place]
