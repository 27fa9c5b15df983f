"""Every trace of the corpus, on the model, the engine and the client of a server.

The verdict that a trace carries is the verdict it gets.
"""

from pathlib import Path

import pytest

from telha_model.trace import Agrees
from tests.harness.classes import counted
from tests.harness.replay import has_cuts, play
from tests.harness.subjects import ALL, GRPC, MODEL
from tests.harness.traces import dump, load

HERE = Path(__file__).parent
TRACES = sorted(HERE.glob("*.json"))
TWICE = TRACES[:: len(TRACES) - 1]
"""The first and the last are played twice whatever their digest; of the others one in twenty."""


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_gets_its_verdict(path: Path) -> None:
    """Model, engine, engine with the smallest window, and client do what the trace says; a cut is for the model."""
    trace = load(path)
    subjects = (MODEL,) if has_cuts(trace) else ALL
    with counted("corpus") as hits:
        played = [
            play(trace, subject, twice=path in TWICE, hits=None if subject == GRPC else hits) for subject in subjects
        ]
    assert (Agrees(), [()] * len(subjects)) == (trace.verdict, [one.differences for one in played])


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_file_is_written_as_a_trace_is(path: Path) -> None:
    """No trace was edited into a form that no command would write, so that the next change of it is small."""
    assert path.read_text("utf-8") == dump(load(path))


def test_the_corpus_is_there() -> None:
    """An empty corpus would agree with anything."""
    assert len(TRACES) >= 18
