"""A server on a free port of this machine, and raw calls to it: messages of the .proto, no client library."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import grpc
import pytest

from telha_jobs import Clock, JobQueue, ManualClock, QueueConfig, QueueError
from telha_jobs.codec import pack_plain
from telha_jobs.rpc.methods import METHODS
from telha_jobs.rpc.server import Server
from telha_jobs.rpc.status import COMMIT_KEY, INDEX_KEY, error_of_trailers
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.settings import Flag, ServerSettings, load

MEMORY: Final = Path("/dev/shm")
START_MS: Final = 1_700_000_000_000
TTL_MS: Final = 60_000
BOUND_S: Final = 60.0
"""No test of a server may take longer: whoever waits for an answer that never comes is red, not stuck."""
A: Final = UUID("aaaaaaaa-0000-4000-8000-000000000001")
B: Final = UUID("bbbbbbbb-0000-4000-8000-000000000002")
CONFIG: Final = QueueConfig(lease_ttl_ms=TTL_MS, durability="os")


def bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test, for so long at most."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def within() -> None:
            async with asyncio.timeout(BOUND_S):
                await test(*args, **kwargs)

        asyncio.run(within())

    return run


@contextmanager
def directory() -> Iterator[Path]:
    """A directory in memory for a database."""
    with tempfile.TemporaryDirectory(prefix="telha-rpc-", dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


def server_settings(**given: str | bool) -> ServerSettings:
    """Settings of a server on a free port; names as in `server.*`, dots as two underscores."""
    flags = [Flag(f"server.{name.replace('__', '.')}", value, name) for name, value in given.items()]
    return load(environment={}, flags=[Flag("server.listen", "127.0.0.1:0", "listen"), *flags]).server


class Stub:
    """Every method by its name, as grpc.aio has it."""

    def __init__(self, channel: grpc.aio.Channel, token: str | None = None) -> None:
        self._metadata = None if token is None else (("authorization", f"Bearer {token}"),)
        for name, method in METHODS.items():
            make = channel.unary_stream if method.streams else channel.unary_unary
            call = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            setattr(self, name, self._with_token(call))

    def _with_token(self, call: Any) -> Callable[..., Any]:
        return lambda request: call(request, metadata=self._metadata)

    def __getattr__(self, name: str) -> Any:  # what `__init__` sets
        raise AttributeError(name)


class Told(NamedTuple):
    """A refusal as it came over the wire."""

    code: grpc.StatusCode
    error: QueueError | None
    trailers: Mapping[str, str | bytes]


async def refusal(call: Any) -> Told:
    """The refusal that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (_to_its_end(call) if hasattr(call, "__aiter__") else call)
    trailers = dict(caught.value.trailing_metadata() or ())
    told = error_of_trailers(caught.value.details() or "", caught.value.trailing_metadata() or ())
    return Told(caught.value.code(), told, trailers)


async def _to_its_end(stream: Any) -> None:
    async for _ in stream:
        pass


async def commit(call: Any) -> tuple[int, int]:
    """The commit that a call's answer covers, and the call's place in it."""
    trailers = dict(await call.trailing_metadata())
    return int(trailers[COMMIT_KEY]), int(trailers[INDEX_KEY])


@dataclass
class Rig:
    """A queue, its server, and calls to it."""

    queue: JobQueue
    server: Server
    clock: ManualClock
    channel: grpc.aio.Channel

    def stub(self, token: str | None = None) -> Any:
        """Calls with a token."""
        return Stub(self.channel, token)

    async def lease(self, scope: UUID = A, kind: str = "work", **given: Any) -> pb.LeaseRef:
        """A job of that kind, leased by the library."""
        self.queue.enqueue(scope, kind, None, **given)
        found = self.queue.lease_next("library", scopes=[scope], kinds=[kind])
        assert found is not None
        return pb.LeaseRef(job_id=str(found.job_id), generation=found.generation)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the server go on until something holds."""
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(
    config: QueueConfig = CONFIG, *, clock: Clock | None = None, path: Path | None = None, **given: str | bool
) -> AsyncIterator[Rig]:
    """A server of a fresh queue, under a clock that only the test moves. `given`: its settings."""
    manual = ManualClock(START_MS)
    with directory() as made:
        queue = JobQueue.open(made if path is None else path, config=config, clock=manual if clock is None else clock)
        try:
            server = await Server.start(queue, server_settings(**given))
            try:
                async with grpc.aio.insecure_channel(server.address, options=_UNBOUNDED) as channel:
                    yield Rig(queue, server, manual, channel)
            finally:
                await server.stop(0)
        finally:
            queue.close()


_UNBOUNDED: Final = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


def value(given: Any) -> pb.Value:
    """A value as msgpack."""
    return pb.Value(msgpack=pack_plain(given))


def job(scope: UUID = A, kind: str = "work", payload: Any = None, **given: Any) -> pb.NewJob:
    """A job to add."""
    return pb.NewJob(scope=str(scope), kind=kind, payload=value(payload), **given)


def enqueue(*args: Any, **given: Any) -> pb.EnqueueRequest:
    """A request to add it."""
    return pb.EnqueueRequest(job=job(*args, **given))


def complete(lease: Any, result: Any = None, follow_ups: Any = ()) -> pb.SubmitRequest:
    """A submit of a lease."""
    return pb.SubmitRequest(lease=ref(lease), complete=pb.Complete(result=value(result), enqueue=follow_ups))


def fail(lease: Any, reason: str = "broken", *, retryable: bool = True) -> pb.SubmitRequest:
    """A failure of a lease."""
    return pb.SubmitRequest(lease=ref(lease), fail=pb.Fail(reason=reason, retryable=retryable))


def ref(lease: Any) -> pb.LeaseRef:
    """A lease as presented."""
    return pb.LeaseRef(job_id=lease.job_id, generation=lease.generation)
