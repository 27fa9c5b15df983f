"""What the queue remembers to be quick is a hint: remembering almost nothing changes no answer."""

import pytest

from telha_jobs import counters
from telha_jobs.engine import known
from telha_jobs.store import counters as stored
from tests.harness.lanes import tour_keeper
from tests.harness.subjects import SUBJECTS
from tests.harness.walking import ci_graph, slice_of, walk_all

STEPS = 800


@pytest.mark.parametrize("universe", ["bulk", "order", "reopen"])
def test_the_smallest_caches_change_nothing(universe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record known, no counter known, sums brought up to date at each commit: the tour goes as with large ones."""
    monkeypatch.setattr(known, "BYTES_MAX", 0)
    monkeypatch.setattr(counters, "_UNFOLDED_MAX", 0)
    monkeypatch.setattr(stored, "_CACHED_MAX", 0)
    walks = slice_of(universe, STEPS)
    keep = tour_keeper(universe, "engine-renewed")
    walked = walk_all(ci_graph(universe), walks, SUBJECTS["engine-renewed"], keep=keep)
    assert (walked.steps >= STEPS, sum(len(walk.steps) for walk in walks)) == (True, walked.steps)
