"""The lives of the queue's process, seen from outside: start it, watch what it says, kill it, start it again.

A kill is chosen from the progress that was observed, and has to meet work in flight. So the process is stopped first
(SIGSTOP), everything it had said is read, and only if it holds a lease that it has not begun to answer is it killed
(SIGKILL); otherwise it goes on, and the next chance is taken.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

from scripts._demo.documents import Areas
from scripts._demo.settings import ENDED

ROOT: Final = Path(__file__).parents[2]
STALL_S: Final = 60.0
"""Nothing here takes this long; whoever makes no progress for so long never will."""
_READ_BYTES: Final = 65_536


class DemoFailedError(Exception):
    """The run came to no end, and why."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A SIGKILL: when (ms since the epoch), and how many leases it met for certain, as seen from outside; then when the
    next life had opened the queue (in queue time) and how many rows it found leased.
    """

    at_ms: int
    in_flight: int
    reopened_ms: int = 0
    found: int = 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """All lives together. `syncs` and `commits` miss what a killed process did after it last told (a tenth of a
    second); `late` counts answers that came after their lease had been given up.
    """

    kills: tuple[Kill, ...]
    seconds: float
    syncs: int
    commits: int
    late: int


class Watcher(Protocol):
    """Who is told what happens."""

    def status(self, done: int, counts: Mapping[str, int]) -> None:
        """`done` jobs have ended; `counts` are the jobs in each state."""

    def killed(self, number: int, done: int) -> None:
        """The process was killed."""

    def reopened(self, number: int, kill: Kill) -> None:
        """The next one opened the queue and found what the kill left behind."""


@dataclass(kw_only=True)
class _Life:
    """One process and what it has said so far."""

    process: subprocess.Popen[bytes]
    unread: bytes = b""
    over: bool = False
    ended_cleanly: bool = False
    opened_ms: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    answers: int = 0
    answers_at_status: int = 0
    syncs: int = 0
    commits: int = 0
    late: int = 0

    @classmethod
    def start(cls, data: Path, areas: Areas, log: Path) -> Self:
        told = {
            "data": str(data),
            "documents": str(areas.documents),
            "inbox": str(areas.inbox),
            "out": str(areas.out),
            "limit": areas.limit,
            "seed": areas.seed,
        }
        with log.open("ab") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "scripts._demo.child", json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,  # an interrupt reaches the parent alone, which then ends the child
            )
        return cls(process=process)

    @property
    def done(self) -> int:
        """Jobs that have ended, as far as one can tell: the last count, and every answer since."""
        return sum(self.counts.get(state.value, 0) for state in ENDED) + self.answers - self.answers_at_status

    def read(self, timeout_s: float) -> bool:
        """Take in what was said, waiting for it at most so long; False when there was nothing."""
        if self.process.stdout is None or self.over:
            return False
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], timeout_s)[0]:
            return False
        content = os.read(fd, _READ_BYTES)
        self.over = not content
        *lines, self.unread = (self.unread + content).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return True

    def _take(self, message: Mapping[str, Any]) -> None:
        match message["say"]:
            case "open":
                self.opened_ms, self.counts = message["now_ms"], message["counts"]
            case "leased":
                self.in_flight += 1
            case "answering":
                self.in_flight -= 1
                self.answers += 1
            case "status":
                self.counts = message["counts"]
                self.answers_at_status = self.answers
                self.syncs, self.commits, self.late = message["syncs"], message["commits"], message["late"]
            case "end":
                self.ended_cleanly = True
            case other:
                raise DemoFailedError(f"the queue's process said {other!r}, which means nothing")

    def strike(self) -> Kill | None:
        """Kill it if it has work in hand; None: it had not, and goes on."""
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        while self.read(0.0):
            pass
        if self.in_flight > 0:
            os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return Kill(at_ms=time.time_ns() // 1_000_000, in_flight=self.in_flight)
        os.kill(pid, signal.SIGCONT)
        return None

    def end(self) -> None:
        """Whatever happened, leave no process behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def drive(data: Path, areas: Areas, log: Path, kill_at: Sequence[int], watcher: Watcher) -> Run:
    """Let the queue work to the end, killing its process whenever the next of `kill_at` jobs have ended.

    Raises `DemoFailedError` when the process ends by itself, or stalls.
    """
    started = time.monotonic()
    kills: list[Kill] = []
    syncs = commits = late = 0
    while True:
        life = _Life.start(data, areas, log)
        try:
            target = kill_at[len(kills)] if len(kills) < len(kill_at) else None
            kill = _watch(life, kills, target, watcher)
        finally:
            life.end()
        syncs, commits, late = syncs + life.syncs, commits + life.commits, late + life.late
        if kill is None:
            return Run(kills=tuple(kills), seconds=time.monotonic() - started, syncs=syncs, commits=commits, late=late)
        kills.append(kill)
        watcher.killed(len(kills), life.done)


def _watch(life: _Life, kills: list[Kill], target: int | None, watcher: Watcher) -> Kill | None:
    """Until the process is killed (the kill), or has ended well (None). Completes the kill before with what it left."""
    seen, seen_at = -1, time.monotonic()
    while not life.over:
        life.read(0.05)
        if life.opened_ms is not None:
            if kills and not kills[-1].reopened_ms:
                kills[-1] = replace(kills[-1], reopened_ms=life.opened_ms, found=life.counts["leased"])
                watcher.reopened(len(kills), kills[-1])
            watcher.status(life.done, life.counts)
        if target is not None and life.done >= target and life.in_flight > 0 and (kill := life.strike()) is not None:
            return kill
        if life.answers > seen:
            seen, seen_at = life.answers, time.monotonic()
        elif time.monotonic() - seen_at > STALL_S:
            raise DemoFailedError(f"nothing moved for {STALL_S:.0f} s with {life.done} jobs done: see the queue's log")
    code = life.process.wait()
    if not life.ended_cleanly or code != 0:
        raise DemoFailedError(f"the queue's process ended by itself (exit {code}): see the queue's log")
    return None
