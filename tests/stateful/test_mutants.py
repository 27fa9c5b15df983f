"""Does the alarm ring? Every mutant of the catalogue dies in the lanes that it names, and the real queue in none."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness import mutation
from tests.harness.lanes import LANES, UNDER_FIRE, built
from tests.harness.longruns import BIG_BY_NATURE, has_runs
from tests.harness.mutants import MUTANTS, Mutant, mutant
from tests.harness.mutants_record import Recorded, recorded, unlike, written
from tests.harness.mutation import FOR_ALL, KILLED, PENDING, Verdict, places, run_mutant, tried
from tests.harness.promises import PROMISES
from tests.harness.traces import load

FAMILIES = {
    "no generation check in complete": ("complete is not fenced", "model: complete is not fenced"),
    "no generation check in fail": ("fail is not fenced",),
    "no generation check in extend": ("extend is not fenced",),
    "no generation check in release": ("release is not fenced",),
    "fence by worker name": ("the fence asks for a worker, not for the generation",),
    "generation reset on retry": ("retry resets the generation",),
    "generation reset on reap": ("the generation is reset by an expiry",),
    "generation reset on reopen": ("the generation ignores the incarnation", "an unclean end goes unnoticed"),
    "reaper early": ("the sweep is a millisecond early",),
    "reaper late": ("the sweep is a millisecond late",),
    "reaper skips the last": ("the sweep skips the last",),
    "reaper overwrites a completion": ("the sweep overwrites a completion",),
    "attempt not counted on reap": ("an expiry counts no attempt", "model: an expiry counts no attempt"),
    "dead off by one": ("dead one failure late", "model: the last expiry leaves the job in limbo"),
    "back-off ignores the cap": ("back-off ignores the cap",),
    "back-off ignores the per-kind base": ("back-off ignores the kind's base",),
    "heartbeat revives a reaped lease": ("a heartbeat revives a reaped lease",),
    "old row left behind": ("the old row is left behind",),
    "two batches instead of one": ("two batches instead of one", "a commit is two batches"),
    "sync left out": ("the sync is left out", "the log is written out, not synced"),
    "reply before sync": ("the reply leaves before its sync", "the reply is a commit ahead of the sync"),
    "write error swallowed": ("a write error is swallowed",),
    "recovery forgets leased rows": ("recovery forgets leased rows", "model: recovery forgets leased rows"),
    "clock step shortens a lease": ("a wall clock that is set moves the queue's time",),
    "key released early": ("a key is free once its job has ended", "model: a key is free once its job has ended"),
    "rotation stuck": ("the ring does not turn", "model: a served scope stays at the head"),
    "floor too high": ("the sweep's floor is too high", "the window's edge is too high"),
}
"""The families that a catalogue has to have, each with its mutants."""

IN_A_MINUTE = [one for one in MUTANTS if not set(one.lanes) & set(UNDER_FIRE)]
LONGER = [one for one in MUTANTS if set(one.lanes) & set(UNDER_FIRE)]


def assert_killed(one: Mutant, out: Path) -> None:
    """It is killed where it says, and the record says so too."""
    verdict = run_mutant(one, out=out)
    assert verdict.outcome in (KILLED, PENDING), verdict.report
    found = Recorded.of(one, verdict.killers, verdict.pending)
    assert unlike(one.name, found, recorded().get(one.name), one.lanes) == []
    if verdict.data is not None:
        assert verdict.trace is not None
        trace = load(Path(verdict.trace))
        assert (one.name, verdict.program) == (trace.origin.mutant, len(trace.steps))
    if one.of_model:
        assert any(line.startswith(f"{PROMISES[one.promise]}: ") for line in verdict.report.splitlines())


@pytest.mark.parametrize("one", IN_A_MINUTE, ids=lambda one: one.name)
def test_the_mutant_dies_in_its_lanes(one: Mutant, tmp_path: Path) -> None:
    """The change applies, the lanes named beforehand notice it, as recorded, and leave a trace that names it."""
    assert_killed(one, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("one", LONGER, ids=lambda one: one.name)
def test_the_mutant_dies_under_fire(one: Mutant, tmp_path: Path) -> None:
    """The same for those that take a kill, a cut or a full disk."""
    assert_killed(one, tmp_path)


def test_every_mutant_applies_in_one_place() -> None:
    """A mutant whose text was moved or doubled by a change of the sources is found without running it."""
    assert [one.name for one in MUTANTS if places(one) != 1] == []
    assert len(MUTANTS) == len({one.name for one in MUTANTS})


def test_every_promise_is_broken_by_some_mutant() -> None:
    """Each mutant breaks a promise of the model, and each promise is broken by some mutant of the queue."""
    assert {one.promise for one in MUTANTS} == set(PROMISES)
    assert {one.promise for one in MUTANTS if not one.of_model} == set(PROMISES)


def test_the_promises_alone_catch_broken_models() -> None:
    """At least five mutants are of the model, and all promises about what happens are broken by some."""
    of_model = [one for one in MUTANTS if one.of_model]
    assert len(of_model) >= 5
    assert {one.promise for one in of_model} == set(PROMISES) - {"progress"}
    assert {lane.partition(":")[0] for one in of_model for lane in one.lanes} == {"explore"}


def test_every_family_has_its_mutants() -> None:
    """What a catalogue has to have is in it."""
    names = {one.name for one in MUTANTS}
    assert {name for family in FAMILIES.values() for name in family} - names == set()


def test_every_lane_is_known_or_pending() -> None:
    """A lane that no mutant can reach by a misspelt name is none; the recorded ones are those of the catalogue."""
    lanes = {lane for one in MUTANTS for lane in one.lanes}
    assert {lane for lane in lanes if lane.partition(":")[0] not in LANES} == set()
    assert {name: (entry.promise, entry.predicted) for name, entry in recorded().items()} == {
        one.name: (one.promise, one.lanes) for one in MUTANTS
    }
    for one in MUTANTS:
        assert set(recorded()[one.name].pending) == {lane for lane in one.lanes if not built(lane)}


def test_every_mutant_has_long_runs_or_needs_more_than_operations() -> None:
    """The minimiser is tried on all but those that no run of operations shows: their lanes lose power, or wait."""
    excepted = {lane.partition(":")[0] for one in MUTANTS if not has_runs(one) for lane in one.lanes}
    assert excepted <= {"pytest", "grpc", *UNDER_FIRE}
    assert set(BIG_BY_NATURE) <= {one.name for one in MUTANTS if has_runs(one)}


@pytest.mark.parametrize("lane", ["tours:keys", "narrow:keys"])
def test_a_harmless_change_survives(lane: str, tmp_path: Path) -> None:
    """A canary: a lane that kills whatever it is given would say so of a queue that was only told differently."""
    harmless = Mutant(
        "harmless", "none", lane, "telha_jobs.core.backoff", "delay >= backoff.cap_ms", "backoff.cap_ms <= delay"
    )
    verdict = run_mutant(harmless, out=tmp_path)
    assert (verdict.outcome, verdict.steps > 1_000) == ("SURVIVED", True), verdict.report


def test_a_kill_by_another_lane_alone_is_not_enough(tmp_path: Path) -> None:
    """The lane named beforehand has to notice."""
    elsewhere = mutant("complete is not fenced")._replace(lane="pytest:tests/unit/engine/test_job_ids.py")
    verdict = run_mutant(elsewhere, out=tmp_path, wide=True)
    assert (verdict.outcome, verdict.killers, verdict.good) == ("KILLED ELSEWHERE", FOR_ALL, False), verdict.report


def test_a_lane_that_is_not_built_is_pending(tmp_path: Path) -> None:
    """Its mutants are neither killed nor survivors."""
    verdict = run_mutant(MUTANTS[0]._replace(lane="tomorrow"), out=tmp_path)
    assert (verdict.outcome, verdict.pending) == ("pending", ("tomorrow",))


def test_a_mutant_that_does_not_apply_is_no_kill(tmp_path: Path) -> None:
    """A text that stands nowhere is reported as that, and in a child it ends the process with a code of its own."""
    gone = MUTANTS[0]._replace(old="this text stands nowhere")
    assert run_mutant(gone, out=tmp_path).outcome == "DOES NOT APPLY"
    assert tried(gone, "tours:keys", traces=tmp_path).returncode == 3


# -- the record and the command


def told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *given: str,
    killers: Sequence[str] = ("tours:protocol", "corpus"),
) -> tuple[int, list[str]]:
    """The command on one mutant whose verdict is given, with a record of its own; exit code and lines."""
    one = mutant("complete is not fenced")
    verdict = Verdict(one, KILLED if "tours:protocol" in killers else "SURVIVED", tuple(killers), steps=42, data={})
    monkeypatch.setattr(mutation, "MUTANTS", (one,))
    monkeypatch.setattr(mutation, "run_mutants", lambda *_args, **_named: iter([verdict]))
    monkeypatch.setattr(mutation, "recorded", lambda: recorded(tmp_path / "record.json"))
    monkeypatch.setattr(mutation, "written", lambda found: written(found, tmp_path / "record.json"))
    code = mutation.main(given)
    return code, capsys.readouterr().out.splitlines()


def test_a_run_is_held_against_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not recorded: 1. Recorded: 0. A lane that notices no longer, or newly: 1, until it is recorded again."""
    (tmp_path / "record.json").write_text("{}")
    code, lines = told(monkeypatch, tmp_path, capsys)
    assert (code, lines[-1].endswith("1 PROBLEMS")) == (1, True)
    assert told(monkeypatch, tmp_path, capsys, "--record")[0] == 0
    code, lines = told(monkeypatch, tmp_path, capsys)
    assert (code, lines[-1].endswith("as recorded")) == (0, True)
    code, lines = told(monkeypatch, tmp_path, capsys, killers=("tours:protocol",))
    assert code == 1
    assert lines[-2] == "complete is not fenced: killed_by tours:protocol, recorded corpus, tours:protocol"
    assert told(monkeypatch, tmp_path, capsys, "--predicted", killers=("tours:protocol",))[0] == 0


def test_a_survivor_fails_although_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recording does not make it good."""
    (tmp_path / "record.json").write_text("{}")
    code, lines = told(monkeypatch, tmp_path, capsys, "--record", killers=())
    assert (code, "complete is not fenced: SURVIVED" in lines) == (1, True)


def test_a_recorded_mutant_that_is_no_more_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry left behind in the record fails the run."""
    (tmp_path / "record.json").write_text("{}")
    told(monkeypatch, tmp_path, capsys, "--record")
    data = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(data | {"old": data["complete is not fenced"]}))
    code, lines = told(monkeypatch, tmp_path, capsys)
    assert (code, "old: recorded, but there is no such mutant" in lines) == (1, True)


def test_json_is_an_object_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every column of the table, and the trace as data."""
    (tmp_path / "record.json").write_text("{}")
    _, [line] = told(monkeypatch, tmp_path, capsys, "--json")
    row = json.loads(line)
    assert {"mutant", "promise", "predicted", "killers", "steps", "seconds", "outcome", "run"} <= set(row)
    assert (row["outcome"], row["steps"]) == ("killed", 42)


@pytest.mark.parametrize("given", [["--only", "nobody"], ["--jobs", "0"], ["--record", "--predicted"]], ids=" ".join)
def test_usage(given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        mutation.main(given)
    assert caught.value.code == 2
