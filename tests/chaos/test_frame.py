"""The frame of the lanes: what a verdict says, what is kept, and what a history holds after a kill."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.frame import KEPT_VARIABLE, FoundError, Lane, Run, play
from tests.chaos.history import Call, History, Note, read
from tests.chaos.lanes import LANES

ROOT = Path(__file__).parents[2]


def lane_of(body: object) -> Lane:
    """A lane with that body."""
    return Lane(name="toy", proves="nothing", cannot="anything", body=body, repeats=True)  # type: ignore[arg-type]


def test_a_run_that_held_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a run whose promises held is removed."""
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))
    seen = []

    def body(run: Run) -> None:
        seen.append(run.root)
        run.room("database")
        run.tally.covered["kills"] += 3

    verdict = play(lane_of(body), seed=7)
    assert (
        verdict.finding,
        verdict.covered,
        [root.exists() for root in seen],
        list(tmp_path.iterdir()),
    ) == (None, {"kills": 3}, [False], [])


def test_a_finding_keeps_the_directory_and_tells_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding's verdict names the directory, which holds what the run left, and the command that repeats it."""
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))

    def body(run: Run) -> None:
        run.history.write_text("left\n")
        run.tally.lost = 1
        raise FoundError("job 1 is gone")

    verdict = play(lane_of(body), seed=7, seconds=90.0)
    assert verdict.kept is not None
    assert (
        verdict.finding,
        verdict.lost,
        (verdict.kept / "history.ndjson").read_text(),
        verdict.repeat,
    ) == ("job 1 is gone", 1, "left\n", "scripts/chaos --lane toy --seed 7 --minutes 1.5")


def test_a_lane_that_fails_by_itself_passes_its_error_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is no finding passes, with a note of where the directory is."""
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))

    def body(run: Run) -> None:
        raise KeyError(1)

    with pytest.raises(KeyError) as caught:
        play(lane_of(body), seed=7)
    assert [
        f"kept: {next(tmp_path.iterdir())}/run\nrepeat: scripts/chaos --lane toy --seed 7"
    ] == caught.value.__notes__


def test_a_call_without_an_outcome_is_read_as_one_nobody_was_told_of(tmp_path: Path) -> None:
    """Calls are read with their outcomes, notes in their place, and a line that a kill cut is none."""
    path = tmp_path / "history.ndjson"
    with History(path, "p") as history:
        first = history.intent("enqueue", {"key": "a"})
        history.intent("reap", {})
        history.note("killed", round=1)
        history.outcome(first, {"job": "x"})
    with path.open("ab") as file:
        file.write(b'{"say": "intent", "id')
    found = [
        (one.id, one.call, one.given, one.told) if isinstance(one, Call) else (one.what, one.data) for one in read(path)
    ]
    assert found == [
        ("p-1", "enqueue", {"key": "a"}, {"job": "x"}),
        ("p-2", "reap", {}, None),
        ("killed", {"round": 1}),
    ]


def test_a_second_outcome_is_refused(tmp_path: Path) -> None:
    """A history in which a call was answered twice cannot be read."""
    path = tmp_path / "history.ndjson"
    with History(path, "p") as history:
        name = history.intent("reap", {})
        history.outcome(name, {})
        history.outcome(name, {})
    with pytest.raises(ValueError, match="p-1 has an outcome too many"):
        read(path)


def test_notes_are_read_where_they_stand(tmp_path: Path) -> None:
    """A note keeps its words."""
    path = tmp_path / "history.ndjson"
    with History(path, "p") as history:
        history.note("opened", incarnation=2)
    assert [(one.what, one.data) for one in read(path) if isinstance(one, Note)] == [("opened", {"incarnation": 2})]


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--seed", "-1"], ["--lane", "none"], ["--judge", "."]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    """Usage errors have the exit code 2."""
    done = subprocess.run([sys.executable, "-m", "tests.chaos", *arguments], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2


def test_every_listed_lane_has_a_module_of_its_own() -> None:
    """Names and modules are in step."""
    assert {name: f"tests.chaos.{name}" for name in LANES} == LANES


@pytest.mark.xdist_group("frame")
def test_the_mark_of_a_group_is_heeded(request: pytest.FixtureRequest) -> None:
    """Tests of one group are run by one process, where there are several: their names say which group."""
    grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("@frame") is bool(grouped)
