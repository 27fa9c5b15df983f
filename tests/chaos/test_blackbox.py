"""The lane `blackbox`: fifteen kills and more under load, its judge, and histories that were tampered with."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos import blackbox
from tests.chaos.frame import FoundError, Lane, Run, play
from tests.chaos.remote import Owner
from tests.harness.judging import judged
from tests.harness.mutants import Mutant, mutant
from tests.harness.mutation import environment

ROOT: Final = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("chaos-blackbox")
KILLS_MIN: Final = 15
LIVES_JUDGED: Final = 2
"""Of the run that held, judged again with and without a change."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a run that held."""
    target = tmp_path_factory.mktemp("blackbox") / "run"
    verdicts = []

    def body(run: Run) -> None:
        blackbox.LANE.body(run)
        shutil.copytree(run.root, target, ignore=shutil.ignore_patterns("db"))

    lane = Lane(name="blackbox", proves="", cannot="", body=body, repeats=False)
    verdicts.append(play(lane, seed=1, say=print))
    assert verdicts[0].finding is None, verdicts[0].told()
    (target / "verdict.json").write_text(json.dumps(verdicts[0].row()))
    yield target
    shutil.rmtree(target)


def covered(kept: Path) -> dict[str, int]:
    """What the run covered."""
    found: dict[str, int] = json.loads((kept / "verdict.json").read_text())["covered"]
    return found


def test_random_kills_under_load_break_no_promise(kept: Path) -> None:
    """At least fifteen lives are killed, and more than half of the kills meet calls in flight that write."""
    seen = covered(kept)
    assert seen["kills"] >= KILLS_MIN
    assert seen["kills with writes in flight"] * 2 > seen["kills"]
    assert seen["calls without an answer"] > 0


def test_a_kept_run_is_judged_again(kept: Path, tmp_path: Path) -> None:
    """Its history replays in the checker, to the same verdict."""
    assert blackbox.LANE.judge is not None
    told = [blackbox.LANE.judge(begun(kept, tmp_path / name).parent) for name in ("once", "twice")]
    assert told[0] == told[1]
    assert told[0].startswith(f"{LIVES_JUDGED} lives, ")


def begun(kept: Path, target: Path) -> Path:
    """A copy of the run's first lives."""
    root = target / "database-0"
    shutil.copytree(kept / "database-0", root)
    lines = lines_of(root)
    ends = [n for n, line in enumerate(lines) if line.get("what") == "killed"]
    write_back(root, lines[: ends[LIVES_JUDGED - 1] + 1])
    return root


def lines_of(root: Path) -> list[dict[str, Any]]:
    """The lines of a history."""
    return [json.loads(line) for line in (root / "history.ndjson").read_text().splitlines()]


def answered(root: Path, call: str, fits: Callable[[Any], bool]) -> tuple[int, list[dict[str, Any]]]:
    """The place of an outcome of such a call, early in the history, and all lines."""
    lines = lines_of(root)
    names = {line["id"] for line in lines if line["say"] == "intent" and line["call"] == call}
    for place, line in enumerate(lines):
        if line["say"] == "outcome" and line["id"] in names and fits(line["told"]["told"]):
            return place, lines
    raise AssertionError(f"no {call} was answered like that")


def write_back(root: Path, lines: list[dict[str, Any]]) -> None:
    """Put a history back."""
    (root / "history.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))


def lose_a_row(root: Path) -> None:
    """The last rows lack one job."""
    rows = root / f"rows-{LIVES_JUDGED}.json"
    data = json.loads(rows.read_text())
    data["jobs"].pop()
    rows.write_text(json.dumps(data))


def grant_twice(root: Path) -> None:
    """A lease was told to a second worker, too."""
    place, lines = answered(root, "lease", bool)
    name, told = "w99-1", lines[place]["told"]
    intent = next(line for line in lines if line["say"] == "intent" and line["id"] == lines[place]["id"])
    again = [intent | {"id": name}, {"say": "outcome", "id": name, "at": lines[place]["at"], "told": told}]
    write_back(root, lines[: place + 1] + again + lines[place + 1 :])


def forget_a_call(root: Path) -> None:
    """Nobody asked for a completion that is in the rows."""
    place, lines = answered(root, "complete", lambda told: told == [])
    name = lines[place]["id"]
    write_back(root, [line for line in lines if line.get("id") != name])


def refuse_a_completion(root: Path) -> None:
    """A worker was told that it was too late although its result is there."""
    place, lines = answered(root, "complete", lambda told: told == [])
    lines[place]["told"] = {"told": {"refused": "StaleLeaseError", "why": "reaped", "state": "pending", "current": 1}}
    write_back(root, lines)


@pytest.mark.parametrize(
    ("tamper", "word"),
    [
        (lose_a_row, "lost"),
        (grant_twice, "duplicated"),
        (forget_a_call, "unexpected"),
        (refuse_a_completion, "unexpected"),
    ],
)
def test_a_history_that_was_tampered_with_is_found(
    kept: Path, tmp_path: Path, tamper: Callable[[Path], None], word: str
) -> None:
    """One line or row is changed in a real run, and the judge says which promise that breaks."""
    root = begun(kept, tmp_path)
    tamper(root)
    report = judged(root, blackbox.CONFIG)
    assert getattr(report, word) >= 1, report
    assert report.sentences


# -- canaries

CANARIES: Final = (mutant("complete is not fenced"), mutant("the old row is left behind"))


@pytest.mark.parametrize("broken", CANARIES, ids=lambda one: one.name)
def test_a_broken_queue_is_found(broken: Mutant, tmp_path: Path) -> None:
    """With the mutant in the queue's process the command ends with 1, keeps the run and says how to judge it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--lane", "blackbox", "--seed", "1", "--minutes", "0.03"],
        cwd=ROOT,
        env=environment(broken) | {"TELHA_CHAOS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "things cannot be" in done.stdout
    assert list(tmp_path.glob("blackbox-1-*/run/database-0/history.ndjson"))


def test_kills_that_meet_nothing_fail_the_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which too few kills meet a write proves too little, and says so."""
    monkeypatch.setenv("TELHA_CHAOS", str(tmp_path))
    monkeypatch.setattr(blackbox, "CI_LIVES", 1)
    monkeypatch.setattr(blackbox, "IN_FLIGHT_SHARE_MIN", 1.0)
    assert "the lane proves too little" in (play(blackbox.LANE, seed=1).finding or "")


def test_a_process_that_ends_by_itself_fails_the_lane(tmp_path: Path) -> None:
    """A child that was not killed is a finding, with what it said last."""
    with Owner(tmp_path / "db", blackbox.CONFIG, tmp_path / "log") as owner:
        owner.opened()
        assert owner.process.stdin is not None
        owner.process.stdin.close()
        owner.process.wait()
        with pytest.raises(FoundError, match="ended by itself"):
            owner.kill()
