"""A row that is whole by its checksum and yet no record of this version: unreadable, and it says why."""

import google_crc32c
import pytest

from telha_jobs.codec import RECORD_VERSION, UnreadableError, decode_record, encode_record, pack_plain
from telha_jobs.core.decide import enqueued

KEY, VALUE = encode_record(
    enqueued(bytes(16), 128, 1_000, bytes(16), "a", b"\x01\xc0", 1, {}, None, 1_000, None, None),
    sequence=1,
    token=bytes(16),
)


def sealed(body: bytes, key: bytes = KEY) -> bytes:
    """A value with the checksum that belongs to it."""
    checksum: int = google_crc32c.value(key + body)
    return body + checksum.to_bytes(4, "big")


def test_the_seal_is_the_rows_own() -> None:
    """What the other tests seal would be read, were it right."""
    assert sealed(VALUE[:-4]) == VALUE
    assert decode_record(KEY, VALUE).kind == "a"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x09" + VALUE[1:-4], "unknown record version 09"),
        (RECORD_VERSION + b"\xc1", "FormatError"),
        (RECORD_VERSION + pack_plain(7), "TypeError"),
        (RECORD_VERSION + pack_plain(["a", "b"]), "IndexError"),
        (VALUE[:-5], "ValueError"),
    ],
    ids=["version", "no msgpack", "no list", "too few fields", "cut"],
)
def test_a_body_that_is_no_record_is_unreadable(body: bytes, reason: str) -> None:
    """Of another version, not packed, of another shape, cut: an error of the one type that quarantine knows."""
    with pytest.raises(UnreadableError, match=reason):
        decode_record(KEY, sealed(body))


def test_a_key_that_is_no_row_key_is_unreadable() -> None:
    """A state that does not exist, under a checksum that holds."""
    key = KEY[:16] + b"\x63" + KEY[17:]
    with pytest.raises(UnreadableError, match="ValueError"):
        decode_record(key, sealed(VALUE[:-4], key))
