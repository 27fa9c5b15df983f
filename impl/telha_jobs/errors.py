"""Every error of the library, with its fields; `str()` of each says what happened and what to do next.

    QueueError
    ├── InvalidArgumentError     (ValueError)  a value breaks a rule; nothing was written
    ├── JobNotFoundError         (KeyError)    no such job: never enqueued, purged or discarded
    ├── WrongStateError                        the operation needs the job in another state
    ├── StaleLeaseError                        the lease is not current: the submission is discarded
    ├── IdempotencyConflictError               the key belongs to a job with another kind or payload
    ├── JobUnreadableError                     the job's row cannot be decoded; it is quarantined
    ├── QueueUnavailableError                  closed, forked, foreign, unwritable, or storage failed
    ├── QueueLockedError                       another opener owns the database
    └── FormatVersionError                     the database was written by a newer version

When several refusals apply to one call, the first of this order is given: unavailable, argument, not found, (a repeated
submit is answered), stale lease or wrong state, key conflict. A refusal changes nothing.
"""

import copyreg
from typing import Any, Literal
from uuid import UUID

from telha_jobs.types import State

LeaseEnd = Literal["reaped", "superseded", "released", "cancelled", "completed", "failed", "never_leased"]
"""Why a lease is not current (`StaleLeaseError.why`)."""

CommitOutcome = Literal["not_applied", "unknown"]
"""What became of the refused call (`QueueUnavailableError.outcome`)."""

_STALE_REASONS: dict[str, str] = {
    "reaped": "it expired and was reaped",
    "superseded": "the job was leased again since",
    "released": "it was released",
    "cancelled": "the job was cancelled",
    "completed": "it was completed with other arguments",
    "failed": "it was failed with other arguments",
    "never_leased": "that generation was never granted",
}


class QueueError(Exception):
    """Base of every error this library raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would rebuild an exception by calling its class with the message alone: none here is made that way.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]  # not in typeshed


class InvalidArgumentError(QueueError, ValueError):
    """A value breaks a rule. `field` names it (`priority`, in bulk calls `jobs[3].kind`); nothing was written."""

    field: str

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class JobNotFoundError(QueueError, KeyError):
    """There is no job with this id: it never was, or it was purged or discarded."""

    job_id: UUID

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} does not exist: check the id; ended jobs go when their retention is over")
        self.job_id = job_id


class WrongStateError(QueueError):
    """The job is in `state`; the operation needs one of `needed`. Nothing changed."""

    job_id: UUID
    state: State
    needed: frozenset[State]

    def __init__(self, job_id: UUID, state: State, needed: frozenset[State]) -> None:
        names = " or ".join(sorted(one.value for one in needed))
        super().__init__(f"job {job_id} is {state.value}, this needs {names}: nothing was changed; look at it first")
        self.job_id = job_id
        self.state = state
        self.needed = needed


class StaleLeaseError(QueueError):
    """The lease (`job_id`, `generation`) is not current, so the call was discarded (seed §6). Stop working on the job.

    `current_generation` and `state` describe the job now; `why` says how this lease ended.
    """

    job_id: UUID
    generation: int
    current_generation: int
    state: State
    why: LeaseEnd

    def __init__(self, job_id: UUID, *, generation: int, current_generation: int, state: State, why: LeaseEnd) -> None:
        super().__init__(
            f"lease {generation} of job {job_id} is not current (generation now {current_generation}, {state.value}): "
            f"{_STALE_REASONS[why]}; drop this attempt's result, nothing was changed"
        )
        self.job_id = job_id
        self.generation = generation
        self.current_generation = current_generation
        self.state = state
        self.why = why


class IdempotencyConflictError(QueueError):
    """The key names the existing job `job_id`, which has another kind, payload or payload version.

    `index` is the position in a bulk call (None in a single one). Nothing of the call was written.
    """

    job_id: UUID
    key: str
    index: int | None

    def __init__(self, job_id: UUID, key: str, *, index: int | None = None) -> None:
        where = "" if index is None else f"item {index}: "
        super().__init__(
            f"{where}idempotency key {key!r} belongs to job {job_id} with another kind, payload or payload version: "
            "use another key, or enqueue the same work"
        )
        self.job_id = job_id
        self.key = key
        self.index = index


class JobUnreadableError(QueueError):
    """The row of `job_id` cannot be decoded; it is kept in quarantine and never runs."""

    job_id: UUID

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"the row of job {job_id} cannot be read: see `telha jobs check` on the database")
        self.job_id = job_id


class QueueUnavailableError(QueueError):
    """The queue takes no calls: closed, used in a forked child, foreign, unwritable, or its storage failed.

    `outcome` is "not_applied" when this call certainly changed nothing, "unknown" when it may have been applied: open
    the queue again and look.
    """

    outcome: CommitOutcome

    def __init__(self, message: str, *, outcome: CommitOutcome = "not_applied") -> None:
        super().__init__(message)
        self.outcome = outcome


class QueueLockedError(QueueError):
    """Another opener owns the database at `path`: one process at a time."""

    path: str

    def __init__(self, path: str, *, detail: str = "") -> None:
        owner = f" ({detail})" if detail else ""
        super().__init__(
            f"{path} is open elsewhere{owner}: close that queue first; reading commands may look meanwhile"
        )
        self.path = path


class FormatVersionError(QueueError):
    """The database has the format version `found`; this library reads up to `supported`. Nothing was touched."""

    found: int
    supported: int

    def __init__(self, *, found: int, supported: int) -> None:
        super().__init__(f"database format {found} is newer than the supported {supported}: install a newer telha-jobs")
        self.found = found
        self.supported = supported
