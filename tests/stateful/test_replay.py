"""Traces of the lanes: written before the lane raises, minimised, red again on the broken queue, green on the real one.

A broken queue is a mutant of the catalogue (in a process of its own) or the tampered subject, the canary.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from jsonschema import Draft202012Validator

from scripts._lib import replay as command
from scripts._lib.replay_selftest import run as shortened
from telha_model import ops
from telha_model.alphabet import offers
from telha_model.ops import Op
from telha_model.step import step
from telha_model.trace import Agrees, Cut, Differs, Origin, Trace, TraceError, recorded
from telha_model.trace_data import from_data, to_data
from telha_model.trace_schema import schema
from telha_model.types import Config, NewJob
from tests.harness import replay
from tests.harness.lanes import machine_keeper, tour_keeper
from tests.harness.lockstep import DisagreementError, Lockstep
from tests.harness.machine import machine, settings_of
from tests.harness.mutants import mutant
from tests.harness.program import as_code
from tests.harness.replay import NotDeterministicError, play, shortest_trace
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import FOLDER_VARIABLE, ROOT, check, dump, load, parse, save
from tests.harness.walking import ci_graph, plan, walk_all
from tests.unit.model.test_trace import WRONG, broken

CORPUS = ROOT / "tests" / "corpus"
STALE = CORPUS / "stale-submit-under-a-higher-generation.json"
SEEDED = {
    "tours": ("tours --universe protocol", "complete is not fenced"),
    "hypothesis": ("hypothesis --seed 1", "progress is not written"),
    "contention": ("contention --jobs 200 --pollers 4 --seed 1", "the ring does not turn"),
}
"""A lane as the command takes it, and a bug that it must find."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's lanes keep what they find."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def replayed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`scripts/replay` in a process of its own."""
    line = [str(ROOT / "scripts" / "replay"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=dict(os.environ), cwd=ROOT)


def small(*run: Op | Cut) -> Trace:
    """A trace of a few operations that is to agree."""
    return recorded(Config(lease_ttl_ms=10), 1_000, run, title="small", origin=Origin("hand"), verdict=Agrees())


# -- what a lane finds


@pytest.mark.slow
@pytest.mark.parametrize("lane", SEEDED)
def test_a_lane_keeps_the_bug_it_finds(lane: str, folder: Path) -> None:
    """The lane is red and leaves one minimised trace, which is red on the broken queue and green on the real one."""
    words, bug = SEEDED[lane]
    found = replayed("--lane", *words.split(), "--mutant", bug)
    [path] = folder.glob("*.json")
    trace = load(path)
    assert (found.returncode, bug, True) == (1, trace.origin.mutant, len(trace.steps) <= 6), found.stdout + found.stderr
    assert f"scripts/replay {path}" in found.stdout + found.stderr
    again, real = replayed(str(path), "--mutant", bug), replayed(str(path))
    assert (again.returncode, real.returncode) == (1, 0), again.stdout + real.stdout
    assert f"DIFFERS: {_because(trace)}" in again.stdout


def _because(trace: Trace) -> str:
    assert isinstance(trace.verdict, Differs)
    return trace.verdict.because[0]


@pytest.mark.slow
def test_a_seed_gives_the_very_run(folder: Path) -> None:
    """The run that a seed names differs after the same number of steps each time, and ends in the same trace."""
    line = ("--lane", "hypothesis", "--seed", "1234", "--mutant", "dead one failure late", "--json")
    first, second = (json.loads(replayed(*line).stdout.splitlines()[-1]) for _ in range(2))
    assert (first["exit"], first["steps"] > 0) == (1, True)
    for named in ("config", "steps", "verdict"):
        assert first["trace"][named] == second["trace"][named]
    assert first["steps"] == second["steps"]


def test_the_tour_writes_before_it_raises(folder: Path) -> None:
    """When the difference reaches whoever runs the tour, the trace is there and the error says where."""
    graph, keep = ci_graph("keys"), tour_keeper("keys", "engine-tampered")
    with pytest.raises(DisagreementError) as caught:
        walk_all(graph, plan(graph), SUBJECTS["engine-tampered"], keep=keep)
    [path] = folder.glob("*.json")
    assert [f"trace: {path}"] == [note.splitlines()[0] for note in caught.value.__notes__]
    assert "scripts/replay --lane tours --universe keys --subject engine-tampered" in caught.value.__notes__[0]
    assert [isinstance(one.op, ops.Enqueue) for one in load(path).steps] == [True]


def test_the_machine_writes_before_it_raises(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first difference is minimised and written once, and the line that repeats the run names lane and seed."""
    keep = machine_keeper("engine-tampered", 77)
    block = machine(SUBJECTS["engine-tampered"], Counter(), seed=77, keep=keep)
    with pytest.raises(DisagreementError):
        run_state_machine_as_test(block, settings=settings(settings_of(block), print_blob=False))
    [path] = folder.glob("*.json")
    assert [len(load(path).steps), load(path).origin.seed] == [1, 77]
    told = capsys.readouterr().out
    assert f"scripts/replay {path} --subject engine-tampered" in told
    assert "scripts/replay --lane hypothesis --seed 77 --subject engine-tampered --profile gate" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the fence asks for a worker, not for the generation", "an expiry counts no attempt"])
def test_a_long_failing_run_becomes_a_short_one(name: str) -> None:
    """Two thousand steps that end in a mutant's difference come down to at most twelve, in twenty seconds."""
    found = shortened(mutant(name))
    assert found is not None
    assert (found.fits, found.steps > 1_500, found.program <= 12) == (True, True, True), found


# -- files


def test_every_step_of_a_universe_can_be_written() -> None:
    """Operations and replies of a whole universe come back from their data, and the schema allows them."""
    graph = ci_graph("bulk")
    offer, validator, seen = offers(graph.universe.alphabet), Draft202012Validator(schema()), set[str]()
    for queue in graph.states[::7]:
        for op in offer(queue):
            reply, _ = step(graph.universe.config, queue, op)
            key = f"{type(op).__name__} {type(reply).__name__} {as_code(reply)[:60]}"
            if key in seen:
                continue
            seen.add(key)
            one = small(ops.Enqueue(NewJob(1, "a")))
            trace = one._replace(steps=(one.steps[0]._replace(op=_plain(op), reply=reply),))
            data = json.loads(json.dumps(to_data(trace)))
            assert (trace, []) == (from_data(data), list(validator.iter_errors(data)))
    assert len(seen) > 30


def _plain(op: Op) -> Any:
    return ops.Reap() if isinstance(op, ops.Reopen) else op


def test_the_schema_is_the_one_in_the_documents() -> None:
    """The file that traces are checked against says what the model's types say, in valid JSON schema."""
    Draft202012Validator.check_schema(schema())
    assert schema() == json.loads((ROOT / "docs" / "traces.schema.json").read_text("utf-8"))


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG, ids=str)
def test_the_schema_refuses_what_the_reader_refuses(path: str, value: Any, sentence: str) -> None:
    """Whoever checks a trace with another tool finds the same faults."""
    with pytest.raises(TraceError):
        check(broken(path, value))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no JSON"),
        ("[]", "is no dict"),
        ('{"format": 1, "format": 1}', "'format' is there twice"),
        ('{"format": NaN}', "NaN is no whole number"),
    ],
)
def test_a_text_that_is_no_trace(text: str, sentence: str) -> None:
    """Broken JSON, another shape, a field twice and what JSON does not have are errors."""
    with pytest.raises(TraceError, match=sentence):
        parse(text)


def test_a_trace_comes_back_from_its_file(tmp_path: Path) -> None:
    """What is saved is loaded, and is one step a line."""
    trace = small(ops.Enqueue(NewJob(1, "a", idempotency_key="ключ")), ops.Lease("w"), Cut(1))
    save(trace, tmp_path / "deep" / "trace.json")
    assert trace == load(tmp_path / "deep" / "trace.json")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["trace.json"]
    assert len(dump(trace).splitlines()) == len(trace.steps) + 11


# -- replaying


def test_a_replay_stops_at_the_first_difference() -> None:
    """What a trace has recorded otherwise is told at its step, on the model, and nothing is played behind it."""
    trace = small(ops.Enqueue(NewJob(1, "a")), ops.Lease("w"), ops.Advance(1))
    forged = trace._replace(steps=(trace.steps[0], trace.steps[1]._replace(reply=trace.steps[0].reply), trace.steps[2]))
    played = play(forged, "model")
    assert (len(played.lines), played.agrees) == (2, False)
    assert played.differences[0].startswith("reply: the trace has Enqueued(")


def test_a_time_that_is_not_the_clocks_is_a_difference() -> None:
    """Times are explicit so that a reader need not add them up; they have to add up all the same."""
    trace = small(ops.Advance(5), ops.Reap())
    forged = trace._replace(steps=(trace.steps[0], trace.steps[1]._replace(at_ms=1_004)))
    assert play(forged, "model").differences == ("time: the trace has 1004, the model 1005",)


def test_a_cut_is_for_subjects_that_can_lose_commits() -> None:
    """The model follows a cut, the engine refuses the trace before it does anything."""
    trace = small(ops.Enqueue(NewJob(1, "a")), Cut(1))
    assert play(trace, "model").agrees
    with pytest.raises(TraceError, match="cannot lose commits"):
        play(trace, "engine")


def test_two_replays_that_differ_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay depends on nothing but trace and subject: one byte that differs is an error."""
    trace, real = small(ops.Advance(5)), replay._played
    turns = iter("ab")

    def odd(*arguments: Any) -> replay.Played:
        played = real(*arguments)
        return played._replace(lines=(played.lines[0]._replace(reply=next(turns)),))

    monkeypatch.setattr(replay, "_played", odd)
    with pytest.raises(NotDeterministicError):
        play(trace, "model", twice=True)


def test_some_replays_are_played_twice() -> None:
    """Of two hundred traces about one in twenty, by what is in them."""
    traces = [small(ops.Advance(ms)) for ms in range(200)]
    assert 3 <= sum(play(trace, "model").twice for trace in traces) <= 20


def test_a_difference_of_the_public_interface_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a replay everything is asked, also what single steps do not ask."""
    monkeypatch.setattr("tests.harness.subject.public_differences", lambda *_: ["get: tells something else"])
    assert play(small(ops.Advance(1), ops.Advance(1)), "engine").differences == ("get: tells something else",)


def test_minimising_an_agreeing_trace_is_an_error() -> None:
    """There is nothing to minimise in it."""
    with pytest.raises(ValueError, match="does not fail"):
        shortest_trace(small(ops.Advance(1)), "engine")


# -- the command


def test_the_command_names_the_guard(capsys: pytest.CaptureFixture[str]) -> None:
    """Operation, reply, the guard that refused, what changed; the last line is the verdict, the exit code 0."""
    assert command.main([str(STALE), "--subject", "all"]) == 0
    told = capsys.readouterr().out
    assert "guard: generation 1 ≠ 2" in told
    assert "job 1: state pending → leased; generation 1 → 2" in told
    assert told.splitlines()[-1] == "replay: 1 traces agree on model, engine, engine-narrow, grpc, 48 steps"


def test_the_command_minimises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace that differs ends with exit code 1 and leaves the shortest one beside it."""
    run = (ops.Advance(1), ops.Enqueue(NewJob(1, "a")), ops.Lease("w"))
    path = tmp_path / "trace.json"
    save(small(*run), path)
    assert command.main([str(path), "--subject", "engine-tampered", "--minimise"]) == 1
    shorter = load(tmp_path / "trace.min.json")
    assert [ops.Enqueue(NewJob(1, "a"))] == [one.op for one in shorter.steps]
    assert capsys.readouterr().out.splitlines()[-1].startswith("replay: 3 steps made 1 in ")


def test_the_command_records_drafts(tmp_path: Path) -> None:
    """A draft without times and replies becomes a trace that agrees."""
    trace = small(ops.Enqueue(NewJob(1, "a")), ops.Advance(4), ops.Lease("w"))
    data = to_data(trace._replace(verdict=Differs("engine", 1)))
    for one in data["steps"]:
        del one["reply"], one["at_ms"]
    path = tmp_path / "draft.json"
    path.write_text(json.dumps(data))
    assert command.main([str(path), "--record"]) == 0
    assert trace == load(path)


def test_the_command_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object on stdout with every line of the replay; the verdict on stderr too."""
    assert command.main([str(STALE), "--subject", "model", "--json"]) == 0
    told = capsys.readouterr()
    [result] = json.loads(told.out)["replays"]
    assert (result["subject"], result["agrees"], result["steps"], len(result["lines"])) == ("model", True, 12, 12)
    assert told.err.splitlines()[-1] == "replay: 1 traces agree on model, 12 steps"


def test_stepping_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step waits for Enter; q ends the replay, which then proves nothing."""
    answers = iter(["", "q"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert command.main([str(STALE), "--subject", "model", "--step"]) == 2
    told = capsys.readouterr().out
    assert ("    2  at" in told, "    3  at" in told) == (True, False)


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["x.json", "--lane", "tours"],
        ["--lane", "tours"],
        ["--lane", "hypothesis"],
        ["--lane", "tours", "--universe", "keys", "--subject", "model"],
        ["x.json", "--subject", "nobody"],
        ["x.json", "--mutant", "nobody"],
        ["--selftest", "--only", "nobody"],
    ],
    ids=" ".join,
)
def test_usage(given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2


def test_a_file_that_is_no_trace_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the last line says what is wrong with which file."""
    assert command.main([str(tmp_path / "none.json")]) == 2
    assert "none.json: cannot be read" in capsys.readouterr().out.splitlines()[-1]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows what to type, and what the exit codes mean."""
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    told = capsys.readouterr().out
    assert (caught.value.code, "scripts/replay --lane hypothesis --seed 1" in told, "exit: 0" in told) == (
        0,
        True,
        True,
    )


def test_lockstep_gives_what_it_finds_to_its_keeper() -> None:
    """Before the error is raised, and the very error."""
    kept: list[DisagreementError] = []
    lockstep = Lockstep(Config(), SUBJECTS["engine-tampered"], keep=kept.append)
    with pytest.raises(DisagreementError) as caught:
        lockstep.step(ops.Enqueue(NewJob(1, "a")))
    lockstep.close()
    assert kept == [caught.value]
