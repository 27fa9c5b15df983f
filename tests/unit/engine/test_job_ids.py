"""Job ids rise strictly: in a millisecond, past a used-up counter, behind a clock set back, from the last one on."""

import hashlib
import itertools
from uuid import RFC_4122, UUID

import pytest

from telha_jobs.engine.job_ids import JobIds

SCOPE = b"s" * 16
NOW = 1_700_000_000_000


def milliseconds(job_id: bytes) -> int:
    """The time in the front of an id."""
    return int.from_bytes(job_id[:6], "big")


def counter(job_id: bytes) -> int:
    """The counter, out of its two parts."""
    bits = f"{int.from_bytes(job_id, 'big'):0128b}"
    return int(bits[52:64] + bits[66:76], 2)


def scope_bits(job_id: bytes) -> int:
    """What of an id tells its scope."""
    return int(f"{int.from_bytes(job_id, 'big'):0128b}"[76:92], 2)


def test_ids_rise_within_a_millisecond() -> None:
    """Ten thousand of them, over two scopes."""
    ids = JobIds(None)
    made = [ids.make(NOW, bytes([number % 2]) * 16) for number in range(10_000)]
    assert all(one < other for one, other in itertools.pairwise(made))


def test_ids_rise_from_the_last_one_of_an_earlier_run() -> None:
    """Although the clock is an hour behind it."""
    last = JobIds(None).make(NOW, SCOPE)
    assert last < JobIds(last).make(NOW - 3_600_000, SCOPE)


def test_a_used_up_counter_borrows_from_the_next_millisecond() -> None:
    """2^22 ids into a millisecond, and again when the clock gets there."""
    ids = JobIds(None)
    last = ids.make(NOW, SCOPE)
    ids._counter = (1 << 22) - 1
    borrowed = ids.make(NOW, SCOPE)
    later = ids.make(NOW + 1, SCOPE)
    assert last < borrowed < later
    assert (milliseconds(last), milliseconds(borrowed), milliseconds(later)) == (NOW, NOW + 1, NOW + 1)


def test_the_largest_counter_sorts_last() -> None:
    """Both halves of the counter stand in the order of their bits: across 2^10 and at the end."""
    ids = JobIds(None)
    ids.make(NOW, SCOPE)
    made = []
    for start in (1_022, 2_046, (1 << 22) - 3):
        ids._counter = start
        made += [ids.make(NOW, SCOPE) for _ in range(2)]
    assert made == sorted(made)


@pytest.mark.parametrize("now_ms", [0, 1, NOW, (1 << 48) - 1])
def test_the_first_id_of_a_queue_has_its_time_and_no_count(now_ms: int) -> None:
    """All 48 bits of the time, from the first millisecond on; the second id counts one."""
    ids = JobIds(None)
    made = [ids.make(now_ms, SCOPE) for _ in range(2)]
    assert [(milliseconds(one), counter(one)) for one in made] == [(now_ms, 0), (now_ms, 1)]


@pytest.mark.parametrize("count", [0, 1, 0x155555, 0x2AAAAA, 1_023, 1_024, (1 << 22) - 2])
def test_an_id_is_a_uuid_of_version_7(count: int) -> None:
    """Version and variant where every reader looks for them, whatever the counter beside them is."""
    ids = JobIds(None)
    ids.make(NOW, SCOPE)
    ids._counter = count
    made = UUID(bytes=ids.make(NOW, SCOPE))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert (milliseconds(made.bytes), counter(made.bytes)) == (NOW, count + 1)


def test_a_counter_is_borrowed_for_from_zero() -> None:
    """The millisecond that an id borrows from begins its count like any other."""
    ids = JobIds(None)
    ids.make(NOW, SCOPE)
    ids._counter = (1 << 22) - 1
    assert [counter(ids.make(NOW, SCOPE)) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("count", [0, 1, 0x155555, 0x2AAAAA, 1_023, 1_024, (1 << 22) - 3])
def test_a_reopened_queue_counts_on(count: int) -> None:
    """Time and counter are read from the last id to the bit."""
    ids = JobIds(None)
    ids.make(NOW, SCOPE)
    ids._counter = count
    again = JobIds(ids.make(NOW, SCOPE)).make(NOW, SCOPE)
    assert (milliseconds(again), counter(again)) == (NOW, count + 2)


def test_an_id_tells_its_scope_and_the_rest_is_chance() -> None:
    """The first two bytes of the scope's SHA-256, in every id of it; no chance reaches into them, all 36 bits are."""
    scopes = [bytes([number]) * 16 for number in range(8)]
    ids = JobIds(None)
    made = [(scope, ids.make(NOW, scope)) for scope in scopes * 32]
    assert {(scope, scope_bits(one).to_bytes(2, "big")) for scope, one in made} == {
        (scope, hashlib.sha256(scope).digest()[:2]) for scope in scopes
    }
    chance = [int.from_bytes(one, "big") & (1 << 36) - 1 for _, one in made]
    assert (max(chance) >> 35, min(chance) >> 35) == (1, 0)
