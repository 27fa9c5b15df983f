"""What a queue may be after calls that nobody was told the outcome of: the model as a *set* of states.

A process that is killed leaves at most one thing unsaid: whether the call at hand happened. So after it the model is in
one of several states. Every reply that is told afterwards, and every look at the rows, leaves those that it fits. None
left means that no order of the calls explains what was seen: a promise is broken.

A call happens as a whole or not at all, with one exception that is part of the specification: a sweep is a row of
commits, so one that was cut short has done a first part of its work. `sweep_commit` is how much of it one commit does.

The set is exact, nothing is approximated, and it is bounded: `TooManyStatesError` when there are more than STATES_MAX,
which says nothing about the queue and must never be taken for a pass.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from telha_model.ops import Op, Reap, Reopen
from telha_model.replies import Reopened, Reply
from telha_model.state import Queue, new_queue
from telha_model.step import step
from telha_model.types import Config

STATES_MAX: Final = 10_000
SWEEP_COMMIT: Final = 500
"""How many pieces of work one commit of a sweep does."""


class Disk(NamedTuple):
    """What is on disk: the queue, and whether the mark stands that an open sets and a clean close removes."""

    queue: Queue
    marked: bool


States = frozenset[Disk]


class Call(NamedTuple):
    """A call; `reply` is None when nobody was told: it was cut short, or failed without saying whether it happened."""

    op: Op
    reply: Reply | None


class Open(NamedTuple):
    """An open, and the incarnation it told; None when it was cut short."""

    incarnation: int | None


class Close(NamedTuple):
    """A clean close; not `told` when it was cut short."""

    told: bool


class Kill(NamedTuple):
    """The process ended without a word, between calls or in one."""


class Look(NamedTuple):
    """The rows were read; `fits` tells whether a state of the model is the one that was seen."""

    fits: Callable[[Queue], bool]


Happening = Call | Open | Close | Kill | Look


class TooManyStatesError(Exception):
    """There are more states than the checker follows: it does not know."""


class Judged(NamedTuple):
    """The states after the happenings, or before the first that none of them fits: `broken_at` is its index then."""

    states: States
    broken_at: int | None


def vacant(now_ms: int) -> States:
    """Before the very first open."""
    return frozenset((Disk(new_queue(now_ms), marked=False),))


def judge(
    config: Config, start: States, happenings: Iterable[Happening], *, sweep_commit: int = SWEEP_COMMIT
) -> Judged:
    """Follow the happenings in order; stops where no state is left."""
    states = start
    for index, happening in enumerate(happenings):
        after = follow(config, states, happening, sweep_commit=sweep_commit)
        if not after:
            return Judged(states, index)
        if len(after) > STATES_MAX:
            raise TooManyStatesError(f"{len(after)} states after happening {index}: the checker follows {STATES_MAX}")
        states = after
    return Judged(states, None)


def follow(config: Config, states: States, happening: Happening, *, sweep_commit: int = SWEEP_COMMIT) -> States:
    """The states that are left after one happening."""
    match happening:
        case Call(op, None):
            return frozenset(
                disk._replace(queue=queue)
                for disk in states
                for queue in _perhaps(config, disk.queue, op, sweep_commit)
            )
        case Call(op, reply):
            stepped = [(step(config, disk.queue, op), disk.marked) for disk in states]
            return frozenset(Disk(queue, marked) for (told, queue), marked in stepped if told == reply)
        case Open(None):
            return states | frozenset(disk for disk, _ in (_opened(config, disk) for disk in states))
        case Open(incarnation):
            opened = [_opened(config, disk) for disk in states]
            return frozenset(disk for disk, told in opened if told == incarnation)
        case Close(told):
            closed = frozenset(disk._replace(marked=False) for disk in states)
            return closed if told else states | closed
        case Kill():
            # The ring is in memory only: the next open makes it anew.
            return frozenset(disk._replace(queue=disk.queue._replace(ring=())) for disk in states)
        case Look(fits):
            return frozenset(disk for disk in states if fits(disk.queue))


def happened(before: States, after: States) -> bool | None:
    """Whether the call that turned `before` into `after` did something; None when it can be either."""
    olds = {_kept(disk.queue) for disk in before}
    news = {_kept(disk.queue) for disk in after}
    if news <= olds:
        return False
    return None if news & olds else True


def _perhaps(config: Config, queue: Queue, op: Op, sweep_commit: int) -> set[Queue]:
    """The queue as it may be after a call that nobody was told the outcome of."""
    found = {queue, step(config, queue, op)[1]}
    if isinstance(op, Reap):
        done = sweep_commit
        while op.limit is None or done < op.limit:
            part = step(config, queue, Reap(done))[1]
            if part in found:
                break  # the whole sweep needs no more
            found.add(part)
            done += sweep_commit
    return found


def _kept(queue: Queue) -> Queue:
    """The queue without what an open makes anew."""
    return queue._replace(ring=(), incarnation=0)


def _opened(config: Config, disk: Disk) -> tuple[Disk, int]:
    reply, queue = step(config, disk.queue, Reopen(clean=not disk.marked))
    if not isinstance(reply, Reopened):
        raise TypeError(f"an open answered {reply!r}")
    return Disk(queue, marked=True), reply.incarnation
