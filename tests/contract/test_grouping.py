"""Group commit: who leads a sync, what it covers, who it wakes; with a disk that syncs when told to."""

import threading
from collections.abc import Callable

import pytest

from telha_jobs.errors import QueueUnavailableError
from telha_jobs.store.grouping import SyncGroup

_WAIT_S = 20  # for what must happen at once; a test that waits as long has failed


class Disk:
    """A log with a newest written sequence, whose syncs begin and end when the test says so."""

    def __init__(self) -> None:
        self.written = 0
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.group = SyncGroup(flush=self.flush, written=lambda: self.written, synced=0)

    def flush(self) -> None:
        """A sync: tells that it began, and ends when allowed to."""
        self.began.release()
        assert self.may_end.acquire(timeout=_WAIT_S)
        error, self.error = self.error, None
        if error is not None:
            raise error


class Waiter:
    """A thread in `wait`, and how it ended."""

    def __init__(self, group: SyncGroup, sequence: int) -> None:
        self.outcome = "waiting"
        self._group = group
        self._sequence = sequence
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._group.wait(self._sequence)
        except QueueUnavailableError as error:
            self.outcome = error.outcome
        except KeyboardInterrupt:
            self.outcome = "interrupted"
        else:
            self.outcome = "durable"

    def ended(self) -> str:
        """How the wait ended; fails the test when it does not."""
        self._thread.join(_WAIT_S)
        return self.outcome


@pytest.fixture
def disk() -> Disk:
    """A disk with nothing on it."""
    return Disk()


def blocked(waiters: list[Waiter], group: SyncGroup, until: Callable[[], bool]) -> None:
    """Spin until as many threads wait as the test wants to see waiting; nothing is timed."""
    for _ in range(2_000_000):
        if until():
            return
    pytest.fail(f"{[waiter.outcome for waiter in waiters]} with {group.flushes} syncs: nobody came to wait")


def followers(group: SyncGroup) -> int:
    """How many threads wait for the sync under way."""
    return len(group._changed._waiters)  # type: ignore[attr-defined]  # a Condition keeps them here


def test_a_sync_covers_what_was_written_when_it_began(disk: Disk) -> None:
    """What was written before a sync began is durable after it; what came during it needs another."""
    disk.written = 3
    leader = Waiter(disk.group, 2)
    assert disk.began.acquire(timeout=_WAIT_S)
    disk.written = 4
    late = Waiter(disk.group, 4)
    blocked([leader, late], disk.group, lambda: followers(disk.group) == 1)
    disk.may_end.release()
    assert (leader.ended(), disk.group.synced) == ("durable", 3)
    assert disk.began.acquire(timeout=_WAIT_S)
    waiting = late.outcome
    disk.may_end.release()
    assert (waiting, late.ended(), disk.group.synced, disk.group.flushes) == ("waiting", "durable", 4, 2)


def test_waiters_that_gathered_share_one_sync(disk: Disk) -> None:
    """However many came while a sync ran, the next one serves them all."""
    disk.written = 1
    leader = Waiter(disk.group, 1)
    assert disk.began.acquire(timeout=_WAIT_S)
    disk.written = 21
    gathered = [Waiter(disk.group, 2 + number) for number in range(20)]
    blocked(gathered, disk.group, lambda: followers(disk.group) == 20)
    disk.may_end.release()
    disk.may_end.release()
    outcomes = {waiter.ended() for waiter in [leader, *gathered]}
    assert (outcomes, disk.group.flushes) == ({"durable"}, 2)


def test_a_covered_wait_costs_nothing(disk: Disk) -> None:
    """Who waits for what is durable already returns without a sync, also while one is under way."""
    disk.written = 5
    disk.may_end.release()
    disk.group.wait(3)
    disk.group.wait(5)
    disk.written = 6
    leader = Waiter(disk.group, 6)
    assert disk.began.acquire(timeout=_WAIT_S)
    assert disk.began.acquire(timeout=_WAIT_S)
    disk.group.wait(5)
    disk.may_end.release()
    assert (leader.ended(), disk.group.flushes) == ("durable", 2)


def test_a_failed_sync_is_unknown_to_all_it_should_have_covered(disk: Disk) -> None:
    """Leader and followers do not know; nobody syncs again; what an earlier sync covered is still durable."""
    disk.written = 1
    disk.may_end.release()
    disk.group.wait(1)
    disk.written = 2
    disk.error = OSError("gone")
    leader = Waiter(disk.group, 2)
    for _ in range(2):
        assert disk.began.acquire(timeout=_WAIT_S)
    disk.written = 3
    follower = Waiter(disk.group, 3)
    blocked([leader, follower], disk.group, lambda: followers(disk.group) == 1)
    disk.may_end.release()
    outcomes = [leader.ended(), follower.ended(), Waiter(disk.group, 3).ended(), Waiter(disk.group, 1).ended()]
    assert (outcomes, disk.group.flushes) == (["unknown", "unknown", "unknown", "durable"], 2)


def test_an_interrupted_leader_leaves_the_lead_to_another(disk: Disk) -> None:
    """An interrupt in the leader's thread is no failure of the disk: a follower leads the next sync."""
    disk.written = 2
    disk.error = KeyboardInterrupt()
    leader = Waiter(disk.group, 1)
    assert disk.began.acquire(timeout=_WAIT_S)
    follower = Waiter(disk.group, 2)
    blocked([leader, follower], disk.group, lambda: followers(disk.group) == 1)
    disk.may_end.release()
    disk.may_end.release()
    assert [leader.ended(), follower.ended()] == ["interrupted", "durable"]


def test_a_failure_elsewhere_ends_the_waiting(disk: Disk) -> None:
    """When a write fails, who waits beside a sync under way learns what that sync did, and others do not know."""
    disk.written = 1
    leader = Waiter(disk.group, 1)
    assert disk.began.acquire(timeout=_WAIT_S)
    disk.written = 2
    follower = Waiter(disk.group, 2)
    blocked([leader, follower], disk.group, lambda: followers(disk.group) == 1)
    disk.group.fail("a write failed")
    before = leader.outcome
    disk.may_end.release()
    assert (before, leader.ended(), follower.ended()) == ("waiting", "durable", "unknown")


def test_drain_returns_when_no_sync_is_under_way(disk: Disk) -> None:
    """Draining waits for the sync under way and starts none."""
    disk.group.drain()
    disk.written = 1
    leader = Waiter(disk.group, 1)
    assert disk.began.acquire(timeout=_WAIT_S)
    drainer = threading.Thread(target=disk.group.drain)
    drainer.start()
    blocked([leader], disk.group, lambda: followers(disk.group) == 1)
    early = drainer.is_alive()
    disk.may_end.release()
    drainer.join(_WAIT_S)
    assert (early, drainer.is_alive(), leader.ended(), disk.group.flushes) == (True, False, "durable", 1)
