"""The client of a server in lock-step with the model: tours, random runs, and proof that a broken server is noticed."""

from collections import Counter

import pytest
from hypothesis import Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from scripts._lib import replay as command
from telha_model import ops
from telha_model.types import Config, NewJob
from tests.harness.classes import counted
from tests.harness.lanes import Death, OnSteps, machine_keeper, tour_keeper
from tests.harness.lockstep import DisagreementError, Lockstep
from tests.harness.machine import machine, settings_of
from tests.harness.served import ServedSubject, seen_at
from tests.harness.subject import SubjectError
from tests.harness.subjects import SUBJECTS, subjects
from tests.harness.traces import ROOT
from tests.harness.walking import SHARDS, ci_graph, slice_of, walk_all

LATE_RELEASE = ROOT / "tests" / "corpus" / "late-release.json"
SEED = 5
RUNS = 8
STEPS_MIN = 200


@pytest.mark.parametrize("universe", SHARDS)
def test_the_client_follows_the_model(universe: str) -> None:
    """Along a part of each tour the client is answered as the model says, and the database is the model's."""
    walks = slice_of(universe)
    keep = tour_keeper(universe, "grpc-renewed")
    with counted("grpc") as hits:
        walked = walk_all(ci_graph(universe), walks, SUBJECTS["grpc-renewed"], keep=keep, hits=hits)
    assert sum(len(walk.steps) for walk in walks) == walked.steps


@pytest.mark.slow
def test_random_runs_agree_over_the_wire() -> None:
    """The machine's runs, with servers that are ended and killed, find no difference either."""
    seen: Counter[str] = Counter()
    with counted("grpc") as hits:
        block = machine(SUBJECTS["grpc"], seen, seed=SEED, keep=machine_keeper("grpc", SEED), hits=hits)
        run_state_machine_as_test(block, settings=settings(settings_of(block), max_examples=RUNS))
    assert seen["runs"] >= RUNS
    assert seen["steps"] >= STEPS_MIN


def test_the_tour_rings_over_a_lenient_server() -> None:
    """A canary: a server that answers a stale submit or release OK ends the tour at the first one."""
    with pytest.raises(DisagreementError, match=r"reply: model StaleLease\(") as found:
        walk_all(ci_graph("protocol"), slice_of("protocol"), SUBJECTS["grpc-lenient"])
    assert isinstance(found.value.ops[-1], ops.Complete | ops.Fail | ops.Release)


def test_the_machine_rings_over_a_lenient_server() -> None:
    """A canary: random runs meet a stale submit, too."""
    block = machine(SUBJECTS["grpc-lenient"], Counter(), seed=SEED)
    quick = settings(settings_of(block), verbosity=Verbosity.quiet)
    with pytest.raises(DisagreementError, match=r"reply: model .*Stale"):
        run_state_machine_as_test(block, settings=quick)


def test_every_call_goes_over_the_wire() -> None:
    """What is asked is a client, before and after a reopening, and another one each time."""
    subject = ServedSubject(Config(), 1_000)
    try:
        before = subject.asked
        subject.apply(ops.Reopen(clean=False))
        assert [type(one).__name__ for one in (before, subject.asked)] == ["Client", "Client"]
        assert before is not subject.asked
    finally:
        subject.close()


def test_an_address_that_is_taken_is_told() -> None:
    """A server that runs is not replayed on: its jobs are its own, and its clock cannot be set."""
    first = ServedSubject(Config(), 1_000)
    try:
        address = first.address
        with pytest.raises(SubjectError, match=f"{address} cannot be listened on"):
            subjects(f"grpc://{address}")(Config(), 1_000)
    finally:
        first.close()


@pytest.mark.parametrize(
    ("subject", "code", "last"),
    [
        ("grpc", 0, "replay: 1 traces agree on grpc, 15 steps"),
        ("grpc://127.0.0.1:0", 0, "replay: 1 traces agree on grpc://127.0.0.1:0, 15 steps"),
        ("grpc-lenient", 1, "replay: grpc-lenient differs at step 8 of 15: tests/corpus/late-release.json"),
    ],
)
def test_replay_over_the_wire(subject: str, code: int, last: str, capsys: pytest.CaptureFixture[str]) -> None:
    """scripts/replay starts the server that a trace is played on; a broken one is told as any difference is."""
    assert command.main([str(LATE_RELEASE), "--subject", subject]) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_replay_takes_no_server_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and why: it has jobs, settings and a clock of its own."""
    running = ServedSubject(Config(), 1_000)
    try:
        assert command.main([str(LATE_RELEASE), "--subject", f"grpc://{running.address}"]) == 2
    finally:
        running.close()
    assert "a server that runs has neither" in capsys.readouterr().out.splitlines()[-1]
    assert command.main([str(LATE_RELEASE), "--subject", "grpc://nowhere"]) == 2


def test_all_tours_are_every_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--universe all` walks one universe after another, counts on, and stops at the first difference."""
    told: list[int] = []

    def toured(universe: str, subject: str, *, on_steps: OnSteps) -> Death:
        on_steps(1)
        return Death(killed=universe == "order", steps=2, program=0, report=f"{universe} on {subject}")

    monkeypatch.setattr(command, "toured", toured)
    death = command.tour("all", "grpc", on_steps=told.append)
    names = sorted(SHARDS)
    assert death == Death(True, 2 * (names.index("order") + 1), 0, "order on grpc")
    assert told == [1 + 2 * number for number in range(names.index("order") + 1)]


def test_the_server_can_be_looked_at_while_a_trace_is_replayed() -> None:
    """`grpc://HOST:PORT` listens where it was told."""
    probe = ServedSubject(Config(), 1_000)
    address = probe.address
    probe.close()
    lockstep = Lockstep(Config(), subjects(f"grpc://{address}"))
    try:
        lockstep.step(ops.Enqueue(NewJob(1, "a")))
        assert seen_at(address) == 1
    finally:
        lockstep.close()
