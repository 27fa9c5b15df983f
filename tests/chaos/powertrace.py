"""What is known from outside about a queue that was killed: its states, its answers, and how far the log was synced.

The history tells every batch that went to RocksDB, so the state after each commit is known byte for byte; the trace of
its system calls tells which part of the log was durable when each answer left.
"""

import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from telha_jobs import LeaseRef
from telha_jobs.store.rocks import Durability
from tests.chaos import history
from tests.chaos.frame import HISTORY
from tests.chaos.states import State, change, copied, empty
from tests.harness.syncs import Call, trace

_LINE: Final = re.compile(r'\{\\"say\\": \\"(?:outcome\\", \\"id\\": \\"(?P<id>[^\\]+)|note.*\\"what\\": \\"opened)\\"')
_OPENED: Final = "opened"
_TIMEOUT_S: Final = 120


class Answer(NamedTuple):
    """An answer that was given: the newest commit it may have seen, and how much of the log was synced by then."""

    sequence: int
    synced: int


class Granted(NamedTuple):
    """A lease that was answered, and the commit that granted it."""

    ref: LeaseRef
    sequence: int


class Killed(NamedTuple):
    """A queue's directory as its death left it, its newest log, and what happened before.

    `first`: the byte to which the log was synced when the queue was open, at commit `opened_at`. `states[n]`: after
    commit n. `synced`: whether an answer promises that what it tells is durable.
    """

    directory: Path
    log: str
    content: bytes
    first: int
    states: list[State]
    answers: list[Answer]
    leases: list[Granted]
    opened_at: int
    synced: bool

    def floor(self, at: int) -> int:
        """The oldest commit that a log which is whole up to byte `at` may end with. What a clean close left is durable
        at "os" too.
        """
        promised = (one.sequence for one in self.answers if one.synced <= at) if self.synced else ()
        return max(promised, default=self.opened_at)

    @property
    def answered(self) -> int:
        """The newest commit that anybody was told of."""
        return max((one.sequence for one in self.answers), default=0)


def killed(room: Path, *, seed: int, durability: Durability, before: int, calls: int, large: bool) -> Killed:
    """Run a load to its death under the tracer in an empty directory, and examine it."""
    database, told = room / "database", room / HISTORY
    given = {"seed": seed, "durability": durability, "before": before, "calls": calls, "large": large}
    command = [sys.executable, "-m", "tests.chaos.powerload", str(database), str(told), json.dumps(given)]
    traced = trace(command, room / "trace", timeout_s=_TIMEOUT_S, ends_with=-signal.SIGKILL)
    return _examined(database, told, traced, synced=durability == "sync")


class Synced:
    """How far a file was synced at each place in a trace."""

    def __init__(self, traced: Sequence[Call], path: str) -> None:
        here = [call for call in traced if call.path == path]
        writes = [call for call in here if call.name == "write"]
        self._known = [
            (one.ended, sum(write.result for write in writes if write.ended < one.began)) for one in here if one.is_sync
        ]

    def when(self, place: int) -> int:
        """The bytes that a sync which was over by then had made durable."""
        return max((size for ended, size in self._known if ended < place), default=0)


def _examined(database: Path, told: Path, traced: Sequence[Call], *, synced: bool) -> Killed:
    log = max(file.name for file in database.glob("*.log"))
    durable = Synced(traced, str(database / log))
    left = _left(traced, str(told))
    now = empty()
    states, answers, leases, opened_at = [copied(now)], list[Answer](), list[Granted](), 0
    for one in history.read(told):
        match one:
            case history.Note("written", data):
                change(now, data["changes"])
            case history.Note("commit"):
                states.append(copied(now))
            case history.Note("opened"):
                opened_at = len(states) - 1
            case history.Call() if one.told is not None:
                sequence: int = one.told["sequence"]
                answers.append(Answer(sequence, durable.when(left[one.id])))
                leases += [Granted(LeaseRef(UUID(job), number), sequence) for job, number in one.told.get("leases", ())]
            case _:
                pass
    content = (database / log).read_bytes()
    first = durable.when(left[_OPENED])
    return Killed(database, log, content, first, states, answers, leases, opened_at, synced)


def _left(traced: Sequence[Call], told: str) -> Mapping[str, int]:
    """The place in the trace at which each outcome was told, by the call's id, and the last open, by `opened`."""
    found = dict[str, int]()
    for call in traced:
        if call.path == told and (line := _LINE.search(call.arguments)) is not None:
            found[line["id"] or _OPENED] = call.began
    return found
