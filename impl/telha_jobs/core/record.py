"""A job as the engine holds it between a read and a write. Field by field on disk in docs/format.md.

Values that the queue only carries (payload, result, progress) stay encoded, as `bytes`.
"""

from typing import Any, NamedTuple

from telha_jobs.types import State, named

LIVE = frozenset({State.PENDING, State.LEASED, State.FAILED})
ENDED = frozenset({State.COMPLETED, State.DEAD})
WAITING = frozenset({State.PENDING, State.FAILED})
"""States of a job that a lease may take once it is due."""

TRANSITION_NAMES = (
    "enqueued",
    "leased",
    "completed",
    "failed",
    "promoted",
    "reaped",
    "released",
    "retried",
    "cancelled",
    "dead",
    "elided",
)
ENQUEUED, LEASED, COMPLETED, FAILED, PROMOTED, REAPED, RELEASED, RETRIED, CANCELLED, DEAD, ELIDED = range(
    len(TRANSITION_NAMES)
)
"""Transitions by their code on disk; `TRANSITION_NAMES` gives the public name."""

STATE_AFTER: dict[int, State] = {
    ENQUEUED: State.PENDING,
    LEASED: State.LEASED,
    COMPLETED: State.COMPLETED,
    FAILED: State.FAILED,
    PROMOTED: State.PENDING,
    REAPED: State.PENDING,
    RELEASED: State.PENDING,
    RETRIED: State.PENDING,
    CANCELLED: State.DEAD,
    DEAD: State.DEAD,
}


class LogEntry(NamedTuple):
    """One event: when, which transition (its code), and the detail, whose keys are strings."""

    at_ms: int
    transition: int
    detail: dict[str, Any]


class Record(NamedTuple):
    """One job. Times in ms; `None` where a field does not apply.

    The first five fields stand in the row's key, the others in its value in this order. `payload` is None when it lives
    in its own family. `lease_end` says how the lease of `generation` ended. `submit_digest` and `submit_reply` are the
    newest recorded submit: of its verb and arguments, and of what it was answered (encoded). `purge_at` is fixed when
    the job ends. `unknown` are fields of a newer minor version, kept through a rewrite.
    """

    scope: bytes
    state: State
    priority: int
    created_at: int
    job_id: bytes
    kind: str
    payload: bytes | None
    payload_version: int
    headers: dict[str, str]
    run_at: int | None
    due: int
    attempts: int
    max_attempts: int | None
    generation: int
    lease_end: str | None
    worker: str | None
    leased_at: int | None
    deadline: int | None
    ended_at: int | None
    purge_at: int | None
    dead_reason: str | None
    submit_digest: bytes | None
    submit_reply: bytes | None
    result: bytes | None
    progress: bytes | None
    key: str | None
    sequence: int
    token: bytes
    events: tuple[LogEntry, ...]
    unknown: tuple[Any, ...]


_POSITIONS = {name: position for position, name in enumerate(Record._fields)}
_LEASED, _FAILED = State.LEASED, State.FAILED  # plain `LEASED` and `FAILED` are transitions here


def changed(record: Record, **changes: Any) -> Record:
    """`record._replace(**changes)` at a third of its cost: every move changes some of thirty fields."""
    values = list(record)
    for name, value in changes.items():
        values[_POSITIONS[name]] = value
    return named(Record, tuple(values))


def timer_of(record: Record) -> int | None:
    """When the sweep has work with this job: its deadline, the end of its back-off, or its purge; None: never."""
    state = record.state
    if state is _LEASED:
        return record.deadline
    if state is _FAILED:
        return record.due
    return record.purge_at  # set in an ended job only
