"""Kinds as numbers: `ready` keys and counters hold eight bytes, `meta` holds the names.

A filter never makes a number.
"""

from collections.abc import Iterable
from typing import NamedTuple

from telha_jobs.config import check_kind, kind_matches
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.keys import KIND_PREFIX, parse_u64
from telha_jobs.rules import KINDS_MAX


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


class KindTable(NamedTuple):
    """What `meta` says of kinds: names by number, and the entries that make no sense (their key, and why)."""

    names: dict[int, str]
    wrong: list[tuple[bytes, str]]


def read_kinds(entries: Iterable[tuple[bytes, bytes]]) -> KindTable:
    """Understand the entries of `meta` that name kinds. Of two numbers with one name the lower one counts."""
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    wrong: list[tuple[bytes, str]] = []
    for key, value in entries:
        try:
            number, name = parse_u64(key[len(KIND_PREFIX) :]), check_kind("name", value.decode("utf-8"))
        except InvalidArgumentError:
            wrong.append((key, f"{value[:140]!r} is no name of a kind"))
        except ValueError as error:
            wrong.append((key, str(error)))
        else:
            if not 1 <= number <= KINDS_MAX:
                wrong.append((key, f"no kind has the number {number}"))
            elif name in taken:
                wrong.append((key, f"{name!r} is kind {taken[name]} already"))
            else:
                names[number] = name
                taken[name] = number
    return KindTable(names, wrong)
