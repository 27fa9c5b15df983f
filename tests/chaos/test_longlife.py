"""A long life in CI's size: what is purged leaves nothing behind, and a rise is seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.frame import KEPT_VARIABLE, FoundError, Run, Verdict, play
from tests.chaos.longlife import LANE, LEVEL, level, lived
from tests.harness.mutants import mutant
from tests.harness.mutation import environment

JOBS, PARTS = 3_000, 3
MEASURES = [key for one in LEVEL for key in (one.wall, one.beside) if key is not None]


def short(run: Run) -> None:
    """A life that CI has the time for."""
    lived(run, JOBS, PARTS)


def verdict() -> Verdict:
    """The verdict over one short life."""
    return play(replace(LANE, body=short), seed=1)


def test_what_is_purged_leaves_nothing_behind() -> None:
    """Three thousand jobs from end to end: the database is sound, and holds what waits and what is kept."""
    found = verdict()
    assert found.finding is None, found.told()
    assert dict(found.covered) == {"jobs": JOBS, "parts": PARTS}


def test_rows_left_behind_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: a queue that leaves the old row of a move behind; the run is kept, and how to repeat it is told."""
    for variable in ("TELHA_MUTANT", "PYTHONPATH"):
        monkeypatch.setenv(variable, environment(mutant("the old row is left behind"))[variable])
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))
    found = verdict()
    assert found.finding is not None
    assert "the check says" in found.finding
    assert found.repeat == "scripts/chaos --lane longlife --seed 1"
    assert found.kept is not None
    assert (found.kept / "history.ndjson").is_file()


@pytest.mark.parametrize(("name", "key"), [(one.name, one.wall) for one in LEVEL])
def test_a_rise_is_seen(name: str, key: str, tmp_path: Path) -> None:
    """Each measure by itself: one that grows by half over the run is told by name; level ones pass."""
    flat: list[dict[str, Any]] = [dict.fromkeys(MEASURES, 10.0) for _ in range(40)]
    run = Run(LANE, seed=1, seconds=None, root=tmp_path, say=lambda _: None)
    level(run, flat)
    rising = [part | {key: 10.0 + number / 4} for number, part in enumerate(flat)]
    with pytest.raises(FoundError, match=f"{name} rises"):
        level(run, rising)


@pytest.mark.parametrize(("key", "work"), [(one.wall, one.beside) for one in LEVEL if one.beside is not None])
def test_a_slower_machine_is_no_rise(key: str, work: str, tmp_path: Path) -> None:
    """A time that grows with what the same work takes beside it."""
    parts = [dict.fromkeys(MEASURES, 10.0) | {key: 10.0 + number, work: 20.0 + 2 * number} for number in range(40)]
    level(Run(LANE, seed=1, seconds=None, root=tmp_path, say=lambda _: None), parts)
