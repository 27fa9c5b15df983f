"""The state machine of one job, as data.

`TABLE` says which transition leads from which state to which; the documentation's diagram is drawn from it, the promise
about event logs replays through it, and a test finds exactly its edges in the explored universes. `ABSENT` stands for a
job that does not exist (not yet, or no more). `purged` and `discarded` remove the row with its log, so they never stand
in an event.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    LEASED = "leased"
    FAILED = "failed"
    COMPLETED = "completed"
    DEAD = "dead"


class Transition(StrEnum):
    """One move of one job; `elided` is no move but the entry that stands for the collapsed middle of a long log."""

    ENQUEUED = "enqueued"
    LEASED = "leased"
    COMPLETED = "completed"
    FAILED = "failed"
    PROMOTED = "promoted"
    REAPED = "reaped"
    RELEASED = "released"
    RETRIED = "retried"
    CANCELLED = "cancelled"
    DEAD = "dead"
    ELIDED = "elided"
    PURGED = "purged"
    DISCARDED = "discarded"


PENDING: Final = State.PENDING
LEASED: Final = State.LEASED
FAILED: Final = State.FAILED
COMPLETED: Final = State.COMPLETED
DEAD: Final = State.DEAD
ABSENT: Final = None

STATE_MEANING: Final[dict[State, tuple[str, str]]] = {
    PENDING: ("may run once it is due", "due: creation, `run_at`, or the end of a back-off"),
    LEASED: ("one worker holds it under a generation", "deadline"),
    FAILED: ("a reported, retryable failure waits out its back-off", "due: the end of the back-off"),
    COMPLETED: ("done", "ended"),
    DEAD: ("will not run by itself; `dead_reason` says why", "ended"),
}


class Edge(NamedTuple):
    """A line of the table: who moves the job, and why, for the documentation."""

    source: State | None
    transition: Transition
    target: State | None
    cause: str


TABLE: Final[tuple[Edge, ...]] = (
    Edge(ABSENT, Transition.ENQUEUED, PENDING, "enqueue, or a follow-up of a completion"),
    Edge(PENDING, Transition.LEASED, LEASED, "lease, once due"),
    Edge(LEASED, Transition.COMPLETED, COMPLETED, "complete"),
    Edge(LEASED, Transition.FAILED, FAILED, "fail, retryable, attempts left"),
    Edge(LEASED, Transition.REAPED, PENDING, "sweep or late release after the deadline, attempts left"),
    Edge(LEASED, Transition.RELEASED, PENDING, "release before the deadline"),
    Edge(LEASED, Transition.DEAD, DEAD, "the last failure or expiry, or a failure that is not retryable"),
    Edge(LEASED, Transition.CANCELLED, DEAD, "cancel"),
    Edge(PENDING, Transition.CANCELLED, DEAD, "cancel"),
    Edge(FAILED, Transition.CANCELLED, DEAD, "cancel"),
    Edge(FAILED, Transition.PROMOTED, PENDING, "sweep once due, or in the same commit as its lease"),
    Edge(DEAD, Transition.RETRIED, PENDING, "retry"),
    Edge(COMPLETED, Transition.PURGED, ABSENT, "sweep after retention"),
    Edge(DEAD, Transition.PURGED, ABSENT, "sweep after retention"),
    Edge(COMPLETED, Transition.DISCARDED, ABSENT, "discard"),
    Edge(DEAD, Transition.DISCARDED, ABSENT, "discard"),
)

TARGETS: Final[dict[tuple[State | None, Transition], State | None]] = {
    (edge.source, edge.transition): edge.target for edge in TABLE
}

ENDED: Final = frozenset({COMPLETED, DEAD})
CANCELLABLE: Final = frozenset({PENDING, LEASED, FAILED})
RETRYABLE: Final = frozenset({DEAD})


def _state_after() -> dict[Transition, State]:
    return {edge.transition: edge.target for edge in TABLE if edge.target is not None}


STATE_AFTER: Final = _state_after()
"""The state each logged transition ends in; every transition has one target only, which the elision entry relies on."""
