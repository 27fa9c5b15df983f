"""The clocks: what a queue's time owes to the wall, and what it does not."""

import logging
import threading
import time

import pytest

from telha_jobs.clock import Clock, ManualClock, QueueClock, SystemClock, monotonic, subscribe
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rules import TIME_MAX_MS

START_MS = 1_000_000


class Readings:
    """A clock that is no `Clock`, with readings set by the test."""

    def __init__(self, wall: object = START_MS, boot: object = 0) -> None:
        self.wall = wall
        self.boot = boot

    def wall_ms(self) -> object:
        """What the test put there."""
        return self.wall

    def boot_ms(self) -> object:
        """What the test put there."""
        return self.boot


def queue_clock(clock: object, high_water_ms: int = 0) -> QueueClock:
    """A queue's clock on any object: clocks are told by their methods, not by their class."""
    return QueueClock(clock, high_water_ms)  # type: ignore[arg-type]


def test_a_manual_clock_stands_still_until_moved() -> None:
    """It starts at the wall time given, boot at zero, and two readings are the same."""
    clock = ManualClock(START_MS)
    assert [clock.wall_ms(), clock.wall_ms(), clock.boot_ms(), clock.boot_ms()] == [START_MS, START_MS, 0, 0]


def test_advance_moves_both_clocks_and_step_wall_one() -> None:
    """Real time moves wall and boot; setting the wall, either way, moves the wall alone."""
    clock = ManualClock(START_MS)
    clock.advance(500)
    clock.step_wall(-200)
    clock.step_wall(50)
    clock.advance(0)
    assert (clock.wall_ms(), clock.boot_ms()) == (START_MS + 350, 500)


@pytest.mark.parametrize("ms", [-1, True, 1.0, "1", None, TIME_MAX_MS + 1])
def test_advance_refuses_what_is_no_duration(ms: int) -> None:
    """A negative, fractional or otherwise wrong duration is an argument error, and nothing moves."""
    clock = ManualClock(START_MS)
    with pytest.raises(InvalidArgumentError) as refused:
        clock.advance(ms)
    assert (refused.value.field, clock.wall_ms(), clock.boot_ms()) == ("ms", START_MS, 0)


@pytest.mark.parametrize("ms", [-START_MS - 1, TIME_MAX_MS, False, 0.5])
def test_step_wall_refuses_what_is_no_time(ms: int) -> None:
    """The wall stays between 1970 and 9999."""
    clock = ManualClock(START_MS)
    with pytest.raises(InvalidArgumentError) as refused:
        clock.step_wall(ms)
    assert (refused.value.field, clock.wall_ms()) == ("ms", START_MS)


@pytest.mark.parametrize("start", [-1, TIME_MAX_MS + 1, True, "now", 1.5])
def test_a_manual_clock_starts_at_a_time(start: int) -> None:
    """A start that is no time is an argument error."""
    with pytest.raises(InvalidArgumentError) as refused:
        ManualClock(start)
    assert refused.value.field == "start_ms"


def test_moving_a_manual_clock_wakes_its_subscribers() -> None:
    """Every move calls every subscriber, after the move, and a subscriber may read the clock; unsubscribing ends it."""
    clock = ManualClock(START_MS)
    seen: list[tuple[str, int]] = []
    end_first = subscribe(clock, lambda: seen.append(("first", clock.wall_ms())))
    clock.subscribe(lambda: seen.append(("second", clock.wall_ms())))
    clock.advance(1)
    end_first()
    end_first()
    clock.step_wall(-5)
    assert seen == [("first", START_MS + 1), ("second", START_MS + 1), ("second", START_MS - 4)]


def test_subscribing_to_a_clock_that_moves_by_itself_is_nothing() -> None:
    """Other clocks call nobody, and ending that is nothing either."""
    subscribe(SystemClock(), lambda: None)()


def test_a_manual_clock_loses_no_move_between_threads() -> None:
    """Moves from many threads add up."""
    clock = ManualClock(START_MS)

    def work() -> None:
        for _ in range(1_000):
            clock.advance(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (clock.wall_ms(), clock.boot_ms()) == (START_MS + 4_000, 4_000)


def test_the_system_clock_reads_this_machine() -> None:
    """Wall time is the system's time in milliseconds, boot time counts from the boot, suspended time included."""
    clock = SystemClock()
    before = (time.time_ns() // 1_000_000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
    read = (clock.wall_ms(), clock.boot_ms())
    after = (time.time_ns() // 1_000_000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
    assert [before[0] <= read[0] <= after[0], before[1] <= read[1] <= after[1]] == [True, True]


def test_monotonic_is_real_time() -> None:
    """Waits are measured in the seconds of the system's monotonic clock."""
    before, read, after = time.monotonic(), monotonic(), time.monotonic()
    assert before <= read <= after


def test_a_clock_without_its_methods_says_so() -> None:
    """A subclass of `Clock` that defines nothing fails with the name of what it lacks."""
    with pytest.raises(TypeError, match=r"Clock must define wall_ms\(\)"):
        Clock().wall_ms()
    with pytest.raises(TypeError, match=r"Clock must define boot_ms\(\)"):
        Clock().boot_ms()


def test_a_queue_that_starts_with_the_wall_goes_with_real_time() -> None:
    """At a start at or after the high water, now is the wall at the open plus what really passed."""
    clock = ManualClock(START_MS)
    queue = queue_clock(clock, high_water_ms=START_MS - 5_000)
    seen = [queue.now()]
    for ms in (1, 999, 60_000):
        clock.advance(ms)
        seen.append(queue.now())
    assert seen == [START_MS, START_MS + 1, START_MS + 1_000, START_MS + 61_000]


@pytest.mark.parametrize("hours", [-48, -1, 1, 48])
def test_a_wall_step_while_running_changes_nothing(hours: int) -> None:
    """However the wall is set while the queue runs, its time goes on as real time does."""
    clock = ManualClock(START_MS * 1_000)
    queue = queue_clock(clock)
    clock.advance(10)
    clock.step_wall(hours * 3_600_000)
    at_once = queue.now()
    clock.advance(10)
    assert (at_once, queue.now()) == (START_MS * 1_000 + 10, START_MS * 1_000 + 20)


def test_a_queue_that_starts_ahead_runs_at_half_speed_until_the_wall_has_caught_up() -> None:
    """Ahead by 1,000 ms it goes half as fast for 2,000 ms, and with the wall from then on; the lead is shown."""
    clock = ManualClock(START_MS)
    queue = queue_clock(clock, high_water_ms=START_MS + 1_000)
    seen = [(queue.now() - START_MS, queue.ahead_ms())]
    for ms in (1, 1, 998, 999, 1, 1, 500):
        clock.advance(ms)
        seen.append((queue.now() - START_MS, queue.ahead_ms()))
    assert seen == [
        (1_000, 1_000),
        (1_000, 999),
        (1_001, 999),
        (1_500, 500),
        (1_999, 0),
        (2_000, 0),
        (2_001, 0),
        (2_501, 0),
    ]


def test_only_a_start_ahead_of_the_wall_warns(caplog: pytest.LogCaptureFixture) -> None:
    """A warning with the lead in milliseconds, once, and none without a lead."""
    with caplog.at_level(logging.WARNING, logger="telha_jobs"):
        queue_clock(ManualClock(START_MS), START_MS)
        queue = queue_clock(ManualClock(START_MS), START_MS + 77)
        queue.now()
    assert [(record.name, record.levelname, record.args) for record in caplog.records] == [
        ("telha_jobs", "WARNING", (77,))
    ]


def test_the_lead_follows_the_wall() -> None:
    """Setting the wall back shows as a lead, setting it forward shows as none."""
    clock = ManualClock(START_MS)
    queue = queue_clock(clock)
    clock.step_wall(-300)
    back = queue.ahead_ms()
    clock.step_wall(900)
    assert (back, queue.ahead_ms()) == (300, 0)


def test_time_never_goes_back_even_if_boot_does() -> None:
    """A clock whose boot time goes back, or starts anywhere, cannot take a queue's time back."""
    clock = Readings(boot=50)
    queue = queue_clock(clock)
    seen = []
    for boot in (150, 120, 0, 151):
        clock.boot = boot
        seen.append(queue.now() - START_MS)
    assert seen == [100, 100, 100, 101]


def test_the_newest_time_is_what_was_told() -> None:
    """The high water to store is the newest answer, not what the clock would say now."""
    clock = ManualClock(START_MS)
    queue = queue_clock(clock, high_water_ms=START_MS - 5)
    before = queue.newest_ms
    clock.advance(10)
    queue.now()
    clock.advance(10)
    assert (before, queue.newest_ms) == (START_MS, START_MS + 10)


def test_time_ends_with_the_year_9999() -> None:
    """No answer lies beyond the last millisecond of 9999."""
    clock = Readings(wall=TIME_MAX_MS + 10**9)
    queue = queue_clock(clock)
    first = queue.now()
    clock.boot = 10**9
    assert (first, queue.now()) == (TIME_MAX_MS, TIME_MAX_MS)


@pytest.mark.parametrize("reading", [1.5, "1", None, True, -1])
@pytest.mark.parametrize("name", ["wall", "boot"])
def test_a_reading_that_is_no_time_is_refused(name: str, reading: object) -> None:
    """A clock that answers with anything but whole milliseconds >= 0 is an argument error, at the open and later."""
    with pytest.raises(InvalidArgumentError) as at_open:
        queue_clock(Readings(**{name: reading}))
    clock = Readings()
    queue = queue_clock(clock)
    setattr(clock, name, reading)
    with pytest.raises(InvalidArgumentError) as later:
        queue.ahead_ms()
    assert (at_open.value.field, later.value.field) == ("clock", "clock")
    assert f"{name}_ms" in str(at_open.value)


def test_an_object_that_is_no_clock_is_refused() -> None:
    """What lacks one of the two methods is an argument error that names the method."""
    with pytest.raises(InvalidArgumentError, match=r"boot_ms\(\)") as refused:
        queue_clock(object())
    assert refused.value.field == "clock"
