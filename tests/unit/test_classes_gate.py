"""The gate of transition classes goes red: on a lane's lost hits, on what nobody reaches, on a run of nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts._lib import coverage_classes as command
from telha_model.classes import TransitionClass
from telha_model.ops import Advance, Enqueue, Lease, Op
from telha_model.reachable import PROBES
from telha_model.state import new_queue
from telha_model.step import step
from telha_model.types import Config, NewJob
from tests.harness import classes
from tests.harness.classes import Hits, counted, load, save
from tests.harness.classes_gate import (
    EMPTY,
    UNDECLARED,
    UNEXPLORED,
    UNHIT,
    UNREACHABLE,
    DeclarationError,
    declared,
    judge,
)
from tests.harness.lockstep import DisagreementError, Lockstep
from tests.harness.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
DONE = TransitionClass("complete", "completed", "leased", "current", "before", "below max")
LATE = DONE._replace(expiry="after")
STALE = TransitionClass("complete", "stale superseded", "leased", "older", "before", "below max")
FORGED = TransitionClass("complete_many", "stale never_leased", "dead", "never issued", "-", "at max")
THERE = {DONE: {"protocol": 7}, LATE: {"protocol": 3}, STALE: {"protocol": 2}, FORGED: {PROBES: 4}}

TEXT = """
[one]
about = "what completes"
tests = ["tests/one.py"]

[one.required]
"complete, completed, leased, current, *, below max" = 2
"complete, stale superseded, leased, older, any, any" = 1

[two]
about = "what nobody offers"
tests = ["tests/two.py"]
of = "probes"

[two.required]
"*, *, *, *, *, *" = 1
"""
Folder = Callable[..., Path]


def hits(lane: str, counts: Mapping[TransitionClass, int]) -> Hits:
    """What a lane hit."""
    found = Hits(lane)
    found.steps = sum(counts.values())
    found.counts.update(counts)
    return found


GREEN = {"one": hits("one", {DONE: 5, LATE: 2, STALE: 1}), "two": hits("two", {FORGED: 1})}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Declarations of two lanes."""
    path = tmp_path / "required.toml"
    path.write_text(TEXT)
    return path


def kinds(file: Path, found: Mapping[str, Hits]) -> list[tuple[str, str]]:
    """The findings, by lane and kind."""
    return [(one.lane, one.kind) for one in judge(declared(file), found, THERE)]


# -- judging


def test_all_hit_is_green(file: Path) -> None:
    """Each lane hit what it declares so often as it declares."""
    assert kinds(file, GREEN) == []


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({DONE: 5, LATE: 1, STALE: 1}, f"{LATE}: hit 1 of 2 times"),
        ({DONE: 5, LATE: 2}, "complete, stale superseded, leased, older, any, any: hit 0 of 1 times"),
    ],
)
def test_a_class_hit_too_rarely_is_a_finding(file: Path, counts: dict[TransitionClass, int], sentence: str) -> None:
    """`*` asks so many hits of each class, `any` of all of them together; the finding names class and number."""
    [found] = judge(declared(file), GREEN | {"one": hits("one", counts)}, THERE)
    assert (found.lane, found.kind, found.sentence) == ("one", UNHIT, sentence)


@pytest.mark.parametrize("lost", ["one", "two"])
def test_a_lane_whose_hits_are_dropped_is_a_finding(file: Path, lost: str) -> None:
    """A lane that did not run, and one that took no step, hit nothing."""
    others = {name: found for name, found in GREEN.items() if name != lost}
    assert kinds(file, others) == [(lost, EMPTY)]
    assert (lost, EMPTY) in kinds(file, others | {lost: Hits(lost)})


def test_a_run_of_nothing_is_a_finding_of_every_lane(file: Path) -> None:
    """No hits at all are no success."""
    assert kinds(file, {}) == [("one", EMPTY), ("two", EMPTY)]


def test_a_declared_class_that_is_unreachable_is_a_finding(file: Path) -> None:
    """A pattern that fits no class there is, or a word that is misspelt, can never be hit."""
    file.write_text(TEXT.replace("stale superseded, leased", "stale superceded, leased"))
    assert kinds(file, GREEN) == [("one", UNREACHABLE)]
    file.write_text(TEXT.replace('of = "probes"', 'of = "edges"').replace("*, *, *, *, *, *", f"{FORGED}"))
    assert kinds(file, GREEN) == [("two", UNREACHABLE)]


def test_a_lane_that_nobody_declared_is_a_finding(file: Path) -> None:
    """Hits under a misspelt name are not passed over."""
    assert kinds(file, GREEN | {"three": hits("three", {DONE: 1})}) == [("three", UNDECLARED)]


def test_a_class_that_exploration_does_not_know_is_a_finding(file: Path) -> None:
    """A lane that hits what no universe reaches shows that the universes leave something out."""
    strange = DONE._replace(state="dead")
    assert kinds(file, GREEN | {"two": hits("two", {FORGED: 1, strange: 1})}) == [("two", UNEXPLORED)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no lane is declared"),
        ("[one", "Expected"),
        (TEXT.replace('about = "what completes"', ""), r"\[one\]: a lane has `about`"),
        (TEXT.replace('of = "probes"', 'off = "probes"'), r"\[two\]: a lane has `about`"),
        (TEXT.replace('of = "probes"', 'of = "some"'), r"\[two\]: `of` is one of"),
        (TEXT.replace('["tests/two.py"]', "[]"), r"\[two\]: a lane runs tests"),
        (TEXT.replace("*, *, *, *, *, *", "*, *"), "a pattern is op, reply, state, token, expiry, attempts"),
        (TEXT.replace("= 2", "= 0"), "a whole number of 1 or more, not 0"),
        (TEXT.replace("= 2", "= true"), "a whole number of 1 or more, not True"),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(file: Path, text: str, sentence: str) -> None:
    """A file that cannot be understood is an error that names the place, never an empty demand."""
    file.write_text(text)
    with pytest.raises(DeclarationError, match=sentence):
        declared(file)


def test_what_a_lane_runs_is_there() -> None:
    """The tests that the declarations name exist, so that no lane is green by running nothing."""
    for lane in declared():
        for test in lane.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), test
            assert name in (ROOT / path).read_text("utf-8") if name else True, test


# -- counting


def test_counts_are_kept_only_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable nobody counts; with it each block leaves a file, and the files of a lane add up."""
    monkeypatch.delenv(classes.FOLDER_VARIABLE, raising=False)
    with counted("one") as nobody:
        assert nobody is None
    monkeypatch.setenv(classes.FOLDER_VARIABLE, str(tmp_path))
    for _ in range(2):
        with counted("one") as found:
            assert found is not None
            take(found, Enqueue(NewJob(1, "a")), Lease("w"))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json", ".json"]
    assert load(tmp_path)["one"].counts == {
        TransitionClass("enqueue", "created", "absent", "-", "-", "-"): 2,
        TransitionClass("lease", "granted", "pending", "-", "at", "below max"): 2,
    }
    assert load(tmp_path)["one"].steps == 4


def take(found: Hits, *ops: Op) -> None:
    """Count some steps of the model."""
    config, queue = Config(), new_queue()
    for op in ops:
        reply, after = step(config, queue, op)
        found.take(config, queue, op, reply, after)
        queue = after


def test_a_block_that_raises_leaves_no_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lane hit before it failed proves nothing."""
    monkeypatch.setenv(classes.FOLDER_VARIABLE, str(tmp_path))

    def fail() -> None:
        with counted("one") as found:
            assert found is not None
            take(found, Advance(1))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert load(tmp_path) == {}


def test_a_queue_broken_on_purpose_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hits of a mutant are no hits of the queue's."""
    monkeypatch.setenv(classes.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(classes.MUTANT_VARIABLE, "{}")
    with counted("one") as found:
        assert found is None


def test_a_step_on_which_they_differ_does_not_count() -> None:
    """The lock-step counts what agreed: reply, rows and all."""
    found = Hits("one")
    lockstep = Lockstep(Config(), SUBJECTS["engine-tampered"], hits=found)
    lockstep.step(Advance(1))
    with pytest.raises(DisagreementError):
        lockstep.step(Enqueue(NewJob(1, "a")))
    lockstep.close()
    assert (found.steps, [one.op for one in found.counts]) == (1, ["advance"])


# -- the command


@pytest.fixture
def folder(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The command over two lanes and four classes; makes a folder with the hits of some lanes."""
    monkeypatch.setattr(command, "DECLARED", file)
    monkeypatch.setattr(command, "reachable", lambda **_: THERE)

    def kept(**lanes: Hits) -> Path:
        path = tmp_path / "hits"
        path.mkdir()
        for found in lanes.values():
            save(found, path)
        return path

    return kept


def test_the_command_is_green(folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; the matrix has each class once, the picture too, and the verdict is last."""
    page = tmp_path / "deep" / "page.html"
    assert command.main(["--from", str(folder(**GREEN)), "--html", str(page)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "coverage-classes: 4 classes are reachable, 2 lanes took 9 steps: every required class is hit"
    assert sum(" stale superseded " in line for line in told) == 1
    assert page.read_text("utf-8").count("<tr") == 1 + len(THERE)


def test_the_command_is_red(folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 when a lane's hits are dropped; what is missing is told, and red in the picture."""
    page = tmp_path / "page.html"
    assert command.main(["--from", str(folder(one=GREEN["one"])), "--html", str(page), "--brief"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert "EMPTY        two: ran nothing" in told
    assert told[-1].endswith("2 lanes took 8 steps: 1 finding (1 empty)")
    assert 'class="n missing"' in page.read_text("utf-8")


def test_an_empty_run_is_red(folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without counts is no success."""
    assert command.main(["--from", str(folder()), "--html", str(tmp_path / "page.html")]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("took 0 steps: 2 findings (2 empty)")


def test_the_command_speaks_json(folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object on stdout: lanes, classes with their hits, findings; the verdict on stderr too."""
    given = ["--from", str(folder(one=GREEN["one"])), "--html", str(tmp_path / "page.html"), "--json"]
    assert command.main(given) == 1
    told = capsys.readouterr()
    data = json.loads(told.out)
    assert [(one["lane"], one["kind"]) for one in data["findings"]] == [("two", EMPTY)]
    assert [one["hits"]["one"] for one in data["classes"]] == [2, 5, 1, 0]
    assert (data["ok"], data["lanes"]["one"]["steps"]) == (False, 8)
    assert told.err.startswith("coverage-classes: 4 classes are reachable")


def test_one_lane_alone_is_judged_alone(folder: Folder, tmp_path: Path) -> None:
    """`--lane` asks nothing of the others."""
    kept = str(folder(one=GREEN["one"]))
    assert command.main(["--from", kept, "--lane", "one", "--html", str(tmp_path / "page.html")]) == 0
    assert command.main(["--from", kept, "--lane", "two", "--html", str(tmp_path / "page.html")]) == 1


def test_lanes_whose_tests_fail_are_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The counts of other blocks do not hide a failed one."""
    output = tmp_path / "output"
    output.write_text("FAILED tests/one.py::test_it - it differs\n1 failed\n")
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], text=True)
    [found] = command.wait(command.Running(process, output), tmp_path)
    assert (found.kind, found.sentence) == ("failed", "FAILED tests/one.py::test_it - it differs")
    assert "1 failed" in capsys.readouterr().err


def test_usage(folder: Folder, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No such folder, and declarations that cannot be understood: exit code 2, and a sentence."""
    assert command.main(["--from", str(file)]) == 2
    assert "is no folder" in capsys.readouterr().err
    file.write_text("")
    assert command.main(["--from", str(file.parent)]) == 2
    assert "no lane is declared" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--lane", "nobody"], ["--what"]], ids=" ".join)
def test_usage_by_argparse(folder: Folder, given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2


def test_help_has_an_example(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows what to type, and what the exit codes mean."""
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    told = capsys.readouterr().out
    assert (caught.value.code, "scripts/coverage-classes --lane corpus" in told, "exit: 0" in told) == (0, True, True)
