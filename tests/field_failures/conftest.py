"""The queue of the interface tests, and one on each kind of store with a seam in between."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from telha_jobs import ManualClock
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.rocks import RocksStore
from tests.field_failures.seam import Seam
from tests.unit.api.conftest import clock, opened, queue

__all__ = ["clock", "opened", "queue"]


@pytest.fixture(params=["rocks", "memory"])
def seams(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Seam]]:
    """Makes a seam before a new, empty store of each kind in turn."""
    made: list[Seam] = []

    def make() -> Seam:
        if request.param == "rocks":
            made.append(Seam(RocksStore.open(tmp_path / f"store-{len(made)}", clock=clock)))
        else:
            made.append(Seam(MemoryStore.open(MemoryDisk(), clock=clock)))
        return made[-1]

    yield make
    for seam in made:
        seam.close()
