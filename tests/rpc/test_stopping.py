"""How a server ends: gracefully, at once, and as a process that is told by signals."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from telha_jobs import JobQueue, QueueUnavailableError, State
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import BOUND_S, A, Stub, bounded, complete, directory, enqueue, job, refusal, serving

Code = grpc.StatusCode


@bounded
async def test_a_stopping_server_takes_submits_until_no_lease_is_out() -> None:
    """It grants no more, ends polls with OK, refuses new ones, takes the submit, and ends as soon as nothing is out."""
    async with serving() as rig:
        for _ in range(2):
            rig.queue.enqueue(A, "work", None)
        stub = rig.stub()
        poll = stub.PollJobs(pb.PollJobsRequest(worker="w"))
        [lease] = (await poll.read()).leases
        stopping = asyncio.ensure_future(rig.server.stop(BOUND_S * 2))
        assert await poll.read() is grpc.aio.EOF
        assert dict(await poll.trailing_metadata()) == {"telha-end": "stopping"}
        told = await refusal(stub.PollJobs(pb.PollJobsRequest(worker="w")))
        assert (told.code, type(told.error)) == (Code.UNAVAILABLE, QueueUnavailableError)
        assert (await stub.Submit(complete(lease))).state == pb.STATE_COMPLETED
        await stopping
        assert rig.queue.counts()[State.PENDING] == 1


@bounded
async def test_when_the_grace_is_over_leases_are_left_to_expire() -> None:
    """Nobody waits for a worker that does not answer."""
    async with serving() as rig:
        await rig.lease()
        await rig.server.stop(0.1)
        assert rig.queue.counts()[State.LEASED] == 1
        assert (await refusal(rig.stub().Enqueue(enqueue()))).code == Code.UNAVAILABLE


@bounded
async def test_a_stop_may_be_cut_short() -> None:
    """`stop_now` ends what `stop` began."""
    async with serving() as rig:
        await rig.lease()
        stopping = asyncio.ensure_future(rig.server.stop(BOUND_S * 2))
        await asyncio.sleep(0.05)
        stopping.cancel()
        await rig.server.stop_now()
        assert rig.queue.counts()[State.LEASED] == 1


# -- as a process


@contextmanager
def process(data: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`telha serve` on a free port, and where it listens."""
    command = [sys.executable, "-c", "from telha_jobs.cli import main; main()", "serve", "--data", str(data)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=data.parent,
    ) as served:
        try:
            assert served.stdout is not None
            ready = served.stdout.readline()
            yield served, ready.rstrip("\n").partition(" on ")[2]
        finally:
            served.kill()


async def call(address: str, name: str, request: Any) -> Any:
    """One call to a server."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await getattr(Stub(channel), name)(request)


def test_a_served_job_is_there_after_sigterm_and_the_end_was_clean() -> None:
    """One line says where it listens; SIGTERM closes the database, and the exit code is 0."""
    with directory() as folder:
        with process(folder / "q") as (served, address):
            receipt = asyncio.run(call(address, "Enqueue", enqueue(payload={"n": 1}))).receipt
            served.send_signal(signal.SIGTERM)
            _, notes = served.communicate(timeout=BOUND_S)
            assert (served.returncode, notes.splitlines()[-1]) == (0, "telha: the queue is closed")
        with JobQueue.open(folder / "q") as queue:
            assert [str(one.job_id) for one in queue.list_jobs().jobs] == [receipt.job_id]
            assert queue._store.incarnation == 0


def test_a_second_signal_ends_at_once() -> None:
    """Though a lease is out and the grace is long."""
    with directory() as folder, process(folder / "q", "--set", "server.grace=1h") as (served, address):
        asyncio.run(call(address, "Enqueue", enqueue()))

        async def lease() -> None:
            async with grpc.aio.insecure_channel(address) as channel:
                await Stub(channel).PollJobs(pb.PollJobsRequest(worker="w", once=True)).read()

        asyncio.run(lease())
        served.send_signal(signal.SIGTERM)
        assert served.stderr is not None
        assert "stopping" in served.stderr.readline()
        served.send_signal(signal.SIGTERM)
        _, notes = served.communicate(timeout=BOUND_S)
        assert (served.returncode, notes.splitlines()[-1]) == (0, "telha: the queue is closed")


def test_a_queue_that_is_served_is_locked() -> None:
    """Another server of the same directory is refused, with exit code 1."""
    with directory() as folder, process(folder / "q") as (_, address):
        assert asyncio.run(call(address, "EnqueueBatch", pb.EnqueueBatchRequest(jobs=[job()]))).receipts
        with process(folder / "q") as (second, _):
            _, notes = second.communicate(timeout=BOUND_S)
            assert (second.returncode, "is open elsewhere" in notes) == (1, True)


def test_metrics_are_answered_where_asked_for() -> None:
    """`--metrics ADDRESS`: the line that says it is ready has both addresses."""
    from urllib.request import urlopen

    with directory() as folder, process(folder / "q", "--metrics", "127.0.0.1:0") as (_, told):
        _, metrics = told.split(", metrics on ")
        with urlopen(f"http://{metrics}/healthz", timeout=BOUND_S) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("missing", ["grpc", "grpc_health", "prometheus_client"])
def test_without_the_extra_serve_says_what_is_missing(missing: str) -> None:
    """The embedded queue needs none of it; serve names the extra."""
    with directory() as folder:
        hidden = f"import sys; sys.modules[{missing!r}] = None; from telha_jobs.cli import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", hidden, "serve", "--data", str(folder / "q")],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
            cwd=folder,
        )
        assert (ended.returncode, "pip install 'telha-jobs[server]'" in ended.stderr) == (1, True)
        assert not (folder / "q").exists()


def test_the_embedded_queue_imports_nothing_of_the_extra() -> None:
    """Neither the library nor the command line loads grpc before a server is asked for."""
    script = (
        "import sys, telha_jobs, telha_jobs.cli.commands;"
        "print([one for one in ('grpc', 'google.protobuf', 'prometheus_client') if one in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert ended.stdout == "[]\n"
