"""The file by which a queue's directory leads to the server that has it open: `server.json`, beside RocksDB's LOCK.

`telha serve` leaves it there and takes it away when it stops. After a kill it stays, so it is believed only if the very
process that wrote it holds the lock now: the same process id, started at the same time. That cannot be told across
containers; then it is not believed either, and `--server` is needed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_jobs.store.opening import lock_process

NAME: Final = "server.json"
_BYTES_MAX: Final = 4_096


class Served(NamedTuple):
    """Where the server of a directory is, whether it wants TLS, and its process."""

    address: str
    tls: bool
    process: int


@contextmanager
def told(data: str, address: str, *, tls: bool) -> Iterator[None]:
    """Tell in the directory where this process serves it, as long as it does."""
    path = Path(data) / NAME
    new = path.with_suffix(".new")
    me = os.getpid()
    socket = address.removeprefix("unix:")
    if socket != address:
        address = f"unix:{Path(socket).absolute()}"
    written = json.dumps({"address": address, "tls": tls, "process": me, "started": _started(me)}) + "\n"
    with suppress(OSError):  # a full disk is no reason not to serve; commands need --server then
        new.write_text(written, "utf-8")
        new.replace(path)  # whoever reads it sees all of it
    try:
        yield
    finally:
        with suppress(OSError):  # somebody may have cleaned up already
            path.unlink()


def server_of(data: str) -> Served | None:
    """The server that has the directory's database open now; None when nobody is known to serve it."""
    process = lock_process(Path(os.path.realpath(data)))
    if process is None:
        return None
    found = _read(Path(data) / NAME)
    if not found or found.get("process") != process or found.get("started") != _started(process):
        return None
    address, tls = found.get("address"), found.get("tls")
    if not isinstance(address, str) or not isinstance(tls, bool):
        return None
    return Served(address, tls, process)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _started(process: int) -> int | None:
    """When the process started, in ticks since the machine did; None when that cannot be told."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name stands in brackets and may hold anything; the time is the 22nd field, the 20th behind them.
    return int(stat.rpartition(")")[2].split()[19])
