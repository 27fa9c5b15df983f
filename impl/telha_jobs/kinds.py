"""Kinds as numbers: `ready` keys and counters hold eight bytes, `meta` holds the names.

A filter never makes a number.
"""

from collections.abc import Iterable

from telha_jobs.config import kind_matches


class Kinds:
    """The interned kinds. Numbers begin at 1 and are never reused. Not thread-safe: the engine's lock guards it."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names
        self.numbers = {name: number for number, name in names.items()}
        self._last = max(names, default=0)
        self._matches: dict[str, frozenset[int]] = {}

    def next_number(self) -> int:
        """The number of the next new kind."""
        return self._last + 1

    def add(self, number: int, name: str) -> None:
        """A commit interned this kind."""
        self.names[number] = name
        self.numbers[name] = number
        self._last = max(self._last, number)
        self._matches.clear()

    def matching(self, patterns: Iterable[str]) -> frozenset[int]:
        """The numbers of the known kinds that the exact names and families accept."""
        return frozenset().union(*(self._matching(pattern) for pattern in patterns))

    def _matching(self, pattern: str) -> frozenset[int]:
        if not pattern.endswith("*"):
            number = self.numbers.get(pattern)
            return frozenset() if number is None else frozenset((number,))
        if pattern not in self._matches:
            if len(self._matches) >= 1_024:
                self._matches.clear()  # bounded: callers choose the patterns
            self._matches[pattern] = frozenset(n for name, n in self.numbers.items() if kind_matches(pattern, name))
        return self._matches[pattern]
