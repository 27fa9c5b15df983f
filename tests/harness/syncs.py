"""Which syncs happened before which replies, from a trace of a process's system calls.

kill -9 says nothing about fsync, because the page cache outlives the process; the system calls do. A traced program
writes something recognisable to the database's log, and prints a line when it has its reply. `replies` pairs the two
and tells whether a sync of that log file began after the write had ended and ended before the reply began.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_CALLS = "write,pwrite64,fsync,fdatasync,sync_file_range"
_SYNCS = frozenset({"fsync", "fdatasync"})
_WRITES = frozenset({"write", "pwrite64"})
_STRING_BYTES_MAX = 1_048_576

_LINE = re.compile(r"^(?P<thread>\d+) +(?P<rest>.*)$")
_WHOLE = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
_BEGUN = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*) <unfinished \.\.\.>$")
_ENDED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>(?P<arguments>.*)\) += (?P<result>-?\d+)")
_FILE = re.compile(r"^(?P<number>\d+)<(?P<path>[^>]*)>")


class TracerMissingError(Exception):
    """strace is not installed; a promise about syncs must not go unchecked because of that."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call on a file. `began` and `ended` are places in the trace, each used once: smaller is earlier."""

    name: str
    path: str
    arguments: str
    result: int
    began: int
    ended: int

    @property
    def is_sync(self) -> bool:
        """Whether it made its file durable."""
        return self.name in _SYNCS and self.result == 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A tagged write to a log file, the reply to it, and the first sync of that file that lies between them, if any."""

    tag: str
    write: Call
    sync: Call | None
    reply: Call


def trace(command: Sequence[str], log: Path, *, timeout_s: float = 60, ends_with: int = 0) -> list[Call]:
    """Run a command to its end under strace, with its threads and children; returns its calls as they began.

    `log` is where the trace is written. Raises `TracerMissingError`, or `RuntimeError` when the command ends with
    another exit code than `ends_with` (-9: killed).
    """
    tracer = shutil.which("strace")
    if tracer is None:
        raise TracerMissingError("strace is needed to prove that replies wait for syncs: install it (Debian: strace)")
    prefix = [tracer, "-f", "-y", "-qq", "-s", str(_STRING_BYTES_MAX), "-e", f"trace={_CALLS}", "-e", "signal=none"]
    done = subprocess.run(
        [*prefix, "-o", str(log), *command], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != ends_with:
        raise RuntimeError(f"the traced command ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return parse(log.read_text(errors="replace").splitlines())


def parse(lines: Iterable[str]) -> list[Call]:
    """The calls in a trace made with `strace -f -y -o`.

    A line in one piece was printed when its call ended, and no other traced call began or ended meanwhile, so that one
    place serves for both ends. Raises `ValueError` for a line that cannot be read: what is overlooked might matter.
    """
    calls: list[Call] = []
    begun: dict[str, tuple[str, str, int]] = {}
    for place, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            raise ValueError(f"no line of a trace: {line!r}")
        thread, rest = found["thread"], found["rest"]
        if rest.startswith(("+++", "---")) or rest.endswith(" = ?"):
            continue
        if (whole := _WHOLE.match(rest)) is not None:
            calls.append(_call(whole["name"], whole["arguments"], whole["result"], 2 * place, 2 * place + 1))
        elif (start := _BEGUN.match(rest)) is not None:
            begun[thread] = (start["name"], start["arguments"], 2 * place)
        elif (end := _ENDED.match(rest)) is not None and thread in begun:
            name, arguments, began = begun.pop(thread)
            calls.append(_call(name, arguments + end["arguments"], end["result"], began, 2 * place))
        else:
            raise ValueError(f"no call could be read in {line!r}")
    return sorted(calls, key=lambda call: call.began)


def replies(calls: Sequence[Call], tags: Iterable[str], *, log_suffix: str = ".log") -> list[Reply]:
    """For each tag, its write to a log file, the write of the line `reply TAG`, and a sync between them.

    Raises `LookupError` when a tag was not written exactly once to a log, or not answered exactly once.
    """
    writes = [call for call in calls if call.name in _WRITES]
    found: list[Reply] = []
    for tag in tags:
        written = _only([call for call in writes if call.path.endswith(log_suffix) and tag in call.arguments], tag)
        answer = _only([call for call in writes if f'"reply {tag}\\n"' in call.arguments], f"reply {tag}")
        syncs = [call for call in calls if call.is_sync and call.path == written.path]
        between = [one for one in syncs if one.began > written.ended and one.ended < answer.began]
        found.append(Reply(tag, written, between[0] if between else None, answer))
    return found


def _only(calls: list[Call], what: str) -> Call:
    if len(calls) != 1:
        raise LookupError(f"{what!r} was written {len(calls)} times in the trace, not once")
    return calls[0]


def _call(name: str, arguments: str, result: str, began: int, ended: int) -> Call:
    file = _FILE.match(arguments)
    return Call(name, "" if file is None else file["path"], arguments, int(result), began, ended)
