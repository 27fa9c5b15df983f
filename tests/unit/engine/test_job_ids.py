"""Job ids rise strictly: in a millisecond, past a used-up counter, behind a clock set back, from the last one on."""

import itertools

from telha_jobs.engine.job_ids import JobIds

SCOPE = b"s" * 16
NOW = 1_700_000_000_000


def milliseconds(job_id: bytes) -> int:
    """The time in the front of an id."""
    return int.from_bytes(job_id[:6], "big")


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
