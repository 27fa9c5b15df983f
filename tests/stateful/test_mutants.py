"""Does the alarm ring? Every mutant of the catalogue dies in the lane that it names, and the real queue in none."""

import json

import pytest

from tests.harness.mutants import MUTANTS, Mutant
from tests.harness.mutation import KILLED, places, run_mutant, tried

PROMISES = {
    "exclusive lease",
    "stale submit",
    "no job is lost",
    "acknowledged is durable",
    "attempts are exact",
    "the event log tells the truth",
    "order",
    "no early run",
    "fair scopes",
    "one key, one job",
    "progress",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_dies_in_its_lane(mutant: Mutant) -> None:
    """The change applies, and the lane named beforehand notices it."""
    verdict = run_mutant(mutant)
    assert verdict.outcome == KILLED, verdict.report


def test_every_mutant_applies_in_one_place() -> None:
    """A mutant whose text was moved or doubled by a change of the sources is found without running it."""
    assert [mutant.name for mutant in MUTANTS if places(mutant) != 1] == []
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS})


def test_mutants_break_promises() -> None:
    """Each mutant breaks a promise of the model, and all promises but one are broken by some mutant."""
    broken = {mutant.promise for mutant in MUTANTS}
    assert set() == broken - PROMISES
    assert set() == PROMISES - broken


@pytest.mark.parametrize("lane", ["tours:keys", "narrow:keys"])
def test_a_harmless_change_survives(lane: str) -> None:
    """A canary: a lane that kills whatever it is given would say so of a queue that was only told differently."""
    harmless = Mutant(
        "harmless", "none", lane, "telha_jobs.core.backoff", "delay >= backoff.cap_ms", "backoff.cap_ms <= delay"
    )
    verdict = run_mutant(harmless)
    assert (verdict.outcome, verdict.steps > 1_000) == ("SURVIVED", True), verdict.report


def test_a_mutant_that_does_not_apply_is_no_kill() -> None:
    """A text that stands nowhere is reported as that, and in a child it ends the process with a code of its own."""
    gone = MUTANTS[0]._replace(old="this text stands nowhere")
    assert run_mutant(gone).outcome == "DOES NOT APPLY"
    assert tried(gone, "tours:keys").returncode == 3


def test_a_lane_reports_the_program_as_data() -> None:
    """What a mutant died of comes as data too: the trace of it, which names the mutant."""
    done = tried(MUTANTS[0], MUTANTS[0].lane)
    death = json.loads(done.stdout.splitlines()[-1])
    assert (MUTANTS[0].name, death["program"]) == (death["data"]["origin"]["mutant"], len(death["data"]["steps"]))
