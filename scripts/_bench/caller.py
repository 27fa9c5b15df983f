"""The client of the service's cases, a process of its own: `python -m scripts._bench.caller WORK ADDRESS PID NUMBER`.

It speaks grpc.aio and messages that lie ready as bytes, without a client library, so that what it costs is the same
against either server. PID is the server's. Prints one JSON object: what the work took by the wall, and the CPU time of
both ends over the same time.

echo    so many calls, 64 in flight
submit  so many jobs are leased, then submitted one a call, 64 in flight
work    8 streams are given so many jobs that wait, and submit them a message at a time
whole   the same while a producer adds the jobs, 100 a call
wake    so many times: a job is enqueued, and the stream that waits is given it
trip    the round trips of one call at a time: to the echo, or an Enqueue
idle    so many polls over ten connections, with nothing for them: the server's CPU time before them and among them
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import grpc

from scripts._bench.hosts import cpu_s, memory_bytes, parts_s
from scripts._bench.peer import METHOD
from scripts._bench.place import KIND, PAYLOAD, SCOPE
from telha_jobs.codec import pack_plain
from telha_jobs.rpc.methods import METHODS
from telha_jobs.rpc.v1 import jobs_pb2 as pb

IN_FLIGHT = 64
STREAMS = 8
STREAM_JOBS = 100
"""Leases that a stream of `work` may have at a time."""
BATCH = 100
BACKLOG = 2_000
CONNECTIONS = 10
IDLE_KIND = "ingest:none"
BOUND_S = 60.0
"""No work takes longer, or something is lost."""

Bytes = Callable[[bytes], Awaitable[bytes]]


def channel(address: str) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    )


def unary(through: grpc.aio.Channel, method: str) -> Bytes:
    """A method as bytes to bytes."""
    call: Any = through.unary_unary(METHODS[method].path)
    return call  # type: ignore[no-any-return]  # grpc's own callable


def stream(through: grpc.aio.Channel, request: pb.PollJobsRequest) -> Any:
    """A poll."""
    method = METHODS["PollJobs"]
    call: Any = through.unary_stream(method.path, response_deserializer=pb.PollJobsResponse.FromString)
    return call(request.SerializeToString())


def poll_request(most: int, **more: Any) -> pb.PollJobsRequest:
    """A poll for jobs of the usual kind."""
    named: dict[str, Any] = {"worker": "worker-1", "kinds": [KIND], "values": pb.VALUE_FORMAT_MSGPACK}
    return pb.PollJobsRequest(max_in_flight=most, **(named | more))


def jobs(number: int) -> bytes:
    """An EnqueueBatch of so many."""
    one = pb.NewJob(scope=str(SCOPE), kind=KIND, payload=pb.Value(msgpack=pack_plain(PAYLOAD)))
    return pb.EnqueueBatchRequest(jobs=[one] * number).SerializeToString()


def submit_of(lease: pb.Lease) -> pb.SubmitRequest:
    """Its completion, with a result as large as the payload."""
    result = pb.Value(msgpack=pack_plain(PAYLOAD))
    ref = pb.LeaseRef(job_id=lease.job_id, generation=lease.generation)
    return pb.SubmitRequest(lease=ref, complete=pb.Complete(result=result))


class Stopwatch:
    """Times of a piece of work, at both ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._server = cpu_s(pid)
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def taken(self, number: int) -> dict[str, Any]:
        """Since it was made."""
        return {
            "number": number,
            "wall_s": time.perf_counter() - self._wall,
            "client_s": time.process_time() - self._cpu,
            "server_s": parts_s(self._pid, self._server),
        }


# -- throughput


async def flood(call: Bytes, requests: Iterable[bytes]) -> None:
    """All of them, so many in flight."""
    left = iter(requests)

    async def one() -> None:
        for request in left:
            await call(request)

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))


async def warm(through: grpc.aio.Channel) -> None:
    """Connect, and let the server intern the kind."""
    await unary(through, "EnqueueBatch")(jobs(1))


async def add(through: grpc.aio.Channel, number: int) -> None:
    """So many jobs."""
    for start in range(0, number, BATCH):
        await unary(through, "EnqueueBatch")(jobs(min(BATCH, number - start)))


async def leased(poll: Any, number: int) -> list[pb.Lease]:
    """So many, from a stream that stays open: what is not on its way to its client for sure goes with it."""
    found: list[pb.Lease] = []
    while len(found) < number:
        message = await poll.read()
        found += message.leases
    return found


async def echo(address: str, pid: int, number: int) -> dict[str, Any]:
    """Calls of the peer with a submit's bytes."""
    async with channel(address) as through:
        call: Any = through.unary_unary(METHOD)
        lease = pb.Lease(job_id=str(UUID(int=1)), generation=1 << 32)
        request = submit_of(lease).SerializeToString()
        await flood(call, [request] * IN_FLIGHT)
        watch = Stopwatch(pid)
        await flood(call, [request] * number)
        return watch.taken(number)


async def submit(address: str, pid: int, number: int) -> dict[str, Any]:
    """Single submits."""
    async with channel(address) as through:
        await add(through, number)
        poll = stream(through, poll_request(number))
        requests = [submit_of(lease).SerializeToString() for lease in await leased(poll, number)]
        watch = Stopwatch(pid)
        await flood(unary(through, "Submit"), requests)
        taken = watch.taken(len(requests))
        poll.cancel()
        return taken


async def work(address: str, pid: int, number: int, *, producing: bool = False) -> dict[str, Any]:
    """Jobs through streams and batches of submits."""
    async with channel(address) as through:
        if producing:
            await warm(through)
        else:
            await add(through, number)
        channels = [channel(address) for _ in range(STREAMS)]
        await asyncio.gather(*(one.channel_ready() for one in channels))
        done = 0
        finished = asyncio.Event()

        async def worker(over: grpc.aio.Channel) -> None:
            nonlocal done
            send = unary(over, "SubmitBatch")
            async for message in stream(over, poll_request(STREAM_JOBS)):
                items = [submit_of(lease) for lease in message.leases]
                answer = await send(pb.SubmitBatchRequest(items=items).SerializeToString())
                results = pb.SubmitBatchResponse.FromString(answer).results
                done += sum(one.HasField("response") for one in results)
                if done >= number:
                    finished.set()

        async def producer() -> None:
            for sent in range(0, number, BATCH):
                while sent - done > BACKLOG:
                    await asyncio.sleep(0.001)
                await unary(through, "EnqueueBatch")(jobs(BATCH))

        watch = Stopwatch(pid)
        tasks = [asyncio.ensure_future(worker(over)) for over in channels]
        if producing:
            tasks.append(asyncio.ensure_future(producer()))
        end = asyncio.ensure_future(finished.wait())
        await asyncio.wait({end, *tasks[:STREAMS]}, return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            await asyncio.gather(*tasks)  # one failed
        taken = watch.taken(done)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in channels))
        return taken


async def whole(address: str, pid: int, number: int) -> dict[str, Any]:
    """From the enqueue on."""
    return await work(address, pid, number, producing=True)


# -- waiting


async def trip(address: str, pid: int, number: int) -> dict[str, Any]:
    """Round trips of the peer."""
    async with channel(address) as through:
        call: Any = through.unary_unary(METHOD)
        request = jobs(1)
        await call(request)
        watch = Stopwatch(pid)
        return {"trips_s": [await timed(call(request)) for _ in range(number)]} | watch.taken(number)


async def timed(answer: Awaitable[Any]) -> float:
    """By the wall."""
    started = time.perf_counter()
    await answer
    return time.perf_counter() - started


async def wake(address: str, pid: int, number: int) -> dict[str, Any]:
    """From the enqueue's departure to the lease's arrival, on connections of their own; and to the enqueue's answer."""
    async with channel(address) as producing, channel(address) as working:
        await warm(producing)
        enqueue, submitting = unary(producing, "EnqueueBatch"), unary(working, "SubmitBatch")
        poll = stream(working, poll_request(BATCH))
        woken, trips = list[float](), list[float]()

        async def delivered(started: float) -> list[pb.Lease]:
            message = await poll.read()
            woken.append(time.perf_counter() - started)
            return list(message.leases)

        async def answered(leases: Sequence[pb.Lease]) -> None:
            items = [submit_of(lease) for lease in leases]
            await submitting(pb.SubmitBatchRequest(items=items).SerializeToString())

        await answered(await delivered(0.0))
        woken.clear()
        watch = Stopwatch(pid)
        for _ in range(number):
            started = time.perf_counter()
            waiting = asyncio.ensure_future(delivered(started))
            trips.append(await timed(enqueue(jobs(1))))
            await answered(await waiting)
        taken = watch.taken(number)
        poll.cancel()
        return {"woken_s": woken, "trips_s": trips} | taken


async def idle(address: str, pid: int, number: int, window_s: float) -> dict[str, Any]:
    """The server alone with a connection or ten, then with the polls open and idle."""
    channels = [channel(address) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(one.channel_ready() for one in channels))
    none = await _window(pid, window_s)
    memory = memory_bytes(pid)
    request = poll_request(1, kinds=[IDLE_KIND])
    polls = [stream(channels[index % CONNECTIONS], request) for index in range(number)]
    for poll in polls:
        await poll.initial_metadata()  # the server has taken it
    await asyncio.sleep(1)
    many = await _window(pid, window_s)
    taken = {"none_s": none, "polls_s": many, "window_s": window_s, "memory": memory_bytes(pid) - memory}
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*(one.close() for one in channels))
    return taken


async def _window(pid: int, window_s: float) -> float:
    before = sum(cpu_s(pid).values())
    await asyncio.sleep(window_s)
    return sum(cpu_s(pid).values()) - before


WORKS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    one.__name__: one for one in (echo, submit, work, whole, trip, wake, idle)
}


async def run(name: str, address: str, pid: int, words: Sequence[str]) -> int:
    """Do it, for so long at most."""
    number, *window = words
    async with asyncio.timeout(BOUND_S):
        found = await WORKS[name](address, pid, int(number), *map(float, window))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])))
