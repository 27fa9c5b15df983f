"""A queue per test, in the test's own directory, on a clock that moves by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telha_jobs import JobQueue, ManualClock
from tests.unit.api.support import START_MS, open_queue

Open = Callable[..., JobQueue]


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves only by hand."""
    return ManualClock(START_MS)


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens the test's queue with settings; whatever is open at the end is closed."""
    made: list[JobQueue] = []

    def open_it(**config: Any) -> JobQueue:
        made.append(open_queue(tmp_path / "queue", clock, **config))
        return made[-1]

    yield open_it
    while made:
        made.pop().close()


@pytest.fixture
def queue(opened: Open) -> JobQueue:
    """An empty queue with the default settings."""
    return opened()
