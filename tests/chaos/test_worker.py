"""Workers that are killed, stopped, woken and told to end, by the names of what they show; also over gRPC."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.chaos import worker
from tests.chaos.frame import FoundError, Lane, Run, play
from tests.chaos.remote import Owner
from tests.chaos.service import Service
from tests.harness.mutants import mutant
from tests.harness.mutation import environment

GROUP: Final = (pytest.mark.xdist_group("chaos-worker-0"), pytest.mark.xdist_group("chaos-worker-1"))


OWNERS: Final = pytest.mark.parametrize("owner", [Owner, Service], ids=["socket", "grpc"])
"""The queue's process, over the simplest channel and over gRPC."""


def held(scenario: Callable[[Run, type[Owner]], None], owner: type[Owner]) -> None:
    """The scenario comes to its end, and everything that was told in it is explained."""
    lane = Lane(name="worker", proves="", cannot="", body=lambda run: scenario(run, owner), repeats=False)
    verdict = play(lane, seed=1)
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["scenarios"] == 1


@GROUP[0]
@OWNERS
def test_kill_9_worker_job_re_leased_after_ttl_completes_on_retry(owner: type[Owner]) -> None:
    """The seed's test of that name: after the ttl and not before, the job is leased again, and completes."""
    held(worker.killed_worker, owner)


@GROUP[0]
@OWNERS
def test_a_worker_that_was_stopped_past_its_deadline_is_stale_and_the_winners_result_stands(owner: type[Owner]) -> None:
    """SIGSTOP, the job is leased again and completed, SIGCONT, submit: superseded."""
    held(worker.stopped_worker, owner)


@GROUP[0]
@OWNERS
def test_a_worker_that_wakes_while_another_holds_its_job_is_stale(owner: type[Owner]) -> None:
    """The same while the job is leased at a higher generation: that lease and its result stand."""
    held(worker.stopped_while_leased_again, owner)


@GROUP[1]
@OWNERS
def test_f13_a_worker_that_is_told_to_end_leaves_one_outcome(owner: type[Owner]) -> None:
    """F13: it gives its job back on SIGTERM; a submit after that is stale, and the next worker completes untried."""
    held(worker.shut_down_worker, owner)


@GROUP[1]
@OWNERS
def test_f8_a_job_that_kills_its_worker_is_dead_after_exactly_three_leases(owner: type[Owner]) -> None:
    """F8: only reported failures counted. Three workers are killed with the job in hand; F9: the last one ends it."""
    held(worker.poison, owner)


@GROUP[1]
@OWNERS
def test_f13_a_worker_killed_in_any_phase_leaves_one_outcome(owner: type[Owner]) -> None:
    """F13: jobs stayed picked or went out twice. Killed after lease, in the handler, with a completion under way."""
    held(worker.killed_in_every_phase, owner)


@GROUP[0]
@OWNERS
def test_a_queue_that_takes_late_results_is_found(
    owner: type[Owner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary: the queue's process runs with a mutant that accepts a completion from whoever has lost the lease."""
    for name, value in environment(mutant("complete is not fenced")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TELHA_CHAOS", str(tmp_path))

    def body(run: Run) -> None:
        worker.stopped_while_leased_again(run, owner)

    lane = Lane(name="worker", proves="", cannot="", body=body, repeats=False)
    assert (play(lane, seed=1).finding or "").startswith("what the sleeper was told: [], it should be")


@GROUP[1]
def test_a_worker_whose_lease_never_expires_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: a queue that never takes a killed worker's job back (its leases last an hour) does not pass."""
    monkeypatch.setenv("TELHA_CHAOS", str(tmp_path))
    monkeypatch.setitem(worker.CONFIG, "lease_ttl_ms", 3_600_000)
    monkeypatch.setattr(worker, "WAIT_S", 0.5)

    def body(run: Run) -> None:
        with worker.stage(run, "canary") as here:
            job = here.enqueue()
            with here.hand("first", "lease", "hang") as first:
                first.said("lease")
                first.signal(9)
            here.job(job, "pending", "completed")

    verdict = play(Lane(name="worker", proves="", cannot="", body=body, repeats=False), seed=1)
    assert verdict.finding == "a job stays leased and does not become pending or completed"


def test_what_is_not_expected_is_a_finding() -> None:
    """`expect` raises with both values."""
    with pytest.raises(FoundError, match="the result: 2, it should be 1"):
        worker.expect("the result", 1, 2)
