"""scripts/contention: figures, verdict and exit codes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts._lib import contention as command
from tests.harness.contention import Report, contend


def test_it_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 0; the last line is the verdict; the queue stays where it was asked to be."""
    assert command.main(["--jobs", "200", "--pollers", "2", "--seed", "1", "--data", str(tmp_path / "queue")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "contention: holds (200 jobs, 2 pollers)"
    assert "jobs per second" in told[1]
    assert "syncs per job" in told[-2]
    assert (tmp_path / "queue" / "CURRENT").is_file()


def test_figures_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object on stdout, the verdict on stderr."""
    assert command.main(["--jobs", "100", "--pollers", "2", "--durability", "sync", "--json"]) == 0
    told = capsys.readouterr()
    figures = json.loads(told.out)
    assert (figures["jobs"], figures["pollers"], figures["problems"]) == (100, 2, [])
    assert figures["syncs"] > 0
    assert told.err.splitlines()[-1] == "contention: holds (100 jobs, 2 pollers)"


def test_what_does_not_hold_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and each problem on stderr."""

    def broken(path: Path, **options: object) -> Report:
        return replace(contend(path, jobs=10, pollers=1, durability="os", seed=1), problems=("a job is left to lease",))

    monkeypatch.setattr(command, "contend", broken)
    assert command.main(["--jobs", "10", "--pollers", "1"]) == 1
    told = capsys.readouterr()
    assert "a job is left to lease" in told.err
    assert told.out.splitlines()[-1] == "contention: 1 things do not hold (10 jobs, 1 pollers)"


@pytest.mark.parametrize("given", [["--jobs", "0"], ["--pollers", "x"], ["--durability", "maybe"], ["--what"]])
def test_usage(given: list[str]) -> None:
    """Exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2


def test_a_directory_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and nothing is added to it."""
    (tmp_path / "mine").write_text("mine")
    assert command.main(["--data", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert "must be an empty directory" in capsys.readouterr().err
