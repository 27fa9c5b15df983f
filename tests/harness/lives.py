"""The lives of a process that was killed again and again, cut out of the history of its callers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.history import Call, Note, read


class Life(NamedTuple):
    """One life: what was said when it had opened, when it was killed, and the calls that can have reached it."""

    number: int
    opened: Mapping[str, Any]
    killed_at: float
    calls: Sequence[Call]


def begun(said: Call) -> float:
    """When a call can first have reached somebody: all messages of a stream from its opening on."""
    since: float = said.given.get("since", said.asked_at)
    return since


def lives(path: Path) -> list[Life]:
    """The lives of a history. A call that was begun after a kill, and before the next open, never reached anybody.

    Whatever was begun in a life belongs to it, however late its lines are: a message can lie at its caller, unread and
    not yet announced, while the process that sent it is killed.
    """
    lines = read(path)
    calls = [line for line in lines if isinstance(line, Call)]
    found, opened = list[Life](), Note("opened", {}, 0.0)
    for line in lines:
        match line:
            case Note("opened"):
                opened = line
            case Note("killed", data, at):
                own = [call for call in calls if opened.at <= begun(call) <= at]
                found.append(Life(data["life"], opened.data, at, own))
            case _:
                pass
    return found
