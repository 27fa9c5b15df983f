"""What only the RocksDB store promises: ownership, untouching refusals, release, group commit, failing closed."""

import logging
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from rocksdict import Options, Rdict, WriteBatch

from telha_jobs.clock import ManualClock
from telha_jobs.errors import FormatVersionError, QueueLockedError, QueueUnavailableError
from telha_jobs.store import counters, layout
from telha_jobs.store.database import Database
from telha_jobs.store.port import Check, Committed, CommitUnknownError, Conflict, Delete, Family, Put
from telha_jobs.store.rocks import RocksStore
from tests.contract.rigs import START_MS, Faults, RocksRig, copy_as_crashed, faulty

TOKEN = b"token"
JOBS, META = Family.JOBS, Family.META


def fingerprint(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a directory with size, time of change and content, so that any touch shows.

    But LOCK: opening and closing it here would drop the lock this process holds on it.
    """
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "LOCK"]
    return {
        str(file.relative_to(path)): (file.stat().st_size, file.stat().st_mtime_ns, file.read_bytes()) for file in files
    }


def raw_database(path: Path, rows: dict[str, dict[bytes, bytes]]) -> None:
    """A RocksDB database made without the store; family `default` is always there."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {name: Options(raw_mode=True) for name in rows if name != "default"}
    database = Rdict(str(path), options, column_families=families)
    for name, pairs in rows.items():
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs.items():
            batch.put(key, value, database.get_column_family_handle(name))
        database.write(batch)
    database.close()


def commit(store: RocksStore, key: bytes = b"k", value: bytes = b"v") -> int:
    """One commit; returns its sequence."""
    outcome = store.commit([], [Put(JOBS, key, value)], TOKEN)
    assert isinstance(outcome, Committed)
    return outcome.sequence


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A fresh Python process running a script."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_open_creates_the_directory_and_all_families(directory: Path) -> None:
    """The first open makes the directory, its parents and every family, and nothing beside them."""
    path = directory / "not" / "yet" / "there"
    RocksStore.open(path, clock=ManualClock(START_MS)).close()
    names = {family.value for family in Family} | {"default"}
    assert names == set(Rdict.list_cf(str(path)))


def test_a_new_database_holds_the_stores_keys(rocks: RocksRig) -> None:
    """Byte for byte: format 1.0, incarnation 0 and the open mark; a commit adds its sequence and the high water."""
    store = rocks.open()
    fresh = store.scan(META, b"", None, 9)
    rocks.clock.advance(2)
    store.now()
    commit(store)
    expected = [
        (b"store/format", bytes.fromhex("0001 0000")),
        (b"store/incarnation", bytes.fromhex("00000000")),
        (b"store/open", b"\x01"),
    ]
    state = (b"store/commit", bytes.fromhex("0000000000000001 00000000000f4242"))
    assert expected == fresh
    assert sorted([state, *expected]) == store.scan(META, b"", None, 9)


def test_a_clean_close_leaves_no_mark(rocks: RocksRig) -> None:
    """After a clean close the open mark is gone and the newest time is kept, although nothing was committed."""
    store = rocks.open()
    rocks.clock.advance(500)
    told = store.now()
    store.close()
    view = RocksStore.open_read_only(rocks.path, clock=rocks.clock)
    found = dict(view.scan(META, b"", None, 9))
    view.close()
    assert layout.CommitState(0, told) == layout.decode_commit(found[layout.COMMIT_KEY])
    assert layout.OPEN_KEY not in found


def test_reopening_fifty_times_at_once(rocks: RocksRig) -> None:
    """A closed store has released everything: the same process opens it again at once, after any use."""

    def work(store: RocksStore) -> None:
        store.wait(commit(store))

    for _ in range(50):
        opened = rocks.open()
        opened.scan(JOBS, b"", None, 10)
        threads = [threading.Thread(target=work, args=(opened,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        opened.close()
    assert rocks.open().sequence == 100


def test_close_answers_who_still_waits(rocks: RocksRig) -> None:
    """Closing while threads commit and wait: each call ends, and what was answered is there after reopening."""
    store = rocks.open()
    answered: list[bytes] = []
    refusals: list[str] = []
    began = threading.Barrier(5)

    def work(number: int) -> None:
        began.wait()
        for step in range(10_000):
            key = b"%d/%d" % (number, step)
            try:
                store.wait(commit(store, key))
            except QueueUnavailableError as error:
                refusals.append(error.outcome)
                return
            answered.append(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    began.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert refusals == ["not_applied"] * 4
    again = rocks.open()
    values = again.read([(JOBS, key) for key in answered])
    assert ([b"v"] * len(answered), len(answered)) == ([one.value for one in values], again.sequence)


def test_a_second_open_in_this_process_is_locked_out(rocks: RocksRig) -> None:
    """The error carries the path and says who holds it, also by another name; the owner is not disturbed."""
    store = rocks.open()
    alias = rocks.path.with_name("alias")
    alias.symlink_to(rocks.path)
    before = fingerprint(rocks.path)
    for path in (rocks.path, alias, rocks.path / ".." / rocks.path.name):
        with pytest.raises(QueueLockedError) as refused:
            RocksStore.open(path, clock=rocks.clock)
        assert str(rocks.path) == refused.value.path
        assert "by this process" in str(refused.value)
    assert before == fingerprint(rocks.path)
    assert commit(store) == 1


def test_another_process_is_locked_out(rocks: RocksRig) -> None:
    """Another process is told the owner's process id; after the refusal the lock still holds."""
    rocks.open()
    script = (
        "import sys; from telha_jobs.store.rocks import RocksStore; from telha_jobs.clock import SystemClock\n"
        "try: RocksStore.open(sys.argv[1], clock=SystemClock())\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    for _ in range(2):
        done = run(script, rocks.path)
        assert done.stdout.startswith("QueueLockedError"), done
        assert f"by process {os.getpid()}" in done.stdout


def test_the_lock_holds_without_the_table_of_locks(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system's table of locks cannot be read, RocksDB's own refusal is the same error."""
    rocks.open()
    monkeypatch.setattr("telha_jobs.store.opening._LOCK_TABLE", Path("/nonexistent"))
    with pytest.raises(QueueLockedError, match="by this process"):
        RocksStore.open(rocks.path, clock=rocks.clock)


def test_a_newer_major_format_is_refused_untouched(rocks: RocksRig) -> None:
    """A newer major version refuses both kinds of open, names both versions and leaves every file alone."""
    newer = layout.FormatVersion(layout.FORMAT.major + 1, 0)
    rocks.open().close()
    raw_database(
        rocks.path, {**{one.value: {} for one in Family}, "meta": {layout.FORMAT_KEY: layout.encode_format(newer)}}
    )
    before = fingerprint(rocks.path)
    opens: list[Callable[[], object]] = [rocks.open, lambda: RocksStore.open_read_only(rocks.path)]
    for open_it in opens:
        with pytest.raises(FormatVersionError) as refused:
            open_it()
        assert (refused.value.found, refused.value.supported) == (2, 1)
    assert before == fingerprint(rocks.path)


def test_a_newer_minor_format_is_opened_and_kept(rocks: RocksRig) -> None:
    """A newer minor version is read and written, and its version stays as it is."""
    newer = layout.encode_format(layout.FormatVersion(layout.FORMAT.major, layout.FORMAT.minor + 7))
    rocks.open().close()
    raw_database(rocks.path, {**{one.value: {} for one in Family}, "meta": {layout.FORMAT_KEY: newer}})
    store = rocks.open()
    commit(store)
    assert newer == store.read([(META, layout.FORMAT_KEY)])[0].value


@pytest.mark.parametrize(
    "rows",
    [
        {"default": {b"a": b"1"}},
        {"default": {}, "pages": {}},
        {"jobs": {b"a": b"1"}},
        {**{family.value: {} for family in Family}, "meta": {b"a": b"1"}},
        {**{family.value: {} for family in Family}, "meta": {layout.FORMAT_KEY: b"one"}},
    ],
    ids=["data in default", "unknown family", "rows without format", "meta without format", "no format at all"],
)
def test_a_foreign_database_is_refused_untouched(rocks: RocksRig, rows: dict[str, dict[bytes, bytes]]) -> None:
    """A RocksDB database of somebody else is refused by both kinds of open, and no file of it changes."""
    raw_database(rocks.path, rows)
    before = fingerprint(rocks.path)
    opens: list[Callable[[], object]] = [rocks.open, lambda: RocksStore.open_read_only(rocks.path)]
    for open_it in opens:
        with pytest.raises(QueueUnavailableError, match="open another directory") as refused:
            open_it()
        assert refused.value.outcome == "not_applied"
    assert before == fingerprint(rocks.path)


@pytest.mark.parametrize(
    "rows",
    [{"default": {}}, {"jobs": {}, "ids": {}}, {family.value: {} for family in Family}],
    ids=["no family", "some families", "no format"],
)
def test_a_first_open_that_was_cut_short_goes_on(rocks: RocksRig, rows: dict[str, dict[bytes, bytes]]) -> None:
    """An empty database without a format version is where a first open stopped: the next one finishes it."""
    raw_database(rocks.path, rows)
    store = rocks.open()
    assert (store.incarnation, commit(store)) == (0, 1)


def test_an_empty_directory_is_taken(rocks: RocksRig) -> None:
    """A directory that is there already, with files of no database in it, becomes the queue's."""
    rocks.path.mkdir()
    (rocks.path / "lost+found").mkdir()
    assert commit(rocks.open()) == 1


def test_a_path_that_cannot_be_a_directory_is_refused(directory: Path) -> None:
    """A file, a path below a file, and one where nothing can be made: not applied, with what to do."""
    (directory / "file").write_text("not a directory")
    for path in (directory / "file", directory / "file" / "below", Path("/proc/self/queue")):
        with pytest.raises(QueueUnavailableError, match="give a directory that can be written") as refused:
            RocksStore.open(path, clock=ManualClock(START_MS))
        assert refused.value.outcome == "not_applied"
    assert (directory / "file").read_text() == "not a directory"


def disk_with(free_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file system says that it has so much left."""
    told = os.statvfs("/")
    rest = (1, 1, 1_000_000, free_bytes, free_bytes, *tuple(told)[5:])
    monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result(rest))


def test_a_disk_without_room_is_refused_untouched(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 1 MiB and the length of the log free: refused, and no file changes or appears; just as much will do."""
    commit(rocks.open(), b"a", bytes(5_000))
    rocks.crash()
    log = sum(file.stat().st_size for file in rocks.path.glob("*.log"))
    before = fingerprint(rocks.path)
    for path, free in ((rocks.path, 0), (rocks.path, log + 1_048_575), (rocks.path / "below" / "it", 1_048_575)):
        disk_with(free, monkeypatch)
        with pytest.raises(QueueUnavailableError, match="there is no room") as refused:
            RocksStore.open(path, clock=rocks.clock)
        assert refused.value.outcome == "not_applied"
    assert before == fingerprint(rocks.path)
    disk_with(log + 1_048_576, monkeypatch)
    assert commit(rocks.open()) == 2


def test_a_file_system_that_does_not_tell_is_tried(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the number of blocks is zero nothing is known about the room, and the open goes on."""
    monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result((1, 1, 0, 0, 0, 0, 0, 0, 0, 255)))
    assert commit(rocks.open()) == 1


def test_a_path_that_cannot_be_looked_at_is_refused(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that this user may not search is a refusal like any other, not an error of the file system's."""

    def exists(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(QueueUnavailableError, match="Permission denied") as refused:
        rocks.open()
    assert refused.value.outcome == "not_applied"


def test_a_damaged_database_is_refused_with_what_the_storage_said(rocks: RocksRig) -> None:
    """A database that cannot be read is refused as not applied, by both kinds of open."""
    rocks.open().close()
    (rocks.path / "CURRENT").write_text("nothing of use\n")
    opens: list[Callable[[], object]] = [rocks.open, lambda: RocksStore.open_read_only(rocks.path)]
    for open_it in opens:
        with pytest.raises(QueueUnavailableError, match=r"cannot be opened .*CURRENT") as refused:
            open_it()
        assert refused.value.outcome == "not_applied"


@pytest.mark.parametrize("key", [layout.COMMIT_KEY, layout.INCARNATION_KEY])
def test_a_damaged_key_of_the_store_refuses_the_open(rocks: RocksRig, key: bytes) -> None:
    """A value of the store's own that cannot be decoded refuses the open, and everything is released again."""
    rocks.open().close()
    raw_database(rocks.path, {**{one.value: {} for one in Family}, "meta": {key: b"?"}})
    for _ in range(2):
        with pytest.raises(QueueUnavailableError, match="bytes, these are 1"):
            rocks.open()


def test_a_view_beside_the_owner_changes_nothing(rocks: RocksRig) -> None:
    """A view shows what is written by now, commits nothing, and no file of the database changes by it."""
    store = rocks.open()
    rocks.clock.advance(9)
    told = store.now()
    commit(store, b"a", b"1")
    before = fingerprint(rocks.path)
    view = RocksStore.open_read_only(rocks.path, clock=rocks.clock)
    commit(store, b"a", b"2")
    shown = (view.read([(JOBS, b"a")])[0].value, view.sequence, view.incarnation, view.now(), view.read_only)
    with pytest.raises(QueueUnavailableError) as refused:
        view.commit([], [Put(JOBS, b"a", b"3")], TOKEN)
    view.wait(view.sequence)
    view.close()
    changed = {name for name, file in fingerprint(rocks.path).items() if before.get(name) != file}
    assert ((b"1", 1, 0, told, True), "not_applied") == (shown, refused.value.outcome)
    # The owner's own commit is in the log.
    assert {True} == {name.endswith(".log") for name in changed}
    assert (store.sequence, store.read([(JOBS, b"a")])[0].value) == (2, b"2")


def test_a_view_of_nothing_creates_nothing(directory: Path) -> None:
    """Looking where there is no queue is refused, and no directory appears."""
    for path in (directory / "absent", directory):
        with pytest.raises(QueueUnavailableError, match="there is no queue"):
            RocksStore.open_read_only(path)
    assert list(directory.iterdir()) == []


def test_a_view_leaves_no_temporary_files(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """What a view and an open need beside the database is gone when they are done."""
    scratch = directory / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rocks.open().close()
    rocks.open()
    view = RocksStore.open_read_only(rocks.path)
    during = len(list(scratch.iterdir()))
    view.close()
    assert (during, list(scratch.iterdir())) == (1, [])


def complaining(faults: Faults) -> type[Database]:
    """A `faulty` database whose close gives everything back and then raises, as RocksDB does after an error."""

    class Complaining(faulty(faults)):  # type: ignore[misc]  # a base that is made for each test
        def close(self) -> None:
            super().close()
            raise OSError("the writer has a previous error, says the test")

    return Complaining


@pytest.mark.parametrize("where", ["nowhere", "write", "flush"])
def test_what_the_storage_says_at_the_end_is_logged(
    rocks: RocksRig, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error while the database is let go never escapes `close`: all is durable by then, or its loss was told."""
    store = RocksStore.open(rocks.path, clock=rocks.clock, database=complaining(rocks.faults))
    commit(store, b"a", b"1")
    if where != "nowhere":
        setattr(rocks.faults, where, OSError("no space left on this device, says the test"))
        with pytest.raises((QueueUnavailableError, CommitUnknownError)):
            store.wait(commit(store, b"a", b"2"))
    store.close()
    assert "failed while it was being closed (the writer has a previous error" in caplog.text
    again = rocks.open()
    assert again.sequence in ((1,) if where == "nowhere" else (1, 2))


def test_an_open_that_fails_is_a_refusal_also_when_the_storage_says_so_twice(rocks: RocksRig) -> None:
    """An error at the first write of an open, and another while the database is let go: not applied, and why."""
    rocks.faults.flush = OSError("input/output error, says the test")
    with pytest.raises(QueueUnavailableError, match=r"cannot be opened .input/output error") as refused:
        RocksStore.open(rocks.path, clock=rocks.clock, database=complaining(rocks.faults))
    assert refused.value.outcome == "not_applied"
    assert commit(rocks.open()) == 1


def test_one_thread_pays_one_sync_per_commit(rocks: RocksRig) -> None:
    """Each wait for a new commit syncs once; a wait that a sync covers already costs none."""
    store = rocks.open()
    rocks.faults.flushes = 0
    for _ in range(10):
        sequence = commit(store)
        for _ in range(3):
            store.wait(sequence)
        store.wait(1)
    commit(store)
    sequence = commit(store)
    store.wait(sequence)
    store.wait(sequence - 1)
    assert (rocks.faults.flushes, store.counters.syncs) == (11, 11)


def test_the_open_mark_is_synced_before_the_first_commit(rocks: RocksRig) -> None:
    """An open ends with a sync, after the mark and the incarnation were written."""
    rocks.open()
    assert rocks.faults.flushes == 1


def test_an_addition_costs_no_read(rocks: RocksRig) -> None:
    """A counter is read once, by the first commit that adds to it; a commit without counters reads nothing."""
    store = rocks.open()
    store.commit([], [], TOKEN, {b"n": 2})
    rocks.faults.gets = 0
    for _ in range(10):
        store.commit([], [Put(JOBS, b"a", b"")], TOKEN, {b"n": 1})
    assert rocks.faults.gets == 0


def scan_counters(store: RocksStore, start: bytes, end: bytes, page_rows: int) -> None:
    """All of a range, a page at a time."""
    while len(page := store.scan_counters(start, end, page_rows)) == page_rows:
        start = page[-1][0] + b"\0"


@pytest.mark.parametrize("page_rows", [1, 2, 9])
def test_an_addition_to_a_scanned_counter_reads_nothing(rocks: RocksRig, page_rows: int) -> None:
    """Also one that is absent between the ends of the scan; what lies outside them is read."""
    store = rocks.open()
    store.commit([], [], TOKEN, {b"n/b": 2, b"n/d": 3})
    store.close()
    store = rocks.open()
    scan_counters(store, b"n/", b"n0", page_rows)
    rocks.faults.gets = 0
    store.commit([], [], TOKEN, {b"n/": 1, b"n/a": 1, b"n/b": 1, b"n/c": 1, b"n/d": 1, b"n/e": 1})
    within = rocks.faults.gets
    store.commit([], [], TOKEN, {b"m": 1, b"n0": 1})
    assert (within, rocks.faults.gets) == (0, 2)


def test_pages_apart_are_no_range(rocks: RocksRig) -> None:
    """What lies between two scans is read, and so is what only the first one covered."""
    store = rocks.open()
    store.commit([], [], TOKEN, {b"c": 2, b"f": 2})
    store.close()
    store = rocks.open()
    store.scan_counters(b"a", b"b", 9)
    store.scan_counters(b"d", b"e", 9)
    store.commit([], [], TOKEN, {b"c": 1, b"dd": 1, b"f": 1})
    found = store.read([(META, b"c"), (META, b"dd"), (META, b"f")])
    assert [int.from_bytes(one.value or b"") for one in found] == [3, 1, 3]


def test_more_counters_than_there_is_room_for_are_read(rocks: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for eight, half of it for those that are scanned, two a page; an emptied cache knows no range either."""
    monkeypatch.setattr(counters, "_CACHED_MAX", 8)
    keys = [b"n/%d" % number for number in range(10)]
    store = rocks.open()
    store.commit([], [], TOKEN, dict.fromkeys(keys, 1))
    store.close()
    store = rocks.open()
    scan_counters(store, b"n/", b"n0", 2)
    reads = []
    for added in (keys, keys[9:], keys):
        rocks.faults.gets = 0
        store.commit([], [], TOKEN, dict.fromkeys(added, 1))
        reads.append(rocks.faults.gets)
    held = [int.from_bytes(one.value or b"") for one in store.read([(META, key) for key in keys])]
    assert (reads, held) == ([6, 0, 9], [3] * 9 + [4])


def test_a_view_remembers_no_counters(rocks: RocksRig) -> None:
    """It adds to none."""
    rocks.open().commit([], [], TOKEN, {b"n": 2})
    view = RocksStore.open_read_only(rocks.path)
    assert (view.scan_counters(b"a", b"o", 9), view._counters._cached) == ([(b"n", 2)], {})
    view.close()


def test_what_was_forgotten_is_read(rocks: RocksRig) -> None:
    """Also what was absent between the ends of a scan: it may have come behind the store's back."""
    store = rocks.open()
    store.scan_counters(b"a", b"z", 9)
    store.commit([], [Put(META, b"n", struct.pack(">q", 5))], TOKEN)
    store.forget()
    store.commit([], [], TOKEN, {b"n": 1})
    assert store.read([(META, b"n")])[0].value == struct.pack(">q", 6)


def test_close_waits_for_a_sync_under_way(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """Also a failed store is not taken from under a thread that is in the middle of a sync."""
    store = rocks.open()
    sequence = commit(store)
    rocks.faults.flushing.clear()
    rocks.faults.may_flush.clear()
    waiter = threading.Thread(target=store.wait, args=(sequence,))
    waiter.start()
    assert rocks.faults.flushing.wait(20)
    rocks.faults.write = OSError("no space left, says the test")
    with caplog.at_level(logging.CRITICAL), pytest.raises(CommitUnknownError):
        commit(store)
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join(0.05)
    open_still = closer.is_alive()
    rocks.faults.may_flush.set()
    closer.join(20)
    waiter.join(20)
    assert (open_still, closer.is_alive(), waiter.is_alive()) == (True, False, False)


def test_a_damaged_block_is_not_taken_for_the_end(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """A scan that meets a damaged block fails; it does not pass what it found before it for all there is."""
    store = rocks.open()
    store.commit([], [Put(JOBS, b"%06d" % number, os.urandom(100)) for number in range(2_000)], TOKEN)
    store.close()
    largest = max(rocks.path.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    store = rocks.open()
    with caplog.at_level(logging.CRITICAL), pytest.raises(QueueUnavailableError, match="Corruption") as refused:
        store.scan(JOBS, b"", None, 9_999)
    assert refused.value.outcome == "not_applied"


@pytest.mark.parametrize(("durability", "waits"), [("sync", True), ("os", False)])
def test_a_store_says_whether_there_is_anything_to_wait_for(
    directory: Path, durability: Literal["sync", "os"], waits: bool
) -> None:
    """What the engine goes by: at "os" no answer waits, at "sync" each does."""
    assert RocksRig(directory, durability=durability).open().waits is waits


def test_at_os_durability_nothing_is_synced_until_close(directory: Path) -> None:
    """At "os" a wait costs no sync; a clean close syncs all the same."""
    rig = RocksRig(directory, durability="os")
    store = rig.open()
    rig.faults.flushes = 0
    for _ in range(10):
        store.wait(commit(store))
    waiting = rig.faults.flushes
    store.close()
    assert (waiting, rig.faults.flushes) == (0, 2)


def test_a_failed_sync_fails_the_store(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits for the sync does not know its outcome, later calls are not applied, what was synced before stays."""
    store = rocks.open()
    store.wait(commit(store))
    sequence = commit(store)
    rocks.faults.flush = OSError("the disk is gone, says the test")
    outcomes = []
    # The second wait would find the disk mended: the kernel forgets a lost page once it has told of it.
    with caplog.at_level(logging.CRITICAL):
        for call in (lambda: store.wait(sequence), lambda: store.wait(sequence), lambda: commit(store), store.now):
            with pytest.raises(QueueUnavailableError, match="open it again") as refused:
                call()
            outcomes.append(refused.value.outcome)
    store.wait(sequence - 1)
    assert outcomes == ["unknown", "unknown", "not_applied", "not_applied"]
    store.close()
    assert rocks.open().incarnation == 1


def test_a_failed_read_fails_the_store(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """A read that the storage cannot answer is not applied, and neither is anything after it."""
    store = rocks.open()
    rocks.faults.get = OSError("a block is unreadable, says the test")
    outcomes = []
    with caplog.at_level(logging.CRITICAL):
        for _ in range(2):
            with pytest.raises(QueueUnavailableError, match="a block is unreadable") as refused:
                store.read([(JOBS, b"a")])
            outcomes.append(refused.value.outcome)
    assert outcomes == ["not_applied", "not_applied"]


def test_a_close_that_cannot_sync_says_so_and_releases(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """A failed last sync is told, the database is released, and the next open is an unclean one."""
    store = rocks.open()
    commit(store)
    rocks.faults.flush = OSError("the disk is gone, says the test")
    with caplog.at_level(logging.CRITICAL), pytest.raises(QueueUnavailableError) as refused:
        store.close()
    store.close()
    assert (refused.value.outcome, rocks.open().incarnation) == ("unknown", 1)


def test_a_damaged_counter_does_not_stop_commits(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """A counter that cannot be decoded starts again from zero, and the log says so."""
    store = rocks.open()
    store.commit([], [Put(META, b"n", b"bad")], TOKEN)
    with caplog.at_level(logging.ERROR):
        store.commit([], [], TOKEN, {b"n": 2})
    assert (layout.decode_counter(store.read([(META, b"n")])[0].value or b""), len(caplog.records)) == (2, 1)


def test_any_commit_since_is_a_conflict(rocks: RocksRig) -> None:
    """Versions are those of the whole store, and a conflict is counted."""
    store = rocks.open()
    commit(store, b"a")
    old = store.read([(JOBS, b"a")])[0].version
    commit(store, b"b")
    refused = store.commit([Check(JOBS, b"a", old)], [Delete(JOBS, b"a")], TOKEN)
    assert (Conflict(), 1) == (refused, store.counters.conflicts)


def test_starting_ahead_of_the_wall_warns(rocks: RocksRig, caplog: pytest.LogCaptureFixture) -> None:
    """An open whose wall clock is behind the database's newest time logs a warning with the difference."""
    store = rocks.open()
    rocks.clock.advance(3_000)
    store.now()
    store.close()
    rocks.clock.step_wall(-1_234)
    with caplog.at_level(logging.WARNING, logger="telha_jobs"):
        rocks.open()
    assert [word for record in caplog.records for word in record.getMessage().split() if word.isdigit()] == ["1234"]


def test_reads_stay_cheap_beside_tombstones(rocks: RocksRig) -> None:
    """A bounded scan past many removed keys ends at its bound: a scan from one to the next costs no walk over them."""
    store = rocks.open()
    rows = 20_000
    store.commit([], [Put(JOBS, b"a%06d" % number, b"") for number in range(rows)], TOKEN)
    commit(store, b"b")
    store.commit([], [Delete(JOBS, b"a%06d" % number) for number in range(rows)], TOKEN)
    assert (
        store.scan(JOBS, b"a", b"a000001", 1),
        [key for key, _ in store.scan(JOBS, b"b", b"c", 1)],
    ) == ([], [b"b"])


def test_the_directory_stays_tidy(rocks: RocksRig) -> None:
    """After many opens there are few info logs and options files."""
    for _ in range(12):
        rocks.open().close()
    names = [file.name for file in rocks.path.iterdir()]
    assert len([name for name in names if name.startswith("LOG")]) <= 3
    assert len(names) <= 16


def test_an_unclean_copy_opens_beside_the_original(rocks: RocksRig, directory: Path) -> None:
    """The state a kill would leave can be copied out of a live database, and holds every commit made by then."""
    store = rocks.open()
    for number in range(20):
        commit(store, b"%d" % number)
    copy = directory / "copy"
    copy_as_crashed(rocks.path, copy)
    other = RocksStore.open(copy, clock=rocks.clock)
    found = (other.incarnation, other.sequence, len(other.scan(JOBS, b"", None, 99)))
    other.close()
    assert (found, commit(store)) == ((1, 20, 20), 21)
