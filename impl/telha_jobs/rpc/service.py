"""The service's methods: who may call, how much at a time, and how an answer or a refusal leaves.

Each method takes a request apart (`calls`, `looking`), has the dispatcher or the looker do it, and answers. What a
request may not be is said by a status; nothing that a client sends is an error of the server's.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Final, NamedTuple, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from telha_jobs import arguments
from telha_jobs.engine.commands import Filters
from telha_jobs.errors import InvalidArgumentError, QueueError, QueueUnavailableError
from telha_jobs.queue import JobQueue
from telha_jobs.rpc import calls, wire
from telha_jobs.rpc.dispatcher import Dispatcher
from telha_jobs.rpc.looking import Looker, Seen
from telha_jobs.rpc.methods import METHODS, SERVICE
from telha_jobs.rpc.polls import Stream
from telha_jobs.rpc.status import (
    COMMIT_KEY,
    DETAILS_KEY,
    END_KEY,
    INDEX_KEY,
    INTERNAL,
    TOO_MUCH,
    RemoteRefusalError,
    details,
    status_of,
)
from telha_jobs.rpc.tokens import EVERYTHING, Access, Role, Tokens
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.rules import DURATION_MAX_MS, check_int

STOPPING: Final = "the server is stopping: try another one, or later"

_log = logging.getLogger("telha_jobs")

RpcContext = grpc.aio.ServicerContext[Any, Any]
Trailers = tuple[tuple[str, str | bytes], ...]
Prepare = Callable[[Any, calls.Context], calls.Call]
Look = Callable[[Any, Access], Callable[[], Seen]]


class Limits(NamedTuple):
    """How much a server takes on: see docs/configuration.md."""

    calls_max: int
    polls_max: int
    message_bytes_max: int


class Service:
    """`telha.jobs.v1.Jobs` for one queue. `handlers` is what a server takes."""

    def __init__(
        self, queue: JobQueue, dispatcher: Dispatcher, looker: Looker, tokens: Tokens | None, limits: Limits
    ) -> None:
        self._queue = queue
        self._dispatcher = dispatcher
        self._polls = dispatcher.polls
        self._looker = looker
        self._tokens = tokens
        self._limits = limits
        self.stopping = False
        self.refused: Counter[tuple[str, str]] = Counter()
        """Refusals by method and reason: a stale submit is ("Submit", "STALE_LEASE")."""
        self.unavailable: Callable[[], None] = lambda: None
        """Called when the queue turned out to be gone."""

    def handlers(self) -> grpc.GenericRpcHandler:
        """Every method."""
        looks: dict[str, Look] = {
            "GetJob": self._looker.get_job,
            "ListJobs": self._looker.list_jobs,
            "Counts": self._looker.counts,
            "Check": self._looker.check,
            "Reap": self._looker.reap,
            "FindJobs": self._looker.find_jobs,
            "ListQuarantined": self._looker.list_quarantined,
        }
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, (role, prepare) in _CALLS.items():
            methods[name] = _unary(name, partial(self._call, name, role, prepare))
        for name, look in looks.items():
            methods[name] = _unary(name, partial(self._look, name, look))
        methods["GetServer"] = _unary("GetServer", self._get_server)
        methods["PollJobs"] = _stream("PollJobs", self._poll_jobs)
        methods["ExportJobs"] = _stream("ExportJobs", self._export)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # -- unary methods

    async def _call(
        self, name: str, role: Role, prepare: Prepare, request: Message | None, context: RpcContext
    ) -> Message:
        trailers: Trailers = ()
        try:
            access = self._access(role, context)
            self._require_room(request)
            call = prepare(request, calls.Context(self._queue.config, access, self._polls))
            answers = await self._dispatcher.run(call.operations, call.ready)
            trailers = ((COMMIT_KEY, str(answers.sequence)), (INDEX_KEY, str(answers.place)))
            answer = call.answer(answers.replies)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this call's alone
            await self._refuse(name, error, context, trailers)
        context.set_trailing_metadata(trailers)
        return answer

    async def _look(self, name: str, look: Look, request: Message | None, context: RpcContext) -> Message:
        try:
            access = self._access(Role.OPERATOR, context)
            self._require_room(request)
            seen = await self._looker.run(look(request, access))
        except Exception as error:  # noqa: BLE001  as above
            await self._refuse(name, error, context)
        context.set_trailing_metadata(((COMMIT_KEY, str(seen.sequence)),))
        answer: Message = seen.answer
        return answer

    async def _get_server(self, request: pb.GetServerRequest | None, context: RpcContext) -> Message:
        try:
            self._access(None, context)
            self._require_room(request)
            config = self._queue.config
            return pb.GetServerResponse(
                version=version("telha-jobs"),
                now_ms=self._queue.now_ms(),
                clock_ahead_ms=self._queue.clock_ahead_ms(),
                durability=config.durability,
                payload_bytes_max=config.payload_bytes_max,
                result_bytes_max=config.result_bytes_max,
                reason_chars_max=config.reason_chars_max,
                lease_batch_max=config.lease_batch_max,
                message_bytes_max=self._limits.message_bytes_max,
            )
        except Exception as error:  # noqa: BLE001  as above
            await self._refuse("GetServer", error, context)

    # -- streams

    async def _poll_jobs(self, request: Any, context: RpcContext) -> None:
        stream: Stream | None = None
        try:
            access = self._access(Role.WORKER, context)
            _require_message(request)
            stream, put = self._open(request, access)
            await context.send_initial_metadata(())
            end = await self._feed(stream, put, context, once=request.once)
        except Exception as error:  # noqa: BLE001  as above
            await self._refuse("PollJobs", error, context)
        finally:
            if stream is not None:
                self._polls.close(stream)
        context.set_trailing_metadata(((END_KEY, end),))

    def _open(self, request: pb.PollJobsRequest, access: Access) -> tuple[Stream, wire.Put]:
        if self.stopping:
            raise QueueUnavailableError(STOPPING)
        self._queue.engine.require_open()
        config = self._queue.config
        worker = arguments.worker(request.worker)
        put = wire.put_of(request.values)
        most = request.max_in_flight if request.HasField("max_in_flight") else 1
        check_int("max_in_flight", most, 1, config.lease_batch_max)
        idle = wire.optional(request, "idle_timeout_ms")
        if idle is not None:
            check_int("idle_timeout_ms", idle, 0, DURATION_MAX_MS)
        filters = _filters(request, access)
        if len(self._polls) >= self._limits.polls_max:
            raise RemoteRefusalError(TOO_MUCH, f"{self._limits.polls_max} polls are open: no more are taken")
        return self._polls.open(worker, filters, most, idle), put

    async def _feed(self, stream: Stream, put: wire.Put, context: RpcContext, *, once: bool) -> str:
        """Write what the stream is granted, one message at a time, until it ends."""
        while True:
            news = await self._polls.next(stream)
            if isinstance(news, str):
                return news
            leases = [wire.lease(lease, put) for lease in news.leases]
            message = pb.PollJobsResponse(leases=leases, commit_seq=news.sequence, commit_index=news.place)
            await context.write(message)  # waits for the reader when its window is full
            self._polls.handed(stream)
            if once:
                return "once"

    async def _export(self, request: Any, context: RpcContext) -> None:
        try:
            access = self._access(Role.OPERATOR, context)
            self._require_room(request)
            _require_message(request)
            jobs: AsyncIterator[pb.ExportedJob] = self._looker.export(request, access)
            async for job in jobs:
                await context.write(job)
        except Exception as error:  # noqa: BLE001  as above
            await self._refuse("ExportJobs", error, context)

    # -- gates

    def _access(self, role: Role | None, context: RpcContext) -> Access:
        """What the caller may do; it must have the role."""
        if self._tokens is None:
            return EVERYTHING
        given = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                given = value
        access = self._tokens.access(given)
        if role is not None:
            access.require_role(role)
        return access

    def _require_room(self, request: Message | None) -> None:
        _require_message(request)
        if self._dispatcher.waiting + self._looker.waiting >= self._limits.calls_max:
            raise RemoteRefusalError(TOO_MUCH, f"{self._limits.calls_max} calls are in flight: try again later")

    async def _refuse(self, name: str, error: Exception, context: RpcContext, trailers: Trailers = ()) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if not isinstance(error, QueueError):
            _log.error("%s failed", name, exc_info=error)
            error = RemoteRefusalError(INTERNAL, "the server met a flaw of its own, and logged it")
        elif isinstance(error, QueueUnavailableError) and not self.stopping:
            self.unavailable()
        status = status_of(error)
        self.refused[name, status.reason] += 1
        await context.abort(status.code, status.message, (*trailers, (DETAILS_KEY, details(status))))


_CALLS: Final[dict[str, tuple[Role, Prepare]]] = {
    "Enqueue": (Role.PRODUCER, calls.enqueue),
    "EnqueueBatch": (Role.PRODUCER, calls.enqueue_batch),
    "Heartbeat": (Role.WORKER, calls.heartbeat),
    "Submit": (Role.WORKER, calls.submit_one),
    "SubmitBatch": (Role.WORKER, calls.submit_batch),
    "Release": (Role.WORKER, calls.release),
    "RetryJob": (Role.OPERATOR, calls.retry),
    "CancelJob": (Role.OPERATOR, calls.cancel),
    "DiscardJob": (Role.OPERATOR, calls.discard),
}


def _filters(request: pb.PollJobsRequest, access: Access) -> Filters:
    """Which jobs a poll may be given. The same filters in another order are the same."""
    scopes = [wire.scope_in(f"scopes[{index}]", one) for index, one in enumerate(request.scopes)]
    kinds = sorted(set(request.kinds))
    if len(scopes) > arguments.FILTERS_MAX:
        raise InvalidArgumentError("scopes", f"must have at most {arguments.FILTERS_MAX} items")
    if len(kinds) == len(request.kinds):
        kinds = list(request.kinds)  # so that a bad one is named by its place
    checked = arguments.filters(scopes or None, kinds or None)
    for index, scope in enumerate(scopes):
        access.require_scope(f"scopes[{index}]", scope.bytes)
    wanted = None if checked.kinds is None else tuple(sorted(checked.kinds))
    return Filters(wanted, access.scopes if checked.scopes is None else checked.scopes)


def _require_message(request: Message | None) -> None:
    if request is None:
        raise InvalidArgumentError("message", "is not what this method takes: see the .proto")


def _decoder(name: str) -> Callable[[bytes], Message | None]:
    """What makes a message of bytes; None of bytes that are none, so that the method refuses them as it does others."""
    parse = METHODS[name].request.FromString

    def decode(raw: bytes) -> Message | None:
        try:
            return parse(raw)
        except DecodeError:
            return None

    return decode


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


def _unary(name: str, method: Callable[[Any, RpcContext], Awaitable[Message]]) -> "grpc.RpcMethodHandler[Any, Any]":
    async def handle(request: Any, context: RpcContext) -> Message:
        return await method(request, context)

    return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=_decoder(name), response_serializer=_encode)


def _stream(name: str, method: Callable[[Any, RpcContext], Awaitable[None]]) -> "grpc.RpcMethodHandler[Any, Any]":
    async def handle(request: Any, context: RpcContext) -> None:
        await method(request, context)

    return grpc.unary_stream_rpc_method_handler(
        handle, request_deserializer=_decoder(name), response_serializer=_encode
    )
