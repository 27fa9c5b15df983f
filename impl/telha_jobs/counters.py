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
        self._sums: dict[tuple[bytes | None, int | None, State], int] = {}  # none is 0
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
            for state in found:
                found[state] += self._sums.get((scope, kind, state), 0)
        return found

    def _fold(self) -> None:
        deltas, self._unfolded = self._unfolded, {}
        for key, delta in deltas.items():
            if not delta:
                continue
            scope, kind, state = parse_count_key(key)
            for place in ((None, None, state), (scope, None, state), (None, kind, state), (scope, kind, state)):
                number = self._sums.get(place, 0) + delta
                if number:
                    self._sums[place] = number
                else:
                    self._sums.pop(place, None)
