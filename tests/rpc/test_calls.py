"""Each method's answer, each refusal's status, and the commit that an answer covers."""

import asyncio
import threading
from typing import Any
from uuid import UUID

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status

from telha_jobs import (
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    LeaseRef,
    QueueConfig,
    QueueUnavailableError,
    StaleLeaseError,
    State,
    WrongStateError,
)
from telha_jobs.rpc.status import DETAILS_KEY
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import (
    BOUND_S,
    A,
    B,
    Rig,
    bounded,
    commit,
    complete,
    enqueue,
    fail,
    job,
    ref,
    refusal,
    serving,
    value,
)

UNKNOWN = UUID(int=7)
Code = grpc.StatusCode


@bounded
async def test_an_enqueued_job_is_the_one_that_was_described() -> None:
    """Every field of a job to add arrives, and its receipt tells the job."""
    async with serving() as rig:
        given = job(
            payload={"a": [1, 2.0, b"x"], 3: None},
            priority=7,
            delay_ms=500,
            max_attempts=3,
            idempotency_key="k",
            headers=[pb.Header(name="z", value="1"), pb.Header(name="a", value="2")],
            payload_version=9,
        )
        answer = await rig.stub().Enqueue(pb.EnqueueRequest(job=given))
        found = rig.queue.get(UUID(answer.receipt.job_id))
        assert (answer.receipt.created, answer.receipt.state) == (True, pb.STATE_PENDING)
        assert found.payload == {"a": [1, 2.0, b"x"], 3: None}
        assert list(found.headers.items()) == [("z", "1"), ("a", "2")]
        assert (found.priority, found.max_attempts, found.idempotency_key, found.payload_version) == (7, 3, "k", 9)
        assert rig.queue.now_ms() + 500 == found.due_ms


@bounded
async def test_a_job_with_defaults_has_those_of_the_library() -> None:
    """What a request leaves open is what the library's call leaves open."""
    async with serving() as rig:
        answer = await rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="work")))
        there = rig.queue.get(UUID(answer.receipt.job_id))
        here = rig.queue.get(rig.queue.enqueue(A, "work", None).job_id)
        fields = ("priority", "payload", "payload_version", "headers", "max_attempts", "run_at_ms", "idempotency_key")
        assert [getattr(here, name) for name in fields] == [getattr(there, name) for name in fields]


@bounded
async def test_a_batch_of_jobs_is_one_commit() -> None:
    """EnqueueBatch has one receipt for each job, and they share a commit."""
    async with serving() as rig:
        call = rig.stub().EnqueueBatch(pb.EnqueueBatchRequest(jobs=[job(), job(B), job(idempotency_key="k")]))
        answer = await call
        assert [receipt.created for receipt in answer.receipts] == [True] * 3
        assert await commit(call) == (1, 0)


@bounded
async def test_a_submit_completes_and_creates_follow_ups() -> None:
    """Submit answers with the state and the receipts of the follow-ups, which exist."""
    async with serving() as rig:
        lease = await rig.lease()
        answer = await rig.stub().Submit(complete(lease, {"n": 1}, [job(B, "next")]))
        assert answer.state == pb.STATE_COMPLETED
        assert rig.queue.get(UUID(lease.job_id)).result == {"n": 1}
        assert rig.queue.get(UUID(answer.receipts[0].job_id)).scope == B


@bounded
async def test_a_submit_that_is_sent_again_is_answered_the_same() -> None:
    """The answer to a repeated Submit, receipts included, is the first one's, and nothing is created again."""
    async with serving() as rig:
        lease = await rig.lease()
        submit = complete(lease, 1, [job(B)])
        first = await rig.stub().Submit(submit)
        assert first == await rig.stub().Submit(submit)
        assert sum(rig.queue.counts(scope=B).values()) == 1


@bounded
@pytest.mark.parametrize(("retryable", "state"), [(True, pb.STATE_FAILED), (False, pb.STATE_DEAD)])
async def test_a_failure_is_recorded(retryable: bool, state: int) -> None:
    """Submit of a failure answers with the state that the job is in then."""
    async with serving() as rig:
        lease = await rig.lease()
        answer = await rig.stub().Submit(fail(lease, "no disk", retryable=retryable))
        assert state == answer.state
        assert rig.queue.get(UUID(lease.job_id)).events[-1].detail["reason"] == "no disk"


@bounded
async def test_a_failure_is_retryable_unless_it_says_otherwise() -> None:
    """`retryable` not set is true."""
    async with serving() as rig:
        lease = await rig.lease()
        answer = await rig.stub().Submit(pb.SubmitRequest(lease=lease, fail=pb.Fail(reason="x")))
        assert answer.state == pb.STATE_FAILED


@bounded
async def test_a_batch_of_submits_has_a_result_or_a_refusal_for_each() -> None:
    """In SubmitBatch a refusal concerns its item alone."""
    async with serving() as rig:
        first, second, third = [await rig.lease() for _ in range(3)]
        stale = pb.LeaseRef(job_id=second.job_id, generation=second.generation + 1)
        nobody = pb.LeaseRef(job_id=str(UNKNOWN), generation=1)
        items = [complete(first), complete(stale), complete(nobody), fail(second), complete(third, 3, [job(B)])]
        answer = await rig.stub().SubmitBatch(pb.SubmitBatchRequest(items=items))
        states = [one.response.state if one.HasField("response") else one.error.reason for one in answer.results]
        assert states == [pb.STATE_COMPLETED, "STALE_LEASE", "JOB_NOT_FOUND", pb.STATE_FAILED, pb.STATE_COMPLETED]
        assert len(answer.results[4].response.receipts) == 1


@bounded
async def test_a_conflict_of_follow_ups_leaves_the_rest_of_a_batch_alone() -> None:
    """An item that is refused after it changed something changes nothing, and the others are done."""
    async with serving() as rig:
        rig.queue.enqueue(B, "other", 1, idempotency_key="taken")
        first, second, third = [await rig.lease() for _ in range(3)]
        conflict = [job(B, "next"), job(B, "next", idempotency_key="taken")]
        items = [complete(first), complete(second, None, conflict), complete(third)]
        answer = await rig.stub().SubmitBatch(pb.SubmitBatchRequest(items=items))
        assert [one.HasField("response") for one in answer.results] == [True, False, True]
        assert (
            answer.results[1].error.reason,
            answer.results[1].error.metadata["index"],
        ) == ("IDEMPOTENCY_CONFLICT", "1")
        assert rig.queue.get(UUID(second.job_id)).state == State.LEASED
        assert sum(rig.queue.counts(scope=B).values()) == 1


@bounded
async def test_a_heartbeat_has_an_outcome_for_each_lease() -> None:
    """Heartbeat moves deadlines, keeps progress, and says which leases are over."""
    async with serving() as rig:
        lease = await rig.lease()
        gone = pb.LeaseRef(job_id=str(UNKNOWN), generation=1)
        stale = pb.LeaseRef(job_id=lease.job_id, generation=lease.generation + 1)
        rig.clock.advance(1_000)
        progress = [pb.Progress(job_id=lease.job_id, value=value({"page": 3}))]
        request = pb.HeartbeatRequest(worker="w", leases=[lease, gone, stale], progress=progress)
        answer = await rig.stub().Heartbeat(request)
        status = pb.HeartbeatOutcome
        assert [one.status for one in answer.outcomes] == [
            status.STATUS_EXTENDED,
            status.STATUS_NOT_FOUND,
            status.STATUS_STALE,
        ]
        found = rig.queue.get(UUID(lease.job_id))
        assert (answer.outcomes[0].deadline_ms, {"page": 3}) == (found.deadline_ms, found.progress)
        assert [one.error.reason for one in answer.outcomes] == ["", "JOB_NOT_FOUND", "STALE_LEASE"]


@bounded
async def test_a_release_gives_the_job_back() -> None:
    """Release makes the job pending, with no attempt counted."""
    async with serving() as rig:
        lease = await rig.lease()
        await rig.stub().Release(pb.ReleaseRequest(lease=lease, delay_ms=5_000))
        found = rig.queue.get(UUID(lease.job_id))
        assert (State.PENDING, 0, rig.queue.now_ms() + 5_000) == (found.state, found.attempts, found.due_ms)


@bounded
async def test_operators_move_jobs() -> None:
    """CancelJob, RetryJob and DiscardJob do what the library's calls do."""
    async with serving() as rig:
        stub = rig.stub()
        job_id = rig.queue.enqueue(A, "work", None).job_id
        request = pb.JobRequest(job_id=str(job_id))
        await stub.CancelJob(request)
        assert rig.queue.get(job_id).state == State.DEAD
        await stub.RetryJob(request)
        assert rig.queue.get(job_id).state == State.PENDING
        await stub.CancelJob(request)
        await stub.DiscardJob(request)
        assert (await refusal(stub.GetJob(pb.GetJobRequest(job_id=str(job_id))))).code == Code.NOT_FOUND


def _requests(rig: Rig, lease: pb.LeaseRef) -> dict[str, tuple[Any, Code, type[Exception], dict[str, Any]]]:
    stub = rig.stub()
    stale = pb.LeaseRef(job_id=lease.job_id, generation=lease.generation + 5)
    unknown = pb.LeaseRef(job_id=str(UNKNOWN), generation=1)
    return {
        "stale submit": (
            stub.Submit(complete(stale)),
            Code.ABORTED,
            StaleLeaseError,
            {"generation": stale.generation, "current_generation": lease.generation, "why": "never_leased"},
        ),
        "stale release": (stub.Release(pb.ReleaseRequest(lease=stale)), Code.ABORTED, StaleLeaseError, {}),
        "unknown": (stub.Submit(complete(unknown)), Code.NOT_FOUND, JobNotFoundError, {"job_id": UNKNOWN}),
        "wrong state": (
            stub.RetryJob(pb.JobRequest(job_id=lease.job_id)),
            Code.FAILED_PRECONDITION,
            WrongStateError,
            {"state": State.LEASED, "needed": frozenset({State.DEAD})},
        ),
        "conflict": (
            stub.Enqueue(enqueue(A, "other", idempotency_key="k")),
            Code.ALREADY_EXISTS,
            IdempotencyConflictError,
            {"key": "k", "index": None},
        ),
        "conflict in a batch": (
            stub.EnqueueBatch(pb.EnqueueBatchRequest(jobs=[job(), job(A, "other", idempotency_key="k")])),
            Code.ALREADY_EXISTS,
            IdempotencyConflictError,
            {"key": "k", "index": 1},
        ),
    }


@bounded
async def test_each_refusal_has_its_status_and_its_fields() -> None:
    """A refusal arrives with its code, and with all that the library's error has."""
    async with serving() as rig:
        lease = await rig.lease()
        rig.queue.enqueue(A, "keyed", None, idempotency_key="k")
        for name, (call, code, error, fields) in _requests(rig, lease).items():
            told = await refusal(call)
            assert (name, code, error) == (name, told.code, type(told.error))
            assert {key: getattr(told.error, key) for key in fields} == fields


@bounded
async def test_a_refusal_is_the_librarys_own() -> None:
    """The error rebuilt from the wire has the fields and the words of the one that the queue raised."""
    async with serving() as rig:
        lease = await rig.lease()
        with pytest.raises(StaleLeaseError) as raised:
            rig.queue.complete(LeaseRef(UUID(lease.job_id), 99))
        told = await refusal(rig.stub().Submit(complete(pb.LeaseRef(job_id=lease.job_id, generation=99))))
        assert (vars(raised.value), str(raised.value)) == (vars(told.error), str(told.error))


BAD: dict[str, tuple[str, Any]] = {
    "job": ("Enqueue", pb.EnqueueRequest()),
    "scope": ("Enqueue", pb.EnqueueRequest(job=pb.NewJob(scope="x", kind="k"))),
    "kind": ("Enqueue", pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="no kind"))),
    "priority": ("Enqueue", enqueue(priority=256)),
    "payload": ("Enqueue", pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="k", payload=pb.Value(json="{")))),
    "headers": ("Enqueue", enqueue(headers=[pb.Header(name="a"), pb.Header(name="a")])),
    "delay_ms": ("Enqueue", enqueue(run_at_ms=1, delay_ms=1)),
    "jobs[1].kind": ("EnqueueBatch", pb.EnqueueBatchRequest(jobs=[job(), job(A, "")])),
    "lease.job_id": ("Submit", pb.SubmitRequest(complete=pb.Complete())),
    "lease.generation": ("Submit", complete(pb.LeaseRef(job_id=str(A), generation=-1))),
    "verb": ("Submit", pb.SubmitRequest(lease=pb.LeaseRef(job_id=str(A)))),
    "enqueue[0].kind": ("Submit", complete(pb.LeaseRef(job_id=str(A)), None, [job(A, "!")])),
    "items[0].result": (
        "SubmitBatch",
        pb.SubmitBatchRequest(
            items=[
                pb.SubmitRequest(
                    lease=pb.LeaseRef(job_id=str(A)), complete=pb.Complete(result=pb.Value(msgpack=b"\xc1"))
                )
            ]
        ),
    ),
    "leases[0].job_id": ("Heartbeat", pb.HeartbeatRequest(worker="w", leases=[pb.LeaseRef()])),
    "worker": ("PollJobs", pb.PollJobsRequest()),
    "kinds[0]": ("PollJobs", pb.PollJobsRequest(worker="w", kinds=["*"])),
    "scopes[0]": ("PollJobs", pb.PollJobsRequest(worker="w", scopes=["x"])),
    "max_in_flight": ("PollJobs", pb.PollJobsRequest(worker="w", max_in_flight=0)),
    "idle_timeout_ms": ("PollJobs", pb.PollJobsRequest(worker="w", idle_timeout_ms=-1)),
    "values": ("GetJob", pb.GetJobRequest(job_id=str(A), values=9)),  # type: ignore[arg-type]  # what a newer client has
    "job_id": ("CancelJob", pb.JobRequest(job_id="123")),
    "limit": ("ListJobs", pb.ListJobsRequest(limit=0)),
    "after": ("ListJobs", pb.ListJobsRequest(after="x")),
    "state": ("ListJobs", pb.ListJobsRequest(state=17)),  # type: ignore[arg-type]  # as above
    "prefix": ("FindJobs", pb.FindJobsRequest(prefix="xyz")),
}


@bounded
async def test_a_bad_argument_is_named() -> None:
    """INVALID_ARGUMENT names the field, in the ErrorInfo and in a BadRequest."""
    async with serving() as rig:
        for field, (name, request) in BAD.items():
            told = await refusal(getattr(rig.stub(), name)(request))
            assert isinstance(told.error, InvalidArgumentError)
            assert (name, Code.INVALID_ARGUMENT, field) == (name, told.code, told.error.field)
            details = told.trailers[DETAILS_KEY]
            assert isinstance(details, bytes)
            bad = BadRequest()
            assert Status.FromString(details).details[1].Unpack(bad)
            assert field == bad.field_violations[0].field


@bounded
async def test_every_answer_tells_the_commit_that_it_covers() -> None:
    """Commits are numbered as the store does; a refusal has the newest one, and looks have no place in it."""
    async with serving() as rig:
        stub = rig.stub()
        lease = await rig.lease()  # two commits
        call = stub.Submit(complete(lease))
        await call
        assert await commit(call) == (3, 0)
        told = await refusal(stub.Submit(complete(lease, 5)))
        assert (told.trailers["telha-commit-seq"], told.trailers["telha-commit-index"]) == ("3", "1")
        look = stub.Counts(pb.CountsRequest())
        await look
        trailers = dict(await look.trailing_metadata())
        assert (trailers["telha-commit-seq"], trailers.get("telha-commit-index")) == ("3", None)


@bounded
async def test_calls_that_arrive_together_share_a_commit() -> None:
    """Fifty submits that gather while another commit is made are one commit and one sync, in order of their places."""
    async with serving(QueueConfig()) as rig:
        leases = [await rig.lease() for _ in range(50)]
        dispatcher = rig.server._dispatcher
        go = threading.Event()
        held = asyncio.ensure_future(dispatcher.run([lambda _: go.wait(BOUND_S)]))
        await rig.until(lambda: dispatcher.batches == 1)
        calls = [rig.stub().Submit(complete(lease)) for lease in leases]
        await rig.until(lambda: dispatcher.waiting == 51)
        commits, syncs = rig.queue._store.counters.commits, rig.queue._store.counters.syncs
        go.set()
        await held
        places = [await commit(call) for call in calls if [await call]]
        assert rig.queue._store.counters.commits == commits + 1
        assert rig.queue._store.counters.syncs == syncs + 1
        assert sorted(places) == [(commits + 1, place) for place in range(50)]


@bounded
async def test_stale_submits_are_counted() -> None:
    """A stale submit is discarded, and counted by its reason."""
    async with serving() as rig:
        lease = await rig.lease()
        await rig.stub().Submit(complete(lease))
        await refusal(rig.stub().Submit(complete(lease, "late")))
        assert dict(rig.server.service.refused) == {("Submit", "STALE_LEASE"): 1}
        assert rig.queue.get(UUID(lease.job_id)).result is None


@bounded
async def test_a_closed_queue_is_unavailable() -> None:
    """When the storage is closed calls are UNAVAILABLE, say what became of them, and the health service tells."""
    async with serving() as rig:
        poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w"))
        await poll.initial_metadata()
        rig.queue.close()
        told = await refusal(rig.stub().Enqueue(enqueue()))
        assert told.code == Code.UNAVAILABLE
        assert isinstance(told.error, QueueUnavailableError)
        assert told.error.outcome == "not_applied"
        assert (await refusal(poll)).code == Code.UNAVAILABLE
        assert (await refusal(rig.stub().GetServer(pb.GetServerRequest()))).code == Code.UNAVAILABLE


@bounded
async def test_ref_of_a_lease_is_what_a_submit_needs() -> None:
    """A lease from a poll can be submitted as it is."""
    async with serving() as rig:
        rig.queue.enqueue(A, "work", {"n": 1})
        async for message in rig.stub().PollJobs(pb.PollJobsRequest(worker="w", once=True)):
            [lease] = message.leases
            assert (lease.payload.json, lease.attempt, lease.worker) == ('{"n": 1}', 1, "w")
            answer = await rig.stub().Submit(pb.SubmitRequest(lease=ref(lease), complete=pb.Complete()))
            assert answer.state == pb.STATE_COMPLETED
