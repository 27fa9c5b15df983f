"""A reader of RocksDB's write-ahead log, written from the layout of the file and sharing no code with RocksDB.

The file is a row of blocks of 32 KiB. A record lies in one fragment, or in several when it does not fit what is left of
a block; a fragment never crosses a block's edge, and less than a header's room at the end of a block is zeros:

    checksum 4 · length 2 · type 1 · payload           numbers little-endian; the checksum is a masked CRC-32C
                                                       of type and payload; types: 1 whole, 2 first, 3 middle, 4 last

The payload of a whole record is a write batch: sequence 8 · count 4 · changes.
"""

import struct
from typing import Final, NamedTuple

import google_crc32c

BLOCK_BYTES: Final = 32 * 1024
HEADER_BYTES: Final = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH_HEADER_BYTES: Final = 12
_MASK_DELTA: Final = 0xA282EAD8
_BITS32: Final = 0xFFFFFFFF


class Fragment(NamedTuple):
    """A part of a record that lies in one block: from `start` to before `end` in the file, header included."""

    start: int
    end: int
    type: int


class Record(NamedTuple):
    """One write batch: where it lies, RocksDB's sequence of its first change, and how many changes it holds."""

    start: int
    end: int
    sequence: int
    changes: int
    fragments: tuple[Fragment, ...]


def parse(data: bytes) -> list[Record]:
    """The records of a log, in order. Raises ValueError for anything but whole records from end to end."""
    records: list[Record] = []
    parts: list[Fragment] = []
    for fragment in _fragments(data):
        begins = fragment.type in (_WHOLE, _FIRST)
        if begins == bool(parts):
            raise ValueError(f"byte {fragment.start}: a fragment of type {fragment.type} is out of place")
        parts.append(fragment)
        if fragment.type in (_WHOLE, _LAST):
            records.append(_record(data, tuple(parts)))
            parts = []
    if parts:
        raise ValueError(f"byte {parts[0].start}: a record without an end")
    return records


def boundaries(records: list[Record]) -> list[int]:
    """Every place at which a fragment begins or ends, rising."""
    return sorted({place for record in records for one in record.fragments for place in (one.start, one.end)})


def _fragments(data: bytes) -> list[Fragment]:
    found: list[Fragment] = []
    place = 0
    while place < len(data):
        room = BLOCK_BYTES - place % BLOCK_BYTES
        if room < HEADER_BYTES:
            if any(data[place : place + room]):
                raise ValueError(f"byte {place}: the end of a block is not zeros")
            place += room
            continue
        if len(data) - place < HEADER_BYTES:
            raise ValueError(f"byte {place}: a header that is cut")
        checksum, length, kind = struct.unpack_from("<IHB", data, place)
        end = place + HEADER_BYTES + length
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            raise ValueError(f"byte {place}: no fragment has the type {kind}")
        if HEADER_BYTES + length > room or end > len(data):
            raise ValueError(f"byte {place}: a fragment of {length} bytes runs over its block or over the file")
        if checksum != _masked(google_crc32c.value(data[place + HEADER_BYTES - 1 : end])):
            raise ValueError(f"byte {place}: the checksum does not match")
        found.append(Fragment(place, end, kind))
        place = end
    return found


def _record(data: bytes, parts: tuple[Fragment, ...]) -> Record:
    payload = b"".join(data[one.start + HEADER_BYTES : one.end] for one in parts)
    if len(payload) < _BATCH_HEADER_BYTES:
        raise ValueError(f"byte {parts[0].start}: {len(payload)} bytes are no write batch")
    sequence, changes = struct.unpack_from("<QI", payload)
    return Record(parts[0].start, parts[-1].end, sequence, changes, parts)


def _masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & _BITS32
