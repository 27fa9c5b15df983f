"""Spec diff: it shows what changed between versions of the specification, on the seed's own history and on edits that
look innocent; the declared changes are the found ones; rows of another engine go on.
"""

import gc
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telha_model.diff import Pair, additive, compared, declared, distinct, undeclared
from telha_model.universes import universes
from tests.harness import spec_diff
from tests.harness.spec_corpus import played
from tests.harness.spec_edits import INNOCENT, V0_1, Edit, variant
from tests.harness.spec_versions import CHANGES, RELEASED, ROOT, loaded, located, snapshot
from tests.harness.upgrade import continued, golden_problems, upgraded, written

DECLARED_0_2 = CHANGES / "0.2" / "0001-per-job-attempts-and-kind-bases.json"
SMALL = ("protocol", "death", "keys")
TRACE_OPS_MAX = 6


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """States are tuples without cycles: the collector would walk them all and never find anything."""
    gc.disable()
    yield
    gc.enable()


def pair_with(base: Path, tmp_path: Path) -> Pair:
    """The working tree against a version in a folder."""
    return Pair(loaded(located(str(ROOT), tmp_path), newer=True), loaded(located(str(base), tmp_path), newer=False))


def runs_of(pair: Pair, *names: str) -> list[Any]:
    """The comparison over some universes; without names over all."""
    every = pair.head.modules["universes"].universes("ci")
    return compared(pair.head, pair.base, [every[name] for name in names or every], lambda _: None)


def test_the_released_specification_is_kept_but_for_what_is_declared(capsys: pytest.CaptureFixture[str]) -> None:
    """What CI insists on: a change of meaning ships with its declaration in model/changes."""
    assert spec_diff.main(["--declared"]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_version_0_2_is_additive(tmp_path: Path) -> None:
    """Equal to 0.1 wherever neither a job's own attempts nor a kind's own base is used, and different as declared."""
    pair = pair_with(variant(tmp_path / "0.1", V0_1), tmp_path)
    runs = runs_of(pair)
    assert pair.base.name.endswith("specification 0.1")
    assert additive(runs)
    assert {(run.universe, *sorted(run.news)) for run in runs if run.news} == {
        ("death", "KindPolicy.backoff_base_ms", "NewJob.max_attempts"),
        ("keys", "NewJob.max_attempts"),
    }
    plain = {run.universe: run for run in runs if run.plain}
    assert set(plain) == set(pair.head.modules["universes"].universes("ci"))
    assert min(run.states for run in plain.values()) > 300
    declaration = declared(DECLARED_0_2.name, json.loads(DECLARED_0_2.read_text("utf-8")))
    found = {divergence.signature for divergence in distinct(runs)}
    found |= {difference.signature for difference in played(pair).differences}
    assert undeclared(found, [declaration]) == ([], [])


@pytest.mark.parametrize(
    ("name", "op", "head", "base"),
    [
        ("boundary", "Reap", "Reaped(requeued)", "Reaped"),
        ("generation", "Retry", "Retried", "Retried"),
        ("uncounted", "Reap", "Reaped(died)", "Reaped(requeued)"),
    ],
)
def test_an_innocent_edit_is_caught_by_a_short_way(name: str, op: str, head: str, base: str, tmp_path: Path) -> None:
    """At most six operations show what it changed; and nobody can call it additive."""
    pair = pair_with(variant(tmp_path / name, INNOCENT[name]), tmp_path)
    runs = runs_of(pair, *SMALL)
    found = distinct(runs)
    shortest = {(one.signature.op, one.signature.head, one.signature.base): len(one.trace) for one in reversed(found)}
    assert shortest[op, head, base] <= TRACE_OPS_MAX
    assert len(found[0].trace) <= TRACE_OPS_MAX
    assert not additive(runs)


def test_the_ways_are_shortest_and_differ_at_their_last_step_only(tmp_path: Path) -> None:
    """Every way, replayed on both versions, agrees until its last operation, and differs there."""
    pair = pair_with(variant(tmp_path / "v", INNOCENT["uncounted"]), tmp_path)
    for one in distinct(runs_of(pair, "protocol")):
        ours = pair.head.modules["state"].new_queue(one.start_ms)
        theirs = pair.base.modules["state"].new_queue(one.start_ms)
        config = pair.to_base.said(one.config)[0]
        agreed = []
        for op in one.trace:
            reply, ours = pair.step_head(one.config, ours, op)
            answer, theirs = pair.answered(config, theirs, pair.to_base.said(op)[0])
            agreed.append(pair.agree(reply, answer) and pair.agree(ours, theirs))
        assert agreed == [*[True] * (len(one.trace) - 1), False]


def test_a_version_that_raises_is_a_divergence(tmp_path: Path) -> None:
    """What the older version raises is its answer."""
    broken = Edit("transitions/operator.py", "    return Discarded(), without_job(queue, job)", "    return None")
    pair = pair_with(variant(tmp_path / "v", (broken,)), tmp_path)
    assert {one.signature.base for one in distinct(runs_of(pair, "keys"))} == {"raises TypeError"}


def test_an_operation_that_base_does_not_know_is_not_offered(tmp_path: Path) -> None:
    """It is named, and everything else is compared."""
    edit = Edit("ops.py", "class Cancel(NamedTuple):", "class Revoke(NamedTuple):")
    also = Edit("ops.py", "    | Cancel\n", "    | Revoke\n")
    last = Edit("ops.py", "\n\nOp = (", '\n\nCancel = type("Cancelling", (tuple,), {})\n\nOp = (')
    pair = pair_with(variant(tmp_path / "v", (edit, also, last)), tmp_path)
    [run] = runs_of(pair, "keys")
    assert (run.unspoken, run.divergences) == (frozenset({"Cancel"}), ())


def test_loading_leaves_this_process_its_own_model(tmp_path: Path) -> None:
    """Two versions share no type with each other or with what is imported here."""
    before = sys.modules["telha_model.types"]
    pair = pair_with(ROOT, tmp_path)
    assert sys.modules["telha_model.types"] is before
    assert len({id(module.Config) for module in (before, pair.head.modules["types"], pair.base.modules["types"])}) == 3


# -- where versions come from


def test_a_snapshot_is_the_same_bytes_and_answers_the_same(tmp_path: Path) -> None:
    """The zip depends on the sources alone, is found as a wheel would be, and can be explored against its source."""
    for name in ("one.zip", "two.zip"):
        snapshot(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    [run] = runs_of(pair_with(tmp_path / "one.zip", tmp_path), "protocol")
    assert (run.states > 300, run.divergences) == (True, ())


def test_a_revision_is_unpacked(tmp_path: Path) -> None:
    """HEAD of this repository, with its engine, where there is a repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked archive has no revisions")
    place = located("HEAD", tmp_path)
    assert place.engine is not None
    assert (tmp_path in place.model.parents, tmp_path in place.engine.parents) == (True, True)


def test_the_installed_version_is_found(tmp_path: Path) -> None:
    """What `import telha_model` gives."""
    assert (located("installed", tmp_path).model / "telha_model" / "step.py").is_file()


def test_what_is_no_version_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A word, an empty folder, a file, a model that cannot be imported, a universe: exit code 2 and one line."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    broken = variant(tmp_path / "broken", (Edit("step.py", "from typing import", "from typin import"),))
    for asked in (
        ["no-such"],
        [str(tmp_path / "empty")],
        [str(tmp_path / "file")],
        [str(broken)],
        [".", "--universe", "x"],
    ):
        assert spec_diff.main(asked) == 2
        assert capsys.readouterr().err.startswith("spec-diff: ")
    for asked in ([], [".", ".", "--size", "huge"], [".", str(tmp_path), "--upgrade"]):
        with pytest.raises(SystemExit) as caught:
            spec_diff.main(asked)
        assert caught.value.code == 2
    assert RELEASED.is_file()


# -- declarations


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of changes of its own, whose released version has the boundary elsewhere."""
    folder = tmp_path / "changes"
    folder.mkdir()
    old = variant(tmp_path / "old", INNOCENT["generation"])
    monkeypatch.setattr(spec_diff, "CHANGES", folder)
    monkeypatch.setattr(spec_diff, "ROOT", tmp_path)
    monkeypatch.setattr(
        spec_diff, "located", lambda text, scratch: located(str(old if text == "released" else ROOT), scratch)
    )
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the last line."""
    code = spec_diff.main([*arguments, "--universe", "protocol"])
    return code, capsys.readouterr().out.splitlines()[-1]


def test_a_change_is_declared_and_then_expected(changes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Undeclared: 1. Declared without a reason: 2. Declared: 0. Declared and no longer so: 1."""
    code, verdict = run(capsys, "--declared")
    assert (code, "1 not declared" in verdict) == (1, True)
    assert run(capsys, "--declare", "retry")[0] == 0
    path = changes / "0001-retry.json"
    data = json.loads(path.read_text())
    assert spec_diff.main(["--declared", "--universe", "protocol"]) == 2
    assert "says why" in capsys.readouterr().err
    path.write_text(json.dumps({**data, "why": "a test"}))
    assert run(capsys, "--declared")[0] == 0
    shutil.copy(path, changes / "0002-more.json")
    data["expected"][0]["op"] = "Cancel"
    (changes / "0002-more.json").write_text(json.dumps({**data, "why": "a test"}))
    code, verdict = run(capsys, "--declared")
    assert (code, "1 declared and not found" in verdict) == (1, True)


@pytest.mark.parametrize(
    "data", [[], {}, {"why": "x"}, {"why": "x", "expected": [{}]}, {"why": " ", "expected": []}], ids=str
)
def test_a_malformed_declaration_is_refused(data: Any) -> None:
    """It says which fields it must have."""
    with pytest.raises(ValueError, match=r"a (declaration|signature)"):
        declared("0001-x.json", data)


def test_json_has_everything(changes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object: universes, divergences with their ways, corpus, verdict."""
    assert spec_diff.main(["released", "--json", "--universe", "protocol"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["additive"], len(told["divergences"])) == (False, False, 1)
    [divergence] = told["divergences"]
    assert divergence["values"] == ["jobs[].generation: head 1, base 0"]
    assert len(divergence["trace"]) == 4 + 2
    assert told["corpus"]["traces"] > 0


# -- rows of another engine


@pytest.mark.slow
def test_rows_of_this_engine_go_on(tmp_path: Path) -> None:
    """The run's machinery on the engine itself: clean and unclean ends, and the golden rows."""
    assert written(located(str(ROOT), tmp_path), tmp_path / "states", states=25) == []
    found = continued(tmp_path / "states", states=25)
    assert (found.problems, found.states > 20, found.steps > found.states * 8) == ((), True, True)
    assert golden_problems(tmp_path) == []


@pytest.mark.slow
def test_rows_of_every_universe_go_on(tmp_path: Path) -> None:
    """A few states of each: keys, rings, sweeps, crashes and follow-ups are in the rows, not only leases."""
    place, names = located(str(ROOT), tmp_path), tuple(universes())
    found = upgraded(place, tmp_path, names, states=4, on_state=lambda _: lambda _done, _of: None)
    assert found.problems == ()
    assert [name for name, _, _ in found.universes] == list(names)
    assert {chosen for _, chosen, _ in found.universes} <= {3, 4}


@pytest.mark.slow
def test_rows_that_mean_something_else_are_found(tmp_path: Path) -> None:
    """An older engine that computed the digests of submits otherwise: it agrees with itself, and not with this one."""
    other = Edit(
        "codec.py",
        "hashlib.blake2b(canonical(parts), digest_size=16)",
        "hashlib.blake2b(canonical(parts[::-1]), digest_size=16)",
    )
    old = variant(tmp_path / "old", (other,), source=ROOT / "impl", package="telha_jobs")
    place = located(str(ROOT), tmp_path)._replace(name="old", engine=old)
    assert written(place, tmp_path / "states", states=50) == []
    found = continued(tmp_path / "states", states=50)
    assert any("StaleLease" in problem and "Completed" in problem for problem in found.problems)


def test_an_engine_that_cannot_be_driven_says_so(tmp_path: Path) -> None:
    """It is a problem, never a silent pass."""
    broken = variant(
        tmp_path / "old",
        (Edit("queue.py", "class JobQueue:", "class Queue:"),),
        source=ROOT / "impl",
        package="telha_jobs",
    )
    [problem] = written(located(str(ROOT), tmp_path)._replace(name="old", engine=broken), tmp_path / "states")
    assert problem.startswith("the engine of old cannot be driven from here: ")
