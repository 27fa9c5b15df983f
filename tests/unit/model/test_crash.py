"""The set-of-states checker: what a cut call leaves open, what shrinks the set, and histories that cannot be."""

import pytest

from telha_model import ops, replies
from telha_model.crash import (
    Call,
    Close,
    Disk,
    Happening,
    Judged,
    Kill,
    Look,
    Open,
    States,
    TooManyStatesError,
    follow,
    happened,
    judge,
    vacant,
)
from telha_model.ops import Op
from telha_model.state import Queue
from telha_model.states import State
from telha_model.step import step
from telha_model.types import Backoff, Config, NewJob, Ref

CONFIG = Config(lease_ttl_ms=10, max_attempts=2, backoff=Backoff(1, 1, 1), retention_completed_ms=None)
START_MS = 1_000
ENQUEUE = ops.Enqueue(NewJob(1, "a", idempotency_key="k"))


def told(queue: Queue, *calls: Op) -> tuple[list[Happening], Queue]:
    """The calls with the replies that the model gives, and the state after them."""
    found: list[Happening] = []
    for op in calls:
        reply, queue = step(CONFIG, queue, op)
        found.append(Call(op, reply))
    return found, queue


def begun() -> tuple[list[Happening], Queue]:
    """An open, a job, and its lease."""
    [disk] = follow(CONFIG, vacant(START_MS), Open(0))
    calls, queue = told(disk.queue, ENQUEUE, ops.Lease("w"))
    return [Open(0), *calls], queue


def judged(*happenings: Happening) -> Judged:
    """The happenings from the very first open on."""
    return judge(CONFIG, vacant(START_MS), happenings)


def count_of(states: States, state: State) -> list[int]:
    """How many jobs of that state each of the states has, in order."""
    return sorted(sum(job.state is state for job in disk.queue.jobs) for disk in states)


def test_a_cut_call_leaves_two_states() -> None:
    """A call that nobody was told the outcome of may have happened or not."""
    before, _ = begun()
    found = judged(*before, Call(ops.Complete(Ref(1, 1), 5), None), Kill())
    assert count_of(found.states, State.COMPLETED) == [0, 1]


def test_a_look_leaves_the_state_that_was_seen() -> None:
    """The rows decide which it is."""
    before, _ = begun()
    seen = Look(lambda queue: queue.jobs[0].state is State.COMPLETED)
    found = judged(*before, Call(ops.Complete(Ref(1, 1), 5), None), Kill(), Open(1), seen)
    assert count_of(found.states, State.COMPLETED) == [1]


def test_a_later_reply_leaves_the_states_that_give_it() -> None:
    """What a cancel is answered tells that the cut completion had happened."""
    before, queue = begun()
    _, queue = step(CONFIG, queue, ops.Complete(Ref(1, 1), 5))
    [cancel], _ = told(queue, ops.Cancel(1))
    found = judged(*before, Call(ops.Complete(Ref(1, 1), 5), None), Kill(), Open(1), cancel)
    assert count_of(found.states, State.COMPLETED) == [1]


def test_a_call_that_changes_nothing_is_known_not_to_have_happened() -> None:
    """A cut call that could have done nothing leaves one state."""
    before, _ = begun()
    found = judged(*before, Call(ops.Complete(Ref(1, 9), 5), None))
    assert len(found.states) == 1


def test_a_cut_sweep_has_done_a_first_part() -> None:
    """A sweep is several commits, and a kill may come between any two of them."""
    [disk] = follow(CONFIG, vacant(START_MS), Open(0))
    many = ops.EnqueueMany((NewJob(1, "a"),) * 5)
    calls, _ = told(disk.queue, many, ops.Lease("w", 5), ops.Advance(10))
    found = judge(CONFIG, vacant(START_MS), [Open(0), *calls, Call(ops.Reap(), None)], sweep_commit=2)
    assert count_of(found.states, State.LEASED) == [0, 1, 3, 5]


def test_a_limited_sweep_does_no_more_than_its_limit() -> None:
    """A cut sweep never did more than the call asked for."""
    [disk] = follow(CONFIG, vacant(START_MS), Open(0))
    many = ops.EnqueueMany((NewJob(1, "a"),) * 5)
    calls, _ = told(disk.queue, many, ops.Lease("w", 5), ops.Advance(10))
    found = judge(CONFIG, vacant(START_MS), [Open(0), *calls, Call(ops.Reap(3), None)], sweep_commit=2)
    assert count_of(found.states, State.LEASED) == [2, 3, 5]


def test_a_cut_open_may_or_may_not_have_set_its_mark() -> None:
    """After a first open that was cut, the next one tells incarnation 0 or 1."""
    assert [judged(Open(None), Kill(), Open(told)).broken_at for told in (0, 1, 2)] == [None, None, 2]


def test_an_open_after_a_kill_tells_the_next_incarnation() -> None:
    """An unclean end is counted once, however often it is looked at."""
    assert [judged(Open(0), Kill(), Open(told)).broken_at for told in (0, 1, 2)] == [2, None, 2]


def test_an_open_after_a_cut_close_may_tell_either() -> None:
    """A close that was cut may have removed the mark."""
    assert [judged(Open(0), Close(told=False), Kill(), Open(told)).broken_at for told in (0, 1, 2)] == [None, None, 3]


def test_an_open_after_a_clean_close_tells_the_same_incarnation() -> None:
    """A close that was told removed the mark."""
    assert [judged(Open(0), Close(told=True), Open(told)).broken_at for told in (0, 1)] == [None, 2]


# -- histories that cannot be: each is a queue that broke a promise


def test_an_acknowledged_job_that_is_gone_leaves_no_state() -> None:
    """Lost: the receipt was told, and after the kill no row is there."""
    before, _ = begun()
    assert judged(*before, Kill(), Open(1), Look(lambda queue: not queue.jobs)).broken_at == 5


def test_a_job_nobody_asked_for_leaves_no_state() -> None:
    """Unexpected: two rows where one enqueue was cut."""
    assert judged(Open(0), Call(ENQUEUE, None), Kill(), Look(lambda queue: len(queue.jobs) == 2)).broken_at == 3


def test_a_second_job_under_one_key_leaves_no_state() -> None:
    """Duplicated: the key's job was created twice."""
    before, _ = begun()
    again = Call(ENQUEUE, replies.Enqueued((replies.Receipt(2, True, State.PENDING),)))
    assert judged(*before, Kill(), Open(1), again).broken_at == 5


def test_a_stale_submit_that_was_accepted_leaves_no_state() -> None:
    """The lease of before the kill expired, the job was granted again, and yet the old token's result was taken."""
    before, queue = begun()
    _, queue = step(CONFIG, queue, ops.Reopen(clean=False))
    after, _ = told(queue, ops.Advance(10), ops.Reap(), ops.Advance(1), ops.Lease("v"))
    stale = Call(ops.Complete(Ref(1, 1), 5), replies.Completed(()))
    found = judged(*before, Kill(), Open(1), *after, stale)
    assert found.broken_at == len(before) + 2 + len(after)


def test_a_generation_granted_twice_leaves_no_state() -> None:
    """After a kill a grant has a generation of the new incarnation, never one that may have been given before."""
    before, queue = begun()
    _, queue = step(CONFIG, queue, ops.Reopen(clean=False))
    calls, _ = told(queue, ops.Advance(10), ops.Reap(), ops.Advance(1), ops.Lease("v"))
    [*rest, lease] = calls
    assert isinstance(lease, Call)
    assert isinstance(lease.reply, replies.Leased)
    grant = lease.reply.grants[0]._replace(generation=2)
    found = judged(*before, Kill(), Open(1), *rest, lease._replace(reply=replies.Leased((grant,))))
    assert found.broken_at == len(before) + 2 + len(rest)


def test_half_a_call_leaves_no_state() -> None:
    """Of a cut batch one job of two is there."""
    pair = ops.EnqueueMany((NewJob(1, "a"), NewJob(1, "a")))
    found = judged(Open(0), Call(pair, None), Kill(), Look(lambda queue: len(queue.jobs) == 1))
    assert found.broken_at == 3


# -- what came of a cut call


def test_what_came_of_a_call_is_told_when_it_is_known() -> None:
    """Known to have happened, known not to have, and either."""
    _, queue = begun()
    _, after = step(CONFIG, queue, ops.Complete(Ref(1, 1)))
    old, new = (frozenset((Disk(one, marked=True),)) for one in (queue, after))
    assert [happened(old, new), happened(old, old), happened(old, old | new)] == [True, False, None]


def test_too_many_states_are_no_verdict() -> None:
    """The checker says that it does not know, rather than to forget some."""
    cut = [Call(ops.Enqueue(NewJob(n, f"kind{n}")), None) for n in range(1, 20)]
    with pytest.raises(TooManyStatesError):
        judged(Open(0), *cut)
