"""Machine-made changes: what is made of a source, what is held against the list, and that the lane kills and lets live.

Needs the extra [soak]; `scripts/mutate` installs it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cosmic_ray", reason="the extra [soak] is not installed", exc_type=ImportError)

from tests.harness.mutate import __main__ as command
from tests.harness.mutate.changes import Change, made, modules, source_of
from tests.harness.mutate.forge import ROOT, Tried
from tests.harness.mutate.verdicts import judged, listed, shares

SOURCE = '''"""Doc."""


class A:
    def f(self, a: int | None, b: int = 3) -> bool | None:
        if a is None:
            return not b < 2
        return a > 1 and b > 1
'''


def test_changes_of_a_source() -> None:
    """Comparisons, numbers, `and`, `not` and conditions are changed, each way once; annotations are not."""
    found = made("m", SOURCE)
    assert {change.after for change in found} >= {
        "if a is not None:",
        "return not b >= 2",
        "return a > 1 or b > 1",
        "return a >= 1 and b > 1",
        "def f(self, a: int | None, b: int = 4) -> bool | None:",
    }
    assert {change.function for change in found} == {"A.f"}
    assert [change for change in found if "&" in change.after] == []
    assert len(found) == len({change.key for change in found}) == len({change.source for change in found})


def test_what_means_the_same_is_made_once() -> None:
    """`not a is None` and `a is not None` are one change."""
    assert [change.line for change in made("m", SOURCE)].count(6) == 1


def test_core_engine_and_agenda_are_changed() -> None:
    """Every module of the three, found without importing the queue."""
    assert {"telha_jobs.agenda", "telha_jobs.core.decide", "telha_jobs.engine.sweep"} <= set(modules())
    assert all(source_of(module) for module in modules())


def tried(*keys: str, survived: str = "") -> list[Tried]:
    """Results, all killed but one."""
    return [Tried(key, "" if key == survived else "run", "", 1.0) for key in keys]


@pytest.mark.parametrize(
    ("survived", "known", "problem"),
    [
        ("", {}, None),
        ("m.a", {"m.a": "says the same"}, None),
        ("m.a", {}, "survived, and is not listed: m.a"),
        ("m.a", {"m.a": " "}, "listed without a reason: m.a"),
        ("", {"m.a": "says the same"}, "listed as a survivor, but killed by run: m.a"),
        ("", {"m.z": "says the same"}, "listed as a survivor, but no such change can be made: m.z"),
    ],
)
def test_survivors_are_listed(survived: str, known: dict[str, str], problem: str | None) -> None:
    """Each with a reason, and none that is not one any more."""
    verdict = judged(tried(*[f"m.{letter}" for letter in "abcdefghijk"], survived=survived), known, ["m"])
    assert ([] if problem is None else [problem]) == verdict.problems
    assert verdict.good is (problem is None)


def test_nine_in_ten_have_to_be_killed() -> None:
    """Listing more does not make up for it, and nothing tried is nothing proved."""
    few = judged(tried("m.a", "m.b", survived="m.a"), {"m.a": "says the same"}, [])
    assert (few.good, few.problems) == (False, [])
    assert not judged([], {}, []).good


@pytest.mark.parametrize(("every", "good"), [(20, True), (19, False)])
def test_a_sample_is_held_to_the_list(every: int, good: bool) -> None:
    """Half of it may survive by chance; but two in ten of all changes must not be on the list."""
    known = {"m.a": "says the same", "m.c": "this one too"}
    verdict = judged(tried("m.a", "m.b", survived="m.a"), known, [], least=0.0, every=every)
    assert verdict.good is good


def test_the_share_is_told_by_module() -> None:
    """Of those of which anything was tried."""
    verdict = judged(tried("m.a", "m.b", "n.a", survived="m.b"), {}, [])
    assert shares(verdict, ["l", "m", "n"]) == [("m", 2, 1), ("n", 1, 1)]


def test_what_was_tried_is_told_without_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of the same source are taken from the file, those of another one passed over."""
    module = "telha_jobs.core.backoff"
    first, second, *_ = made(module, source_of(module))
    rows = [
        {**Tried(change.key, "run", "", 1.0)._asdict(), "module": module, "digest": digest}
        for change, digest in ((first, command.digest(module)), (second, "of another source"))
    ]
    results = tmp_path / "results"
    results.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    monkeypatch.setattr(command, "RESULTS", results)
    assert command.main(["--tried", "--module", "core.backoff"]) == 0
    assert "1 of 1 changes killed" in capsys.readouterr().out


@pytest.mark.parametrize("broken_from", [0, 3], ids=["from the start", "meanwhile"])
def test_what_a_broken_machine_kills_is_not_kept(
    broken_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When all is red without any change, before or after, nothing was found out; earlier results stay."""
    calls: list[bool] = []

    class Breaking:
        """Kills every change, and nothing else for so many calls."""

        def try_all(self, chosen: Sequence[Change | None], *, jobs: int = 1, tests: bool = False) -> Any:
            del jobs
            calls.append(tests)
            for change in chosen:
                killed = change is not None or len(calls) > broken_from
                yield change, Tried("" if change is None else change.key, "run" if killed else "", "it broke", 0.0)

    results = tmp_path / "results"
    results.write_text("earlier\n", "utf-8")
    monkeypatch.setattr(command, "RESULTS", results)
    monkeypatch.setattr(command, "Forge", Breaking)
    assert command.main(["--module", "core.backoff"]) == 2
    assert (results.read_text("utf-8"), len(calls)) == ("earlier\n", broken_from + 2 if broken_from else 1)
    assert "red without any change: run: it broke" in capsys.readouterr().err


def test_every_listed_survivor_has_a_reason() -> None:
    """The list is of changes of modules that are there."""
    assert [key for key, reason in listed().items() if not reason.strip()] == []
    assert [key for key in listed() if not key.startswith(tuple(f"{module}." for module in modules()))] == []


IN_A_PROCESS_OF_ITS_OWN = """
import json
from tests.harness.mutate import forge
from tests.harness.mutate.changes import Change, source_of

module, end = "telha_jobs.core.backoff", "return min(backoff.cap_ms, delay)"
source = source_of(module)

def change(name, old, new):
    assert source.count(old) == 1
    return Change(module, name, 1, "by hand", old, new, 1, source.replace(old, new))

forge.STAGE_WALL_S = 60.0
chosen = [
    change("harmless", "delay >= backoff.cap_ms", "backoff.cap_ms <= delay"),
    change("harmful", end, "return delay"),
    change("hangs", end, "while True: delay += 0"),
    change("cannot be imported", end, end + "\\n\\n1 / 0"),
]
found = forge.Forge().try_all([None, *chosen], jobs=2)
told = {one.function if one else "none": [tried.stage.partition(":")[0], tried.how] for one, tried in found}
print(json.dumps(told))
"""


@pytest.mark.slow
def test_the_lane_kills_and_lets_live() -> None:
    """No change and a harmless one pass; a harmful one, one that hangs and one that cannot be imported are killed."""
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: stage for name, (stage, _) in found.items()} == {
        "none": "",
        "harmless": "",
        "harmful": "run",
        "hangs": "run",
        "cannot be imported": "import",
    }
    assert "computes for more than" in found["hangs"][1]


@pytest.mark.parametrize("given", [["--module", "nobody"], ["--sample", "0"], ["--jobs", "0"]], ids=" ".join)
def test_usage(given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2
