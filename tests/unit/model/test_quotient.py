"""The classifier may forget what only saves work: states keep their classes."""

import pytest

from telha_model import quotient
from telha_model.explore import explore
from telha_model.universes import universes
from tests.unit.model.test_universes import PINNED


def test_a_classifier_that_forgets_all_the_time_finds_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a handful of numbers the universe has the states and edges that are pinned for it."""
    monkeypatch.setattr(quotient, "NUMBERS_MAX", 5)
    for name in ("keys", "protocol"):
        graph = explore(universes()[name]).graph
        assert (len(graph.states), graph.edges()) == PINNED[name]
