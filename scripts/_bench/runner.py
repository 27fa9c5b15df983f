"""Runs cases: each is made ready, then they take turns round by round, then each gives its figures.

A case is a class with `name`, `about` and the four methods of `Case`. Everything a case compares it measures in one
round, one after the other, so that a ratio is never taken between two moods of a machine.
"""

import gc
from collections.abc import Sequence
from typing import Protocol

from scripts._bench.measure import Figure
from scripts._bench.place import Place


class Case(Protocol):
    """One measurement."""

    name: str
    about: str
    rounds: int | None
    """How many rounds this case wants at most; None: as many as the run has."""

    def prepare(self, place: Place, /) -> None:
        """Make what the rounds need."""
        ...

    def round(self, place: Place, /) -> None:
        """Measure once."""
        ...

    def figures(self) -> list[Figure]:
        """What the rounds gave."""
        ...

    def close(self) -> None:
        """Let go of what `prepare` opened."""
        ...


def run(cases: Sequence[Case], place: Place, rounds: int) -> list[Figure]:
    """Run them; the figures in the order of the cases."""
    open_cases: list[Case] = []
    try:
        for case in cases:
            place.say(f"{case.name}: prepare")
            open_cases.append(case)
            case.prepare(place)
        for number in range(rounds):
            for case in cases:
                if case.rounds is None or number < case.rounds:
                    # What other cases hold must not make the collector's rounds longer for what is measured here.
                    gc.collect()
                    gc.freeze()
                    place.say(f"{case.name}: round {number + 1} of {min(rounds, case.rounds or rounds)}")
                    case.round(place)
        return [figure for case in cases for figure in case.figures()]
    finally:
        gc.unfreeze()
        for case in open_cases:
            case.close()
