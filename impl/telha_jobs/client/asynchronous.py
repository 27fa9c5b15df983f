"""`AsyncClient`: the same for code in an event loop."""

import asyncio
import random
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import grpc

from telha_jobs.audit.replay import Marks
from telha_jobs.client import exchanges
from telha_jobs.client.blocking import CLOSED, Told
from telha_jobs.client.channel import Endpoint, stubs
from telha_jobs.client.exchanges import Exchange
from telha_jobs.client.failures import Failure, commits_of, failure_of, pause_s
from telha_jobs.clock import monotonic
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.rpc import wire
from telha_jobs.rpc.methods import METHODS
from telha_jobs.types import CheckReport, Job, Lease, LeaseRef, NewJob, Outcome, Page, ReapReport, Receipt, State

Reply = TypeVar("Reply")


class AsyncClient:
    """A connection to a server; make it with `telha_jobs.client.connect_async`. For one event loop; a context manager.

    What `Client` says of calls holds here too. A call that is cancelled may have been applied.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, wait: bool, told: Told | None) -> None:
        if endpoint.credentials is None:
            self._channel = grpc.aio.insecure_channel(endpoint.target, options=endpoint.options)
        else:
            self._channel = grpc.aio.secure_channel(endpoint.target, endpoint.credentials, options=endpoint.options)
        self._target = endpoint.target
        self._metadata = endpoint.metadata
        self._timeout_s = timeout_s
        self._wait = wait
        self._told = told
        self._stubs = stubs(self._channel)
        self._closed = False

    async def close(self) -> None:
        """End the connection. Calls under way are refused; does nothing the second time."""
        self._closed = True
        await self._channel.close()

    def __await__(self) -> Generator[Any, None, Self]:
        """`client = await connect_async(...)` gives it too; then it is closed by hand."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    # -- producers

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
        return await self._run(exchanges.enqueue(job))

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Receipt]:
        """Add up to 10,000 jobs in one commit. Sent again only if all of them have keys."""
        return await self._run(exchanges.enqueue_many(jobs))

    # -- workers

    async def lease_next(
        self, worker: str, *, scopes: Iterable[UUID] | None = None, kinds: Iterable[str] | None = None, wait_ms: int = 0
    ) -> Lease | None:
        """Lease the next due job. A grant whose answer was lost expires."""
        granted = await self._run(exchanges.lease_batch(worker, 1, scopes, kinds, wait_ms))
        return granted[0] if granted else None

    async def lease_batch(
        self,
        worker: str,
        limit: int,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        wait_ms: int = 0,
    ) -> list[Lease]:
        """Lease up to `limit` jobs in one commit."""
        return await self._run(exchanges.lease_batch(worker, limit, scopes, kinds, wait_ms))

    async def poll(
        self,
        worker: str,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        max_in_flight: int = 1,
        idle_timeout_ms: int | None = None,
    ) -> AsyncIterator[list[Lease]]:
        """Leases as they become due, over one stream: each item has those of one commit.

        At most `max_in_flight` are out at a time; a submit makes room. It ends when nothing came for `idle_timeout_ms`
        (None: never) and when the server stops or is lost, with `QueueUnavailableError` then. Close the iterator to
        leave: what was not taken is given back or expires.
        """
        request = exchanges.poll(worker, scopes, kinds, max_in_flight, idle_timeout_ms)
        async for message in self._stream("PollJobs", request):
            yield [wire.lease_of(one) for one in message.leases]

    async def extend(
        self, worker: str, leases: Sequence[LeaseRef], *, progress: Mapping[UUID, Any] | None = None
    ) -> list[Outcome]:
        """Heartbeat."""
        return await self._run(exchanges.extend(worker, leases, progress))

    async def complete(self, lease: LeaseRef, result: Any = None, *, enqueue: Iterable[NewJob] = ()) -> list[Receipt]:
        """End the job as completed, and create follow-ups in the same commit."""
        return await self._run(exchanges.complete(lease, result, enqueue))

    async def complete_many(self, items: Iterable[tuple[LeaseRef, Any]]) -> list[Outcome]:
        """Complete many leases in one commit."""
        return await self._run(exchanges.complete_many(items))

    async def fail(self, lease: LeaseRef, reason: str, *, retryable: bool = True) -> State:
        """Record a failure."""
        return await self._run(exchanges.fail(lease, reason, retryable=retryable))

    async def release(self, lease: LeaseRef, *, delay_ms: int = 0) -> None:
        """Give the job back untried. Not sent again when the answer was lost: the second one would be stale."""
        await self._run(exchanges.release(lease, delay_ms))

    # -- the reaper and operators

    async def reap(self, limit: int | None = None) -> ReapReport:
        """One sweep."""
        report: ReapReport = await self._run(exchanges.reap(limit))
        return report

    async def retry(self, job_id: UUID) -> None:
        """Dead to pending."""
        await self._run(exchanges.operate("RetryJob", job_id))

    async def cancel(self, job_id: UUID) -> None:
        """Pending, failed or leased to dead."""
        await self._run(exchanges.operate("CancelJob", job_id))

    async def discard(self, job_id: UUID) -> None:
        """Remove an ended job for good."""
        await self._run(exchanges.operate("DiscardJob", job_id))

    # -- looking

    async def get(self, job_id: UUID) -> Job:
        """The job as it is now."""
        job: Job = await self._run(exchanges.get(job_id))
        return job

    async def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """A page of jobs in job-id order: full, or the last one. It may take several answers."""
        page = await self._run(exchanges.list_jobs(state, scope, kind, limit, after))
        while page.after is not None and len(page.jobs) < limit:
            more = await self._run(exchanges.list_jobs(state, scope, kind, limit - len(page.jobs), page.after))
            page = Page((*page.jobs, *more.jobs), more.after)
        return page

    async def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]:
        """How many jobs are in each of the five states."""
        return await self._run(exchanges.counts(scope, kind))

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Prove that everything derived follows from the rows."""
        report: CheckReport = await self._run(exchanges.check(repair=repair))
        return report

    async def now_ms(self) -> int:
        """The queue's time in ms since the epoch."""
        return (await self._run(exchanges.server())).now_ms

    async def clock_ahead_ms(self) -> int:
        """How far the queue's time is ahead of the server's wall clock."""
        return (await self._run(exchanges.server())).clock_ahead_ms

    async def ids_with_prefix(self, prefix: str, limit: int) -> list[UUID]:
        """The first `limit` job ids that begin with `prefix`, in order; as `View` has it."""
        return await self._run(exchanges.find_jobs(prefix, limit))

    async def quarantined(self) -> tuple[UUID, ...]:
        """The jobs whose rows are in quarantine, in id order."""
        return tuple(await self._run(exchanges.quarantined()))

    async def rows(self) -> AsyncIterator[tuple[UUID, tuple[Job, Marks] | None]]:
        """Every job in id order with the marks of its row, for an audit; None for a job that cannot be read."""
        async for one in self._stream("ExportJobs", exchanges.export()):
            found = (wire.job_of(one.job), wire.marks_of(one.marks)) if one.HasField("job") else None
            yield wire.uuid_in("job_id", one.job_id), found

    # -- inside

    async def _run(self, exchange: Exchange[Reply]) -> Reply:
        until = monotonic() + self._timeout_s + exchange.wait_ms / 1_000
        attempt = 0
        while True:
            self._require_open()
            try:
                return exchange.answer(await self._call(exchange, until - monotonic()))
            except grpc.RpcError as error:
                failure = self._failure(exchange, error)
            pause = pause_s(attempt, random.random())
            if not failure.again or not self._wait or monotonic() + pause >= until:
                raise failure.error
            await asyncio.sleep(pause)
            attempt += 1

    async def _call(self, exchange: Exchange[Reply], timeout_s: float) -> Any:
        stub, streams = self._stubs[exchange.method], METHODS[exchange.method].streams
        call = stub(exchange.request, timeout=max(timeout_s, 0), metadata=self._metadata, wait_for_ready=self._wait)
        answer = [message async for message in call] if streams else await call
        if self._told is not None:
            self._told(exchange.method, commits_of(answer, await call.trailing_metadata()))
        return answer

    async def _stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        self._require_open()
        exchange: Exchange[None] = Exchange(method, request, _unasked, changes=method == "PollJobs")
        call = self._stubs[method](request, metadata=self._metadata, wait_for_ready=self._wait)
        try:
            async for message in call:
                yield message
        except grpc.RpcError as error:
            raise self._failure(exchange, error).error from None
        finally:
            call.cancel()

    def _failure(self, exchange: Exchange[Any], error: grpc.RpcError) -> Failure:
        if self._closed:
            return Failure(QueueUnavailableError(CLOSED, outcome="unknown"), again=False)
        status: Any = error  # grpc.aio raises what has these
        trailers = tuple(status.trailing_metadata() or ())
        if self._told is not None:
            self._told(exchange.method, trailers)
        return failure_of(exchange, status.code(), status.details() or "", trailers, self._target)

    def _require_open(self) -> None:
        if self._closed:
            raise QueueUnavailableError(CLOSED)


def _unasked(answer: Any) -> None:
    """A stream's messages are taken as they come."""
    del answer
