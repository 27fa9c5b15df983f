"""The in-memory store's scripted faults, and what `resolve` owes after them."""

import pytest

from telha_jobs.clock import ManualClock
from telha_jobs.errors import QueueLockedError, QueueUnavailableError
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Check, Committed, CommitUnknownError, Conflict, Family, Put
from tests.contract.rigs import START_MS

JOBS, META = Family.JOBS, Family.META


@pytest.fixture
def store() -> MemoryStore:
    """A store on a disk of its own."""
    return MemoryStore.open(MemoryDisk(), clock=ManualClock(START_MS))


def rows(store: MemoryStore) -> dict[bytes, bytes]:
    """What the family `jobs` holds."""
    return dict(store.scan(JOBS, b"", None, 99))


def lose(
    store: MemoryStore, *, applied: bool, token: bytes = b"t", key: bytes = b"a", check: Check | None = None
) -> None:
    """A commit whose outcome is lost."""
    store.faults.unknown_next(applied)
    with pytest.raises(CommitUnknownError):
        store.commit([] if check is None else [check], [Put(JOBS, key, b"late")], token, {b"n": 1})


def test_scripted_conflicts_write_nothing(store: MemoryStore) -> None:
    """As many commits as scripted answer `Conflict`; the next one is committed."""
    store.faults.conflict_next(2)
    outcomes = [store.commit([], [Put(JOBS, b"%d" % number, b"")], b"t") for number in range(3)]
    assert (outcomes, rows(store)) == ([Conflict(), Conflict(), Committed(1)], {b"2": b""})


def test_an_unknown_commit_that_was_applied_resolves_as_committed(store: MemoryStore) -> None:
    """It is visible, and resolving it twice answers the same and applies nothing again."""
    lose(store, applied=True)
    outcomes = [store.resolve(b"t", [], []) for _ in range(2)]
    assert (outcomes, rows(store), store.sequence) == ([Committed(1), Committed(1)], {b"a": b"late"}, 1)


def test_an_unknown_commit_that_was_resolved_never_arrives(store: MemoryStore) -> None:
    """Once `resolve` has answered `Conflict`, the commit is fenced off for ever."""
    lose(store, applied=False)
    outcome = store.resolve(b"t", [], [])
    store.commit([], [Put(JOBS, b"b", b"")], b"u")
    store.deliver()
    assert (outcome, rows(store), store.resolve(b"t", [], [])) == (Conflict(), {b"b": b""}, Conflict())


def test_looking_does_not_settle_an_unknown_commit(store: MemoryStore) -> None:
    """A commit on its way is not there to be seen, and arrives right after the next commit all the same."""
    lose(store, applied=False)
    seen = rows(store)
    store.commit([], [Put(JOBS, b"b", b"")], b"u")
    assert (seen, rows(store), store.sequence) == ({}, {b"b": b"", b"a": b"late"}, 2)
    assert store.resolve(b"t", [], []) == Committed(2)


def test_a_late_commit_is_checked_when_it_arrives(store: MemoryStore) -> None:
    """A commit on its way whose checks no longer hold is lost when it arrives."""
    lose(store, applied=False, check=Check(JOBS, b"a", 0))
    store.commit([], [Put(JOBS, b"a", b"first")], b"u")
    store.deliver()
    assert (rows(store), store.resolve(b"t", [], [])) == ({b"a": b"first"}, Conflict())


def test_a_conflict_is_no_unknown_commit(store: MemoryStore) -> None:
    """A fault waits for a commit whose checks hold."""
    store.faults.unknown_next(applied=True)
    assert store.commit([Check(JOBS, b"a", 7)], [], b"t") == Conflict()
    with pytest.raises(CommitUnknownError):
        store.commit([], [], b"t")


def test_versions_are_exact(store: MemoryStore) -> None:
    """However many other keys changed, an unchanged key passes its check."""
    store.commit([], [Put(JOBS, b"a", b"1")], b"t")
    old = store.read([(JOBS, b"a")])[0].version
    for number in range(500):
        store.commit([], [Put(JOBS, b"%d" % number, b"")], b"t")
    assert store.commit([Check(JOBS, b"a", old)], [], b"t") == Committed(502)


def test_a_disk_has_one_owner() -> None:
    """A second open is locked out; after a crash the dead store is refused and the disk can be opened."""
    disk = MemoryDisk()
    first = MemoryStore.open(disk, clock=ManualClock(START_MS))
    with pytest.raises(QueueLockedError):
        MemoryStore.open(disk, clock=ManualClock(START_MS))
    disk.crash()
    with pytest.raises(QueueUnavailableError) as refused:
        first.commit([], [], b"t")
    second = MemoryStore.open(disk, clock=ManualClock(START_MS))
    first.close()
    assert (refused.value.outcome, second.incarnation, second.commit([], [], b"t")) == ("not_applied", 1, Committed(1))
