"""Each call as data: the message that asks, what makes a reply of the answer, and whether it may be sent again.

Arguments are checked here as `JobQueue` checks them, by the same functions, as far as that can be told without the
server's configuration: its limits are for the server to hold. What is refused here was not sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from telha_jobs import arguments
from telha_jobs.codec import VALUE_VERSION
from telha_jobs.config import QueueConfig
from telha_jobs.engine.commands import Draft, Ref
from telha_jobs.errors import JobNotFoundError, JobUnreadableError, QueueError, StaleLeaseError
from telha_jobs.rpc import wire
from telha_jobs.rpc.status import error_of_message
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.rules import (
    DURATION_MAX_MS,
    ENQUEUE_MANY_MAX,
    FOLLOW_UPS_MAX,
    PAGE_MAX,
    VERSION_MAX,
    check_int,
    check_optional_int,
)
from telha_jobs.types import Lease, LeaseRef, NewJob, Outcome, OutcomeStatus, Page, Receipt, State, uuid_of

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)

_LOOSE: Final = QueueConfig(
    payload_bytes_max=1 << 30,
    result_bytes_max=1 << 30,
    reason_chars_max=1_000_000,
    events_max=1_000_000,
    lease_batch_max=1_000_000,
)
"""The widest limits that a server can have."""
_MSGPACK: Final = pb.VALUE_FORMAT_MSGPACK
_HEARTBEATS: Final[dict[int, OutcomeStatus]] = {
    pb.HeartbeatOutcome.STATUS_EXTENDED: "extended",
    pb.HeartbeatOutcome.STATUS_AT_LIMIT: "at_limit",
    pb.HeartbeatOutcome.STATUS_STALE: "stale",
    pb.HeartbeatOutcome.STATUS_NOT_FOUND: "not_found",
}


@dataclass(frozen=True, slots=True)
class Exchange(Generic[Reply_co]):
    """One call.

    - `answer`: the reply, of the answer's message; of the list of them where the method streams.
    - `changes`: whether it may change anything, so that a lost answer leaves its outcome unknown.
    - `again`: whether it may be sent again when its answer was lost.
    - `wait_ms`: how long the server may wait before it answers.
    - `fields`: the names of arguments where the wire has others.
    """

    method: str
    request: Message
    answer: Callable[[Any], Reply_co]
    changes: bool = True
    again: bool = False
    wait_ms: int = 0
    fields: Mapping[str, str] | None = None


# -- producers


def enqueue(job: NewJob) -> Exchange[Receipt]:
    """One job. Under a key it may be sent again."""
    draft = arguments.draft_of(job, _LOOSE)
    return Exchange(
        "Enqueue",
        pb.EnqueueRequest(job=_new_job(draft)),
        lambda answer: wire.receipt_of(answer.receipt),
        again=draft.key is not None,
    )


def enqueue_many(jobs: Iterable[NewJob]) -> Exchange[list[Receipt]]:
    """Many jobs. If all have keys they may be sent again."""
    drafts = arguments.drafts("jobs", jobs, _LOOSE, ENQUEUE_MANY_MAX)
    return Exchange(
        "EnqueueBatch",
        pb.EnqueueBatchRequest(jobs=map(_new_job, drafts)),
        lambda answer: [wire.receipt_of(one) for one in answer.receipts],
        again=all(draft.key is not None for draft in drafts),
    )


# -- workers


def lease_batch(
    worker: str, limit: int, scopes: Iterable[UUID] | None, kinds: Iterable[str] | None, wait_ms: int
) -> Exchange[list[Lease]]:
    """One poll that ends with its first message, or when it has waited. Not sent again: a lost grant expires."""
    # What the message cannot hold is refused here; the limit itself is the server's.
    most = check_int("limit", limit, -VERSION_MAX, VERSION_MAX)
    wait = check_int("wait_ms", wait_ms, 0, DURATION_MAX_MS)
    request = poll(worker, scopes, kinds, most, wait, once=True)
    return Exchange(
        "PollJobs",
        request,
        lambda messages: [wire.lease_of(one) for message in messages for one in message.leases],
        wait_ms=wait_ms,
        fields={"max_in_flight": "limit", "idle_timeout_ms": "wait_ms"},
    )


def poll(
    worker: str,
    scopes: Iterable[UUID] | None,
    kinds: Iterable[str] | None,
    max_in_flight: int,
    idle_timeout_ms: int | None,
    *,
    once: bool = False,
) -> pb.PollJobsRequest:
    """The request of a poll."""
    name = arguments.worker(worker)
    wanted = arguments.filters(scopes, kinds)
    return pb.PollJobsRequest(
        worker=name,
        kinds=wanted.kinds or (),
        scopes=[str(uuid_of(scope)) for scope in sorted(wanted.scopes or ())],
        max_in_flight=check_int("max_in_flight", max_in_flight, -VERSION_MAX, VERSION_MAX),
        idle_timeout_ms=check_optional_int("idle_timeout_ms", idle_timeout_ms, 0, DURATION_MAX_MS),
        once=once,
        values=_MSGPACK,
    )


def extend(worker: str, leases: Sequence[LeaseRef], progress: Mapping[UUID, Any] | None) -> Exchange[list[Outcome]]:
    """A heartbeat. It may be sent again."""
    name = arguments.worker(worker)
    refs = arguments.refs("leases", leases, _LOOSE.lease_batch_max)
    kept = arguments.progress(progress, refs, _LOOSE)
    request = pb.HeartbeatRequest(
        worker=name,
        leases=map(_lease, refs),
        progress=[pb.Progress(job_id=str(uuid_of(job_id)), value=_packed(value)) for job_id, value in kept.items()],
    )
    return Exchange("Heartbeat", request, lambda answer: [_heartbeat(one) for one in answer.outcomes], again=True)


def complete(lease: LeaseRef, result: Any, follow_ups: Iterable[NewJob]) -> Exchange[list[Receipt]]:
    """A submit. It is remembered, so it may be sent again."""
    ref = arguments.ref("lease", lease)
    packed = arguments.result("result", result, _LOOSE).packed
    drafts = arguments.drafts("enqueue", follow_ups, _LOOSE, FOLLOW_UPS_MAX)
    done = pb.Complete(result=_packed(packed), enqueue=map(_new_job, drafts))
    return Exchange(
        "Submit",
        pb.SubmitRequest(lease=_lease(ref), complete=done),
        lambda answer: [wire.receipt_of(one) for one in answer.receipts],
        again=True,
    )


def complete_many(items: Iterable[tuple[LeaseRef, Any]]) -> Exchange[list[Outcome]]:
    """Many submits: they may be sent again."""
    pairs = arguments.completions(items, _LOOSE, _LOOSE.lease_batch_max)
    parts = [
        pb.SubmitRequest(lease=_lease(ref), complete=pb.Complete(result=_packed(result.packed)))
        for ref, result in pairs
    ]

    def answer(message: pb.SubmitBatchResponse) -> list[Outcome]:
        return [_submitted(ref, one) for (ref, _), one in zip(pairs, message.results, strict=True)]

    return Exchange("SubmitBatch", pb.SubmitBatchRequest(items=parts), answer, again=True)


def fail(lease: LeaseRef, reason: str, *, retryable: bool) -> Exchange[State]:
    """A submit: it may be sent again."""
    ref = arguments.ref("lease", lease)
    told = pb.Fail(reason=arguments.reason(reason, _LOOSE), retryable=arguments.flag("retryable", retryable))
    request = pb.SubmitRequest(lease=_lease(ref), fail=told)
    return Exchange("Submit", request, lambda answer: wire.state_of(answer.state), again=True)


def release(lease: LeaseRef, delay_ms: int) -> Exchange[None]:
    """Not sent again: the second one would be stale."""
    ref = arguments.ref("lease", lease)
    delay = check_int("delay_ms", delay_ms, 0, DURATION_MAX_MS)
    return Exchange("Release", pb.ReleaseRequest(lease=_lease(ref), delay_ms=delay), _nothing)


# -- the reaper and operators


def reap(limit: int | None) -> Exchange[Any]:
    """One sweep. It may be sent again: the report is of the last one then."""
    most = check_optional_int("limit", limit, 1, VERSION_MAX)
    return Exchange("Reap", pb.ReapRequest(limit=most), wire.reap_report_of)


def operate(method: str, job_id: UUID) -> Exchange[None]:
    """`RetryJob`, `CancelJob` or `DiscardJob`. Not sent again: the second one would be refused."""
    return Exchange(method, pb.JobRequest(job_id=_job_id(job_id)), _nothing)


# -- looking: always again


def get(job_id: UUID) -> Exchange[Any]:
    """A job."""
    return _look("GetJob", pb.GetJobRequest(job_id=_job_id(job_id), values=_MSGPACK), wire.job_of)


def list_jobs(
    state: State | None, scope: UUID | None, kind: str | None, limit: int, after: str | None
) -> Exchange[Page]:
    """A page, or the beginning of one where it would be too long a message."""
    arguments.job_filter(state, scope, kind)
    most = check_int("limit", limit, 1, PAGE_MAX)
    arguments.cursor(after)
    request = pb.ListJobsRequest(
        state=pb.STATE_UNSPECIFIED if state is None else wire.STATES[state],
        scope=None if scope is None else str(scope),
        kind=kind,
        limit=most,
        after=after,
        values=_MSGPACK,
    )

    def answer(message: pb.ListJobsResponse) -> Page:
        return Page(tuple(map(wire.job_of, message.jobs)), wire.optional(message, "after"))

    return _look("ListJobs", request, answer)


def counts(scope: UUID | None, kind: str | None) -> Exchange[dict[State, int]]:
    """How many jobs there are."""
    arguments.job_filter(None, scope, kind)
    request = pb.CountsRequest(scope=None if scope is None else str(scope), kind=kind)
    return _look("Counts", request, wire.counts_of)


def check(*, repair: bool) -> Exchange[Any]:
    """The proof of consistency; a repair is not sent again."""
    wanted = arguments.flag("repair", repair)
    request = pb.CheckRequest(repair=wanted)
    return Exchange("Check", request, wire.check_report_of, changes=wanted, again=not wanted)


def server() -> Exchange[pb.GetServerResponse]:
    """Time, version and limits."""
    return _look("GetServer", pb.GetServerRequest(), _same)


def find_jobs(prefix: str, limit: int) -> Exchange[list[UUID]]:
    """Job ids by their beginning."""
    most = check_int("limit", limit, 1, PAGE_MAX)
    return _look("FindJobs", pb.FindJobsRequest(prefix=prefix, limit=most), _ids)


def quarantined() -> Exchange[list[UUID]]:
    """Ids of jobs in quarantine."""
    return _look("ListQuarantined", pb.ListQuarantinedRequest(), _ids)


def export() -> pb.ExportJobsRequest:
    """The request of an export."""
    return pb.ExportJobsRequest(values=_MSGPACK)


# -- parts


def _look(method: str, request: Message, answer: Callable[[Any], Reply]) -> Exchange[Reply]:
    return Exchange(method, request, answer, changes=False, again=True)


def _new_job(draft: Draft) -> pb.NewJob:
    return pb.NewJob(
        scope=str(uuid_of(draft.scope)),
        kind=draft.kind,
        payload=_packed(draft.payload),
        priority=draft.priority,
        run_at_ms=draft.run_at,
        delay_ms=draft.delay,
        max_attempts=draft.max_attempts,
        idempotency_key=draft.key,
        headers=wire.headers(draft.headers),
        payload_version=draft.payload_version,
    )


def _packed(value: bytes) -> pb.Value:
    return pb.Value(msgpack=value[len(VALUE_VERSION) :])


def _lease(ref: Ref) -> pb.LeaseRef:
    return pb.LeaseRef(job_id=str(uuid_of(ref.job_id)), generation=ref.generation)


def _job_id(job_id: UUID) -> str:
    return str(uuid_of(arguments.id_bytes("job_id", job_id)))


def _heartbeat(given: pb.HeartbeatOutcome) -> Outcome:
    error = error_of_message(given.error) if given.HasField("error") else None
    status = _HEARTBEATS[given.status]
    return Outcome(wire.uuid_in("job_id", given.job_id), status, wire.optional(given, "deadline_ms"), error)


def _submitted(ref: Ref, given: pb.SubmitResult) -> Outcome:
    job_id = uuid_of(ref.job_id)
    if given.WhichOneof("result") == "response":
        return Outcome(job_id, "completed", None, None)
    error: QueueError = error_of_message(given.error)
    if isinstance(error, StaleLeaseError):
        return Outcome(job_id, "stale", None, error)
    if isinstance(error, JobNotFoundError | JobUnreadableError):
        return Outcome(job_id, "not_found", None, error)
    raise error


def _ids(message: pb.FindJobsResponse | pb.ListQuarantinedResponse) -> list[UUID]:
    return [wire.uuid_in("job_ids", job_id) for job_id in message.job_ids]


def _same(message: pb.GetServerResponse) -> pb.GetServerResponse:
    return message


def _nothing(message: Message) -> None:
    del message
