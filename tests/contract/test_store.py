"""The contract of the store port, run against every store."""

import struct
import threading

import pytest

from telha_jobs.clock import ManualClock
from telha_jobs.errors import InvalidArgumentError, QueueUnavailableError
from telha_jobs.store.layout import PREFIX, store_keys
from telha_jobs.store.port import Check, Committed, CommitUnknownError, Conflict, Delete, Family, Put, Store, Write
from tests.contract.rigs import START_MS, Rig

TOKEN = b"token"
JOBS, READY, META = Family.JOBS, Family.READY, Family.META


def put(store: Store, *pairs: tuple[bytes, bytes], family: Family = JOBS) -> int:
    """Commit some puts without checks; returns the sequence."""
    outcome = store.commit([], [Put(family, key, value) for key, value in pairs], TOKEN)
    assert isinstance(outcome, Committed)
    return outcome.sequence


def value(store: Store, key: bytes, family: Family = JOBS) -> bytes | None:
    """What the store holds at a key."""
    return store.read([(family, key)])[0].value


def count(store: Store, key: bytes = b"n") -> int | None:
    """A counter in `meta`, None when there is none."""
    found = value(store, key, META)
    return None if found is None else struct.unpack(">q", found)[0]


def check(store: Store, key: bytes, family: Family = JOBS) -> Check:
    """A check of a key as it is now."""
    return Check(family, key, store.read([(family, key)])[0].version)


def test_a_commit_writes_every_family_at_once(rig: Rig) -> None:
    """A commit over all families is visible in all of them when it returns."""
    store = rig.open()
    store.commit([], [Put(family, b"k", family.value.encode()) for family in Family], TOKEN)
    found = [one.value for one in store.read([(family, b"k") for family in Family])]
    assert [family.value.encode() for family in Family] == found


def test_a_refused_commit_writes_nothing(rig: Rig) -> None:
    """When one check of several does not hold, no write of the commit is applied, and the sequence stays."""
    store = rig.open()
    put(store, (b"a", b"1"), (b"b", b"1"))
    old = [check(store, b"a"), check(store, b"b")]
    sequence = put(store, (b"b", b"2"))
    outcome = store.commit(old, [Put(JOBS, b"a", b"3"), Put(READY, b"r", b"")], TOKEN, {b"n": 1})
    assert Conflict() == outcome
    assert (b"1", None, None, sequence) == (value(store, b"a"), count(store), value(store, b"r", READY), store.sequence)


def test_a_check_holds_while_nothing_changed(rig: Rig) -> None:
    """A commit whose checks are as fresh as can be is committed."""
    store = rig.open()
    put(store, (b"a", b"1"))
    outcome = store.commit([check(store, b"a"), check(store, b"absent")], [Put(JOBS, b"a", b"2")], TOKEN)
    assert (Committed(2), b"2") == (outcome, value(store, b"a"))


@pytest.mark.parametrize(
    "change",
    [Put(JOBS, b"a", b"2"), Put(JOBS, b"a", b"1"), Delete(JOBS, b"a")],
    ids=["other value", "same value", "removed"],
)
def test_a_check_fails_when_its_key_was_written(rig: Rig, change: Write) -> None:
    """A key that was written since is a conflict, whatever was written."""
    store = rig.open()
    put(store, (b"a", b"1"))
    old = check(store, b"a")
    store.commit([], [change], TOKEN)
    assert Conflict() == store.commit([old], [Put(JOBS, b"b", b"")], TOKEN)


def test_a_check_sees_an_absent_key_appear(rig: Rig) -> None:
    """The version of an absent key is a version: who creates the key meanwhile makes a conflict."""
    store = rig.open()
    absent = check(store, b"a")
    put(store, (b"a", b"1"))
    assert Conflict() == store.commit([absent], [Put(JOBS, b"a", b"2")], TOKEN)


def test_a_check_sees_a_counter_change(rig: Rig) -> None:
    """An addition is a write like any other to a check."""
    store = rig.open()
    old = check(store, b"n", META)
    store.commit([], [], TOKEN, {b"n": 1})
    assert Conflict() == store.commit([old], [Put(JOBS, b"b", b"")], TOKEN)


def test_a_check_tells_families_apart(rig: Rig) -> None:
    """A check is about its own family's key, whatever stands under the same key elsewhere."""
    store = rig.open()
    put(store, (b"a", b"1"))
    old = check(store, b"a", READY)
    put(store, (b"a", b"1"), family=READY)
    assert Conflict() == store.commit([old], [Put(JOBS, b"a", b"2")], TOKEN)


def test_a_check_of_long_ago_never_passes_a_changed_key(rig: Rig) -> None:
    """However many commits came between, a changed key is a conflict."""
    store = rig.open()
    old = check(store, b"a")
    put(store, (b"a", b"1"))
    for number in range(300):
        put(store, (b"other", b"%d" % number))
    assert Conflict() == store.commit([old], [Put(JOBS, b"b", b"")], TOKEN)


def test_a_check_notices_a_change_in_a_huge_commit(rig: Rig) -> None:
    """One changed key among thousands of writes is a conflict."""
    store = rig.open()
    old = check(store, b"00777")
    put(store, *[(b"%05d" % number, b"") for number in range(5_000)])
    assert Conflict() == store.commit([old], [Put(JOBS, b"b", b"")], TOKEN)


def test_sequences_rise_by_one(rig: Rig) -> None:
    """A commit's sequence is one more than the last; conflicts use up none."""
    store = rig.open()
    first = put(store, (b"a", b"1"))
    store.commit([Check(JOBS, b"a", 999)], [Put(JOBS, b"a", b"2")], TOKEN)
    second = put(store, (b"a", b"3"))
    assert (first, second, store.sequence) == (1, 2, 2)


def test_an_empty_commit_counts(rig: Rig) -> None:
    """A commit without writes is a commit."""
    store = rig.open()
    assert Committed(1) == store.commit([], [], TOKEN)


def test_removing_what_is_absent_is_no_error(rig: Rig) -> None:
    """`Delete` of an absent key is committed."""
    store = rig.open()
    assert Committed(1) == store.commit([], [Delete(JOBS, b"absent")], TOKEN)


def test_the_last_write_of_a_key_wins(rig: Rig) -> None:
    """Writes of one commit act in their order, on the same key too."""
    store = rig.open()
    writes: list[Write] = [Put(JOBS, b"a", b"1"), Delete(JOBS, b"a"), Put(JOBS, b"b", b"1"), Put(JOBS, b"b", b"2")]
    store.commit([], [*writes, Put(JOBS, b"c", b"1"), Delete(JOBS, b"c")], TOKEN)
    assert (value(store, b"a"), value(store, b"b"), value(store, b"c")) == (None, b"2", None)


def test_read_answers_in_the_order_asked(rig: Rig) -> None:
    """Values come in the order of the keys, twice when asked twice."""
    store = rig.open()
    put(store, (b"a", b"1"), (b"b", b"2"))
    found = store.read([(JOBS, b"b"), (JOBS, b"x"), (JOBS, b"a"), (JOBS, b"b"), (READY, b"a")])
    assert [one.value for one in found] == [b"2", None, b"1", b"2", None]


def test_empty_keys_and_values_are_kept(rig: Rig) -> None:
    """The empty value is not absence."""
    store = rig.open()
    put(store, (b"a", b""))
    assert (value(store, b"a"), store.scan(JOBS, b"", None, 9)) == (b"", [(b"a", b"")])


def test_counters_add_up(rig: Rig) -> None:
    """Deltas add up over commits, from zero when absent; values are signed big-endian 64 bits."""
    store = rig.open()
    store.commit([], [], TOKEN, {b"n": 3, b"m": -1})
    store.commit([], [], TOKEN, {b"n": 4})
    assert (7, -1, struct.pack(">q", 7)) == (count(store), count(store, b"m"), value(store, b"n", META))


def test_a_counter_at_zero_is_gone(rig: Rig) -> None:
    """A sum of zero removes the key or makes none, and counting starts again from zero."""
    store = rig.open()
    store.commit([], [], TOKEN, {b"n": 2, b"m": 3, b"z": 0})
    store.commit([], [], TOKEN, {b"n": -2, b"m": -3})
    gone = [count(store, key) for key in (b"n", b"m", b"z")]
    store.commit([], [], TOKEN, {b"n": 1})
    assert (gone, count(store)) == ([None, None, None], 1)


def test_counters_that_were_scanned_add_up(rig: Rig) -> None:
    """A page at a time, with commits between: what was scanned, what was not there, and what lies beyond the end."""
    store = rig.open()
    store.commit([], [], TOKEN, {b"b": 1, b"d": 2, b"f": 3, b"z": 4})
    store.close()
    store = rig.open()
    assert store.scan_counters(b"a", b"g", 2) == [(b"b", 1), (b"d", 2)]
    store.commit([], [], TOKEN, {b"b": 10, b"c": 10, b"d": 10, b"e": 10, b"f": 10, b"z": 10})
    assert store.scan_counters(b"d\0", b"g", 9) == [(b"e", 10), (b"f", 13)]
    store.commit([], [], TOKEN, {b"a": 5, b"b": -11, b"c": 5, b"d": 5, b"e": -10, b"f": 5, b"ff": 5, b"z": 5})
    counted = [(key, count(store, key)) for key in (b"a", b"b", b"c", b"d", b"e", b"f", b"ff", b"z")]
    assert counted == [
        (b"a", 5), (b"b", None), (b"c", 15), (b"d", 17), (b"e", None), (b"f", 18), (b"ff", 5), (b"z", 19),
    ]  # fmt: skip


def test_a_scan_of_counters_keeps_to_its_bounds(rig: Rig) -> None:
    """None of them, all to the end, and one that makes no sense as 0."""
    store = rig.open()
    store.commit([], [Put(META, b"n/b", b"bad")], TOKEN, {b"n/a": -1, b"n/c": 3})
    found = [store.scan_counters(b"n/", end, limit) for end, limit in ((b"n0", 0), (b"n0", 2), (b"n/", 9), (b"n/c", 9))]
    assert found == [[], [(b"n/a", -1), (b"n/b", 0)], [], [(b"n/a", -1), (b"n/b", 0)]]
    assert store.scan_counters(b"n/c", None, 1) == [(b"n/c", 3)]
    store.commit([], [], TOKEN, {b"n/c": 1, b"n/d": 1})
    assert store.scan_counters(b"n/c", b"n0", 9) == [(b"n/c", 4), (b"n/d", 1)]


def test_a_counter_that_overflows_refuses_the_commit(rig: Rig) -> None:
    """A sum beyond 64 bits is an argument error: nothing is written, and the store goes on."""
    store = rig.open()
    store.commit([], [], TOKEN, {b"n": 2**63 - 1})
    with pytest.raises(InvalidArgumentError):
        store.commit([], [Put(JOBS, b"a", b"")], TOKEN, {b"n": 1})
    assert (2**63 - 1, None, Committed(2)) == (count(store), value(store, b"a"), store.commit([], [], TOKEN))


def test_scan_orders_by_unsigned_bytes(rig: Rig) -> None:
    """Keys come in unsigned byte order, a prefix before what it begins."""
    store = rig.open()
    keys = [b"\xff", b"\x00", b"\x7f", b"\x80", b"a", b"a\x00", b"\xff\xff"]
    put(store, *[(key, b"") for key in keys])
    assert sorted(keys) == [key for key, _ in store.scan(JOBS, b"", None, 99)]


@pytest.mark.parametrize(
    ("start", "end", "limit", "expected"),
    [
        (b"b", b"d", 9, [b"b", b"c"]),
        (b"b\x00", b"c\x00", 9, [b"c"]),
        (b"", None, 2, [b"a", b"b"]),
        (b"c", None, 9, [b"c", b"d"]),
        (b"", b"", 9, []),
        (b"c", b"c", 9, []),
        (b"d", b"a", 9, []),
        (b"", None, 0, []),
        (b"e", None, 9, []),
        (b"b", b"zzz", 1, [b"b"]),
    ],
)
def test_scan_keeps_to_its_bounds(rig: Rig, start: bytes, end: bytes | None, limit: int, expected: list[bytes]) -> None:
    """The start is included, the end is not, and there are never more than the limit."""
    store = rig.open()
    put(store, *[(key, key * 2) for key in (b"a", b"b", b"c", b"d")])
    put(store, (b"b", b"in another family"), family=READY)
    assert [(key, key * 2) for key in expected] == store.scan(JOBS, start, end, limit)
    assert [(key, key * 2) for key in expected] == store.scan(JOBS, start, end, limit, claim=True)


def test_scan_skips_what_was_removed(rig: Rig) -> None:
    """Removed keys do not count against the limit."""
    store = rig.open()
    put(store, *[(b"%03d" % number, b"") for number in range(100)])
    store.commit([], [Delete(JOBS, b"%03d" % number) for number in range(98)], TOKEN)
    assert [key for key, _ in store.scan(JOBS, b"000", b"100", 2)] == [b"098", b"099"]


def test_wait_returns_for_every_sequence_that_was_committed(rig: Rig) -> None:
    """Old and new sequences can be waited for, in any order, and zero always."""
    store = rig.open()
    sequence = put(store, (b"a", b"1"))
    newest = put(store, (b"a", b"2"))
    for one in (newest, 0, sequence, newest):
        store.wait(one)


def test_wait_refuses_a_sequence_that_never_was(rig: Rig) -> None:
    """Waiting for the future is an argument error, not a wait without end."""
    store = rig.open()
    sequence = put(store, (b"a", b"1"))
    with pytest.raises(InvalidArgumentError) as refused:
        store.wait(sequence + 1)
    assert refused.value.field == "sequence"


def test_a_clean_end_keeps_everything_and_the_incarnation(rig: Rig) -> None:
    """After close and open, values, counters and the sequence go on, and the incarnation stays 0."""
    store = rig.open()
    store.commit([], [Put(JOBS, b"a", b"1")], TOKEN, {b"n": 3})
    store.close()
    again = rig.open()
    assert (again.incarnation, again.sequence, value(again, b"a"), count(again)) == (0, 1, b"1", 3)
    again.commit([], [], TOKEN, {b"n": -1})
    assert (again.sequence, count(again)) == (2, 2)


def test_every_unclean_end_raises_the_incarnation_by_one(rig: Rig) -> None:
    """A crash raises it at the next open, a clean end in between does not, and what was committed is there."""
    store = rig.open()
    store.wait(put(store, (b"a", b"1")))
    seen = [store.incarnation]
    for end in ("crash", "crash", "close", "crash", "close", "close"):
        if end == "crash":
            rig.crash()
        else:
            rig.end()
        store = rig.open()
        seen.append(store.incarnation)
    assert (seen, value(store, b"a")) == ([0, 1, 2, 2, 3, 3, 3], b"1")


def test_a_crash_before_the_first_commit_is_unclean(rig: Rig) -> None:
    """The open mark is there before anything is committed."""
    rig.open()
    rig.crash()
    assert rig.open().incarnation == 1


def test_versions_are_good_across_reopening(rig: Rig) -> None:
    """A check read before a reopen never passes a key that was changed after it."""
    store = rig.open()
    put(store, (b"a", b"1"))
    old = check(store, b"a")
    put(store, (b"a", b"2"))
    store.close()
    assert Conflict() == rig.open().commit([old], [Put(JOBS, b"a", b"3")], TOKEN)


def test_after_close_every_call_is_refused(rig: Rig) -> None:
    """A closed store refuses calls as not applied, closes again in peace, and owes no answer to who only waits."""
    store = rig.open()
    sequence = put(store, (b"a", b"1"))
    store.close()
    store.close()
    calls = [
        lambda: store.read([(JOBS, b"a")]),
        lambda: store.scan(JOBS, b"", None, 1),
        lambda: store.commit([], [Put(JOBS, b"a", b"2")], TOKEN),
        lambda: store.sequence,
        store.now,
        store.clock_ahead_ms,
    ]
    outcomes = []
    for call in calls:
        with pytest.raises(QueueUnavailableError) as refused:
            call()
        outcomes.append(refused.value.outcome)
    store.wait(sequence)
    assert ["not_applied"] * len(calls) == outcomes


def test_a_storage_error_while_writing_is_unknown_and_final(rig: Rig) -> None:
    """The failed commit is unknown, also to `resolve`; later calls are not applied; a new open finds it unclean."""
    store = rig.open()
    put(store, (b"a", b"1"))
    rig.fail_next_write()
    with pytest.raises(CommitUnknownError):
        store.commit([], [Put(JOBS, b"a", b"2")], TOKEN)
    with pytest.raises(QueueUnavailableError) as unresolved:
        store.resolve(TOKEN, [], [Put(JOBS, b"a", b"2")])
    with pytest.raises(QueueUnavailableError) as later:
        store.commit([], [Put(JOBS, b"b", b"1")], TOKEN)
    with pytest.raises(QueueUnavailableError) as reading:
        store.read([(JOBS, b"a")])
    outcomes = [one.value.outcome for one in (unresolved, later, reading)]
    assert outcomes == ["unknown", "not_applied", "not_applied"]
    store.close()
    again = rig.open()
    assert (again.incarnation, value(again, b"b")) == (1, None)


def test_time_never_runs_back_over_a_reopen(rig: Rig) -> None:
    """With the wall set back while closed, time goes on from the newest told, at half speed until they meet."""
    store = rig.open()
    rig.clock.advance(5_000)
    told = store.now()
    store.close()
    rig.clock.step_wall(-4_000)
    again = rig.open()
    seen = [(again.now(), again.clock_ahead_ms())]
    for ms in (1_000, 3_000, 4_000, 1_000):
        rig.clock.advance(ms)
        seen.append((again.now() - told, again.clock_ahead_ms()))
    assert told == START_MS + 5_000
    assert [(told, 4_000), (500, 3_500), (2_000, 2_000), (4_000, 0), (5_000, 0)] == seen


def test_threads_see_no_time_go_back(rig: Rig) -> None:
    """Answers to one thread never fall while others ask and the clock moves, in a queue ahead of the wall too."""
    store = rig.open()
    rig.clock.advance(500)
    store.now()
    store.close()
    rig.clock.step_wall(-500)
    store = rig.open()
    falls: list[tuple[int, int]] = []

    def work() -> None:
        last = 0
        for _ in range(2_000):
            now = store.now()
            if now < last:
                falls.append((last, now))
            last = now
            rig.clock.advance(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (falls, store.now()) == ([], START_MS + 8_000)


def test_a_commit_keeps_the_time_it_was_made_at(rig: Rig) -> None:
    """After a crash, time starts no earlier than the newest time told before the last commit."""
    store = rig.open()
    rig.clock.advance(7_000)
    told = store.now()
    store.wait(put(store, (b"a", b"1")))
    rig.crash()
    rig.clock.step_wall(-60_000)
    assert told == rig.open().now()


def test_a_clock_that_cannot_be_read_refuses_the_open(rig: Rig) -> None:
    """A clock that answers with anything but an int is an argument error: nothing is written, nothing stays open."""

    class Broken(ManualClock):
        def wall_ms(self) -> int:
            return "noon"  # type: ignore[return-value]  # the fault this test is about

    good, rig.clock = rig.clock, Broken(START_MS)
    with pytest.raises(InvalidArgumentError) as refused:
        rig.open()
    rig.clock = good
    assert (refused.value.field, rig.open().incarnation) == ("clock", 0)


def test_the_stores_keys_are_its_own(rig: Rig) -> None:
    """Whatever a store keeps in `meta` for itself is among the keys it lists, under its prefix."""
    store = rig.open()
    put(store, (b"a", b"1"))
    found = {key for key, _ in store.scan(META, b"", None, 99)}
    assert found <= {one.key for one in store_keys()}
    assert all(one.key.startswith(PREFIX) for one in store_keys())


def test_limits_leave_room_for_the_largest_configuration(rig: Rig) -> None:
    """A value holds a payload of 1 GiB, the largest that can be configured, and a batch holds a value."""
    limits = rig.open().limits
    assert limits.value_bytes_max > 1024**3
    assert limits.batch_bytes_max > limits.value_bytes_max
