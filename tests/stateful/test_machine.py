"""Random runs in lock-step with the model, and proof that they are neither starved nor deaf."""

import ast
import inspect
from collections import Counter
from functools import partial

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness import draws
from tests.harness import machine as module
from tests.harness.lockstep import DisagreementError, Subjects
from tests.harness.machine import REQUIRED, LockstepMachine, machine
from tests.harness.subject import EngineSubject, TamperedSubject

BLOCKS: dict[str, Subjects] = {"First": EngineSubject, "Second": partial(EngineSubject, window_rows=1)}
"""Runs of different seeds: the second with an agenda that keeps one row per group in memory."""
STEPS_PER_RUN_MIN = 25
FIELDS = (
    "max_examples",
    "stateful_step_count",
    "deadline",
    "derandomize",
    "database",
    "phases",
    "backend",
    "suppress_health_check",
    "report_multiple_bugs",
)


def settings_of(block: type[LockstepMachine]) -> settings:
    """The profile's settings, from the machine's own: fresh ones would bring a deadline back.

    The machine's own silence every health check, also those that find starved runs; the profile's choice is put back.
    """
    profile = settings.default
    assert profile is not None
    return settings(block.TestCase.settings, suppress_health_check=profile.suppress_health_check)


@pytest.mark.slow
def test_random_runs_agree_and_reach_what_they_are_for() -> None:
    """Queue and model agree along every run; the runs are long, and together they reach each required situation."""
    seen: Counter[str] = Counter()
    for name, subjects in BLOCKS.items():
        block = machine(subjects, seen, name=name)
        run_state_machine_as_test(block, settings=settings_of(block))
    assert [name for name in REQUIRED if not seen[name]] == []
    assert seen["steps"] >= STEPS_PER_RUN_MIN * seen["runs"]


def test_the_machine_rings_over_a_tampered_queue() -> None:
    """A canary: one derived entry too many ends the run, and the error names it and gives the program."""
    block = machine(TamperedSubject, Counter(), name="Canary")
    quick = settings(settings_of(block), phases=(Phase.generate,), verbosity=Verbosity.quiet)
    with pytest.raises(DisagreementError, match=r"timers: has Timer\(at_ms=0, job=\d+\) too many") as found:
        run_state_machine_as_test(block, settings=quick)
    assert "Enqueue" in str(found.value)


def test_the_machine_keeps_the_profile() -> None:
    """A machine runs under every field of the profile: no deadline, no health check silenced, no fewer runs."""
    profile = settings.default
    assert profile is not None
    found = settings_of(machine(EngineSubject, Counter(), name="Unused"))
    assert {name: getattr(profile, name) for name in FIELDS} == {name: getattr(found, name) for name in FIELDS}


def test_no_run_is_thrown_away() -> None:
    """The machine assumes nothing, filters nothing, has no preconditions, catches nothing and consumes no token."""
    tree = ast.parse(inspect.getsource(module) + inspect.getsource(draws))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set() == names & {"assume", "precondition", "consumes", "reject", "filter"}
    assert [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)] == []
