"""The operations, one type each. Time enters through `Advance` only; every other operation acts at the state's
`now_ms`.
"""

from typing import NamedTuple

from telha_model.types import NewJob, Ref, Value


class Enqueue(NamedTuple):
    """Create one job, or meet the one that holds its key."""

    job: NewJob


class EnqueueMany(NamedTuple):
    """Create several jobs in one commit; the first refusal refuses all."""

    jobs: tuple[NewJob, ...]


class Lease(NamedTuple):
    """Grant up to `limit` leases; None for a filter means everything. `lease_next` is limit 1."""

    worker: str
    limit: int = 1
    scopes: tuple[int, ...] | None = None
    kinds: tuple[str, ...] | None = None


class Extend(NamedTuple):
    """Heartbeat for several leases, optionally with progress by job."""

    worker: str
    refs: tuple[Ref, ...]
    progress: tuple[tuple[int, Value], ...] = ()


class Complete(NamedTuple):
    """End a lease with success and create follow-up jobs in the same commit."""

    ref: Ref
    result: Value = None
    follow_ups: tuple[NewJob, ...] = ()


class CompleteMany(NamedTuple):
    """Complete several leases in one commit; stale and unknown ones are answered per item."""

    items: tuple[tuple[Ref, Value], ...]


class Fail(NamedTuple):
    """End a lease with a reported failure."""

    ref: Ref
    reason: str
    retryable: bool = True


class Release(NamedTuple):
    """Give a lease back without an attempt being counted."""

    ref: Ref
    delay_ms: int = 0


class Reap(NamedTuple):
    """Do up to `limit` pieces of work whose time has come."""

    limit: int | None = None


class Retry(NamedTuple):
    """Give a dead job a fresh budget of attempts."""

    job_id: int


class Cancel(NamedTuple):
    """Make a living job dead."""

    job_id: int


class Discard(NamedTuple):
    """Remove an ended job."""

    job_id: int


class Advance(NamedTuple):
    """Let time pass."""

    ms: int


class Reopen(NamedTuple):
    """Close and open the queue again; not clean means it ended without closing."""

    clean: bool


Op = (
    Enqueue
    | EnqueueMany
    | Lease
    | Extend
    | Complete
    | CompleteMany
    | Fail
    | Release
    | Reap
    | Retry
    | Cancel
    | Discard
    | Advance
    | Reopen
)
