"""Bytes and back: carried values (msgpack behind a version byte), records (msgpack between a version byte and a
checksum), digests.

The only module that imports msgpack. docs/format.md describes every byte.
"""

import hashlib
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import msgpack

from telha_jobs.core.record import LogEntry, Record
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.keys import job_key, parse_job_key
from telha_jobs.rules import NESTING_MAX
from telha_jobs.types import named

VALUE_VERSION = b"\x01"
RECORD_VERSION = b"\x01"
_CRC = struct.Struct(">I")
_IN_KEY = Record._fields.index("kind")
_SEQUENCE = Record._fields.index("sequence")
_EVENTS = Record._fields.index("events") - _IN_KEY
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_ARRAYS, _HOLDERS = (list, tuple), (dict, list)


class UnreadableError(ValueError):
    """These bytes are not what they should be; nothing of them is used."""


def pack_value(field: str, value: Any, bytes_max: int) -> bytes:
    """Encode a payload, result or progress, if it comes back type for type and fits.

    Raises `InvalidArgumentError` naming `field`. Allowed: None, bool, int of 64 bits (signed, or unsigned), float but
    not NaN, str, bytes, list, dict with str or int keys; exactly these types, at most 100 containers deep.
    """
    if (type(value) is not str or not value.isascii()) and value is not None and type(value) is not bytes:
        _check_value(field, value, bytes_max)
    packed = VALUE_VERSION + _packers.strict(value)
    if len(packed) - 1 > bytes_max:
        raise InvalidArgumentError(field, f"must encode to at most {bytes_max} bytes, it has {len(packed) - 1}")
    return packed


def unpack_value(packed: bytes) -> Any:
    """Decode what `pack_value` made. Raises `UnreadableError`."""
    if packed[:1] != VALUE_VERSION:
        raise UnreadableError(f"unknown value version {packed[:1].hex() or 'none'}")
    try:
        return msgpack.unpackb(packed[1:], strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnreadableError(str(error)) from None


def canonical(value: Any) -> bytes:
    """One encoding for equal values: types differ (1, 1.0, True), the order of a map's keys does not."""
    if not _holds_map(value):
        return _packers.lenient(value)
    packer = msgpack.Packer(autoreset=False, use_bin_type=True, unicode_errors="surrogatepass")
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack:
        for item in stack[-1]:
            if isinstance(item, dict):
                packer.pack_map_header(len(item))
                ordered = sorted(item.items(), key=lambda pair: (isinstance(pair[0], int), pair[0]))
                stack.append(iter([part for pair in ordered for part in pair]))
                break
            if isinstance(item, _ARRAYS):
                packer.pack_array_header(len(item))
                stack.append(iter(item))
                break
            packer.pack(item)
        else:
            stack.pop()
    return bytes(packer.bytes())


def _holds_map(value: Any) -> bool:
    """Whether there may be a map in it, as far as one look tells."""
    if isinstance(value, tuple):
        return any(isinstance(part, dict) or (part and isinstance(part, _ARRAYS)) for part in value)
    return isinstance(value, _HOLDERS)


def digest(*parts: Any) -> bytes:
    """16 bytes that stand for a call's verb and arguments, uncut and as given."""
    return hashlib.blake2b(canonical(parts), digest_size=16).digest()


def pack_plain(value: Any) -> bytes:
    """Encode the engine's own small values (a recorded reply)."""
    return _packers.strict(value)


def packing() -> Callable[[Any], bytes]:
    """A `pack_plain` for callers who take turns: it need not look for its thread's packer."""
    pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack
    return pack


def unpack_plain(packed: bytes) -> Any:
    """Decode what `pack_plain` made, lists as tuples."""
    return msgpack.unpackb(packed, use_list=False, strict_map_key=False)


def encode_record(
    record: Record, sequence: int, token: bytes, pack: Callable[[Any], bytes] = pack_plain
) -> tuple[bytes, bytes]:
    """The row of a record as commit `sequence` writes it: its key in `jobs` and its value."""
    key = job_key(record[0], record[1], record[2], record[3], record[4])
    fields = record[_IN_KEY:_SEQUENCE] + (sequence, token, record.events) + record.unknown  # noqa: RUF005  faster
    body = RECORD_VERSION + pack(fields)
    return key, body + _CRC.pack(google_crc32c.value(key + body))


def decode_record(key: bytes, value: bytes) -> Record:
    """The record of a row. Raises `UnreadableError` when key or value is damaged or of an unknown version."""
    body = value[:-4]
    if len(value) < 6 or _CRC.unpack(value[-4:])[0] != google_crc32c.value(key + body):
        raise UnreadableError("checksum does not match")
    if body[:1] != RECORD_VERSION:
        raise UnreadableError(f"unknown record version {body[:1].hex()}")
    try:
        fields = msgpack.unpackb(body[1:], use_list=False, strict_map_key=False)
        events = tuple([named(LogEntry, one) for one in fields[_EVENTS]])
        return named(Record, (*parse_job_key(key), *fields[:_EVENTS], events, fields[_EVENTS + 1 :]))
    except (ValueError, LookupError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from None


class _Packers(threading.local):
    """A thread's packers, kept because making one costs as much as packing a record."""

    def __init__(self) -> None:
        self.strict = packing()
        self.lenient: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack


_packers = _Packers()


def _check_value(field: str, value: Any, bytes_max: int) -> None:
    """Walk a value without recursion, so that no nesting can exhaust the caller's stack.

    Everything takes a byte or more, so the walk stops at `bytes_max` items: a small value that holds itself many times
    over ends there too.
    """
    level = [value]
    items = 0
    for _depth in range(NESTING_MAX + 1):
        inner: list[Any] = []
        for item in level:
            _check_item(field, item, inner)
            if items + len(inner) > 2 * bytes_max + 2:
                raise InvalidArgumentError(
                    field, f"must encode to at most {bytes_max} bytes, it holds more items than that"
                )
        if not inner:
            return
        items += len(inner)
        level = inner
    raise InvalidArgumentError(field, f"must nest at most {NESTING_MAX} containers deep")


def _check_item(field: str, item: Any, inner: list[Any]) -> None:
    """Check one value; what it contains is added to `inner`."""
    kind = type(item)
    if kind is str:
        _check_str(field, item)
    elif kind is int:
        if not _INT_MIN <= item <= _INT_MAX:
            raise InvalidArgumentError(field, f"holds an int that 64 bits cannot carry ({item.bit_length()} bits)")
    elif kind is float:
        if item != item:
            raise InvalidArgumentError(field, "holds NaN, which does not equal itself when it comes back")
    elif kind is dict:
        for key in item:
            if type(key) is not str and type(key) is not int:
                raise InvalidArgumentError(field, f"holds a map key of type {kind_name(key)}: keys are str or int")
            _check_item(field, key, inner)
        inner.extend(item.values())
        _count_empty(item, inner)
    elif kind is list:
        inner.extend(item)
        _count_empty(item, inner)
    elif item is not None and kind is not bool and kind is not bytes:
        raise InvalidArgumentError(
            field,
            f"holds a {kind_name(item)}: only None, bool, int, float, str, bytes, list and dict come back as they went",
        )


def _count_empty(container: Any, inner: list[Any]) -> None:
    # An empty container is a level of nesting like a full one: give it one harmless thing inside.
    if not container:
        inner.append(None)


def _check_str(field: str, item: str) -> None:
    if item.isascii():
        return
    try:
        item.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(field, f"holds text with a lone surrogate at character {error.start}") from None


def kind_name(value: Any) -> str:
    """The name of a value's type, for messages."""
    return type(value).__name__
