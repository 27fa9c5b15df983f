"""The lying wall: nothing moves in seeded worlds, nor in a real process, and a queue that looks at it is found."""

from dataclasses import replace
from pathlib import Path

import pytest

from telha_jobs.clock import QueueClock
from tests.chaos.clock import LANE, worlds
from tests.chaos.faked import FaketimeMissingError, faked_run
from tests.chaos.frame import KEPT_VARIABLE, play
from tests.harness.mutants import mutant
from tests.harness.mutation import environment

WORLDS = replace(LANE, body=worlds)


def test_no_step_of_the_wall_moves_anything() -> None:
    """Six worlds: 250 events each, the wall set by up to a day; no lease ends early or late, no time or order moves."""
    verdict = play(WORLDS, seed=1)
    assert verdict.finding is None, verdict.told()
    covered = verdict.covered
    assert (covered["worlds"], covered["events"]) == (6, 1_500)
    assert min(covered["steps back"], covered["steps forward"]) > 100
    assert covered["opens with the wall behind"] > 50
    assert covered["leases that ended"] > 40


def test_a_real_process_whose_wall_is_set_goes_on() -> None:
    """With the system's clocks, reaper and waiting polls, under libfaketime: a lease lives as long as it should."""
    verdict = play(replace(LANE, body=faked_run), seed=1)
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["steps of a real process's wall"] == 7


def test_a_missing_libfaketime_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the proof fails and says what to install; it is never skipped."""
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    with pytest.raises(FaketimeMissingError, match="install it"):
        play(replace(LANE, body=faked_run), seed=1)


def _follows_the_wall(clock: QueueClock) -> int:
    return clock._clock.wall_ms()


def _full_speed(clock: QueueClock) -> int:
    elapsed = clock._boot_ms() - clock._boot_at_open_ms
    clock.newest_ms = max(clock.newest_ms, clock._base_ms + elapsed)
    return clock.newest_ms


@pytest.mark.parametrize(
    ("method", "broken"),
    [("now", _follows_the_wall), ("now", _full_speed), ("ahead_ms", lambda _: 0)],
    ids=["follows the wall", "full speed", "never ahead"],
)
def test_a_clock_that_is_not_as_promised_is_found(
    method: str, broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue whose time follows the wall, or hurries when it is ahead of it, or says that it is not, does not pass."""
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(QueueClock, method, broken)
    verdict = play(WORLDS, seed=1)
    assert verdict.finding is not None


def test_a_process_whose_time_follows_the_wall_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bug in the process under libfaketime."""
    for name in ("TELHA_MUTANT", "PYTHONPATH"):
        monkeypatch.setenv(name, environment(mutant("a wall clock that is set moves the queue's time"))[name])
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))
    verdict = play(replace(LANE, body=faked_run), seed=1)
    assert verdict.finding is not None
