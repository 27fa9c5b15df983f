"""Facts about the ring of scopes and about reopening."""

import pytest

from telha_model.ops import Advance, Cancel, EnqueueMany, Lease, Op, Release, Reopen
from telha_model.replies import Advanced, BadArgument, Leased, Reopened
from telha_model.types import TIME_MS_MAX, NewJob, Ref
from tests.unit.model.support import START_MS, Rig


def _jobs(*scopes: int) -> Rig:
    rig = Rig()
    rig.do(EnqueueMany(tuple([NewJob(scope, "a") for scope in scopes])))
    return rig


def _served(rig: Rig, op: Lease) -> list[int]:
    reply = rig.do(op)
    assert isinstance(reply, Leased)
    return [grant.scope for grant in reply.grants]


def test_scopes_are_served_in_turn() -> None:
    """A backlog of one scope does not hold up another: every grant moves the served scope to the tail."""
    rig = _jobs(1, 1, 1, 2, 2, 3)
    assert _served(rig, Lease("w", 9)) == [1, 2, 3, 1, 2, 1]


def test_one_at_a_time_is_a_batch() -> None:
    """A batch equals as many single leases at one time."""
    single, batch = _jobs(1, 1, 2, 3), _jobs(1, 1, 2, 3)
    single.do(Lease("w"), Lease("w"), Lease("w"))
    batch.do(Lease("w", 3))
    assert single.queue == batch.queue


def test_a_filter_passes_over_without_moving() -> None:
    """Who is not eligible keeps its place."""
    rig = _jobs(1, 2, 2, 3)
    assert _served(rig, Lease("w", 1, (2, 3))) == [2]
    assert rig.queue.ring == (1, 3, 2)


def test_a_scope_leaves_with_its_last_ready_job() -> None:
    """Leasing or cancelling the last ready job takes the scope out of the ring."""
    rig = _jobs(1, 2)
    rings = []
    for op in (Lease("w"), Cancel(2)):
        rig.do(op)
        rings.append(rig.queue.ring)
    assert rings == [(2,), ()]


def test_a_scope_joins_at_the_tail() -> None:
    """A release makes the job ready, and its scope waits behind who waits already."""
    rig = _jobs(1, 2, 3)
    rig.do(Lease("w"), Release(Ref(1, 1)))
    assert rig.queue.ring == (2, 3, 1)


def test_who_comes_due_joins_by_due_time_then_scope() -> None:
    """However long nobody asked, scopes join in the order in which their first job came due."""
    rig = Rig()
    rig.do(
        EnqueueMany((NewJob(3, "a", delay_ms=1), NewJob(2, "a", delay_ms=2), NewJob(1, "a", delay_ms=2))), Advance(9)
    )
    assert rig.queue.ring == (3, 1, 2)


def test_advancing_in_steps_joins_as_in_one() -> None:
    """The ring depends on what came due, not on how often one looked."""
    once, often = Rig(), Rig()
    for rig in (once, often):
        rig.do(EnqueueMany((NewJob(2, "a", delay_ms=2), NewJob(1, "a", delay_ms=3), NewJob(3, "a", delay_ms=3))))
    once.do(Advance(3))
    often.do(Advance(1), Advance(1), Advance(1))
    assert once.queue == often.queue


def test_the_nil_scope_is_a_scope() -> None:
    """A lease without a scope filter serves system jobs too."""
    assert _served(_jobs(1, 0), Lease("w", 2)) == [1, 0]


def test_the_served_scope_is_written_down() -> None:
    """The scope served last is part of the state."""
    rig = _jobs(1, 2)
    rig.do(Lease("w"))
    assert rig.queue.last_served == 1


@pytest.mark.parametrize(
    ("before", "ring"),
    [((), (1, 2, 3)), ((Lease("w"),), (2, 3, 1)), ((Lease("w", 2),), (3, 1, 2))],
    ids=["nobody served", "after 1", "after 2"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_reopening_rebuilds_the_ring_after_the_last_served(
    before: tuple[Op, ...], ring: tuple[int, ...], clean: bool
) -> None:
    """Cyclic scope order, starting behind the scope served last."""
    rig = _jobs(3, 1, 2, 1, 2, 3)
    rig.do(Reopen(clean=True), *before)
    rig.do(Reopen(clean=clean))
    assert rig.queue.ring == ring


def test_only_an_unclean_end_raises_the_incarnation() -> None:
    """0 at first, unchanged by a clean reopening, one more after each unclean end."""
    rig = _jobs(1)
    assert rig.do(Reopen(clean=True)) == Reopened(0)
    assert rig.do(Reopen(clean=False)) == Reopened(1)
    assert rig.do(Reopen(clean=False)) == Reopened(2)


def test_reopening_keeps_jobs_and_time() -> None:
    """Nothing but ring and incarnation changes."""
    rig = _jobs(1, 2)
    before = rig.queue
    rig.do(Reopen(clean=False))
    assert rig.queue == before._replace(incarnation=1)


def test_time_does_not_run_back() -> None:
    """A negative step is refused, and the last instant is the end."""
    rig = Rig()
    assert rig.refused(Advance(-1)) == BadArgument("ms")
    assert rig.do(Advance(2 * TIME_MS_MAX)) == Advanced(TIME_MS_MAX)
    assert START_MS < TIME_MS_MAX
