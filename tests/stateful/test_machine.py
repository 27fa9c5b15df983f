"""Random runs in lock-step with the model, and proof that they are neither starved nor deaf."""

import ast
import inspect
import secrets
from collections import Counter

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness import draws
from tests.harness import machine as module
from tests.harness.classes import counted
from tests.harness.lanes import SEEDS, machine_keeper
from tests.harness.lockstep import DisagreementError
from tests.harness.machine import machine, settings_of
from tests.harness.subject import EngineSubject, TamperedSubject
from tests.harness.subjects import SUBJECTS

REQUIRED = (
    "a lease expires and is granted again",
    "a released job is granted again",
    "a due failed job is leased directly",
    "a stale submit meets a higher generation's lease",
    "a submit after reap is stale",
    "a submit after release is stale",
    "a submit after cancel is stale",
    "a token that was never issued",
    "a submit repeats",
    "a submit repeats under a new lease",
    "a release after the deadline",
    "a submit after the deadline, before the sweep",
    "an extension after the deadline, before the sweep",
    "an extension at its limit",
    "death by attempts",
    "death by expiry",
    "death by rejection",
    "death by cancel",
    "a retry after death by expiry",
    "a key is met pending",
    "a key is met leased",
    "a key is met failed",
    "a key is met completed",
    "a key is met dead",
    "a key conflicts",
    "a follow-up meets a key",
    "a follow-up meets the completed job itself",
    "a follow-up conflicts",
    "the incarnation makes a generation jump",
    "an unclean end with a lease out",
    "a clean reopening with a lease out",
    "reopening turns the ring",
    "a full log swallows more",
    "the ring turns",
    "a filter passes the head of the ring over",
    "a batch serves several scopes",
    "two scopes join at once",
    "an urgent job goes first",
    "an earlier due time goes first",
    "a sweep promotes",
    "a sweep purges",
    "a sweep leaves work behind",
    "a sweep does several kinds of work",
    "a bulk call has several outcomes",
)
"""What the gate's runs must reach, all blocks together."""
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


def seed_for(subject: str, request: pytest.FixtureRequest) -> int:
    """The gate's own seed; for fresh runs the one that the command line gives, else a drawn one."""
    profile = settings.default
    assert profile is not None
    if profile.derandomize:
        return SEEDS[subject]
    given = request.config.getoption("--hypothesis-seed")
    return secrets.randbelow(2**32) if given is None else int(given) + SEEDS[subject]


@pytest.mark.slow
def test_random_runs_agree_and_reach_what_they_are_for(request: pytest.FixtureRequest) -> None:
    """Queue and model agree along every run; the runs are long, and together they reach each required situation."""
    seen: Counter[str] = Counter()
    for subject in SEEDS:
        seed = seed_for(subject, request)
        print(f"lane hypothesis, seed {seed}, subject {subject}")
        with counted("hypothesis") as hits:
            block = machine(SUBJECTS[subject], seen, seed=seed, keep=machine_keeper(subject, seed), hits=hits)
            run_state_machine_as_test(block, settings=settings_of(block))
    assert [name for name in REQUIRED if not seen[name]] == []
    assert seen["steps"] >= STEPS_PER_RUN_MIN * seen["runs"]


def test_the_machine_rings_over_a_tampered_queue() -> None:
    """A canary: one derived entry too many ends the run, and the error names it and gives the program."""
    block = machine(TamperedSubject, Counter(), seed=1)
    quick = settings(settings_of(block), verbosity=Verbosity.quiet)
    with pytest.raises(DisagreementError, match=r"timers: has Timer\(at_ms=0, job=\d+\) too many") as found:
        run_state_machine_as_test(block, settings=quick)
    assert "Enqueue" in str(found.value)


def test_the_machine_keeps_the_profile() -> None:
    """No deadline, no health check silenced, no fewer runs: a machine leaves only shrinking to our own minimiser."""
    profile = settings.default
    assert profile is not None
    found = settings_of(machine(EngineSubject, Counter(), seed=1))
    phases = tuple([phase for phase in profile.phases if phase is not Phase.shrink])
    wanted = {name: getattr(profile, name) for name in FIELDS} | {"phases": phases, "report_multiple_bugs": False}
    assert wanted == {name: getattr(found, name) for name in FIELDS}


def test_no_run_is_thrown_away() -> None:
    """The machine assumes nothing, filters nothing, has no preconditions, catches nothing and consumes no token."""
    tree = ast.parse(inspect.getsource(module) + inspect.getsource(draws))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set() == names & {"assume", "precondition", "consumes", "reject", "filter"}
    assert [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)] == []
