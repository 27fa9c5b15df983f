"""The lane `histories`: a run that holds, the same run tampered with, and servers that are broken in its way."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.chaos import histories
from tests.chaos.broken import FLAWS
from tests.chaos.calls import Calls
from tests.chaos.frame import Lane, Run, play
from tests.chaos.histories import CALLERS, CONFIG, Plan
from tests.harness.linearity import judged

pytestmark = pytest.mark.xdist_group("chaos-histories")


def lane(body: Callable[[Run], None]) -> Lane:
    """The lane with another body."""
    return Lane(name="histories", proves="", cannot="", body=body, repeats=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a run that held."""
    target = tmp_path_factory.mktemp("histories") / "run"

    def body(run: Run) -> None:
        histories.LANE.body(run)
        shutil.copytree(run.root, target, ignore=shutil.ignore_patterns("db"))

    verdict = play(lane(body), seed=1, say=print)
    assert verdict.finding is None, verdict.told()
    (target / "verdict.json").write_text(json.dumps(verdict.row()))
    yield target
    shutil.rmtree(target)


def test_concurrent_callers_are_told_what_one_after_another_would_be(kept: Path) -> None:
    """Eight processes, three kills under load and one in silence; every life proved, a beginning of each searched."""
    covered = json.loads((kept / "verdict.json").read_text())["covered"]
    assert covered["lives proved"] == covered["windows searched"] == covered["kills"] == histories.LIVES
    assert covered["calls"] > 100 * len(CALLERS)


def test_every_operation_is_among_the_calls(kept: Path) -> None:
    """Also the looks, and sweeps that somebody asked for."""
    names = {line["call"] for line in lines_of(kept) if line["say"] == "intent"}
    wanted = {name.removeprefix("do_") for name in dir(Calls) if name.startswith("do_")}
    assert wanted - names == set()


def lines_of(root: Path) -> list[dict[str, Any]]:
    """The lines of a run's history."""
    path = root / "database-0" / "history.ndjson"
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- a run that was tampered with


def _outcome(lines: list[dict[str, Any]], call: str, fits: Callable[[Any], bool]) -> dict[str, Any]:
    """An outcome of such a call in the middle of the first life."""
    end = next(place for place, line in enumerate(lines) if line.get("what") == "killed")
    names = {line["id"] for line in lines[:end] if line["say"] == "intent" and line["call"] == call}
    found = [one for one in lines[:end] if one["say"] == "outcome" and one["id"] in names and fits(one["told"]["told"])]
    return found[len(found) // 2]


def _granted_twice(lines: list[dict[str, Any]]) -> None:
    told = _outcome(lines, "lease", bool)
    place = lines.index(told)
    intent = next(line for line in lines if line["say"] == "intent" and line["id"] == told["id"])
    lines[place:place] = [intent | {"id": "w9-1"}, told | {"id": "w9-1"}]


def _made_and_gone(lines: list[dict[str, Any]]) -> None:
    told = _outcome(lines, "enqueue", lambda told: told[0]["created"] if isinstance(told, list) else False)
    told["told"]["told"][0]["job"] = "f" * 32


def _refused_and_done(lines: list[dict[str, Any]]) -> None:
    told = _outcome(lines, "complete", lambda told: told == [])
    intent = next(line for line in lines if line["say"] == "intent" and line["id"] == told["id"])
    stale = {"refused": "StaleLeaseError", "job": intent["given"]["job"], "generation": intent["given"]["generation"]}
    told["told"]["told"] = stale | {"state": "pending", "current": 1, "why": "reaped"}


def _commits_in_another_order(lines: list[dict[str, Any]]) -> None:
    told = _outcome(lines, "enqueue", lambda told: isinstance(told, list) and told[0]["created"])
    told["told"]["commit"][0] += 30


def _counts_of_the_past(lines: list[dict[str, Any]]) -> None:
    told = _outcome(lines, "counts", bool)
    told["told"]["told"]["pending"] += 1


TAMPERED: Final = (
    (_granted_twice, "duplicated"),
    (_made_and_gone, "lost"),
    (_refused_and_done, "unexpected"),
    (_commits_in_another_order, "unexpected"),
    (_counts_of_the_past, "unexpected"),
)


@pytest.mark.parametrize(("tamper", "word"), TAMPERED, ids=lambda one: getattr(one, "__name__", one).strip("_"))
def test_a_history_that_was_tampered_with_is_found(
    kept: Path, tmp_path: Path, tamper: Callable[[list[dict[str, Any]]], None], word: str
) -> None:
    """One line of the first life of a real run is changed, and the report says which promise that breaks."""
    lines = lines_of(kept)
    tamper(lines)
    # Up to the next open: what a caller had in hand when the server was killed was told by this life.
    end = next(place for place, line in enumerate(lines) if place and line.get("what") == "opened")
    shutil.copy(kept / "database-0" / "rows-1.json", tmp_path)
    (tmp_path / "history.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines[:end]))
    report = judged(tmp_path, CONFIG, Random(1)).report
    assert getattr(report, word) >= 1, report


# -- servers that are broken

FOUND: Final = {
    "reply before commit": "is gone",
    "check and write in two steps": "has 2 jobs",
    "lost wake-up": "lay ready for more than",
    "lease delivered twice": "was granted 2 times",
}


DATABASES_MAX: Final = 6
"""Of two kills both may meet nothing that the flaw has broken: one time in fifty."""


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broken_server_is_found(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it does wrong, in the first two lives of one of the first databases."""
    monkeypatch.setenv("TELHA_CHAOS", str(tmp_path))
    seen = list[str]()

    def body(run: Run) -> None:
        for number in range(DATABASES_MAX):
            room, chance = run.room(f"database-{number}"), Random(f"{run.seed}/{number}")
            seen.extend(histories.one_database(run, room, chance, Plan(lives=2, broken=flaw)).report.sentences)
            if any(FOUND[flaw] in sentence for sentence in seen):
                return

    verdict = play(lane(body), seed=1)
    assert any(FOUND[flaw] in sentence for sentence in seen), (verdict.told(), seen[:5])
