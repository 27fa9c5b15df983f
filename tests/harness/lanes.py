"""The lanes: each drives a subject until the first difference, keeps that as a trace, and says how far it got.

A lane ends *killed* only by a difference it was made to find. Anything else that goes wrong passes as an exception. The
trace of a difference is written before the difference is raised.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from telha_model.trace_data import to_data
from tests.harness.lockstep import DisagreementError
from tests.harness.machine import machine, settings_of
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import Keeper, for_mutant
from tests.harness.walking import ci_graph, plan, walk_all

ROOT: Final = Path(__file__).parents[2]
PYTEST_FAILED: Final = 1
SEEDS: Final = {"engine": 1, "engine-narrow": 2}
"""The gate's random runs: a seed for each subject."""

OnSteps = Callable[[int], None]


class Death(NamedTuple):
    """How a lane ended: `steps` until the first difference; `data` is the minimised trace, `program` its steps."""

    killed: bool
    steps: int
    program: int
    report: str
    data: dict[str, Any] | None = None


def run_lane(lane: str) -> Death:
    """Run a lane by its name in the catalogue; ValueError for one that does not exist."""
    kind, _, target = lane.partition(":")
    match kind:
        case "tours":
            return toured(target, "engine-renewed")
        case "narrow":
            return toured(target, "engine-narrow-renewed")
        case "stateful":
            return played("engine", SEEDS["engine"])
        case "pytest":
            return _tested(target)
        case _:
            raise ValueError(f"no lane is called {lane}")


def toured(universe: str, subject: str, *, on_steps: OnSteps = lambda _: None) -> Death:
    """The whole tour of a universe in CI's size."""
    graph, keep, steps = ci_graph(universe), tour_keeper(universe, subject), 0

    def count(taken: int) -> None:
        nonlocal steps
        steps = taken
        on_steps(taken)

    try:
        walk_all(graph, plan(graph), SUBJECTS[subject], on_step=count, keep=keep)
    except DisagreementError as error:
        return _death(error, steps, keep)
    return Death(killed=False, steps=steps, program=0, report="the tour came to its end")


def played(subject: str, seed: int, *, on_steps: OnSteps = lambda _: None) -> Death:
    """The machine's runs from a seed, under the profile that is loaded."""
    seen, keep, first = _Seen(on_steps), machine_keeper(subject, seed), 0

    def kept(error: DisagreementError) -> None:
        nonlocal first
        first = first or seen["steps"]  # Hypothesis plays the run again before it lets the error out
        keep(error)

    block = machine(SUBJECTS[subject], seen, seed=seed, keep=kept)
    try:
        run_state_machine_as_test(block, settings=settings(settings_of(block), print_blob=False))
    except DisagreementError as error:
        return _death(error, first, keep)
    return Death(killed=False, steps=seen["steps"], program=0, report="the machine came to its end")


class _Seen(Counter[str]):
    """Counts, and tells the steps."""

    def __init__(self, on_steps: OnSteps) -> None:
        super().__init__()
        self._on_steps = on_steps

    def __setitem__(self, name: str, number: int) -> None:
        super().__setitem__(name, number)
        if name == "steps":
            self._on_steps(number)


def tour_keeper(universe: str, subject: str) -> Keeper:
    """Keeps what a tour finds."""
    repeat = f"scripts/replay --lane tours --universe {universe} --subject {subject}{for_mutant()}"
    return Keeper(f"tours:{universe}", subject, repeat=repeat)


def machine_keeper(subject: str, seed: int) -> Keeper:
    """Keeps what the machine finds."""
    profile = settings.get_current_profile_name()
    repeat = f"scripts/replay --lane hypothesis --seed {seed} --subject {subject} --profile {profile}{for_mutant()}"
    return Keeper("hypothesis", subject, seed=seed, repeat=repeat)


def _tested(path: str) -> Death:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in (0, PYTEST_FAILED):
        raise RuntimeError(f"{path} could not be run ({done.returncode}):\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Death(done.returncode == PYTEST_FAILED, 1, 1, "\n".join(failed))


def _death(error: DisagreementError, steps: int, keep: Keeper) -> Death:
    trace = keep.trace
    if trace is None:
        raise error
    return Death(True, steps, len(trace.steps), f"{error}\n{keep.told()}", to_data(trace))
