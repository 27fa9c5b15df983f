"""Hypothesis profiles, the same on every machine.

Hypothesis changes its defaults when `CI` is set, and a registered profile inherits what it leaves open. So every field
of every profile is given here, and tests/unit/test_project.py asserts them, with and without `CI`.

- `gate`, the default: derandomised, so that a red run is red again for whoever looks.
- `dev`: fresh examples at each run, and failing ones remembered: for work on a test.
- `soak`: long, fresh, from a printed seed (`--hypothesis-seed=N` repeats a run): for scripts/soak.
"""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.harness.steady import make_steady

make_steady()
# No `explain` phase: it traces every line of a failing run, which takes minutes on a machine with a database under it.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
OLD_RARELY = 100
# A slow machine is no finding. The other checks stay on: data too large or filtered away means that steps are starved.
SUPPRESSED = (HealthCheck.too_slow,)

settings.register_profile(
    "gate",
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=True,
    phases=PHASES,
    suppress_health_check=SUPPRESSED,
    print_blob=True,
    report_multiple_bugs=True,
    verbosity=Verbosity.normal,
    backend="hypothesis",
)
settings.register_profile(
    "dev",
    max_examples=50,
    stateful_step_count=50,
    deadline=None,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples"),
    derandomize=False,
    phases=PHASES,
    suppress_health_check=SUPPRESSED,
    print_blob=True,
    report_multiple_bugs=True,
    verbosity=Verbosity.normal,
    backend="hypothesis",
)
settings.register_profile(
    "soak",
    max_examples=500,
    stateful_step_count=100,
    deadline=None,
    # Nothing remembered: what soak finds is kept as a trace, and a run depends on its seed alone.
    database=None,
    derandomize=False,
    phases=PHASES,
    suppress_health_check=SUPPRESSED,
    print_blob=True,
    report_multiple_bugs=True,
    verbosity=Verbosity.normal,
    backend="hypothesis",
)
# `--hypothesis-profile NAME` is applied after this.
settings.load_profile("gate")


def pytest_configure() -> None:
    """What survives two collections stays, as a rule, for as long as its lane: walking all of it again and again took a
    tenth of a tour. Young cycles go as ever, old ones later.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, OLD_RARELY)


def pytest_collection_finish() -> None:
    """What was imported stays until the end: the collector need not walk it again and again, a fifth of some tests."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests are begun first, since one that is begun last has the other processes wait for it; and tests of one
    `xdist_group` run in one process, in their order.

    xdist 3.8 names the group in an attribute that pytest 9.2 does not read any more; without this the mark does nothing
    and a module's fixtures are made in each process.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None or "xdist_group" in item.keywords)
    for item in items:
        named = vars(item).get("_nodeid")
        if named is not None and named != item.nodeid:
            item._id = type(item._id).parse(named)
