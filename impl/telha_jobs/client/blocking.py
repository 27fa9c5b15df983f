"""`Client`: a server's queue with the methods of `JobQueue`."""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import grpc

from telha_jobs.audit.replay import Marks
from telha_jobs.client import exchanges
from telha_jobs.client.channel import Endpoint, stubs
from telha_jobs.client.exchanges import Exchange
from telha_jobs.client.failures import Failure, Trailers, commits_of, failure_of, pause_s
from telha_jobs.clock import monotonic
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.rpc import wire
from telha_jobs.rpc.methods import METHODS
from telha_jobs.types import CheckReport, Job, Lease, LeaseRef, NewJob, Outcome, Page, ReapReport, Receipt, State

Reply = TypeVar("Reply")
Told = Callable[[str, Trailers], None]
"""Called with the method and the trailing metadata of every answer, refusals too; of a poll also with its commit."""

CLOSED = "the client is closed: connect again"


class Client:
    """A connection to a server; make it with `telha_jobs.client.connect`. Thread-safe; a context manager.

    The methods of `JobQueue`, with its replies and its errors. Besides: `QueueUnavailableError` when no answer came
    (its `outcome` says whether the call may have been applied), `RemoteRefusalError` for what only a server refuses
    (too much, or not allowed). A call has `timeout_s` for all its attempts, and what the server was asked to wait.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, wait: bool, told: Told | None) -> None:
        if endpoint.credentials is None:
            self._channel = grpc.insecure_channel(endpoint.target, options=endpoint.options)
        else:
            self._channel = grpc.secure_channel(endpoint.target, endpoint.credentials, options=endpoint.options)
        self._target = endpoint.target
        self._metadata = endpoint.metadata
        self._timeout_s = timeout_s
        self._wait = wait
        self._told = told
        self._stubs = stubs(self._channel)
        self._closed = threading.Event()

    def close(self) -> None:
        """End the connection. Calls under way are refused; does nothing the second time."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- producers

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
        """Add one job. Without a key it is not sent again when the answer was lost: there may be two jobs then."""
        job = NewJob(
            scope=scope,
            kind=kind,
            payload=payload,
            priority=priority,
            run_at_ms=run_at_ms,
            delay_ms=delay_ms,
            max_attempts=max_attempts,
            idempotency_key=idempotency_key,
            headers=headers,
            payload_version=payload_version,
        )
        return self._run(exchanges.enqueue(job))

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Receipt]:
        """Add up to 10,000 jobs in one commit. Sent again only if all of them have keys."""
        return self._run(exchanges.enqueue_many(jobs))

    # -- workers

    def lease_next(
        self, worker: str, *, scopes: Iterable[UUID] | None = None, kinds: Iterable[str] | None = None, wait_ms: int = 0
    ) -> Lease | None:
        """Lease the next due job. A grant whose answer was lost expires."""
        granted = self._run(exchanges.lease_batch(worker, 1, scopes, kinds, wait_ms))
        return granted[0] if granted else None

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
        return self._run(exchanges.lease_batch(worker, limit, scopes, kinds, wait_ms))

    def poll(
        self,
        worker: str,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        max_in_flight: int = 1,
        idle_timeout_ms: int | None = None,
    ) -> Iterator[list[Lease]]:
        """Leases as they become due, over one stream: each item has those of one commit.

        At most `max_in_flight` are out at a time; a submit makes room. It ends when nothing came for `idle_timeout_ms`
        (None: never) and when the server stops or is lost, with `QueueUnavailableError` then. Close the iterator to
        leave: what was not taken is given back or expires.
        """
        request = exchanges.poll(worker, scopes, kinds, max_in_flight, idle_timeout_ms)
        for message in self._stream("PollJobs", request):
            yield [wire.lease_of(one) for one in message.leases]

    def extend(
        self, worker: str, leases: Sequence[LeaseRef], *, progress: Mapping[UUID, Any] | None = None
    ) -> list[Outcome]:
        """Heartbeat."""
        return self._run(exchanges.extend(worker, leases, progress))

    def complete(self, lease: LeaseRef, result: Any = None, *, enqueue: Iterable[NewJob] = ()) -> list[Receipt]:
        """End the job as completed, and create follow-ups in the same commit."""
        return self._run(exchanges.complete(lease, result, enqueue))

    def complete_many(self, items: Iterable[tuple[LeaseRef, Any]]) -> list[Outcome]:
        """Complete many leases in one commit."""
        return self._run(exchanges.complete_many(items))

    def fail(self, lease: LeaseRef, reason: str, *, retryable: bool = True) -> State:
        """Record a failure."""
        return self._run(exchanges.fail(lease, reason, retryable=retryable))

    def release(self, lease: LeaseRef, *, delay_ms: int = 0) -> None:
        """Give the job back untried. Not sent again when the answer was lost: the second one would be stale."""
        self._run(exchanges.release(lease, delay_ms))

    # -- the reaper and operators

    def reap(self, limit: int | None = None) -> ReapReport:
        """One sweep."""
        report: ReapReport = self._run(exchanges.reap(limit))
        return report

    def start_reaper(self) -> None:
        """Do nothing: the server sweeps by itself."""

    def retry(self, job_id: UUID) -> None:
        """Dead to pending."""
        self._run(exchanges.operate("RetryJob", job_id))

    def cancel(self, job_id: UUID) -> None:
        """Pending, failed or leased to dead."""
        self._run(exchanges.operate("CancelJob", job_id))

    def discard(self, job_id: UUID) -> None:
        """Remove an ended job for good."""
        self._run(exchanges.operate("DiscardJob", job_id))

    # -- looking

    def get(self, job_id: UUID) -> Job:
        """The job as it is now."""
        job: Job = self._run(exchanges.get(job_id))
        return job

    def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """A page of jobs in job-id order: full, or the last one. It may take several answers."""
        page = self._run(exchanges.list_jobs(state, scope, kind, limit, after))
        while page.after is not None and len(page.jobs) < limit:
            more = self._run(exchanges.list_jobs(state, scope, kind, limit - len(page.jobs), page.after))
            page = Page((*page.jobs, *more.jobs), more.after)
        return page

    def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]:
        """How many jobs are in each of the five states."""
        return self._run(exchanges.counts(scope, kind))

    def check(self, *, repair: bool = False) -> CheckReport:
        """Prove that everything derived follows from the rows."""
        report: CheckReport = self._run(exchanges.check(repair=repair))
        return report

    def now_ms(self) -> int:
        """The queue's time in ms since the epoch."""
        return self._run(exchanges.server()).now_ms

    def clock_ahead_ms(self) -> int:
        """How far the queue's time is ahead of the server's wall clock."""
        return self._run(exchanges.server()).clock_ahead_ms

    def ids_with_prefix(self, prefix: str, limit: int) -> list[UUID]:
        """The first `limit` job ids that begin with `prefix`, in order; as `View` has it."""
        return self._run(exchanges.find_jobs(prefix, limit))

    def quarantined(self) -> tuple[UUID, ...]:
        """The jobs whose rows are in quarantine, in id order."""
        return tuple(self._run(exchanges.quarantined()))

    def rows(self) -> Iterator[tuple[UUID, tuple[Job, Marks] | None]]:
        """Every job in id order with the marks of its row, for an audit; None for a job that cannot be read."""
        for one in self._stream("ExportJobs", exchanges.export()):
            found = (wire.job_of(one.job), wire.marks_of(one.marks)) if one.HasField("job") else None
            yield wire.uuid_in("job_id", one.job_id), found

    # -- inside

    def _run(self, exchange: Exchange[Reply]) -> Reply:
        until = monotonic() + self._timeout_s + exchange.wait_ms / 1_000
        attempt = 0
        while True:
            self._require_open()
            try:
                return exchange.answer(self._call(exchange, until - monotonic()))
            except grpc.RpcError as error:
                failure = self._failure(exchange, error)
            pause = pause_s(attempt, random.random())
            if not failure.again or not self._wait or monotonic() + pause >= until or self._closed.wait(pause):
                raise failure.error
            attempt += 1

    def _call(self, exchange: Exchange[Reply], timeout_s: float) -> Any:
        stub, streams = self._stubs[exchange.method], METHODS[exchange.method].streams
        options = {"timeout": max(timeout_s, 0), "metadata": self._metadata, "wait_for_ready": self._wait}
        if streams:
            call = stub(exchange.request, **options)
            answer = list(call)
        else:
            answer, call = stub.with_call(exchange.request, **options)
        if self._told is not None:
            self._told(exchange.method, commits_of(answer, call.trailing_metadata()))
        return answer

    def _stream(self, method: str, request: Any) -> Iterator[Any]:
        self._require_open()
        exchange: Exchange[None] = Exchange(method, request, _unasked, changes=method == "PollJobs")
        call = self._stubs[method](request, metadata=self._metadata, wait_for_ready=self._wait)
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._failure(exchange, error).error from None
        finally:
            call.cancel()

    def _failure(self, exchange: Exchange[Any], error: grpc.RpcError) -> Failure:
        if self._closed.is_set():
            return Failure(QueueUnavailableError(CLOSED, outcome="unknown"), again=False)
        call: Any = error  # grpc raises the call itself
        trailers = tuple(call.trailing_metadata() or ())
        if self._told is not None:
            self._told(exchange.method, trailers)
        return failure_of(exchange, call.code(), call.details() or "", trailers, self._target)

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise QueueUnavailableError(CLOSED)


def _unasked(answer: Any) -> None:
    """A stream's messages are taken as they come."""
    del answer
