"""A queue in another process, as its callers see it: start it, talk to it, kill it.

`Owner` is one life of the process (`tests.chaos.server`). `Caller` is one connection, whose calls are written to a
history: the intent before the call is sent, the outcome when the answer is here. A call whose process dies is never
answered (`LostError`), and its history says so by saying nothing.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from tests.chaos.frame import ROOT, FoundError
from tests.chaos.history import History

START_S: Final = 60.0
"""Opening takes a fraction of a second; whoever has not said a word by then never will."""


class LostError(Exception):
    """The process that owns the queue died before it answered."""


class Owner:
    """One life of the queue's process. `FoundError` when it ends although nobody killed it."""

    def __init__(self, data: Path, config: dict[str, Any], log: Path) -> None:
        self._log = log
        self.address, command = self._command(data, config)
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def _command(self, data: Path, config: dict[str, Any]) -> tuple[str, list[str]]:
        """Where callers find the process, and what starts it."""
        address = f"telha-chaos-{uuid.uuid4().hex}"
        told = {"data": str(data), "address": address, "config": config}
        return address, [sys.executable, "-m", "tests.chaos.server", json.dumps(told)]

    def opened(self) -> dict[str, Any]:
        """Wait until the queue is open; what it said then."""
        told: dict[str, Any] = json.loads(self._first_line())
        return told

    def _first_line(self) -> bytes:
        stdout = self.process.stdout
        if stdout is None:
            raise ValueError("the pipe is gone")
        if not select.select([stdout], [], [], START_S)[0]:
            raise FoundError(f"the queue's process did not open within {START_S:.0f} s")
        line = stdout.readline()
        if not line:
            raise FoundError(f"the queue's process ended while it opened ({self.process.wait()}): {self._last_words()}")
        return line

    def kill(self) -> None:
        """SIGKILL; raises `FoundError` when there was nobody left to kill."""
        code = self.process.poll()
        if code is not None:
            raise FoundError(f"the queue's process ended by itself ({code}): {self._last_words()}")
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Whatever happened, leave no process behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _last_words(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2_000:].strip() or "it said nothing"


class Hand:
    """A worker's process (`tests.chaos.hand`) and what it says."""

    def __init__(self, address: str, history: Path, name: str, *steps: str) -> None:
        told = {"address": address, "history": str(history), "name": name, "do": steps}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.hand", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()  # also one that is stopped
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def said(self, step: str) -> Any:
        """Wait until it has taken a step; what it said."""
        if self.process.stdout is None:
            raise ValueError("the pipe is gone")
        line = self.process.stdout.readline()
        if not line:
            raise FoundError(f"a worker ended ({self.process.wait()}) before its step {step!r}")
        return json.loads(line)[step]

    def go(self) -> None:
        """Let it go on from a `wait`, as soon as it runs."""
        if self.process.stdin is None:
            raise ValueError("the pipe is gone")
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        """SIGSTOP, SIGCONT, SIGKILL. Returns when a stop or an end has come about."""
        os.kill(self.process.pid, number)
        match number:
            case signal.SIGSTOP:
                os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            case signal.SIGKILL:
                self.process.wait()
            case _:
                pass


class Caller:
    """One connection to an owner. For one thread. `pending` is the call that is sent and not answered, if one is."""

    def __init__(self, address: str, history: History) -> None:
        self.pending: str | None = None
        self._history = history
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(f"\0{address}")
        except OSError as error:
            self._socket.close()
            raise LostError(str(error)) from error
        self._lines = self._socket.makefile("rb")

    def ask(self, call: str, **given: Any) -> Any:
        """Make a call; what was told. A refusal is told too: an object with `refused`."""
        name = self.send(call, **given)
        try:
            line = self._lines.readline()
        except OSError as error:
            raise LostError(str(error)) from error
        if not line.endswith(b"\n"):
            raise LostError("the connection was cut")
        self.pending = None
        told = json.loads(line)
        self._history.outcome(name, told)
        return told["told"]

    def unheard(self, call: str, **given: Any) -> NoReturn:
        """Send a call, and be killed before the answer is heard."""
        self.send(call, **given)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    def send(self, call: str, **given: Any) -> str:
        """Announce a call and send it; its name in the history. Whoever only sends never hears the answer."""
        name = self._history.intent(call, given)
        self.pending = call
        try:
            self._socket.sendall(json.dumps({"call": call, **given}).encode() + b"\n")
        except OSError as error:
            raise LostError(str(error)) from error
        return name

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


def refused(told: Any) -> str | None:
    """The name of the refusal, if it is one."""
    return told["refused"] if isinstance(told, dict) and "refused" in told else None
