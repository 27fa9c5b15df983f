"""The lanes of `tests/chaos`, one line each: its name, and the module that holds its `LANE`."""

from importlib import import_module
from typing import Final

from tests.chaos.frame import Lane

LANES: Final = {
    "killpoints": "tests.chaos.killpoints",
    "blackbox": "tests.chaos.blackbox",
    "worker": "tests.chaos.worker",
    "powerloss": "tests.chaos.powerloss",
    "faults": "tests.chaos.faults",
    "clock": "tests.chaos.clock",
    "corruption": "tests.chaos.corruption",
    "longlife": "tests.chaos.longlife",
    "histories": "tests.chaos.histories",
}


def lane(name: str) -> Lane:
    """The lane of that name; KeyError when none is listed."""
    found: Lane = import_module(LANES[name]).LANE
    return found
