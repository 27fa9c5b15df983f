"""The lanes a mutant may die in: each runs until the first difference and says how far it got.

A lane ends *killed* only by a difference it was made to find. Anything else that goes wrong passes as an exception.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.lockstep import DisagreementError, Subjects
from tests.harness.machine import machine
from tests.harness.subject import EngineSubject, narrow_subject, tour_subject
from tests.harness.walking import ci_graph, plan, walk_all

ROOT: Final = Path(__file__).parents[2]
PYTEST_FAILED: Final = 1


class Death(NamedTuple):
    """How a lane ended: `steps` until the first difference, `program` those of the shortest program that shows it."""

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
            return _toured(target, tour_subject)
        case "narrow":
            return _toured(target, narrow_subject)
        case "stateful":
            return _played()
        case "pytest":
            return _tested(target)
        case _:
            raise ValueError(f"no lane is called {lane}")


def _toured(universe: str, subjects: Subjects) -> Death:
    graph = ci_graph(universe)
    steps = 0

    def count(taken: int) -> None:
        nonlocal steps
        steps = taken

    try:
        walk_all(graph, plan(graph), subjects, on_step=count)
    except DisagreementError as error:
        return _death(error, steps)
    return Death(killed=False, steps=steps, program=0, report="the tour came to its end")


def _played() -> Death:
    seen: Counter[str] = Counter()
    block = machine(EngineSubject, seen, name="First")
    # No shrinking: the first difference is the news, and every run costs a database.
    quick = settings(block.TestCase.settings, phases=(Phase.generate,), report_multiple_bugs=False)
    try:
        run_state_machine_as_test(block, settings=quick)
    except DisagreementError as error:
        return _death(error, seen["steps"])
    return Death(killed=False, steps=seen["steps"], program=0, report="the machine came to its end")


def _tested(path: str) -> Death:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in (0, PYTEST_FAILED):
        raise RuntimeError(f"{path} could not be run ({done.returncode}):\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Death(done.returncode == PYTEST_FAILED, 1, 1, "\n".join(failed))


def _death(error: DisagreementError, steps: int) -> Death:
    return Death(killed=True, steps=steps, program=len(error.ops), report=str(error), data=error.data())
