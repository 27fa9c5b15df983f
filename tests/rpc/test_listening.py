"""Where a server listens, TLS, its limits, and its standard services."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from telha_jobs import InvalidArgumentError, JobQueue, ManualClock, QueueConfig
from telha_jobs.rpc.methods import METHODS, SERVICE
from telha_jobs.rpc.server import Server
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import (
    CONFIG,
    START_MS,
    A,
    Rig,
    Stub,
    bounded,
    directory,
    enqueue,
    job,
    refusal,
    server_settings,
    serving,
)

Code = grpc.StatusCode


async def counts(channel: grpc.aio.Channel) -> Code:
    """How a call over the channel ends."""
    async with channel:
        call = Stub(channel).Counts(pb.CountsRequest())
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return Code(error.code())
        return Code.OK


def tls(folder: Path, client: bool = False) -> grpc.ChannelCredentials:
    """A client that trusts the authority, perhaps with a certificate of its own."""
    ca = (folder / "ca.pem").read_bytes()
    if not client:
        return grpc.ssl_channel_credentials(ca)
    return grpc.ssl_channel_credentials(ca, (folder / "client.key").read_bytes(), (folder / "client.pem").read_bytes())


@bounded
async def test_over_tls_nobody_is_understood_without(certificates: Path) -> None:
    """With a certificate the server speaks TLS, and nothing else."""
    given: dict[str, Any] = {
        "tls__certificate": str(certificates / "server.pem"),
        "tls__key": str(certificates / "server.key"),
    }
    async with serving(**given) as rig:
        address = rig.server.address
        assert await counts(grpc.aio.secure_channel(address, tls(certificates))) == Code.OK
        assert await counts(grpc.aio.insecure_channel(address)) == Code.UNAVAILABLE


@bounded
async def test_over_mutual_tls_a_client_needs_a_certificate(certificates: Path) -> None:
    """With an authority for clients, those that it has not signed cannot call."""
    given: dict[str, Any] = {
        "tls__certificate": str(certificates / "server.pem"),
        "tls__key": str(certificates / "server.key"),
        "tls__client_ca": str(certificates / "ca.pem"),
    }
    async with serving(**given) as rig:
        address = rig.server.address
        assert await counts(grpc.aio.secure_channel(address, tls(certificates, client=True))) == Code.OK
        assert await counts(grpc.aio.secure_channel(address, tls(certificates))) == Code.UNAVAILABLE


@bounded
async def test_a_unix_socket_serves(tmp_path: Path) -> None:
    """`unix:PATH` is an address like any other."""
    async with serving(listen=f"unix:{tmp_path}/s") as rig:
        assert rig.server.address == f"unix:{tmp_path}/s"
        assert await counts(grpc.aio.insecure_channel(rig.server.address)) == Code.OK


@bounded
async def test_beyond_this_machine_it_needs_tls_or_to_be_told() -> None:
    """`insecure` is what it is told by."""
    with pytest.raises(InvalidArgumentError, match="reached from other machines"):
        server_settings(listen="0.0.0.0:0")
    async with serving(listen="0.0.0.0:0", insecure=True) as rig:
        assert await counts(grpc.aio.insecure_channel(f"127.0.0.1:{rig.server.port}")) == Code.OK


async def refused_start(**given: Any) -> InvalidArgumentError:
    """Why a server does not start; the queue is as good as before."""
    with directory() as path, JobQueue.open(path, config=CONFIG, clock=ManualClock(START_MS)) as queue:
        with pytest.raises(InvalidArgumentError) as caught:
            await Server.start(queue, server_settings(**given))
        queue.enqueue(A, "work", None)
        return caught.value


@bounded
async def test_what_cannot_be_listened_on_or_read_is_named(tmp_path: Path) -> None:
    """A taken port, a missing certificate, a key that is none, a message limit below the payload's: each by its key."""
    nothing = tmp_path / "nothing"
    (tmp_path / "text").write_text("no key")
    pair = {"tls__certificate": str(nothing), "tls__key": str(tmp_path / "text")}
    async with serving() as rig:
        taken = await refused_start(listen=rig.server.address)
    assert taken.field == "server.listen"
    assert (await refused_start(**pair)).field == "server.tls.key"
    assert (await refused_start(tokens=str(nothing))).field == str(nothing)
    assert (await refused_start(limits__message_bytes_max="4MiB")).field == "server.limits.message_bytes_max"


# -- limits


@bounded
async def test_a_message_that_is_too_long_is_refused() -> None:
    """RESOURCE_EXHAUSTED, and the connection goes on."""
    config = QueueConfig(durability="os", payload_bytes_max=1_000, result_bytes_max=1_000)
    async with serving(config, limits__message_bytes_max="200KiB") as rig:
        told = await refusal(rig.stub().Enqueue(enqueue(payload=b"x" * 300_000)))
        assert told.code == Code.RESOURCE_EXHAUSTED
        await rig.stub().Enqueue(enqueue())


@bounded
async def test_the_largest_job_fits() -> None:
    """A job at the limits of payload, progress, headers and key is enqueued, leased and shown."""
    config = QueueConfig(durability="os", payload_bytes_max=1 << 20, result_bytes_max=1 << 18)
    async with serving(config, limits__message_bytes_max="2MiB") as rig:
        stub = rig.stub()
        payload = b"x" * ((1 << 20) - 5)
        headers = [pb.Header(name="n", value="v" * 16_000)]
        given = job(payload=payload, headers=headers, idempotency_key="k" * 1_024)
        made = await stub.Enqueue(pb.EnqueueRequest(job=given))
        poll = stub.PollJobs(pb.PollJobsRequest(worker="w", once=True, values=pb.VALUE_FORMAT_MSGPACK))
        [lease] = (await poll.read()).leases
        assert lease.payload == given.payload
        assert (await stub.GetJob(pb.GetJobRequest(job_id=made.receipt.job_id))).idempotency_key == "k" * 1_024


@bounded
async def test_more_polls_than_the_limit_are_refused() -> None:
    """RESOURCE_EXHAUSTED, until one ends."""
    async with serving(limits__polls_max="2") as rig:
        polls = [rig.stub().PollJobs(pb.PollJobsRequest(worker="w")) for _ in range(2)]
        for poll in polls:
            await poll.initial_metadata()
        told = await refusal(rig.stub().PollJobs(pb.PollJobsRequest(worker="w", idle_timeout_ms=0)))
        assert told.code == Code.RESOURCE_EXHAUSTED
        polls[0].cancel()
        await rig.until(lambda: len(rig.server._dispatcher.polls) == 1)
        again = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", idle_timeout_ms=0))
        assert await again.read() is grpc.aio.EOF


@bounded
async def test_more_calls_than_the_limit_are_refused() -> None:
    """Of 60 calls at once 55 are refused with RESOURCE_EXHAUSTED, and each of the others is done."""
    async with serving(limits__calls_max="5") as rig:
        with rig.queue._engine._lock:  # a server that cannot go on, however fast the machine
            tasks = [asyncio.ensure_future(rig.stub().Enqueue(enqueue())) for _ in range(60)]
            await rig.until(lambda: sum(task.done() for task in tasks) == 55)
        await asyncio.wait(tasks)
        errors = [task.exception() for task in tasks]
        refused = [error for error in errors if isinstance(error, grpc.aio.AioRpcError)]
        assert {error.code() for error in refused} == {Code.RESOURCE_EXHAUSTED}
        assert len(refused) == 55
        assert sum(rig.queue.counts().values()) == 5


@bounded
async def test_more_connections_than_the_limit_are_closed() -> None:
    """One connection too many gets no answer; when another ends there is room."""
    async with serving(limits__connections_max="2") as rig:
        async with _connection(rig) as first:
            assert await _answers(first)  # with the rig's own that makes two
            assert await _answers(rig.channel)
            async with _connection(rig) as third:
                assert not await _answers(third)
        async with _connection(rig) as fourth:
            for _ in range(50):
                if await _answers(fourth):
                    return
                await asyncio.sleep(0.1)
            raise AssertionError("there was no room again")


def _connection(rig: Rig) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
    return grpc.aio.insecure_channel(rig.server.address, options=options)


async def _answers(channel: grpc.aio.Channel) -> bool:
    raw: Any = channel.unary_unary(METHODS["GetServer"].path)
    call = raw(b"", timeout=2)
    return bool(await call.code() == Code.OK)


# -- standard services


@bounded
async def test_the_health_service_tells_whether_it_serves() -> None:
    """SERVING for the server and for the service; NOT_SERVING once the queue is gone."""
    async with serving() as rig:
        check = rig.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        serving_now = health_pb2.HealthCheckResponse.SERVING
        for name in ("", SERVICE):
            assert (await check(health_pb2.HealthCheckRequest(service=name))).status == serving_now
        rig.queue.close()
        await refusal(rig.stub().Enqueue(enqueue()))
        for name in ("", SERVICE):
            while (await check(health_pb2.HealthCheckRequest(service=name))).status == serving_now:
                await asyncio.sleep(0.01)


@bounded
async def test_reflection_lists_the_services() -> None:
    """Whoever has no .proto may ask for it."""
    async with serving() as rig:
        ask = rig.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, described = [one async for one in ask(iter(requests))]
        assert SERVICE in {service.name for service in listed.list_services_response.service}
        assert pb.DESCRIPTOR.serialized_pb in described.file_descriptor_response.file_descriptor_proto
