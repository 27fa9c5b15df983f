"""Servers as processes: `telha serve`, and the peer it is compared with; and what processes cost, by the kernel."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
STOP_S = 30.0
CPU_PARTS = ("event loop", "engine", "other threads")
"""Of a server: asyncio's thread; the one that works on the queue; gRPC's, RocksDB's and the reaper's."""


class Host(NamedTuple):
    """A server that is ready."""

    address: str
    pid: int


@contextmanager
def telha(path: Path) -> Iterator[Host]:
    """`telha serve` of the queue at `path`, with the settings it has by itself: durability "sync"."""
    words = ["serve", "--data", str(path), "--listen", "127.0.0.1:0", "--set", "server.grace=0s"]
    with _process([str(Path(sys.executable).with_name("telha")), *words]) as host:
        yield host


@contextmanager
def peer() -> Iterator[Host]:
    """The echo."""
    with _process([sys.executable, "-m", "scripts._bench.peer"]) as host:
        yield host


@contextmanager
def _process(command: list[str]) -> Iterator[Host]:
    """A process that says where it listens, as the last word of its first line; it ends with the block."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise RuntimeError(f"{' '.join(command[1:4])} ended with {process.wait(STOP_S)} before it was ready")
            yield Host(line.split()[-1], process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def cpu_s(pid: int) -> dict[int, float]:
    """CPU time so far of each thread of a process, in seconds."""
    found: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended just now
            found[int(task.name)] = int((task / "schedstat").read_text("ascii").split()[0]) / 1e9
    return found


def parts_s(pid: int, before: Mapping[int, float]) -> dict[str, float]:
    """CPU time of a server since `before`, by `CPU_PARTS`.

    The event loop is the main thread. The engine's is the busiest of the others: before Python 3.14 the system does not
    know the names of a program's threads.
    """
    spent = {task: now - before.get(task, 0.0) for task, now in cpu_s(pid).items()}
    loop = spent.pop(pid)
    engine = max(spent.values(), default=0.0)
    return dict(zip(CPU_PARTS, (loop, engine, sum(spent.values()) - engine), strict=True))


def memory_bytes(pid: int) -> int:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
