"""The values that cross the public interface: jobs, leases, receipts, reports. All are frozen.

Times are integer milliseconds since the Unix epoch and end in `_ms`. `None` means "does not apply in this state".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import UUID, SafeUUID

if TYPE_CHECKING:
    from telha_jobs.errors import QueueError

Made = TypeVar("Made")
Named = TypeVar("Named", bound=tuple[Any, ...])
Members = TypeVar("Members", bound=Enum)

SYSTEM_SCOPE: UUID = UUID(int=0)
"""The nil scope: system jobs live here, and kinds `system:*` nowhere else (seed §5)."""


_UNKNOWN = SafeUUID.unknown
_new, _from_bytes = object.__new__, int.from_bytes
_set_int, _set_is_safe = vars(UUID)["int"].__set__, vars(UUID)["is_safe"].__set__

named: Callable[[type[Named], tuple[Any, ...]], Named] = tuple.__new__
"""`named(Row, values)`: what `Row._make(values)` makes, at half its cost."""


def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes, as the constructor makes it, without the time it takes to tell its arguments apart."""
    made = _new(UUID)
    _set_int(made, _from_bytes(raw, "big"))
    _set_is_safe(made, _UNKNOWN)
    return made


def over_fields(made_of: type[Made]) -> Callable[[dict[str, Any]], Made]:
    """What makes instances of a frozen class over their fields: the constructor would set each by a call."""
    [set_fields] = [vars(base)["__dict__"].__set__ for base in made_of.__mro__ if "__dict__" in vars(base)]

    def make(fields: dict[str, Any]) -> Made:
        made = _new(made_of)
        set_fields(made, fields)
        return made

    return make


def plain_members(enumeration: type[Members]) -> type[Members]:
    """The enumeration with its members as plain attributes: before Python 3.12 each access of one by its class runs a
    descriptor, which is a tenth of a microsecond, thirty times a call.
    """
    for member in enumeration:
        type.__setattr__(enumeration, member.name, member)
    return enumeration


@plain_members
class State(Enum):
    """The five states of a job (seed §3). `docs/semantics.md` has the table of moves."""

    PENDING = "pending"
    LEASED = "leased"
    FAILED = "failed"
    COMPLETED = "completed"
    DEAD = "dead"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is a Python call in every dictionary look-up


PENDING, LEASED, FAILED, COMPLETED, DEAD = State
"""The states as plain names, for what runs in every call: before Python 3.12 an enumeration is asked for a member by
way of its metaclass's `__getattr__`, eight hundred instructions each time.
"""


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """One job to enqueue.

    - `scope`: the tenant.
    - `kind`: 1-128 characters of `A-Za-z0-9_.:/+-`.
    - `payload`: what msgpack can carry and give back type for type: None, bool, int of 64 bits, float but not NaN, str,
      bytes, list, dict with str or int keys; at most 100 deep.
    - `priority`: 0 (first) to 255.
    - `run_at_ms` or `delay_ms` (not both): not before then.
    - `max_attempts`: this job's ceiling, else its kind's, else the queue's.
    - `idempotency_key`: 1-1,024 bytes of UTF-8; within the scope it names one job for as long as that job's row lives.
    - `headers`: at most 64 entries and 16 KiB.
    - `payload_version`: the author's own schema number.
    """

    scope: UUID
    kind: str
    payload: Any
    priority: int = 128
    run_at_ms: int | None = None
    delay_ms: int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    headers: Mapping[str, str] | None = None
    payload_version: int = 1


@dataclass(frozen=True)
class Receipt:
    """The answer to an enqueue: the job, whether this call created it, and its state when the answer was given."""

    job_id: UUID
    created: bool
    state: State


@dataclass(frozen=True)
class LeaseRef:
    """What a submit, heartbeat or release must present: the job and the generation of the lease."""

    job_id: UUID
    generation: int


@dataclass(frozen=True)
class Lease(LeaseRef):
    """A granted lease. `attempt` counts from 1; the lease ends at `deadline_ms` unless extended; `progress` is what
    an earlier attempt left.
    """

    scope: UUID
    kind: str
    payload: Any
    payload_version: int
    headers: Mapping[str, str]
    attempt: int
    deadline_ms: int
    worker: str
    progress: Any


@dataclass(frozen=True)
class Event:
    """One entry of a job's log: when, which transition, and its detail (docs/semantics.md lists both)."""

    at_ms: int
    transition: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A job as it is now.

    `due_ms` is its place in the order (pending, leased, failed), `deadline_ms` and `worker` belong to a lease,
    `ended_at_ms` to an ended job, `dead_reason` ("attempts", "expired", "rejected", "cancelled") to a dead one,
    `result` to a completed one. `attempts` counts leases that ended in failure or expiry since the last operator retry.
    """

    job_id: UUID
    scope: UUID
    kind: str
    state: State
    priority: int
    payload: Any
    payload_version: int
    headers: Mapping[str, str]
    created_at_ms: int
    due_ms: int | None
    deadline_ms: int | None
    ended_at_ms: int | None
    run_at_ms: int | None
    attempts: int
    max_attempts: int | None
    generation: int
    worker: str | None
    dead_reason: str | None
    result: Any
    progress: Any
    idempotency_key: str | None
    events: tuple[Event, ...]


OutcomeStatus = Literal["completed", "failed", "extended", "at_limit", "stale", "not_found"]


@dataclass(frozen=True)
class Outcome:
    """The answer to one item of a bulk call. `deadline_ms` after an extension; `error` is what the single call would
    have raised.
    """

    job_id: UUID
    status: OutcomeStatus
    deadline_ms: int | None
    error: "QueueError | None"


@dataclass(frozen=True)
class Page:
    """One page of a listing; pass `after` to the next call. None: there is no more."""

    jobs: tuple[Job, ...]
    after: str | None


@dataclass(frozen=True)
class ReapReport:
    """What one sweep did. `more`: work whose time had come is still waiting."""

    requeued: int
    died: int
    promoted: int
    purged: int
    quarantined: int
    more: bool


@dataclass(frozen=True)
class CheckReport:
    """What `check` found: rows read, sentences about what is wrong, rows repaired, jobs in quarantine.

    True when nothing is wrong (any more).
    """

    rows: int
    problems: tuple[str, ...]
    repaired: int
    quarantined: tuple[UUID, ...]

    def __bool__(self) -> bool:
        return not self.problems
