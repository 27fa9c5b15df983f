"""What an embedded queue and a client of a server have in common, as protocols.

Code written against `Queue` moves from embedded to remote by changing the line that opens it:

    queue: Queue = JobQueue.open("jobs.db")
    queue: Queue = connect("127.0.0.1:7700")

Meanings, errors and order of refusals are those of `JobQueue`; docs/client.md says what the wire adds. `AsyncQueue` is
the same for code in an event loop.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from telha_jobs.types import (
    CheckReport,
    Job,
    Lease,
    LeaseRef,
    NewJob,
    Outcome,
    Page,
    ReapReport,
    Receipt,
    State,
)


class Queue(Protocol):
    """A queue, embedded or remote. Thread-safe; a context manager that closes it."""

    def close(self) -> None:
        """Let go of it: an embedded queue is closed, a client's connection is."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None: ...

    def enqueue(
        self,
        scope: UUID,
        kind: str,
        payload: Any,
        *,
        priority: int = 128,
        run_at_ms: int | None = None,
        delay_ms: int | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        payload_version: int = 1,
    ) -> Receipt:
        """Add one job."""
        ...

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Receipt]:
        """Add up to 10,000 jobs in one commit."""
        ...

    def lease_next(
        self, worker: str, *, scopes: Iterable[UUID] | None = None, kinds: Iterable[str] | None = None, wait_ms: int = 0
    ) -> Lease | None:
        """Lease the next due job, or None when there is none within `wait_ms`."""
        ...

    def lease_batch(
        self,
        worker: str,
        limit: int,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        wait_ms: int = 0,
    ) -> list[Lease]:
        """Lease up to `limit` jobs in one commit."""
        ...

    def extend(
        self, worker: str, leases: Sequence[LeaseRef], *, progress: Mapping[UUID, Any] | None = None
    ) -> list[Outcome]:
        """Heartbeat: one outcome per lease, in order."""
        ...

    def complete(self, lease: LeaseRef, result: Any = None, *, enqueue: Iterable[NewJob] = ()) -> list[Receipt]:
        """End the job as completed, and create follow-ups in the same commit."""
        ...

    def complete_many(self, items: Iterable[tuple[LeaseRef, Any]]) -> list[Outcome]:
        """Complete many leases in one commit: one outcome per item, in order."""
        ...

    def fail(self, lease: LeaseRef, reason: str, *, retryable: bool = True) -> State:
        """Record a failure; the state the job is in then."""
        ...

    def release(self, lease: LeaseRef, *, delay_ms: int = 0) -> None:
        """Give the job back untried."""
        ...

    def reap(self, limit: int | None = None) -> ReapReport:
        """One sweep."""
        ...

    def start_reaper(self) -> None:
        """Sweep at intervals from now on. A server does so by itself: a client has nothing to do."""
        ...

    def retry(self, job_id: UUID) -> None:
        """Dead to pending."""
        ...

    def cancel(self, job_id: UUID) -> None:
        """Pending, failed or leased to dead."""
        ...

    def discard(self, job_id: UUID) -> None:
        """Remove an ended job for good."""
        ...

    def get(self, job_id: UUID) -> Job:
        """The job as it is now."""
        ...

    def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """A page of jobs in job-id order."""
        ...

    def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]:
        """How many jobs are in each of the five states."""
        ...

    def check(self, *, repair: bool = False) -> CheckReport:
        """Prove that everything derived follows from the rows."""
        ...

    def now_ms(self) -> int:
        """The queue's time in ms since the epoch."""
        ...

    def clock_ahead_ms(self) -> int:
        """How far that is ahead of the wall clock of the machine that has the queue."""
        ...


class AsyncQueue(Protocol):
    """The same, awaited."""

    async def close(self) -> None:
        """Let go of it."""
        ...

    async def enqueue(
        self,
        scope: UUID,
        kind: str,
        payload: Any,
        *,
        priority: int = 128,
        run_at_ms: int | None = None,
        delay_ms: int | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        payload_version: int = 1,
    ) -> Receipt: ...

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Receipt]: ...

    async def lease_next(
        self, worker: str, *, scopes: Iterable[UUID] | None = None, kinds: Iterable[str] | None = None, wait_ms: int = 0
    ) -> Lease | None: ...

    async def lease_batch(
        self,
        worker: str,
        limit: int,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        wait_ms: int = 0,
    ) -> list[Lease]: ...

    async def extend(
        self, worker: str, leases: Sequence[LeaseRef], *, progress: Mapping[UUID, Any] | None = None
    ) -> list[Outcome]: ...

    async def complete(
        self, lease: LeaseRef, result: Any = None, *, enqueue: Iterable[NewJob] = ()
    ) -> list[Receipt]: ...

    async def complete_many(self, items: Iterable[tuple[LeaseRef, Any]]) -> list[Outcome]: ...

    async def fail(self, lease: LeaseRef, reason: str, *, retryable: bool = True) -> State: ...

    async def release(self, lease: LeaseRef, *, delay_ms: int = 0) -> None: ...

    async def reap(self, limit: int | None = None) -> ReapReport: ...

    async def retry(self, job_id: UUID) -> None: ...

    async def cancel(self, job_id: UUID) -> None: ...

    async def discard(self, job_id: UUID) -> None: ...

    async def get(self, job_id: UUID) -> Job: ...

    async def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page: ...

    async def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]: ...

    async def check(self, *, repair: bool = False) -> CheckReport: ...

    async def now_ms(self) -> int: ...

    async def clock_ahead_ms(self) -> int: ...
