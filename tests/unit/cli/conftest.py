"""A desk for each test."""

from pathlib import Path

import pytest

from tests.unit.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose queue does not exist yet."""
    return Desk(tmp_path / "queue")
