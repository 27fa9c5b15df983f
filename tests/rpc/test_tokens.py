"""Tokens: who may call, and what exists for whom."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import grpc
import pytest

from telha_jobs import InvalidArgumentError, JobNotFoundError, State
from telha_jobs.rpc.tokens import Role, Tokens, make
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import A, B, Rig, bounded, complete, directory, enqueue, fail, job, refusal, serving

ALL: Final = '"producer", "worker", "operator"'
UNKNOWN: Final = UUID("cccccccc-0000-4000-8000-000000000003")
Code = grpc.StatusCode


def entry(token: str, roles: str = ALL, scopes: str = '"*"', name: str = "somebody") -> str:
    """One entry of a file."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'[[tokens]]\nname = "{name}"\nsha256 = "{digest}"\nroles = [{roles}]\nscopes = {scopes}\n'


@asynccontextmanager
async def guarded(*entries: str) -> AsyncIterator[Rig]:
    """A server that asks for tokens."""
    with directory() as folder:
        file = folder / "tokens.toml"
        file.write_text("\n".join(entries))
        async with serving(tokens=str(file)) as rig:
            yield rig


def calls(stub: Any, job_id: str) -> dict[Role, dict[str, Any]]:
    """A call of each method, by the role that it takes."""
    lease = pb.LeaseRef(job_id=job_id, generation=1)
    by_id = pb.JobRequest(job_id=job_id)
    return {
        Role.PRODUCER: {
            "Enqueue": stub.Enqueue(enqueue()),
            "EnqueueBatch": stub.EnqueueBatch(pb.EnqueueBatchRequest(jobs=[job()])),
        },
        Role.WORKER: {
            "PollJobs": stub.PollJobs(pb.PollJobsRequest(worker="w", idle_timeout_ms=0)),
            "Heartbeat": stub.Heartbeat(pb.HeartbeatRequest(worker="w", leases=[lease])),
            "Submit": stub.Submit(complete(lease)),
            "SubmitBatch": stub.SubmitBatch(pb.SubmitBatchRequest(items=[complete(lease)])),
            "Release": stub.Release(pb.ReleaseRequest(lease=lease)),
        },
        Role.OPERATOR: {
            "GetJob": stub.GetJob(pb.GetJobRequest(job_id=job_id)),
            "ListJobs": stub.ListJobs(pb.ListJobsRequest()),
            "RetryJob": stub.RetryJob(by_id),
            "CancelJob": stub.CancelJob(by_id),
            "DiscardJob": stub.DiscardJob(by_id),
            "Counts": stub.Counts(pb.CountsRequest()),
            "Check": stub.Check(pb.CheckRequest()),
            "Reap": stub.Reap(pb.ReapRequest()),
            "FindJobs": stub.FindJobs(pb.FindJobsRequest(prefix="0")),
            "ListQuarantined": stub.ListQuarantined(pb.ListQuarantinedRequest()),
            "ExportJobs": stub.ExportJobs(pb.ExportJobsRequest()),
        },
    }


async def code(call: Any) -> Code:
    """How a call ends."""
    if hasattr(call, "__aiter__"):
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError:
            pass
        return Code(await call.code())
    return Code(await call.code())


@bounded
async def test_a_call_without_a_known_token_is_refused() -> None:
    """No token, another one, and another scheme are UNAUTHENTICATED, in every method."""
    async with guarded(entry("right")) as rig:
        for token in (None, "wrong", ""):
            for group in calls(rig.stub(token), str(UNKNOWN)).values():
                for name, call in group.items():
                    assert (name, await code(call)) == (name, Code.UNAUTHENTICATED)
        assert await code(rig.stub("right").GetServer(pb.GetServerRequest())) == Code.OK


@bounded
@pytest.mark.parametrize("role", list(Role))
async def test_a_role_has_its_methods_and_no_other(role: Role) -> None:
    """Whoever lacks the role of a method is refused with PERMISSION_DENIED, whatever the request says."""
    async with guarded(entry("t", f'"{role.value}"')) as rig:
        for needed, group in calls(rig.stub("t"), str(UNKNOWN)).items():
            for name, call in group.items():
                assert (name, await code(call) == Code.PERMISSION_DENIED) == (name, needed is not role)


@bounded
async def test_another_scopes_job_is_answered_as_one_that_never_was() -> None:
    """By its id, a job of another scope is told from no job by nothing: same code, same words, same metadata."""
    async with guarded(entry("a", scopes=f'["{A}"]')) as rig:
        lease = await rig.lease(B)
        before = rig.queue.get(UUID(lease.job_id))
        found = {}
        for job_id in (lease.job_id, str(UNKNOWN)):
            stub = rig.stub("a")
            presented = pb.LeaseRef(job_id=job_id, generation=lease.generation)
            by_id = pb.JobRequest(job_id=job_id)
            told = [
                await refusal(stub.Submit(complete(presented))),
                await refusal(stub.Submit(fail(presented))),
                await refusal(stub.Release(pb.ReleaseRequest(lease=presented))),
                await refusal(stub.GetJob(pb.GetJobRequest(job_id=job_id))),
                await refusal(stub.RetryJob(by_id)),
                await refusal(stub.CancelJob(by_id)),
                await refusal(stub.DiscardJob(by_id)),
            ]
            assert [type(one.error) for one in told] == [JobNotFoundError] * len(told)
            beat = await stub.Heartbeat(pb.HeartbeatRequest(worker="w", leases=[presented]))
            batch = await stub.SubmitBatch(pb.SubmitBatchRequest(items=[complete(presented)]))
            words = [(one.code, str(one.error)) for one in told] + [str(beat), str(batch)]
            found[job_id] = str(words).replace(job_id, "ID")
        assert found[lease.job_id] == found[str(UNKNOWN)]
        assert rig.queue.get(UUID(lease.job_id)) == before


@bounded
async def test_another_scopes_jobs_are_not_listed_counted_found_or_exported() -> None:
    """What an operator of one scope sees is that scope."""
    async with guarded(entry("a", scopes=f'["{A}"]')) as rig:
        stub = rig.stub("a")
        ours = [str(rig.queue.enqueue(A, "work", None).job_id) for _ in range(2)]
        for _ in range(3):
            rig.queue.enqueue(B, "work", None)
        assert [one.job_id for one in (await stub.ListJobs(pb.ListJobsRequest())).jobs] == ours
        assert (await stub.Counts(pb.CountsRequest())).pending == 2
        assert list((await stub.FindJobs(pb.FindJobsRequest(prefix="0"))).job_ids) == ours
        assert [one.job_id async for one in stub.ExportJobs(pb.ExportJobsRequest())] == ours


@bounded
async def test_a_worker_leases_jobs_of_its_scopes_only() -> None:
    """A poll without a filter gets what the token may touch."""
    async with guarded(entry("a", scopes=f'["{A}"]')) as rig:
        rig.queue.enqueue(B, "work", None)
        ours = rig.queue.enqueue(A, "work", None).job_id
        poll = rig.stub("a").PollJobs(pb.PollJobsRequest(worker="w", max_in_flight=5, idle_timeout_ms=0))
        assert [lease.job_id async for message in poll for lease in message.leases] == [str(ours)]
        assert rig.queue.counts(scope=B)[State.PENDING] == 1


@bounded
async def test_a_scope_that_is_named_must_be_the_tokens() -> None:
    """Naming another scope is PERMISSION_DENIED, whether or not there is anything in it, and changes nothing."""
    async with guarded(entry("a", scopes=f'["{A}"]')) as rig:
        stub = rig.stub("a")
        lease = await rig.lease(A)
        requests = [
            stub.Enqueue(enqueue(B)),
            stub.EnqueueBatch(pb.EnqueueBatchRequest(jobs=[job(A), job(B)])),
            stub.Submit(complete(lease, None, [job(B)])),
            stub.PollJobs(pb.PollJobsRequest(worker="w", scopes=[str(A), str(B)])),
            stub.ListJobs(pb.ListJobsRequest(scope=str(B))),
            stub.Counts(pb.CountsRequest(scope=str(B))),
            stub.Check(pb.CheckRequest()),
            stub.Reap(pb.ReapRequest()),
        ]
        assert [await code(call) for call in requests] == [Code.PERMISSION_DENIED] * len(requests)
        assert sum(rig.queue.counts().values()) == 1


WRONG: Final = {
    "": "[[tokens]] tables",
    "x = 1": "[[tokens]] tables",
    "tokens = []": "[[tokens]] tables",
    "[[tokens": "no TOML",
    "[[tokens]]\nname = 'x'": "must have name",
    entry("t").replace("sha256", "token"): "must have name",
    entry("t").replace('sha256 = "', 'sha256 = "00'): "SHA-256",
    entry("t", roles='"admin"'): "must list some of producer",
    entry("t", roles=""): "must list some of producer",
    entry("t", scopes="[]"): "must list UUIDs",
    entry("t", scopes='["x"]'): "must list UUIDs",
    entry("t", scopes='"all"'): "must list UUIDs",
    entry("t", name=""): "must be text",
    entry("t") + entry("t"): "stands twice",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_of_tokens_is_refused(text: str, tmp_path: Path) -> None:
    """The refusal names the file and the rule."""
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError) as caught:
        Tokens.load(file)
    assert str(file) in str(caught.value)
    assert WRONG[text] in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """As one that cannot be read."""
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Tokens.load(tmp_path / "none.toml")


def test_tokens_are_long_and_never_the_same() -> None:
    """32 random bytes each."""
    made = {make() for _ in range(100)}
    assert (len(made), min(map(len, made))) == (100, 43)
