"""Every universe of the model, walked edge by edge on the real queue, everything compared after every step."""

import pytest

from tests.harness.classes import counted
from tests.harness.lanes import tour_keeper
from tests.harness.lockstep import DisagreementError
from tests.harness.subject import TamperedSubject
from tests.harness.subjects import SUBJECTS
from tests.harness.walking import SHARDS, Shard, ci_graph, ci_names, plan, shards_of, walk_all

SHARDED = [shard for name in SHARDS for shard in shards_of(name)]


@pytest.mark.slow
@pytest.mark.parametrize("shard", SHARDED, ids=str)
def test_the_queue_follows_the_model_along_every_edge(shard: Shard) -> None:
    """Reply, rows, derived families, counters, ring and time agree after each step of this part of the tour."""
    graph = ci_graph(shard.universe)
    parts = plan(graph, shard=shard.part, shards=shard.parts)
    keep = tour_keeper(shard.universe, "engine-renewed")
    with counted("tours") as hits:
        walked = walk_all(graph, parts, SUBJECTS["engine-renewed"], keep=keep, hits=hits)
    assert sum(len(part.steps) for part in parts) == walked.steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("order", "engine-narrow-renewed"),
        ("keys", "engine-narrow-renewed"),
        ("agenda", "engine-narrow-renewed"),
        ("agenda", "engine-narrow-2-renewed"),
    ],
)
def test_the_smallest_windows_change_nothing(name: str, subject: str) -> None:
    """With one or two rows per group in memory the agenda reads on from disk all the time, and answers as the model."""
    graph = ci_graph(name)
    parts = plan(graph)
    keep = tour_keeper(name, subject)
    with counted("narrow") as hits:
        walked = walk_all(graph, parts, SUBJECTS[subject], keep=keep, hits=hits)
    assert sum(len(part.steps) for part in parts) == walked.steps


def test_the_tour_rings_over_a_tampered_queue() -> None:
    """A canary: one derived entry too many ends the tour, with the shortest program that shows it."""
    graph = ci_graph("keys")
    with pytest.raises(DisagreementError, match="timers: has") as found:
        walk_all(graph, plan(graph), TamperedSubject)
    assert len(found.value.ops) == 1


@pytest.mark.parametrize("name", SHARDS)
def test_the_shards_together_take_every_edge(name: str) -> None:
    """No edge of a universe falls between the shards of its tour."""
    graph = ci_graph(name)
    taken = {
        edge
        for shard in shards_of(name)
        for part in plan(graph, shard=shard.part, shards=shard.parts)
        for edge in zip(part.places, part.steps, strict=False)
    }
    assert {(place, step) for place, row in enumerate(graph.targets) for step in range(len(row))} == taken


def test_every_universe_has_its_tour() -> None:
    """A universe added to the model is toured."""
    assert set(SHARDS) == ci_names()
