"""The lanes: each looks for a difference until the first one, keeps that as a trace, and says how far it got.

A lane ends *killed* only by a difference it was made to find. Anything else that goes wrong passes as an exception. The
trace of a difference is written before the difference is raised.

| lane | what it is |
|---|---|
| `tours:UNIVERSE`, `narrow:UNIVERSE` | the tour of a universe on the engine; with the smallest window of the agenda |
| `stateful` | the Hypothesis machine |
| `explore:UNIVERSE` | the promises alone, on every step of a universe; no engine: for mutants of the model |
| `corpus`, `runs` | the recorded traces; a few wild runs from fixed seeds. Cheap, so every mutant is tried in them |
| `pytest:PATH` | tests that need neither |
| `powerloss`, `killpoints`, `faults`, ... | a lane of `tests/chaos` by its name there, in CI's size, from seed 1 |
| `grpc:UNIVERSE` | a slice of a universe's tour by the client of a server: every call and reply over the wire |

A new lane is one entry of `LANES`: its kind, and a function that takes what stands behind the colon and returns a
`Death`: whether it found a difference, after how many operations, and the trace as data if it has one. The function
runs in a process of its own in which the mutant is in place already (processes that it starts have it too, by their
environment). A lane that the catalogue names and `LANES` does not have, or whose module is not there yet, is pending.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_model.explore import explore
from telha_model.tours import Walk
from telha_model.trace import Differs, Origin, recorded
from telha_model.trace_data import to_data
from telha_model.universes import universes
from tests.harness.lockstep import DisagreementError
from tests.harness.subjects import MODEL, subjects
from tests.harness.traces import Keeper, active_mutant, commit, for_mutant, shown, store
from tests.harness.walking import ci_graph, plan, slice_of, walk_all

ROOT: Final = Path(__file__).parents[2]
PYTEST_FAILED: Final = 1
SEEDS: Final = {"engine": 1, "engine-narrow": 2}
"""The gate's random runs: a seed for each subject."""
RUNS: Final = (("engine", 1), ("engine-narrow", 2), ("engine", 3), ("engine-narrow", 4))
"""The wild runs: subject and seed."""
RUN_STEPS: Final = 500
LOOPS_CPU_S: Final = 10.0
"""What corpus and wild runs may compute: five times what they need."""

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
    if kind not in LANES:
        raise ValueError(f"no lane is called {lane}")
    return LANES[kind](target)


def built(lane: str) -> bool:
    """Whether the lane can be run; else its mutants are pending."""
    kind = lane.partition(":")[0]
    return kind in LANES and (kind not in UNDER_FIRE or importlib.util.find_spec(f"tests.chaos.{kind}") is not None)


def toured(
    universe: str, subject: str, *, on_steps: OnSteps = lambda _: None, walks: list[Walk] | None = None
) -> Death:
    """The whole tour of a universe in CI's size, or some walks of it."""
    graph, keep, steps = ci_graph(universe), tour_keeper(universe, subject), 0

    def count(taken: int) -> None:
        nonlocal steps
        steps = taken
        on_steps(taken)

    try:
        walk_all(graph, plan(graph) if walks is None else walks, subjects(subject), on_step=count, keep=keep)
    except DisagreementError as error:
        return _death(error, steps, keep)
    return Death(killed=False, steps=steps, program=0, report="the tour came to its end")


def played(subject: str, seed: int, *, on_steps: OnSteps = lambda _: None) -> Death:
    """The machine's runs from a seed, under the profile that is loaded."""
    # Here: Hypothesis takes as long to import as all the rest, and most mutants die without it.
    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.harness.machine import machine, settings_of

    seen, keep, first = _Seen(on_steps), machine_keeper(subject, seed), 0

    def kept(error: DisagreementError) -> None:
        nonlocal first
        first = first or seen["steps"]  # Hypothesis plays the run again before it lets the error out
        keep(error)

    block = machine(subjects(subject), seen, seed=seed, keep=kept)
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
    from hypothesis import settings

    profile = settings.get_current_profile_name()
    repeat = f"scripts/replay --lane hypothesis --seed {seed} --subject {subject} --profile {profile}{for_mutant()}"
    return Keeper("hypothesis", subject, seed=seed, repeat=repeat)


def explored(universe: str) -> Death:
    """Every promise on every step of a universe of the model, up to the first that is broken."""
    chosen = universes()[universe]
    report = explore(chosen)
    steps = report.graph.edges()
    if not report.violations:
        return Death(killed=False, steps=steps, program=0, report="every promise holds")
    sentences = tuple(f"{one.invariant}: {one.sentence}" for one in report.violations)
    trace = report.violations[0].trace
    found = recorded(
        chosen.config,
        chosen.start_ms,
        trace,
        title=f"explore:{universe} found: {sentences[0]}"[:200],
        origin=Origin("explore", None, commit(), active_mutant()),
        verdict=Differs(MODEL, len(trace), sentences),
    )
    path = store(found)
    told = "\n".join([*sentences, f"replay it: scripts/replay {shown(path)} --subject {MODEL}{for_mutant()}"])
    return Death(True, steps, len(trace), told, to_data(found))


def _in_corpus() -> Death:
    from tests.harness import quick

    return _raised(quick.corpus)


def _in_runs() -> Death:
    from tests.harness import quick

    def runs() -> None:
        for subject, seed in RUNS:
            quick.run(subject, seed, RUN_STEPS)

    return _raised(runs)


def _raised(part: Callable[[], object]) -> Death:
    """A lane that keeps no trace: another one, which the catalogue names, does. A queue that loops is killed too."""
    signal.signal(signal.SIGVTALRM, _loops)
    signal.setitimer(signal.ITIMER_VIRTUAL, LOOPS_CPU_S)
    try:
        part()
    except AssertionError as error:  # a disagreement is one too
        steps = len(error.ops) if isinstance(error, DisagreementError) else 0
        return Death(True, steps, 0, str(error))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return Death(killed=False, steps=0, program=0, report="nothing differed")


def _loops(_signal: int, _frame: object) -> None:
    raise AssertionError(f"the queue does not answer within {LOOPS_CPU_S} s of computing")


def _under_fire(name: str) -> Death:
    command = [sys.executable, "-m", "tests.chaos", "--lane", name, "--seed", "1", "--json"]
    with tempfile.TemporaryDirectory(prefix="telha-kept-") as kept:
        environment = {**os.environ, "TELHA_CHAOS": kept}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    try:
        [verdict] = json.loads(done.stdout.splitlines()[-1])["lanes"]
    except (IndexError, KeyError, ValueError) as error:
        raise RuntimeError(f"{name} could not be run ({done.returncode}):\n{done.stdout}{done.stderr}") from error
    finding = verdict["finding"]
    if finding is not None and finding.startswith("Traceback"):
        raise RuntimeError(f"{name} failed by itself: {finding}")
    return Death(finding is not None, 0, 0, finding or "every promise held")


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


UNDER_FIRE: Final = ("powerloss", "killpoints", "faults", "clock", "corruption", "blackbox", "worker", "histories")
"""Lanes of `tests/chaos` that mutants may name."""

LANES: Final[dict[str, Callable[[str], Death]]] = {
    "tours": lambda universe: toured(universe, "engine-renewed"),
    "narrow": lambda universe: toured(universe, "engine-narrow-renewed"),
    "grpc": lambda universe: toured(universe, "grpc-renewed", walks=slice_of(universe)),
    "stateful": lambda _: played("engine", SEEDS["engine"]),
    "explore": explored,
    "corpus": lambda _: _in_corpus(),
    "runs": lambda _: _in_runs(),
    "pytest": _tested,
    **{name: lambda _, name=name: _under_fire(name) for name in UNDER_FIRE},  # type: ignore[misc]
}
