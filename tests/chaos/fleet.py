"""Callers of a server over gRPC, each a process of its own that outlives the server: for histories of concurrent calls.

    python -m tests.chaos.fleet '{"root": ..., "seed": 7, "names": ["p0", "p1", "w0", ...]}'

One process that has imported everything forks the others; none has a connection before. They read from a file which
server there is and what is to be done (`Word`). All that they ask and are told goes to the run's one history. What each
does is drawn from the seed; how their calls interleave is nobody's. They end when the file says so, or with whoever
started them.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.chaos.calls import Calls
from tests.chaos.frame import HISTORY, ROOT, FoundError
from tests.chaos.history import History
from tests.chaos.remote import LostError
from tests.chaos.roles import Role
from tests.chaos.service import GrpcCaller

STOP: Final = "stop"
LOST: Final = "lost"
"""The note of a caller that was not answered, and falls silent until the next life."""
_WORD: Final = "word.json"
_PAUSE_S: Final = 0.005
_ENDS_S: Final = 60.0
_PR_SET_PDEATHSIG: Final = 1


class Word(NamedTuple):
    """What is wanted: the life of the server, where it is (None: nowhere), and the mode."""

    life: int
    address: str | None
    mode: str


class Fleet:
    """The processes of all callers. A context manager; leaving it ends them, whatever happened."""

    def __init__(self, root: Path, seed: int, names: tuple[str, ...]) -> None:
        self._root = root
        self._log = root / "fleet.log"
        self.say(Word(0, None, "load"))
        told = {"root": str(root), "seed": seed, "names": names}
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.fleet", json.dumps(told)],
                stdin=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def say(self, word: Word) -> None:
        """Tell all of them."""
        new = self._root / "word.new"
        new.write_text(json.dumps(word))
        new.replace(self._root / _WORD)

    def check(self) -> None:
        """Raise `FoundError` if a caller met what it cannot understand."""
        if self._process.poll() is not None:
            raise FoundError(f"the callers ended ({self._process.returncode}): {self._last_words()}")

    def end(self) -> None:
        """Let everybody end; `FoundError` when somebody could not."""
        self.say(Word(0, None, STOP))
        try:
            code = self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            raise FoundError(f"a caller waits for an answer for more than {_ENDS_S:.0f} s") from None
        if code:
            raise FoundError(f"the callers ended ({code}): {self._last_words()}")

    def _last_words(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2_000:].strip() or "they said nothing"


def _read(root: Path) -> Word:
    return Word(*json.loads((root / _WORD).read_text()))


def _live(root: Path, seed: int, name: str) -> None:
    """One caller, from server to server."""
    role, life = Role(name, Random(f"{seed}/{name}")), 0
    with History(root / HISTORY, name) as history:
        while (word := _read(root)).mode != STOP:
            if word.address is None or word.life == life:
                time.sleep(_PAUSE_S)
                continue
            life = word.life
            caller = GrpcCaller(word.address, history, Calls)
            try:
                while (now := _read(root)).life == life:
                    role.act(now.mode, caller)
            except LostError as error:
                history.note(LOST, life=life, caller=name, why=str(error))  # the next server may answer
            finally:
                caller.close()


def main(told: dict[str, Any]) -> int:
    """Start everybody, and wait for the end."""
    root, children = Path(told["root"]), set[int]()
    for name in told["names"]:
        child = os.fork()
        if child == 0:
            os._exit(_child(root, told["seed"], name))
        children.add(child)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while children:
        child, status = os.wait()
        children.discard(child)
        if status:
            return 1  # the others die with this process
    return 0


def _child(root: Path, seed: int, name: str) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _live(root, seed, name)
    except BaseException:  # noqa: BLE001  nothing is handled: it is shown, and ends the run
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
