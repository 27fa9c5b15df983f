"""Images of a directory as a loss of power may leave it: the log cut, its tail zeroed, a hole in it, a bit turned.

What was on the disk stays; of what came after the last sync anything may be missing, in any order of its pages. So a
log in its whole length `n`, cut at byte `at`, stands for each moment at which no more than `at` bytes were synced:

- `truncate`: the bytes from `at` on were never written
- `zero`: they were given room, and zeros are there
- `hole`: one page of 512 bytes from `at` on is missing, what came after it is there
- `flip`: the byte at `at` was written wrong, in one bit
"""

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, assert_never

from tests.chaos.wal import Record, boundaries

How = Literal["truncate", "zero", "hole", "flip"]
_PAGE_BYTES: Final = 512
_LINKED: Final = frozenset({".sst"})
_LEFT_OUT: Final = ("LOCK", "LOG", "OPTIONS")


class Cut(NamedTuple):
    """One image: what is done to the log, at which byte of it; `bit` is for `flip`."""

    how: How
    at: int
    bit: int = 0

    def apply(self, log: bytes) -> bytes:
        """The log after the loss."""
        match self.how:
            case "truncate":
                return log[: self.at]
            case "zero":
                return log[: self.at].ljust(len(log), b"\0")
            case "hole":
                lost = min(_PAGE_BYTES, len(log) - self.at)
                return log[: self.at] + bytes(lost) + log[self.at + lost :]
            case "flip":
                return log[: self.at] + bytes([log[self.at] ^ (1 << self.bit)]) + log[self.at + 1 :]
            case _:
                assert_never(self.how)


def sampled(records: Sequence[Record], first: int, size: int, chance: random.Random, *, bytes_more: int) -> list[Cut]:
    """Truncated and zeroed at every edge of a fragment and one byte on either side; then as many sampled bytes of each
    kind. Nothing before byte `first`.
    """
    edges = {place + by for place in boundaries(list(records)) for by in (-1, 0, 1)}
    places = sorted(place for place in edges if first <= place <= size)
    cuts = [Cut(how, place) for place in places for how in _ENDS]
    for how in (*_ENDS, "hole", "flip"):
        cuts += [Cut(how, chance.randrange(first, size), chance.randrange(8)) for _ in range(bytes_more)]
    return cuts


def every_byte(first: int, size: int) -> Iterator[Cut]:
    """Truncated, zeroed and flipped at every byte from `first` on, and a hole at every page."""
    for place in range(first, size):
        yield from (Cut("truncate", place), Cut("zero", place), Cut("flip", place, place % 8))
        if place % _PAGE_BYTES == 0:
            yield Cut("hole", place)


_ENDS: Final[tuple[How, How]] = ("truncate", "zero")


def make_image(source: Path, target: Path, log: str, content: bytes) -> None:
    """A directory like `source` whose log is `content`. Tables, which never change, are links."""
    target.mkdir()
    for file in source.iterdir():
        if file.name.startswith(_LEFT_OUT):
            continue
        if file.name == log:
            (target / log).write_bytes(content)
        elif file.suffix in _LINKED:
            os.link(file, target / file.name)
        else:
            shutil.copyfile(file, target / file.name)
