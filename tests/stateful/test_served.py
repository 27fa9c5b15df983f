"""The client of a server in lock-step with the model: tours, random runs, and proof that a broken server is noticed."""

from collections import Counter

import pytest
from hypothesis import Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from telha_jobs.client import Client, connect
from telha_model import ops
from telha_model.types import Config, NewJob
from tests.harness.classes import counted
from tests.harness.lanes import machine_keeper, tour_keeper
from tests.harness.lockstep import DisagreementError, Lockstep
from tests.harness.machine import machine, settings_of
from tests.harness.served import ServedSubject
from tests.harness.subject import SubjectError
from tests.harness.subjects import SUBJECTS, subjects
from tests.harness.walking import SHARDS, ci_graph, slice_of, walk_all

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
        assert [isinstance(one, Client) for one in (before, subject.asked)] == [True, True]
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


def test_the_server_can_be_looked_at_while_a_trace_is_replayed() -> None:
    """`grpc://HOST:PORT` listens where it was told."""
    probe = ServedSubject(Config(), 1_000)
    address = probe.address
    probe.close()
    lockstep = Lockstep(Config(), subjects(f"grpc://{address}"))
    try:
        lockstep.step(ops.Enqueue(NewJob(1, "a")))
        with connect(address) as other:
            assert len(other.list_jobs().jobs) == 1
    finally:
        lockstep.close()
