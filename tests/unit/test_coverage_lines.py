"""scripts/coverage-lines: what it reports, its floors, and one real run."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts._lib import coverage_lines as command
from scripts._lib.coverage_lines import File, findings, partial, percent, ranges

ROOT = Path(__file__).parents[2]
WHOLE = File("model/telha_model/a.py", "model", 8, 2, (), ())
HOLED = File("impl/telha_jobs/b.py", "impl", 7, 3, (3, 4, 9), ((5, 7), (9, 11), (6, -1)))


def test_lines_are_told_in_ranges() -> None:
    """Neighbours stand together."""
    assert ranges((1, 2, 3, 7, 9, 10)) == "1-3 7 9-10"


def test_a_branch_of_a_line_never_reached_is_not_told_again() -> None:
    """Only lines that were reached have branches worth naming; one that leaves the function ends at `end`."""
    assert list(partial(HOLED)) == ["5→7", "6→end"]


def test_lines_and_branches_count_alike() -> None:
    """Three lines and three branches of ten are missing in one file, and nothing in the other."""
    assert (HOLED.percent, WHOLE.percent, percent([HOLED, WHOLE]), percent([])) == (40.0, 100.0, 70.0, 100.0)


def test_a_part_below_its_floor_is_a_finding() -> None:
    """Each part has a floor of its own."""
    assert findings([HOLED, WHOLE], {"impl": 40.0, "model": 100.0}) == []
    assert findings([HOLED, WHOLE], {"impl": 40.1, "model": 100.0}) == ["impl is at 40.0 %, below its floor of 40.1 %"]
    assert findings([], command.FLOORS) == []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tests are run: two files were measured."""
    monkeypatch.setattr(command, "measured", lambda *_: ([HOLED, WHOLE], None))


@pytest.mark.usefixtures("measured")
def test_the_report_lists_what_was_not_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """Files that were reached entirely are left out; the verdict is last; below a floor the exit code is 1."""
    assert command.main([]) == 1
    told = capsys.readouterr().out
    assert "impl/telha_jobs/b.py" in told
    assert "model/telha_model/a.py" not in told
    assert "3-4 9 | 5→7 6→end" in told
    assert told.splitlines()[-1].startswith("coverage-lines: impl 40.0 % (3 lines and 3 branches not reached)")
    assert "impl is at 40.0 %, below its floor" in told.splitlines()[-1]


@pytest.mark.usefixtures("measured")
def test_a_run_of_some_tests_holds_no_floor() -> None:
    """What a part of the tests reaches is for whoever asked; the floors are about the fast suites."""
    assert command.main(["tests/unit"]) == 0


def test_failing_tests_are_red(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Coverage of a run that failed is worth nothing: exit code 1, and its output."""
    monkeypatch.setattr(command, "measured", lambda *_: ([WHOLE], "FAILED tests/one.py"))
    assert command.main(["tests/unit", "--json"]) == 1
    told = capsys.readouterr()
    assert (json.loads(told.out)["ok"], "FAILED tests/one.py" in told.err) == (False, True)
    assert told.err.splitlines()[-1].endswith("THE RUN FAILED")


def test_lines_of_sources_that_moved_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was changed while the tests ran makes the whole report wrong, and the run says so."""
    turns = iter(({"a.py": 1}, {"a.py": 2}))
    monkeypatch.setattr(command, "sources", lambda: next(turns))
    monkeypatch.setattr(command, "run", lambda _tests, folder, _environment: (0, report(folder)))
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0))
    assert command.measured([], tmp_path) == ([], command.MOVED)


def report(folder: Path) -> str:
    """A report of nothing where coverage would write its own."""
    (folder / "report").write_text('{"files": {}}')
    return ""


@pytest.mark.parametrize("given", [["tests/nothing"], ["tests/unit", "--all"], ["--what"]], ids=" ".join)
def test_usage(given: list[str]) -> None:
    """Exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows what to type, and what the exit codes mean."""
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    told = capsys.readouterr().out
    assert (caught.value.code, "scripts/coverage-lines --file agenda" in told, "exit: 0" in told) == (0, True, True)


def test_the_suites_are_there() -> None:
    """No suite that was renamed is quietly left out."""
    named = [*command.FAST, *command.NOT_MEASURED, *[f"tests/unit/test_{name}.py" for name in command.ABOUT_OTHERS]]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_a_real_run_measures_both_parts_in_every_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that no test imported are in the report as well, and what xdist's processes ran counts."""
    html = tmp_path / "html"
    assert command.main(["tests/unit/test_tables.py", "--json", "--html", str(html)]) == 0
    found = {file["path"]: file for file in json.loads(capsys.readouterr().out)["files"]}
    assert found["model/telha_model/states.py"]["percent"] > 90
    assert found["impl/telha_jobs/queue.py"]["percent"] < 60
    assert {Path(path).parts[0] for path in found} == {"impl", "model"}
    assert (html / "index.html").is_file()
