"""Every universe of the model, walked edge by edge on the real queue, everything compared after every step."""

from functools import partial

import pytest

from tests.harness.subject import EngineSubject
from tests.harness.walking import SHARDS, Shard, ci_graph, ci_names, plan, shards_of, walk_all

SHARDED = [shard for name in SHARDS for shard in shards_of(name)]
subject = partial(EngineSubject, real_reopen_every=8)


@pytest.mark.slow
@pytest.mark.parametrize("shard", SHARDED, ids=str)
def test_the_queue_follows_the_model_along_every_edge(shard: Shard) -> None:
    """Reply, rows, derived families, counters, ring and time agree after each step of this part of the tour."""
    graph = ci_graph(shard.universe)
    parts = plan(graph, shard=shard.index, shards=shard.count)
    walked = walk_all(graph, parts, subject)
    assert sum(len(part.steps) for part in parts) == walked.steps


@pytest.mark.parametrize("name", SHARDS)
def test_the_shards_together_take_every_edge(name: str) -> None:
    """No edge of a universe falls between the shards of its tour."""
    graph = ci_graph(name)
    taken = {
        edge
        for shard in shards_of(name)
        for part in plan(graph, shard=shard.index, shards=shard.count)
        for edge in zip(part.places, part.steps, strict=False)
    }
    assert {(place, step) for place, row in enumerate(graph.targets) for step in range(len(row))} == taken


def test_every_universe_has_its_tour() -> None:
    """A universe added to the model is toured."""
    assert set(SHARDS) == ci_names()
