"""What the newest commits left is known: it saves reads, is checked by commits, and goes when somebody else wrote."""

from collections.abc import Callable

import pytest

from telha_jobs import ManualClock, NewJob, WrongStateError
from telha_jobs.core import decide
from telha_jobs.engine import known as known_module
from telha_jobs.engine.known import Known
from telha_jobs.engine.rows import Slot
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from tests.field_failures.seam import Seam, at_commit, queue_on
from tests.unit.api.support import START_MS, A, lease, refusal

MIB = 1024 * 1024


@pytest.fixture
def seam() -> Seam:
    """A seam before a new, empty store."""
    return Seam(MemoryStore.open(MemoryDisk(), clock=ManualClock(START_MS)))


def calls(seam: Seam, act: Callable[[], object]) -> list[str]:
    """The calls of the store that an act makes."""
    seen: list[str] = []
    seam.hook = seen.append
    act()
    seam.hook = None
    return seen


def test_what_was_just_written_is_not_read(seam: Seam) -> None:
    """The lease that follows an enqueue, and the completion that follows that, are one commit each and nothing else."""
    queue = queue_on(seam, ManualClock(START_MS))
    queue.enqueue(A, "embed", 7)
    assert calls(seam, lambda: queue.lease_next("w")) == ["commit"]
    queue.enqueue(A, "embed", 8)
    held = lease(queue)
    assert calls(seam, lambda: queue.complete(held)) == ["commit"]


def test_what_has_ended_is_not_kept(seam: Seam) -> None:
    """A repeated completion reads the job's row: of a job that ended nobody expects much."""
    queue = queue_on(seam, ManualClock(START_MS))
    queue.enqueue(A, "embed", 7)
    held = lease(queue)
    queue.complete(held)
    assert "read" in calls(seam, lambda: queue.complete(held))


def test_what_comes_after_one_that_has_ended_is_kept(seam: Seam) -> None:
    """The lease of a follow-up, made in the commit that ends its parent, reads nothing."""
    queue = queue_on(seam, ManualClock(START_MS))
    queue.enqueue(A, "embed", 7)
    queue.complete(lease(queue), enqueue=[NewJob(scope=A, kind="embed", payload=8)])
    assert calls(seam, lambda: queue.lease_next("w")) == ["commit"]


def test_what_was_only_read_is_not_kept(seam: Seam) -> None:
    """A refused call leaves nothing behind that the next one would have to check."""
    queue = queue_on(seam, ManualClock(START_MS))
    made = queue.enqueue(A, "embed", 7)
    refusal(WrongStateError, lambda: queue.retry(made.job_id))
    assert "read" in calls(seam, lambda: queue.cancel(made.job_id))


def test_somebody_elses_commit_before_is_seen(seam: Seam) -> None:
    """Another writer cancels the job that this one enqueued: it is not cancelled again."""
    clock = ManualClock(START_MS)
    queue, other = queue_on(seam, clock), queue_on(seam, clock)
    made = queue.enqueue(A, "embed", 7)
    other.cancel(made.job_id)
    refusal(WrongStateError, lambda: queue.cancel(made.job_id))


def test_somebody_elses_commit_in_the_middle_is_seen(seam: Seam) -> None:
    """Another writer cancels the job while this one leases it out of what it knows: there is nothing to lease."""
    clock = ManualClock(START_MS)
    queue, other = queue_on(seam, clock), queue_on(seam, clock)
    made = queue.enqueue(A, "embed", 7)
    seam.hook = at_commit(lambda: other.cancel(made.job_id))
    assert queue.lease_next("w") is None


def slot(size: int) -> Slot:
    """A slot of a row of so many bytes that was just written."""
    made = Slot(1)
    made.now = decide.enqueued(b"s" * 16, 128, 5, b"j" * 16, "embed", b"", 1, {}, None, 5, None, None)
    made.size = size
    return made


def new(known: Known) -> None:
    """Nothing was kept yet."""


def forgotten(known: Known) -> None:
    """Something was, and is forgotten."""
    known.keep({b"x": slot(60)})
    known.forget(5)


def exchanged(known: Known) -> None:
    """The young generation has just become the old one."""
    known.keep({b"x": slot(101)})


def taken(known: Known) -> None:
    """What was kept was taken."""
    known.keep({b"x": slot(60)})
    known.take(b"x")


@pytest.fixture(params=[new, forgotten, exchanged, taken], ids=lambda act: act.__name__)
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Known:
    """What is known, of at most 100 bytes in a generation, with an empty young one."""
    monkeypatch.setattr(known_module, "BYTES_MAX", 100)
    made = Known()
    request.param(made)
    return made


def test_a_generation_holds_its_bytes(known: Known) -> None:
    """A hundred bytes are no reason to begin another one: what is in them survives the next exchange."""
    for name, size in ((b"a", 50), (b"b", 50), (b"c", 101)):
        known.keep({name: slot(size)})
    assert known.take(b"a") is not None


def test_a_generation_holds_no_byte_more(known: Known) -> None:
    """A hundred and one are: at the next exchange they go."""
    for name, size in ((b"a", 50), (b"b", 51), (b"c", 101)):
        known.keep({name: slot(size)})
    assert known.take(b"a") is None
    assert known.take(b"c") is not None


@pytest.mark.parametrize(("more", "kept"), [(0, True), (1, False)])
def test_a_generation_holds_2_mib(more: int, kept: bool) -> None:
    """The bound itself: two rows of 1 MiB fit, a byte more does not."""
    known = Known()
    for name, size in ((b"a", MIB), (b"b", MIB + more), (b"c", 2 * MIB + 1)):
        known.keep({name: slot(size)})
    assert (known.take(b"a") is not None) is kept
