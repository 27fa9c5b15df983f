"""Random runs in lock-step with the model, and proof that they are neither starved nor deaf."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.broken import deaf_engine
from tests.harness.lockstep import DisagreementError
from tests.harness.machine import REQUIRED, machine
from tests.harness.subject import EngineSubject

BLOCKS = ("First", "Second")


def settings_of(examples: int) -> settings:
    """The profile's settings with `examples` times as many runs; nothing else may change (a deadline would come back)."""
    profile = settings.default
    assert profile is not None
    return settings(profile, max_examples=profile.max_examples * examples)


@pytest.mark.slow
def test_random_runs_agree_and_reach_what_they_are_for() -> None:
    """Queue and model agree along every run, and together the runs reach each required situation."""
    seen: Counter[str] = Counter()
    for name in BLOCKS:
        block = machine(EngineSubject, seen, name=name)
        run_state_machine_as_test(block, settings=settings(block.TestCase.settings, max_examples=EXAMPLES))
    assert [] == [name for name in REQUIRED if not seen[name]]
