"""A rig per store of the contract suite, on tmpfs where there is one."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rigs import RIGS, Rig, RocksRig

_TMPFS = Path("/dev/shm")  # where Linux has it


@pytest.fixture
def directory() -> Iterator[Path]:
    """An empty directory, quick to sync."""
    path = Path(tempfile.mkdtemp(prefix="telha-contract-", dir=_TMPFS if _TMPFS.is_dir() else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, directory: Path) -> Iterator[Rig]:
    """Every store in turn."""
    made = RIGS[request.param](directory)
    yield made
    made.end()


@pytest.fixture
def rocks(directory: Path) -> Iterator[RocksRig]:
    """The RocksDB store alone."""
    made = RocksRig(directory)
    yield made
    made.end()
