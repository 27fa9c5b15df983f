"""Kill points between the storage's own steps: SIGKILL at the N-th system call of a kind, by way of strace.

RocksDB creates a database and its families in one call of ours, and writes a large batch in several pieces; the points
in the seam lie around such a call, these lie in it. A process has itself traced from some moment on, and strace kills
it at the entry of its main thread's N-th call of that kind: the call is not made any more. Calls of RocksDB's threads
are not counted, so the same steps have the same numbers.
"""

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final, Self

CALLS: Final = ("mkdir", "write", "rename", "unlink", "ftruncate", "fsync", "fdatasync")
"""Everything that changes a file or makes a change durable, in what RocksDB does here. Opens of new files are left out:
the write that follows each is there."""
PREFIX: Final = "call:"
_SET_PTRACER: Final = 0x59616D61
_ANYBODY: Final = ctypes.c_ulong(-1)


class TracerMissingError(Exception):
    """strace is not installed or may not trace; what it is to show must not go unchecked because of that."""


class Tracer:
    """A strace attached to this process. `kill_at`: a kind of call and the number of the one to die at; None: count."""

    def __init__(self, log: Path, kill_at: tuple[str, int] | None) -> None:
        self._log = log
        self._thread = str(os.getpid())
        # Where the system lets only ancestors trace, say that the child may.
        ctypes.CDLL(None).prctl(_SET_PTRACER, _ANYBODY, 0, 0, 0)
        command = ["strace", "-f", "-o", str(log), "-e", f"trace={','.join(CALLS)}"]
        if kill_at is not None:
            command += ["-e", f"inject={kill_at[0]}:signal=SIGKILL:when={kill_at[1]}"]
        if shutil.which("strace") is None:
            raise TracerMissingError("strace is not installed: apt-get install strace")
        self._process = subprocess.Popen([*command, "-p", self._thread], stderr=subprocess.PIPE, text=True)

    def wait(self) -> Self:
        """Return once the process is traced."""
        if self._process.stderr is None:
            raise ValueError("the pipe is gone")
        said = ""
        for line in self._process.stderr:
            if "attached" in line:
                return self
            said += line
        raise TracerMissingError(f"strace does not trace: {said.strip()}")

    def counted(self) -> Counter[str]:
        """Stop tracing; how often the main thread made each kind of call."""
        self._process.terminate()
        self._process.wait()
        found: Counter[str] = Counter()
        for line in self._log.read_text("utf-8", "replace").splitlines():
            thread, _, rest = line.partition(" ")
            name = rest.strip().partition("(")[0]
            if thread == self._thread and name in CALLS:
                found[f"{PREFIX}{name}"] += 1
        return found
