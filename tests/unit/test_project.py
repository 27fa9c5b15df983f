"""The scaffold's own promises: the Hypothesis profiles, and the checks of scripts/_lib, each shown to ring."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from scripts._lib import arrows, pins, sizes

ROOT = Path(__file__).parents[2]

PHASES = ["explicit", "reuse", "generate", "target", "shrink"]
PROFILES: dict[str, dict[str, Any]] = {
    "gate": {
        "max_examples": 100,
        "stateful_step_count": 50,
        "deadline": None,
        "database": None,
        "derandomize": True,
        "phases": PHASES,
        "suppress_health_check": ["too_slow"],
        "print_blob": True,
        "report_multiple_bugs": True,
        "verbosity": "normal",
        "backend": "hypothesis",
    },
    "dev": {
        "max_examples": 50,
        "stateful_step_count": 50,
        "deadline": None,
        "database": "DirectoryBasedExampleDatabase",
        "derandomize": False,
        "phases": PHASES,
        "suppress_health_check": ["too_slow"],
        "print_blob": True,
        "report_multiple_bugs": True,
        "verbosity": "normal",
        "backend": "hypothesis",
    },
    "soak": {
        "max_examples": 500,
        "stateful_step_count": 100,
        "deadline": None,
        "database": None,
        "derandomize": False,
        "phases": PHASES,
        "suppress_health_check": ["too_slow"],
        "print_blob": True,
        "report_multiple_bugs": True,
        "verbosity": "normal",
        "backend": "hypothesis",
    },
}
PRINT_PROFILES = """
import json
import tests.unit.test_project as project
print(json.dumps({name: project.described(name) for name in project.PROFILES}))
"""


def described(profile: str) -> dict[str, Any]:
    """Every field of a registered profile as plain data."""
    found = settings.get_profile(profile)
    return {
        "max_examples": found.max_examples,
        "stateful_step_count": found.stateful_step_count,
        "deadline": found.deadline,
        "database": None if found.database is None else type(found.database).__name__,
        "derandomize": found.derandomize,
        "phases": [phase.name for phase in found.phases],
        "suppress_health_check": [check.name for check in found.suppress_health_check],
        "print_blob": found.print_blob,
        "report_multiple_bugs": found.report_multiple_bugs,
        "verbosity": found.verbosity.name,
        "backend": found.backend,
    }


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_has_every_field_as_decided(profile: str) -> None:
    """Each profile has exactly the fields that are written down for it."""
    assert PROFILES[profile] == described(profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_field_of_hypothesis_is_left_undecided(profile: str) -> None:
    """A field that a new Hypothesis adds has to be decided here before its default reaches a profile."""
    public = set(inspect.signature(settings.__init__).parameters) - {"self", "parent"}
    assert public == set(PROFILES[profile])


@pytest.mark.parametrize("ci", ["true", None])
def test_profiles_do_not_depend_on_ci(ci: str | None) -> None:
    """The profiles are the same in a process that has `CI` set and in one that has not."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    if ci is not None:
        environment["CI"] = ci
    command = [sys.executable, "-c", "import tests.conftest" + PRINT_PROFILES]
    output = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    assert json.loads(output) == PROFILES


def test_the_default_profile_is_the_gate(request: pytest.FixtureRequest) -> None:
    """Without `--hypothesis-profile` the gate is loaded."""
    asked = request.config.getoption("--hypothesis-profile")
    assert (asked or "gate") == settings.get_current_profile_name()


def drawn() -> list[int]:
    """What a seed draws."""
    found: list[int] = []

    @hypothesis.seed(1)
    @hypothesis.given(st.integers(0, 2**62))
    def take(number: int) -> None:
        found.append(number)

    take()
    return found


def test_what_is_imported_moves_no_random_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed draws the same before and after a module full of constants comes in."""
    before = drawn()
    (tmp_path / "full_of_constants.py").write_text(f"X = {[1_000_003 * place for place in range(500)]}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_constants")
    assert drawn() == before


def test_a_function_of_61_lines_is_reported() -> None:
    """Sixty lines pass and sixty-one do not."""
    body = "    pass\n"
    assert list(sizes.oversized("def f() -> None:\n" + body * 59)) == []
    assert list(sizes.oversized("def f() -> None:\n" + body * 60)) == ["1: f has 61 lines, at most 60"]


def test_a_module_of_401_lines_is_reported() -> None:
    """Four hundred lines pass and four hundred and one do not."""
    assert list(sizes.oversized("x = 1\n" * 400)) == []
    assert list(sizes.oversized("x = 1\n" * 401)) == ["1: the module has 401 lines, at most 400"]


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("impl/telha_jobs/queue.py", "import time", "1: imports time, but only clock.py reads a clock"),
        ("impl/telha_jobs/queue.py", "from time import monotonic", "1: imports time, but only clock.py reads a clock"),
        (
            "impl/telha_jobs/cli/show.py",
            "import datetime\ndatetime.datetime.now(datetime.UTC)",
            "2: calls datetime.now, but only clock.py reads a clock",
        ),
        (
            "model/telha_model/step.py",
            "def f() -> None:\n    import msgpack",
            "2: imports msgpack, but the model needs nothing but the standard library",
        ),
        (
            "model/telha_model/step.py",
            "import random",
            "1: imports random, but a step of the model depends on its arguments alone",
        ),
        (
            "tests/unit/test_x.py",
            "import telha_jobs\nfrom telha_model.step import step",
            "2: imports both towers, but they meet in tests/harness only",
        ),
    ],
)
def test_a_broken_arrow_is_reported(path: str, source: str, expected: str) -> None:
    """Each arrow that scripts/_lib/arrows.py holds is reported where it is broken."""
    assert [f"{path}:{expected}"] == arrows.broken(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("impl/telha_jobs/clock.py", "import time"),
        ("impl/telha_jobs/cli/show.py", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
        ("model/telha_model/step.py", "from enum import Enum\nfrom telha_model.state import State"),
        ("tests/harness/machine.py", "import telha_jobs\nimport telha_model"),
    ],
)
def test_a_kept_arrow_is_silent(path: str, source: str) -> None:
    """The clock's own module, conversions, the standard library and the harness are where they belong."""
    assert arrows.broken(path, source) == []


@pytest.mark.parametrize("line", ["click>=8", "click @ file:///x", "click==8.1 --hash=sha256:0", "-i x", "click"])
def test_a_constraint_that_is_no_exact_pin_is_reported(line: str) -> None:
    """A constraint is `name==version` and nothing else."""
    assert (set(), [f"constraints.txt:1: {line!r} is no exact pin (name==version)"]) == pins.pinned(line)


def test_a_requirement_without_a_pin_is_reported() -> None:
    """Whatever pyproject.toml asks for, by any spelling of its name, has a pin."""
    project = (
        '[build-system]\nrequires = ["hatchling>=1"]\n'
        '[project]\ndependencies = ["Google_CRC32C>=1"]\noptional-dependencies = {dev = ["ruff"]}\n'
    )
    found = list(pins.unpinned(project, {"hatchling", "google-crc32c"}))
    assert found == ["pyproject.toml: 'ruff' has no pin in constraints.txt"]


@pytest.mark.parametrize("folder", ["home", "root", "Users", "work"])
def test_a_path_of_one_machine_is_found(folder: str) -> None:
    """A folder under somebody's home or work directory is found; a path inside the repository is not."""
    path = f"/{folder}/somebody"
    assert [path] == pins.MACHINE_PATH.findall(f"see {path} for it")
    assert pins.MACHINE_PATH.findall(f"see docs{path} for it") == []
