"""The store's own keys in the family `meta`, byte-exact.

The store keeps four keys, all under `store/`; every other key of `meta` belongs to the engine and never starts so.
Integers are unsigned and big-endian.

    store/format        4 bytes   major 2, minor 2: the format the database is written in
    store/commit       16 bytes   sequence 8, high water 8: put in every commit
    store/incarnation   4 bytes   how often the database was opened after an unclean end or a restore
    store/open          1 byte    01: somebody has the database open, or had when the end came

A reader refuses a newer major version and leaves the database untouched; it reads any minor version of a major it
knows.
"""

import struct
from typing import Final, NamedTuple

PREFIX: Final = b"store/"
"""What the store's keys begin with, and the engine's do not."""

FORMAT_KEY: Final = b"store/format"
COMMIT_KEY: Final = b"store/commit"
INCARNATION_KEY: Final = b"store/incarnation"
OPEN_KEY: Final = b"store/open"

OPEN_MARK: Final = b"\x01"

_FORMAT = struct.Struct(">HH")
_COMMIT = struct.Struct(">QQ")
_INCARNATION = struct.Struct(">I")
_COUNTER = struct.Struct(">q")


class FormatVersion(NamedTuple):
    """`major` changes what old readers would misread; `minor` only adds what they may ignore."""

    major: int
    minor: int


FORMAT: Final = FormatVersion(1, 0)
"""The format this library writes."""


class CommitState(NamedTuple):
    """What every commit records: its sequence, and the newest time the queue had told anybody (ms since the epoch)."""

    sequence: int
    high_water_ms: int


class KeyDescription(NamedTuple):
    """One of the store's keys: its name in prose, its bytes, how its value is laid out and what it means."""

    name: str
    key: bytes
    encoding: str
    meaning: str


def store_keys() -> tuple[KeyDescription, ...]:
    """Every key of `meta` that belongs to the store, for the format document and for the check."""
    return (
        KeyDescription("format version", FORMAT_KEY, "major u16, minor u16", "a newer major version refuses the open"),
        KeyDescription("commit state", COMMIT_KEY, "sequence u64, high water u64 (ms)", "put in every commit"),
        KeyDescription(
            "incarnation", INCARNATION_KEY, "u32", "0 at the first open, one more after each unclean end or restore"
        ),
        KeyDescription(
            "open mark", OPEN_KEY, "u8, always 1", "there while the database is open and after an unclean end"
        ),
    )


def encode_format(version: FormatVersion) -> bytes:
    """The value of `store/format`."""
    return _FORMAT.pack(version.major, version.minor)


def decode_format(value: bytes) -> FormatVersion:
    """Raises `ValueError` for a value of the wrong size."""
    return FormatVersion(*_unpack(_FORMAT, "format version", value))


encode_commit = _COMMIT.pack
"""`encode_commit(sequence, high_water_ms)`: the value of `store/commit`."""


def decode_commit(value: bytes) -> CommitState:
    """Raises `ValueError` for a value of the wrong size."""
    return CommitState(*_unpack(_COMMIT, "commit state", value))


def encode_incarnation(incarnation: int) -> bytes:
    """The value of `store/incarnation`."""
    return _INCARNATION.pack(incarnation)


def decode_incarnation(value: bytes) -> int:
    """Raises `ValueError` for a value of the wrong size."""
    return _unpack(_INCARNATION, "incarnation", value)[0]


pack_counter = _COUNTER.pack
"""A counter as `Add` keeps it: signed, 8 bytes; raises `struct.error` beyond them."""


def encode_counter(count: int) -> bytes:
    """The same; raises `ValueError`."""
    try:
        return pack_counter(count)
    except struct.error as error:
        raise ValueError(f"a counter holds a signed 64-bit integer, {count} does not fit") from error


def decode_counter(value: bytes) -> int:
    """Raises `ValueError` for a value of the wrong size."""
    return _unpack(_COUNTER, "counter", value)[0]


def _unpack(layout: struct.Struct, name: str, value: bytes) -> tuple[int, ...]:
    if len(value) != layout.size:
        raise ValueError(f"the {name} must be {layout.size} bytes, these are {len(value)}: {value[:32].hex()}")
    return layout.unpack(value)
