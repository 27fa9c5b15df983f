"""What is reachable, and what the lanes declare: held against each other before any lane has run."""

import os
from pathlib import Path

import pytest

from telha_model.classes import TransitionClass
from telha_model.explore import Graph
from telha_model.reachable import PROBED, PROBES, Reachable, of_probes, reachable
from telha_model.universe import Universe
from tests.harness.classes import FOLDER_VARIABLE, keep_reachable, kept_reachable
from tests.harness.classes_gate import EMPTY, declared, judge
from tests.harness.walking import ci_graph, ci_names

pytestmark = pytest.mark.xdist_group("reachable classes")

PINNED = (437, 124)
"""Classes of edges, and those that only probes have. A change of meaning changes a number: say in the commit which."""


@pytest.fixture(scope="module")
def there() -> Reachable:
    """What is reachable, from the graphs that other tests of this process may have explored already."""

    def known(name: str, _: Universe) -> Graph:
        return ci_graph(name)

    there = reachable(known)
    if folder := os.environ.get(FOLDER_VARIABLE):
        keep_reachable(there, Path(folder))
    return there


def test_what_is_reachable_is_kept_as_it_is(there: Reachable, tmp_path: Path) -> None:
    """The gate after a run reads what this module explored; where nothing was kept it explores by itself."""
    assert kept_reachable(tmp_path) is None
    keep_reachable(there, tmp_path)
    assert list((kept_reachable(tmp_path) or {}).items()) == list(there.items())


def test_the_number_of_reachable_classes_is_pinned(there: Reachable) -> None:
    """The universes reach exactly so many classes, and the probes of their states so many more."""
    probed = sum(PROBES in where for where in there.values())
    assert (len(there) - probed, probed) == PINNED


@pytest.mark.parametrize("name", sorted(ci_names() - set(PROBED)))
def test_probing_another_universe_finds_nothing_new(name: str, there: Reachable) -> None:
    """Whatever a probe of every seventh state finds there, the probed universes or some edge has."""
    assert [one for one in of_probes(ci_graph(name), every=7) if one not in there] == []


def test_every_pattern_that_a_lane_declares_is_reachable(there: Reachable) -> None:
    """Before anything has run, the one thing wrong with each lane is that it has not."""
    lanes = declared()
    assert [(lane.name, EMPTY) for lane in lanes] == [(found.lane, found.kind) for found in judge(lanes, {}, there)]


def test_tours_and_probes_require_everything() -> None:
    """Between them they have to hit each reachable class on the real queue, whatever the other lanes require."""
    everything = TransitionClass(*"******")
    required = {lane.of: 1 for lane in declared() for pattern, _ in lane.required if pattern == everything}
    assert required == {"edges": 1, "probes": 1}
