"""Short forms of the lanes: random runs, the corpus, slices of tours. Each raises at the first difference.

They are what a change of the queue is tried on first; a whole tour takes up to a minute.
"""

from pathlib import Path
from typing import Final

from telha_model.explore import Graph
from telha_model.tours import Walk
from tests.harness.longruns import START_MS, wild_run
from tests.harness.replay import failing, has_cuts, play
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import load
from tests.harness.walking import walk_all

CORPUS: Final = Path(__file__).parents[1] / "corpus"


def run(subject: str, seed: int, steps: int) -> None:
    """A wild run from a seed."""
    config, ops = wild_run(seed, steps)
    error = failing(config, START_MS, ops, SUBJECTS[subject])
    if error is not None:
        raise error


def corpus() -> None:
    """Every trace that needs no power loss."""
    for path in sorted(CORPUS.glob("*.json")):
        trace = load(path)
        if not has_cuts(trace):
            differences = play(trace, "engine").differences
            if differences:
                raise AssertionError(f"{path.name}: {differences[0]}")


def tour(graph: Graph, walks: list[Walk], subject: str) -> None:
    """Some walks through a universe."""
    walk_all(graph, walks, SUBJECTS[subject])
