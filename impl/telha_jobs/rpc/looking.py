"""What only looks at the queue: jobs, listings, counts, reports. Runs in threads of a pool, not in the dispatcher's.

Each function takes a checked request and answers with a message and the commit that it saw. Jobs of scopes that the
caller may not touch are not there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from telha_jobs import arguments
from telha_jobs.engine import reader
from telha_jobs.engine.shared import Shared
from telha_jobs.errors import JobNotFoundError
from telha_jobs.keys import ID_BYTES
from telha_jobs.queue import JobQueue
from telha_jobs.recovery import pages
from telha_jobs.rpc import wire
from telha_jobs.rpc.tokens import Access
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.rules import PAGE_MAX, VERSION_MAX, check_int
from telha_jobs.store.port import Family
from telha_jobs.types import State
from telha_jobs.view import id_range, marks_of

_LOOKING_THREADS: Final = 4
_JOBS_PER_LOOK: Final = 16
"""Jobs read before their size is looked at: all of them may be as large as jobs get."""
_MESSAGE_BYTES: Final = 3 << 20
"""A page or chunk takes no further job once it has this size: clients take messages of 4 MiB unless told otherwise."""
_LIMIT_DEFAULT: Final = 100

Answer = TypeVar("Answer")


class Seen(NamedTuple):
    """An answer, and the newest commit when it was looked up."""

    answer: Any
    sequence: int


class Looker:
    """Looks at a queue for the calls of one server."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._pool = ThreadPoolExecutor(max_workers=_LOOKING_THREADS, thread_name_prefix="telha-looking")
        self.waiting = 0

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True)

    async def run(self, look: Callable[[], Answer]) -> Answer:
        """Do it in a thread."""
        self.waiting += 1
        work = asyncio.get_running_loop().run_in_executor(self._pool, look)
        work.add_done_callback(self._over)
        return await work

    def _over(self, work: "asyncio.Future[Any]") -> None:
        self.waiting -= 1
        if not work.cancelled():
            work.exception()  # seen, whether or not its call is still there

    def _read(self, question: Callable[[Shared], Answer]) -> Seen:
        def look(shared: Shared) -> Seen:
            return Seen(question(shared), shared.store.sequence)

        return self._queue.engine.read(look)

    # -- one job, many jobs

    def get_job(self, request: pb.GetJobRequest, access: Access) -> Callable[[], Seen]:
        """A job."""
        job_id = wire.uuid_in("job_id", request.job_id).bytes
        put = wire.put_of(request.values)

        def question(shared: Shared) -> Message:
            source = shared.source()
            if access.scopes is not None and _scope_of(source, job_id) not in access.scopes:
                raise JobNotFoundError(UUID(bytes=job_id))
            return wire.job(reader.get(source, job_id), put)

        return partial(self._read, question)

    def list_jobs(self, request: pb.ListJobsRequest, access: Access) -> Callable[[], Seen]:
        """A page. It ends early where its message gets long."""
        state = wire.state_in("state", request.state)
        wanted = self._filter(state, request, access)
        limit = check_int("limit", _limit(request), 1, PAGE_MAX)
        cursor = arguments.cursor(wire.optional(request, "after"))
        put = wire.put_of(request.values)

        def look() -> Seen:
            jobs: list[pb.Job] = []
            size, after = 0, cursor
            while True:
                most = min(limit - len(jobs), _JOBS_PER_LOOK)
                part, sequence = self._read(
                    lambda shared: reader.look(shared.source(), wanted, after, most)  # noqa: B023  used at once
                )
                found = [wire.job(job, put) for job in part.jobs]
                jobs += found
                size += sum(job.ByteSize() for job in found)
                after = part.last
                if part.ended:
                    return Seen(pb.ListJobsResponse(jobs=jobs), sequence)
                if len(jobs) == limit or size >= _MESSAGE_BYTES:
                    return Seen(pb.ListJobsResponse(jobs=jobs, after=str(UUID(bytes=after))), sequence)

        return look

    def counts(self, request: pb.CountsRequest, access: Access) -> Callable[[], Seen]:
        """How many jobs there are."""
        wanted = self._filter(None, request, access)
        return partial(self._read, lambda shared: wire.counts(reader.counts(shared.source(), wanted)))

    # -- the whole database

    def check(self, request: pb.CheckRequest, access: Access) -> Callable[[], Seen]:
        """The proof of consistency, or a repair."""
        access.require_every_scope()

        def prove() -> Seen:
            report = self._queue.check(repair=request.repair)
            return Seen(wire.check_report(report), self._queue.engine.store.sequence)

        return prove

    def reap(self, request: pb.ReapRequest, access: Access) -> Callable[[], Seen]:
        """One sweep."""
        access.require_every_scope()
        given = wire.optional(request, "limit")
        limit = None if given is None else check_int("limit", given, 1, VERSION_MAX)

        def sweep() -> Seen:
            report = wire.reap_report(self._queue.engine.reap(limit))
            return Seen(report, self._queue.engine.store.sequence)

        return sweep

    def find_jobs(self, request: pb.FindJobsRequest, access: Access) -> Callable[[], Seen]:
        """Ids by their beginning."""
        low, high = id_range(request.prefix)
        limit = check_int("limit", _limit(request), 1, PAGE_MAX)

        def look() -> Seen:
            found: list[str] = []
            start = low
            while True:
                ids, sequence = self._read(lambda shared: _ids(shared, start, high + b"\0"))  # noqa: B023  used at once
                found += [str(UUID(bytes=job_id)) for job_id, scope in ids if _may_see(access, scope)]
                if len(found) >= limit or len(ids) < reader.LISTED_PER_LOOK:
                    return Seen(pb.FindJobsResponse(job_ids=found[:limit]), sequence)
                start = ids[-1][0] + b"\0"

        return look

    def list_quarantined(self, request: pb.ListQuarantinedRequest, access: Access) -> Callable[[], Seen]:
        """Ids of jobs in quarantine."""
        del request

        def question(shared: Shared) -> Message:
            ids = {
                key[:ID_BYTES]: None
                for key, _ in pages(shared.store, Family.QUARANTINE, b"", None)
                if _may_see(access, key[ID_BYTES : 2 * ID_BYTES])
            }
            return pb.ListQuarantinedResponse(job_ids=[str(UUID(bytes=job_id)) for job_id in ids])

        return partial(self._read, question)

    async def export(self, request: pb.ExportJobsRequest, access: Access) -> AsyncIterator[pb.ExportedJob]:
        """Every job with its marks, a few at a time: a slow reader holds no more than that."""
        put = wire.put_of(request.values)
        start = b""
        while True:

            def question(shared: Shared, start: bytes = start) -> tuple[list[pb.ExportedJob], bytes | None]:
                return _chunk(shared, start, access, put)

            (chunk, following), _ = await self.run(partial(self._read, question))
            for job in chunk:
                yield job
            if following is None:
                return
            start = following

    def _filter(
        self, state: State | None, request: pb.ListJobsRequest | pb.CountsRequest, access: Access
    ) -> reader.JobFilter:
        given = wire.optional(request, "scope")
        scope = None if given is None else wire.scope_in("scope", given)
        wanted = arguments.job_filter(state, scope, wire.optional(request, "kind"))
        if scope is not None:
            access.require_scope("scope", scope.bytes)
        return wanted._replace(within=access.scopes)


def _limit(request: pb.ListJobsRequest | pb.FindJobsRequest) -> int:
    return request.limit if request.HasField("limit") else _LIMIT_DEFAULT


def _scope_of(source: reader.Source, job_id: bytes) -> bytes | None:
    """The scope of a job, whether or not its row can be read; None: no such job."""
    [place] = source.store.read(((Family.IDS, job_id),))
    return None if place.value is None else place.value[:ID_BYTES]


def _may_see(access: Access, scope: bytes) -> bool:
    return access.scopes is None or scope in access.scopes


def _ids(shared: Shared, start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
    """The next few job ids, each with its scope."""
    pairs = shared.store.scan(Family.IDS, start, end, reader.LISTED_PER_LOOK)
    return [(job_id, place[:ID_BYTES]) for job_id, place in pairs]


def _chunk(shared: Shared, start: bytes, access: Access, put: wire.Put) -> tuple[list[pb.ExportedJob], bytes | None]:
    """The next jobs of an export, and where it goes on."""
    found: list[pb.ExportedJob] = []
    size = 0
    ids = _ids(shared, start, None)
    for job_id, scope in ids:
        if not _may_see(access, scope):
            continue
        told = pb.ExportedJob(job_id=str(UUID(bytes=job_id)))
        read = reader.row(shared.source(), job_id)
        if read is not None:
            job, record = read
            told.job.CopyFrom(wire.job(job, put))
            told.marks.CopyFrom(wire.marks(marks_of(record)))
        found.append(told)
        size += told.ByteSize()
        if size >= _MESSAGE_BYTES:
            return found, job_id + b"\0"
    return found, None if len(ids) < reader.LISTED_PER_LOOK else ids[-1][0] + b"\0"
