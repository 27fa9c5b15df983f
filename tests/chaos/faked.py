"""A queue on the clocks of the system, whose wall is moved under it by libfaketime.

The child (`python -m tests.chaos.faked DIRECTORY FILE`) has a real reaper and polls that wait. It sets the wall by
writing to FILE, which libfaketime reads at every look at the clock, and measures everything with the system's monotonic
clock, which is left alone. Every bound is one that a slow machine cannot break.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from telha_jobs import JobQueue, QueueConfig, State
from tests.chaos.frame import MEMORY, ROOT, FoundError, Run

TTL_MS: Final = 250
STEPS: Final = ("+1h", "-1h", "+1d", "-1d")
STEPS_BEHIND: Final = ("", "+1h", "-2d")
_STEPPED: Final = "steps of a real process's wall"
_PATIENCE_MS: Final = 60_000
_SCOPE: Final = UUID(int=0xD)
_CONFIG: Final = QueueConfig(lease_ttl_ms=TTL_MS, reaper_interval_ms=20, max_attempts=20)


class FaketimeMissingError(Exception):
    """libfaketime is not installed; what it is to show must not go unchecked because of that."""


def faked_run(run: Run) -> None:
    """Run the child and judge what it measured."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        raise FaketimeMissingError("libfaketime is needed to set the wall clock: install it (Debian: faketime)")
    room = run.room("faked")
    told = room / "wall"
    told.write_text("+0\n")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(told),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-m", "tests.chaos.faked", str(room / "queue"), str(told)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            for line in child.stdout or ():
                _judge(run, json.loads(line))
            child.wait()
        finally:
            child.kill()
            # What libfaketime shares with children it removes at its own end only.
            for left in (f"faketime_shm_{child.pid}", f"sem.faketime_sem_{child.pid}"):
                (MEMORY / left).unlink(missing_ok=True)
    if run.tally.covered[_STEPPED] != len(STEPS) + len(STEPS_BEHIND):
        raise RuntimeError(f"the process under libfaketime ended early: {child.returncode}")


def _judge(run: Run, seen: dict[str, Any]) -> None:
    step = seen["step"]
    run.tally.covered[_STEPPED] += 1
    for what, (low, high) in seen["bounds"].items():
        if not low <= seen[what] <= high:
            raise FoundError(f"the wall was set by {step}: {what} is {seen[what]}, and must be from {low} to {high}")
    if seen["order"] != sorted(seen["order"]):
        raise FoundError(f"the wall was set by {step}: ids are {seen['order']}")


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Measured:
    """A queue and a file that sets the wall."""

    def __init__(self, queue: JobQueue, wall: Path) -> None:
        self._queue = queue
        self._wall = wall
        self._ids: list[str] = []

    def step(self, by: str, *, half_speed: bool) -> None:
        """Set the wall while a lease lives and a poll waits; print what was seen."""
        queue = self._queue
        began, told = _monotonic_ms(), queue.now_ms()
        began_at_most = _monotonic_ms()
        self._ids.append(queue.enqueue(_SCOPE, "tick", None).job_id.hex)
        lease = queue.lease_next("w")
        if lease is None:
            raise ValueError("there was a job to lease")
        if by:
            self._wall.write_text(f"{by}\n")
        waited = _monotonic_ms()
        nothing = queue.lease_batch("w", 1, kinds=["other"], wait_ms=100)
        waited = _monotonic_ms() - waited
        resting = threading.Event()  # libfaketime makes an error of a sleep that the wall is stepped in
        while queue.get(lease.job_id).state is State.LEASED and _monotonic_ms() - began < _PATIENCE_MS:
            resting.wait(0.005)
        ended_at_least, now, ended = _monotonic_ms(), queue.now_ms(), _monotonic_ms()
        events = {event.transition: event.at_ms for event in queue.get(lease.job_id).events}
        wall = time.time_ns() // 1_000_000
        ahead = queue.clock_ahead_ms()
        wall_after, now_after = time.time_ns() // 1_000_000, queue.now_ms()
        passed = (ended_at_least - began_at_most, ended - began)
        slowest = passed[0] // 2 if half_speed else passed[0]
        print(
            json.dumps(
                {
                    "step": by or "nothing",
                    "order": self._ids,
                    "granted": len(nothing),
                    "waited_ms": waited,
                    "lease_lived_ms": events.get("reaped", 0) - events["leased"],
                    "queue_time_ms": now - told,
                    "ahead_ms": ahead,
                    "bounds": {
                        "granted": (0, 0),
                        "waited_ms": (99, _PATIENCE_MS),
                        "lease_lived_ms": (TTL_MS, _PATIENCE_MS),
                        "queue_time_ms": (slowest - 2, passed[1] + 2),
                        "ahead_ms": (max(0, now - wall_after) - 2, max(0, now_after - wall) + 2),
                    },
                }
            ),
            flush=True,
        )
        queue.cancel(lease.job_id)


def _child(path: str, wall: str) -> None:
    with JobQueue.open(path, config=_CONFIG) as queue:
        queue.start_reaper()
        measured = _Measured(queue, Path(wall))
        for by in STEPS:
            measured.step(by, half_speed=False)
    # The last step left the wall a day behind: half speed, whatever is set now.
    with JobQueue.open(path, config=_CONFIG) as queue:
        queue.start_reaper()
        measured = _Measured(queue, Path(wall))
        for by in STEPS_BEHIND:
            measured.step(by, half_speed=True)


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2])
