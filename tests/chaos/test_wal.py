"""The reader of logs, and the images that are made of one."""

import random
from collections import Counter
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, WriteBatch

from tests.chaos.cutting import Cut, every_byte, make_image, sampled
from tests.chaos.wal import BLOCK_BYTES, HEADER_BYTES, boundaries, parse


@pytest.fixture
def log(tmp_path: Path) -> bytes:
    """The log of a database with 40 batches, of one change the first, of two the second, and so on."""
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    for number in range(40):
        batch = WriteBatch(raw_mode=True)
        for change in range(number + 1):
            batch.put(bytes([number, change]), bytes(50 * number))
        database.write(batch)
    database.flush_wal(True)
    [path] = (tmp_path / "db").glob("*.log")
    content = path.read_bytes()
    database.close()
    return content


def test_every_batch_is_found_with_its_sequence(log: bytes) -> None:
    """The records are RocksDB's batches: each numbered by its first change, in order, from end to end of the file."""
    records = parse(log)
    first = [1 + number * (number + 1) // 2 for number in range(40)]
    assert (first, list(range(1, 41))) == ([one.sequence for one in records], [one.changes for one in records])
    assert (0, len(log)) == (records[0].start, records[-1].end)


def test_a_record_over_the_edge_of_a_block_has_fragments(log: bytes) -> None:
    """A record that does not fit what is left of a block is in several fragments, none of which crosses an edge."""
    records = parse(log)
    fragments = [fragment for one in records for fragment in one.fragments]
    assert max(len(one.fragments) for one in records) > 2
    assert [one for one in fragments if one.start // BLOCK_BYTES != (one.end - 1) // BLOCK_BYTES] == []
    assert len(boundaries(records)) > len(records)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda log: log[:-1], "runs over"),
        (lambda log: log[: HEADER_BYTES - 1], "a header that is cut"),
        (lambda log: log[:9] + bytes([log[9] ^ 1]) + log[10:], "checksum"),
        (lambda log: log[:6] + b"\x05" + log[7:], "no fragment has the type 5"),
        (lambda log: log[: BLOCK_BYTES * 2], "without an end"),
        (lambda log: log[BLOCK_BYTES : BLOCK_BYTES * 2], "out of place"),
    ],
    ids=["cut", "cut in a header", "a bit", "another type", "cut at a block", "begun in the middle"],
)
def test_what_is_no_whole_log_is_refused(log: bytes, change: object, told: str) -> None:
    """Anything but whole records raises, and tells the byte."""
    with pytest.raises(ValueError, match=f"^byte .*{told}"):
        parse(change(log))  # type: ignore[operator]


def test_each_kind_of_loss_does_what_it_says() -> None:
    """Truncated, zeroed to the end, one page missing, one bit turned; what comes before the byte is never touched."""
    log = bytes(range(1, 251)) * 4
    assert [len(log[:700]), 1000, 1000, 1000] == [
        len(Cut(how, 700, 3).apply(log)) for how in ("truncate", "zero", "hole", "flip")
    ]
    assert Cut("truncate", 1).apply(log) == b"\x01"
    assert Cut("zero", 998).apply(log) == log[:998] + b"\0\0"
    assert Cut("hole", 100).apply(log) == log[:100] + bytes(512) + log[612:]
    assert Cut("hole", 900).apply(log) == log[:900] + bytes(100)
    assert Cut("flip", 9, 7).apply(log) == log[:9] + bytes([10 ^ 128]) + log[10:]


def test_sampled_cuts_stand_at_both_sides_of_every_edge(log: bytes) -> None:
    """Each edge of a fragment and the bytes beside it are cut and zeroed, from the first byte wanted on."""
    records = parse(log)
    cuts = sampled(records, 200, len(log), random.Random(1), bytes_more=7)
    edges = [place for place in boundaries(records) if place > 201 and place < len(log)]
    assert {(how, edge + by) for edge in edges for by in (-1, 0, 1) for how in ("truncate", "zero")} <= {
        (one.how, one.at) for one in cuts
    }
    assert (min(one.at for one in cuts) >= 200, sum(one.how == "flip" for one in cuts)) == (True, 7)


def test_every_byte_is_every_byte() -> None:
    """Each byte is cut, zeroed from and turned, and each page lost."""
    cuts = list(every_byte(500, 1100))
    assert Counter(one.how for one in cuts) == {"truncate": 600, "zero": 600, "flip": 600, "hole": 2}


def test_an_image_shares_its_tables_only(tmp_path: Path) -> None:
    """Tables are links, all else is copied, the log is what was given; lock and notes of RocksDB stay."""
    source = tmp_path / "source"
    source.mkdir()
    for name in (
        "000004.log",
        "000009.sst",
        "CURRENT",
        "MANIFEST-000005",
        "LOCK",
        "LOG",
        "LOG.old.1",
        "OPTIONS-000007",
    ):
        (source / name).write_text(name)
    make_image(source, tmp_path / "image", "000004.log", b"cut")
    found = {file.name: file.read_text() for file in (tmp_path / "image").iterdir()}
    assert found == {
        "000004.log": "cut",
        "000009.sst": "000009.sst",
        "CURRENT": "CURRENT",
        "MANIFEST-000005": "MANIFEST-000005",
    }
    linked = [file.name for file in source.iterdir() if file.stat().st_nlink > 1]
    assert linked == ["000009.sst"]
