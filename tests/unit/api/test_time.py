"""Queue time: one clock that never goes backwards; and generations that no unclean end can hand out twice."""

import logging
from pathlib import Path

import pytest

from telha_jobs import JobQueue, ManualClock
from tests.contract.rigs import copy_as_crashed
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, A, lease, leased, open_queue

HOUR = 3_600_000


def test_time_is_the_walls_at_first(queue: JobQueue, clock: ManualClock) -> None:
    """And moves with the time that passes."""
    clock.advance(7)
    assert (queue.now_ms(), queue.clock_ahead_ms()) == (START_MS + 7, 0)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_setting_the_wall_clock_changes_nothing(queue: JobQueue, clock: ManualClock, step: int) -> None:
    """While the queue runs: no lease ends early or late, and `clock_ahead_ms` tells how far apart they are."""
    leased(queue)
    clock.step_wall(step)
    assert (START_MS, max(0, -step)) == (queue.now_ms(), queue.clock_ahead_ms())
    clock.advance(299_999)
    assert queue.reap().requeued == 0
    clock.advance(1)
    assert queue.reap().requeued == 1


def test_starting_ahead_of_the_wall(opened: Open, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The wall was set back between runs: time goes on from the newest, at half speed, until the two meet."""
    queue = opened()
    clock.advance(HOUR)
    queue.enqueue(A, "embed", None)
    queue.close()
    clock.step_wall(-1_000)
    with caplog.at_level(logging.WARNING, logger="telha_jobs"):
        queue = opened()
    assert ["1000 ms" in record.getMessage() for record in caplog.records] == [True]
    times = [(queue.now_ms() - START_MS - HOUR, queue.clock_ahead_ms())]
    for _ in range(5):
        clock.advance(500)
        times.append((queue.now_ms() - START_MS - HOUR, queue.clock_ahead_ms()))
    assert times == [(0, 1_000), (250, 750), (500, 500), (750, 250), (1_000, 0), (1_500, 0)]


def test_a_clean_close_keeps_the_newest_time(opened: Open, clock: ManualClock) -> None:
    """Also one that was only told."""
    queue = opened()
    clock.advance(5_000)
    told = queue.now_ms()
    queue.close()
    clock.step_wall(-HOUR)
    assert told == opened().now_ms()


def test_a_forward_step_between_runs_is_downtime(opened: Open, clock: ManualClock) -> None:
    """It cannot be told apart: leases expire."""
    queue = opened()
    leased(queue)
    queue.close()
    clock.step_wall(HOUR)
    assert opened().reap().requeued == 1


def test_a_manual_clock_stays_within_time() -> None:
    """From 0 to the last millisecond of the year 9999; nothing moves when it would leave."""
    clock = ManualClock(5)
    with pytest.raises(ValueError, match="ms: "):
        clock.step_wall(-6)
    with pytest.raises(ValueError, match="ms: "):
        clock.advance(-1)
    with pytest.raises(ValueError, match="start_ms: "):
        ManualClock(-1)
    assert (clock.wall_ms(), clock.boot_ms()) == (5, 0)


def test_boot_time_passes_only_with_advance() -> None:
    """A set wall clock is no passing of time."""
    clock = ManualClock(100)
    clock.step_wall(-50)
    clock.advance(7)
    assert (clock.wall_ms(), clock.boot_ms()) == (57, 7)


# -- incarnations: the high half of a generation


def test_a_clean_reopen_keeps_the_incarnation(opened: Open) -> None:
    """Generations go on counting: 1, 2, 3."""
    generations: list[int] = []
    for _ in range(3):
        queue = opened()
        if not generations:
            queue.enqueue(A, "embed", None)
        held = lease(queue)
        generations.append(held.generation)
        queue.release(held)
        queue.close()
    assert generations == [1, 2, 3]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_an_unclean_end_raises_the_incarnation(tmp_path: Path, clock: ManualClock, durability: str) -> None:
    """Each time, at either durability: generations start again in the next block of 2^32, and stay above the old."""
    queue = open_queue(tmp_path / "0", clock, durability=durability)
    held = leased(queue)
    generations = [held.generation]
    for number in (1, 2):
        copy_as_crashed(tmp_path / f"{number - 1}", tmp_path / f"{number}")
        queue.close()
        queue = open_queue(tmp_path / f"{number}", clock, durability=durability)
        queue.release(held)
        held = lease(queue)
        generations.append(held.generation)
    queue.close()
    assert generations == [1, 1 << 32, 2 << 32]


def test_within_an_incarnation_generations_count_on(tmp_path: Path, clock: ManualClock) -> None:
    """After the jump each lease adds one; a clean reopen does not jump."""
    queue = open_queue(tmp_path / "0", clock)
    queue.enqueue(A, "embed", None)
    copy_as_crashed(tmp_path / "0", tmp_path / "1")
    queue.close()
    generations = []
    for _ in range(2):
        with open_queue(tmp_path / "1", clock) as queue:
            for _ in range(2):
                held = lease(queue)
                generations.append(held.generation - (1 << 32))
                queue.release(held)
    assert generations == [0, 1, 2, 3]


def test_an_open_without_a_commit_still_counts(tmp_path: Path, clock: ManualClock) -> None:
    """The mark is written before the first commit: a crash right after the open is an unclean end."""
    open_queue(tmp_path / "0", clock).close()
    queue = open_queue(tmp_path / "0", clock)
    copy_as_crashed(tmp_path / "0", tmp_path / "1")
    queue.close()
    with open_queue(tmp_path / "1", clock) as queue:
        assert leased(queue).generation == 1 << 32


def test_a_lease_survives_a_crash(tmp_path: Path, clock: ManualClock) -> None:
    """The worker that holds it may still submit to the reopened queue."""
    queue = open_queue(tmp_path / "0", clock)
    held = leased(queue)
    copy_as_crashed(tmp_path / "0", tmp_path / "1")
    queue.close()
    with open_queue(tmp_path / "1", clock) as queue:
        assert queue.complete(held, 1) == []
