"""The corpus runs before everything else: what broke once is told first, and in a second."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the corpus in front, the rest in the order it has."""
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))
