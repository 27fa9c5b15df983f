"""The event log of a job, and how a long one is shortened.

A log longer than its cap keeps its first `cap // 2` events for ever and its newest ones; what lies between is one
`elided` entry, which counts the events it swallowed and names the state they end in, so that replaying the log still
ends in the job's state.
"""

from telha_jobs.core.record import (
    CANCELLED,
    COMPLETED,
    DEAD,
    ELIDED,
    ENQUEUED,
    FAILED,
    LEASED,
    LIVE,
    PROMOTED,
    REAPED,
    RELEASED,
    RETRIED,
    STATE_AFTER,
    LogEntry,
)
from telha_jobs.types import State


def appended(events: tuple[LogEntry, ...], new: tuple[LogEntry, ...], cap: int) -> tuple[LogEntry, ...]:
    """The log with `new` at its end, at most `cap` entries long."""
    log = events + new
    while len(log) > cap:
        log = _swallow_one(log, cap // 2)
    return log


def _swallow_one(log: tuple[LogEntry, ...], head: int) -> tuple[LogEntry, ...]:
    """Shorten the log by one entry: the entry after the elided one joins it, or the first two of the middle become
    it.
    """
    first, second = log[head], log[head + 1]
    swallowed = first.detail["count"] if first.transition == ELIDED else 1
    detail = {"count": swallowed + 1, "state": STATE_AFTER[second.transition].value}
    return (*log[:head], LogEntry(second.at_ms, ELIDED, detail), *log[head + 2 :])


MOVES: dict[int, frozenset[State | None]] = {
    ENQUEUED: frozenset({None}),
    LEASED: frozenset({State.PENDING}),
    COMPLETED: frozenset({State.LEASED}),
    FAILED: frozenset({State.LEASED}),
    PROMOTED: frozenset({State.FAILED}),
    REAPED: frozenset({State.LEASED}),
    RELEASED: frozenset({State.LEASED}),
    RETRIED: frozenset({State.DEAD}),
    CANCELLED: LIVE,
    DEAD: frozenset({State.LEASED}),
}
"""The states that each transition leaves; with `STATE_AFTER` this is the state machine (docs/semantics.md)."""


def state_after(events: tuple[LogEntry, ...]) -> State | None:
    """The state that a log ends in; None when it holds a move that the state machine does not have."""
    state: State | None = None
    for event in events:
        if event.transition == ELIDED:
            state = State(event.detail["state"])
            continue
        if state not in MOVES[event.transition]:
            return None
        state = STATE_AFTER[event.transition]
    return state
