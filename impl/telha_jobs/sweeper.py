"""The reaper thread: sweeps at an interval, wakes when a manual clock moves, survives whatever a sweep meets, stops
on close (seed §3).
"""

import logging
import threading

from telha_jobs.clock import Clock, ManualClock
from telha_jobs.engine.engine import Engine
from telha_jobs.errors import QueueUnavailableError

_log = logging.getLogger("telha_jobs")


class Sweeper:
    """One thread that sweeps an engine every `interval_ms` of queue time."""

    def __init__(self, engine: Engine, interval_ms: int, clock: Clock) -> None:
        self._engine = engine
        self._interval_ms = interval_ms
        self._driven = isinstance(clock, ManualClock)
        self._signal = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="telha-reaper", daemon=True)

    def start(self) -> None:
        """Begin; the first sweep is at once, since leases may have expired while nobody looked."""
        self._thread.start()

    def wake(self) -> None:
        """The clock was moved by hand: see whether it is time."""
        with self._signal:
            self._signal.notify_all()

    def stop(self) -> None:
        """End, after the sweep at hand unless the engine is closing."""
        with self._signal:
            self._stopping = True
            self._signal.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                swept_at = self._engine.store.now()
                self._sweep()
                if not self._rest_until(swept_at + self._interval_ms):
                    return
        except QueueUnavailableError as error:
            if not (self._stopping or self._engine.closing):
                _log.error("the reaper stops: %s", error)

    def _sweep(self) -> None:
        try:
            self._engine.reap(None)
        except QueueUnavailableError:
            raise
        except Exception:  # noqa: BLE001  one bad row, or a flaw, must not end the sweeps of all others
            _log.exception("a sweep failed")

    def _rest_until(self, due_ms: int) -> bool:
        """Wait; False when it is time to stop."""
        with self._signal:
            while not self._stopping:
                remaining_ms = due_ms - self._engine.store.now()
                if remaining_ms <= 0:
                    return True
                self._signal.wait(None if self._driven else remaining_ms / 1_000)
            return False
