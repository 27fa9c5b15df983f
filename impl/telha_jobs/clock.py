"""Time: the only module that reads a clock.

A *clock* answers two questions in milliseconds: what the wall says (`wall_ms`, since the Unix epoch, may be set
forwards and back) and how long the machine has been up (`boot_ms`, counts suspended time, never set). `QueueClock`
makes of the two the one time a queue uses. It never goes backwards, not across reopening either, and a wall clock that
is set while the queue runs changes nothing in it:

    base = max(wall at open, high water)          elapsed = boot now - boot at open
    now  = max(base + elapsed // 2, wall at open + elapsed)

A queue that starts ahead of the wall (the wall was set back while the queue was closed) thus runs at half speed until
the two meet. A wall that was set *forward* while the queue was closed cannot be told from downtime.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rules import TIME_MAX_MS, check_int, is_int, shown

_NS_PER_MS: Final = 1_000_000
_log = logging.getLogger("telha_jobs")


class Clock:
    """What a queue asks of a clock: `wall_ms()` and `boot_ms()`. Any object with these two methods will do."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as this machine's wall clock has it now."""
        raise TypeError(f"{type(self).__name__} must define wall_ms()")

    def boot_ms(self) -> int:
        """Milliseconds since some fixed moment; never set, and running while the machine is suspended."""
        raise TypeError(f"{type(self).__name__} must define boot_ms()")


class SystemClock(Clock):
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS


class ManualClock(Clock):
    """A clock that moves only when told to, for tests. Safe to share between threads."""

    def __init__(self, start_ms: int) -> None:
        self._lock = threading.Lock()
        self._wall_ms = check_int("start_ms", start_ms, 0, TIME_MAX_MS)
        self._boot_ms = 0
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_callback = 0

    def wall_ms(self) -> int:
        with self._lock:
            return self._wall_ms

    def boot_ms(self) -> int:
        with self._lock:
            return self._boot_ms

    def advance(self, ms: int) -> None:
        """Let `ms` >= 0 milliseconds of real time pass: both clocks move, and whoever waits is woken."""
        passed = check_int("ms", ms, 0, TIME_MAX_MS)
        self._move(wall_ms=passed, boot_ms=passed)

    def step_wall(self, ms: int) -> None:
        """Set the wall clock forward (or back, if negative) by `ms`, as a person or NTP would; no real time passes."""
        self._move(wall_ms=check_int("ms", ms, -TIME_MAX_MS, TIME_MAX_MS), boot_ms=0)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every move, in the thread that moved the clock. Returns the callable that ends it."""
        with self._lock:
            number = self._next_callback
            self._next_callback += 1
            self._callbacks[number] = callback

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks.pop(number, None)

        return unsubscribe

    def _move(self, *, wall_ms: int, boot_ms: int) -> None:
        with self._lock:
            wall = self._wall_ms + wall_ms
            if not 0 <= wall <= TIME_MAX_MS:
                raise InvalidArgumentError(
                    "ms", f"the wall clock must stay from 0 to {TIME_MAX_MS}, this would make it {wall}"
                )
            self._wall_ms = wall
            self._boot_ms += boot_ms
            callbacks = list(self._callbacks.values())
        # Outside the lock: a callback may well ask for the time.
        for callback in callbacks:
            callback()


class QueueClock:
    """The time of one queue: `clock` made monotonic, starting no earlier than `high_water_ms`. Not thread-safe: the
    store's lock guards it.

    Raises `InvalidArgumentError(field="clock")` when the clock answers with anything but whole, non-negative
    milliseconds.
    """

    def __init__(self, clock: Clock, high_water_ms: int) -> None:
        self._clock = clock
        self._boot_ms = clock.boot_ms if isinstance(clock, SystemClock) else partial(_reading, clock, "boot_ms")
        self._boot_at_open_ms = _reading(clock, "boot_ms")
        self._wall_at_open_ms = min(_reading(clock, "wall_ms"), TIME_MAX_MS)
        self._base_ms = max(self._wall_at_open_ms, high_water_ms)
        self._meets_after_ms = 2 * (self._base_ms - self._wall_at_open_ms)
        self.newest_ms = self._base_ms
        """The newest time `now` has returned; before the first call, where it starts. The high water to store."""
        ahead = self._base_ms - self._wall_at_open_ms
        if ahead > 0:
            _log.warning(
                "the wall clock is %d ms behind the newest time in the database: it runs at half speed until they meet",
                ahead,
            )

    def now(self) -> int:
        """Milliseconds since the epoch; never less than any earlier answer."""
        elapsed = self._boot_ms() - self._boot_at_open_ms
        # The greater of the two, without a call of max: every operation asks for the time.
        if elapsed < self._meets_after_ms:
            running = self._base_ms + elapsed // 2
        else:
            running = self._wall_at_open_ms + elapsed
        if running > self.newest_ms:
            self.newest_ms = min(TIME_MAX_MS, running)
        return self.newest_ms

    def ahead_ms(self) -> int:
        """How far `now` is ahead of what the wall clock says at this moment; 0 when it is not."""
        return max(0, self.now() - _reading(self._clock, "wall_ms"))


def monotonic() -> float:
    """Seconds that really pass, whatever clock a queue was given: for waiting, never for queue time."""
    return time.monotonic()


def subscribe(clock: Clock, callback: Callable[[], None]) -> Callable[[], None]:
    """Have `callback` called when `clock` is moved by hand, if it can be; returns the callable that ends it."""
    if isinstance(clock, ManualClock):
        return clock.subscribe(callback)
    return lambda: None


def _reading(clock: Clock, name: str) -> int:
    method = getattr(clock, name, None)
    if not callable(method):
        raise InvalidArgumentError("clock", f"must have a method {name}(), {type(clock).__name__} has none")
    value: object = method()
    if not is_int(value) or value < 0:
        raise InvalidArgumentError("clock", f"{name}() must return whole milliseconds >= 0, got {shown(value)}")
    return value
