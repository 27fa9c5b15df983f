"""Servers that are broken on purpose."""

from collections.abc import Callable
from typing import Final

FLAWS: Final[dict[str, Callable[[], None]]] = {}
