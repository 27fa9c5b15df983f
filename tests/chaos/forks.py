"""Short lives of processes that own a database: forked from a small process that has imported everything and opened
nothing.

A queue cannot be used in a child of a process that had RocksDB open, so whoever judges lets every life, the recovery
too, be a child of this process. A fork costs a few milliseconds where a new interpreter costs two hundred.

    with Forks() as forks:
        ended = forks.run("tests.harness.crashing:live", {"path": ...})

The function is called with the data, in a process group of its own, and what it returns is the life's answer; both are
what JSON can say. A life that comes to no end is ended after LIFE_S, with SIGALRM.
"""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

ROOT: Final = Path(__file__).parents[2]
LIFE_S: Final = 60
"""No life here takes nearly as long."""
RAISED: Final = 70
"""The exit code of a function that raised."""


class Ended(NamedTuple):
    """How a life ended: by a signal or with an exit code, what it answered, and what it said on standard error."""

    signal: int | None
    code: int | None
    answer: Any
    told: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.signal == signal.SIGKILL


class LifeError(Exception):
    """A life raised, hung or crashed although nobody killed it."""


class Forks:
    """The process that forks, as seen by who uses it. `imports` are the modules that every life has from the start."""

    def __init__(self, imports: Sequence[str] = ("tests.harness.crashing",)) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.forks", *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def run(self, function: str, data: dict[str, Any]) -> Ended:
        """Let `module:function` live with the data until it ends or is killed; raises `LifeError` for any other end."""
        ended = self.watch(function, data)
        if ended.code == 0 or ended.killed:
            return ended
        how = f"raised:\n{ended.told}" if ended.code == RAISED else f"ended with {ended.signal or ended.code}"
        raise LifeError(f"{function} {how}")

    def watch(self, function: str, data: dict[str, Any]) -> Ended:
        """The same, whatever the end."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the pipes are gone")
        self._process.stdin.write(json.dumps({"function": function, "data": data}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LifeError(f"the process that forks ended with {self._process.wait()}")
        return Ended(**json.loads(line))

    def close(self) -> None:
        """End the process that forks; lives are over whenever `run` has returned."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _serve(imports: Sequence[str]) -> None:
    logging.getLogger().addHandler(logging.NullHandler())  # what a damaged queue says is meant
    for name in (*imports, "pickle"):  # which rocksdict imports once it opens a database
        import_module(name)
    gc.freeze()  # lives share what was imported: a collector that walked it would copy it for each of them
    for line in sys.stdin:
        asked = json.loads(line)
        ended = _lived(asked["function"], asked["data"])
        sys.stdout.write(json.dumps(ended._asdict()) + "\n")
        sys.stdout.flush()


def _lived(function: str, data: dict[str, Any]) -> Ended:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        signal.alarm(LIFE_S)
        _live(function, data, writing)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    told = json.loads(said) if said.endswith("\n") else {}
    return Ended(
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        answer=told.get("answer"),
        told=told.get("raised", ""),
    )


def _live(function: str, data: dict[str, Any], writing: int) -> None:
    code = RAISED
    try:
        module, _, name = function.partition(":")
        said: dict[str, Any] = {"answer": getattr(import_module(module), name)(**data)}
        code = 0
    except BaseException:  # noqa: BLE001  nothing is handled: it is told, and the process ends
        said = {"raised": traceback.format_exc()}
    os.write(writing, json.dumps(said).encode() + b"\n")
    # Without exit handlers: RocksDB's may wait, and what a life leaves open is meant to be left so.
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1:])
