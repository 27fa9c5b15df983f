"""Whatever bytes and messages come, the server answers, keeps its promises, and keeps its size."""

import asyncio
import gc
import random
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from telha_jobs import NewJob
from telha_jobs.rpc.methods import METHODS, Method
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import BOUND_S, A, B, Rig, bounded, enqueue, serving

Code = grpc.StatusCode
EXPECTED: Final = {
    Code.OK,
    Code.ABORTED,
    Code.NOT_FOUND,
    Code.FAILED_PRECONDITION,
    Code.ALREADY_EXISTS,
    Code.INVALID_ARGUMENT,
}
"""What a message may be answered with: never INTERNAL or UNKNOWN."""
GROWTH_KIB_MAX: Final = 12_000
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS_FRAME: Final = b"\0\0\0\4\0\0\0\0\0"


class Served:
    """A server in a thread of its own, for tests that are not asynchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._context = serving()
        self.rig: Rig = self.run(self._context.__aenter__())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do it in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(BOUND_S)

    def close(self) -> None:
        """End the server."""
        self.run(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with a few jobs, some of them leased."""
    server = Served()
    queue = server.rig.queue
    queue.enqueue_many(
        NewJob(scope=scope, kind="k", payload=1, idempotency_key=f"{n}") for scope in (A, B) for n in "abc"
    )
    queue.lease_batch("w", 3)
    try:
        yield server
    finally:
        assert queue.check().problems == ()
        server.close()


async def ends(rig: Rig, method: Method, raw: bytes) -> Code:
    """How a call with these bytes ends, after its first answers."""
    make: Any = rig.channel.unary_stream if method.streams else rig.channel.unary_unary
    call = make(method.path)(raw, timeout=0.05 if method.streams else BOUND_S)
    if not method.streams:
        return Code(await call.code())
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError:
        pass
    code = Code(await call.code())
    return Code.OK if code is Code.DEADLINE_EXCEEDED else code  # a poll that waits


# -- messages that are some

_TEXTS: Final = st.one_of(
    st.sampled_from(["", str(A), str(B), "k", "ingest:*", "w", "0", "{}", '{"$bytes": 1}', "[" * 2_000, "é", "\0"]),
    st.text(max_size=20),
)
_BYTES: Final = st.one_of(
    st.sampled_from(
        [b"", b"\x91" * 2_000, b"\xdd\xff\xff\xff\xff", b"\x81\x90\x01", b"\xc7\x01\x05x", b"\xcb" + b"\xff" * 8]
    ),
    st.binary(max_size=20),
)
_INTS: Final = {32: st.integers(-(2**31), 2**31 - 1), 64: st.integers(-(2**63), 2**63 - 1)}


def _field(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            return _message(field.message_type, depth - 1)
        case FieldDescriptor.TYPE_STRING:
            return _TEXTS
        case FieldDescriptor.TYPE_BYTES:
            return _BYTES
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_ENUM:
            return st.integers(-1, 7)
        case FieldDescriptor.TYPE_INT32:
            return st.one_of(st.integers(-2, 300), _INTS[32])
        case _:
            return st.one_of(st.integers(-2, 300), _INTS[64])


@st.composite
def _message(draw: st.DrawFn, descriptor: Any, depth: int = 4) -> Any:
    made = getattr(pb, descriptor.name)()
    for field in descriptor.fields:
        if depth <= 0 or not draw(st.booleans()):
            continue
        if field.is_repeated:
            items = draw(st.lists(_field(field, depth), max_size=3))
            getattr(made, field.name).extend(items)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(made, field.name).CopyFrom(draw(_field(field, depth)))
        else:
            setattr(made, field.name, draw(_field(field, depth)))
    return made


@pytest.mark.parametrize("name", METHODS)
def test_messages_of_any_content_are_answered(name: str, served: Served) -> None:
    """A message made of anything its fields can hold is done or refused, in every method."""
    method = METHODS[name]

    @given(message=_message(method.request.DESCRIPTOR))
    def answered(message: Any) -> None:
        assert served.run(ends(served.rig, method, message.SerializeToString())) in EXPECTED

    answered()


@pytest.mark.parametrize("name", METHODS)
def test_bytes_that_are_no_message_are_answered(name: str, served: Served) -> None:
    """Bytes of any kind as a message are taken, or refused as INVALID_ARGUMENT."""
    method = METHODS[name]

    @given(raw=st.binary(max_size=200))
    def answered(raw: bytes) -> None:
        assert served.run(ends(served.rig, method, raw)) in EXPECTED

    answered()


def test_bytes_to_the_port_harm_nobody(served: Served) -> None:
    """Connections that send anything, also after a proper greeting, leave the server as it was."""

    @given(
        raw=st.binary(max_size=300),
        greeting=st.sampled_from([b"", PREFACE, PREFACE + SETTINGS_FRAME, b"GET / HTTP/1.1\r\n"]),
    )
    def harmless(raw: bytes, greeting: bytes) -> None:
        with socket.create_connection(("127.0.0.1", served.rig.server.port), timeout=BOUND_S) as connection:
            connection.sendall(greeting + raw)
            connection.shutdown(socket.SHUT_WR)
        assert served.run(ends(served.rig, METHODS["GetServer"], b"")) == Code.OK

    harmless()


# -- memory


@bounded
async def test_refused_calls_and_broken_connections_leave_no_memory_behind() -> None:
    """After thousands of calls that were refused, cancelled or cut off, the process is about as large as before."""
    async with serving() as rig:
        chance = random.Random(6)
        names = [name for name in METHODS if name not in ("Check", "Reap")]

        async def abuse(rounds: int) -> None:
            for number in range(rounds):
                method = METHODS[names[number % len(names)]]
                await ends(rig, method, chance.randbytes(chance.randrange(400))) if not method.streams else None
                poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", kinds=[f"k{number}"]))
                await poll.initial_metadata()
                poll.cancel()
                late = rig.stub().Enqueue(enqueue(kind="x" * 200))
                late.cancel()
            await rig.until(lambda: not len(rig.server._dispatcher.polls) and not rig.server._dispatcher._busy)

        await abuse(300)
        before = _resident_kib()
        await abuse(900)
        assert _resident_kib() - before < GROWTH_KIB_MAX


def _resident_kib() -> int:
    gc.collect()
    [line] = [line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])
