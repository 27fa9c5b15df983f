"""The replies, refusals included: an operation never raises, it answers with data.

`Ruling` is the one order of precedence. `step` walks it from the top and the first ruling that applies answers the
call, so that a call which is wrong in several ways is always refused for the same reason.
"""

from enum import IntEnum
from typing import Literal, NamedTuple

from telha_model.states import State
from telha_model.types import Value

Why = Literal["reaped", "superseded", "released", "cancelled", "completed", "failed", "never_leased"]
Status = Literal["completed", "extended", "at_limit", "stale", "not_found"]


class Ruling(IntEnum):
    """Why a call is answered without acting, in order of precedence.

    UNAVAILABLE stands first for the engine, whose store can be closed or broken; the model's queue is always there, so
    no check of the model gives it. REPEAT is no refusal: it answers as the recorded submit did.
    """

    UNAVAILABLE = 1
    ARGUMENT = 2
    NOT_FOUND = 3
    REPEAT = 4
    STALE = 5
    WRONG_STATE = 6
    KEY_CONFLICT = 7


class BadArgument(NamedTuple):
    """A value no call may carry; `field` names it, as in `jobs[3].kind`."""

    field: str


class NotFound(NamedTuple):
    """No such job: never created, purged or discarded."""

    job_id: int


class StaleLease(NamedTuple):
    """The token is not the current lease; `why` tells how it stopped being one, `state` is the job's present state."""

    job_id: int
    generation: int
    current_generation: int
    state: State
    why: Why


class WrongState(NamedTuple):
    """The job is not in one of the states the operation needs."""

    job_id: int
    state: State
    needed: frozenset[State]


class KeyConflict(NamedTuple):
    """The key belongs to a job of another kind or payload; `item` is the index in the call, None for a single one.

    When the holder would have been created by an earlier item of the same refused call, `job_id` is the number it would
    have got.
    """

    job_id: int
    key: str
    item: int | None


Refusal = BadArgument | NotFound | StaleLease | WrongState | KeyConflict


class Receipt(NamedTuple):
    """The job that answers an enqueue, whether it is new, and its state."""

    job_id: int
    created: bool
    state: State


class Enqueued(NamedTuple):
    """One receipt per job asked for."""

    receipts: tuple[Receipt, ...]


class Grant(NamedTuple):
    """A lease as the worker gets it; `attempt` counts from 1."""

    job_id: int
    generation: int
    scope: int
    kind: str
    payload: Value
    payload_version: int
    headers: tuple[tuple[str, str], ...]
    attempt: int
    deadline_ms: int
    worker: str
    progress: Value


class Leased(NamedTuple):
    """The granted leases, in order; none when nothing was ready."""

    grants: tuple[Grant, ...]


class Outcome(NamedTuple):
    """What became of one item of a bulk call; `error` only for stale and not_found."""

    job_id: int
    status: Status
    deadline_ms: int | None = None
    error: StaleLease | NotFound | None = None


class Extended(NamedTuple):
    """One outcome per reference."""

    outcomes: tuple[Outcome, ...]


class Completed(NamedTuple):
    """Receipts of the follow-up jobs."""

    receipts: tuple[Receipt, ...]


class CompletedMany(NamedTuple):
    """One outcome per item."""

    outcomes: tuple[Outcome, ...]


class Failed(NamedTuple):
    """The state the failure led to: failed or dead."""

    state: State


class Released(NamedTuple):
    """The lease was given back."""


class Reaped(NamedTuple):
    """What the sweep did, and whether work that is due remains."""

    requeued: int
    died: int
    promoted: int
    purged: int
    more: bool


class Retried(NamedTuple):
    """The job is pending again."""


class Cancelled(NamedTuple):
    """The job is dead."""


class Discarded(NamedTuple):
    """The job is gone."""


class Advanced(NamedTuple):
    """The time it is now."""

    now_ms: int


class Reopened(NamedTuple):
    """The incarnation the queue runs under."""

    incarnation: int


Reply = (
    Refusal
    | Enqueued
    | Leased
    | Extended
    | Completed
    | CompletedMany
    | Failed
    | Released
    | Reaped
    | Retried
    | Cancelled
    | Discarded
    | Advanced
    | Reopened
)
