"""What a request asks of the queue: its arguments checked, its operations on a unit of work, and its answer.

Scopes: an operation on a job by its id first sees whether the caller may touch the job's scope. If not, there is no
such job: nothing tells it from one that never was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from telha_jobs import arguments
from telha_jobs.config import QueueConfig
from telha_jobs.core.record import Record
from telha_jobs.engine import enqueue as enqueuing
from telha_jobs.engine import leases as leasing
from telha_jobs.engine import operator, submit
from telha_jobs.engine.commands import CreatedJob, Draft, Ref
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.errors import InvalidArgumentError, JobNotFoundError, QueueError, StaleLeaseError
from telha_jobs.keys import ID_BYTES
from telha_jobs.rpc import wire
from telha_jobs.rpc.status import error_message
from telha_jobs.rpc.tokens import Access
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.rules import DURATION_MAX_MS, ENQUEUE_MANY_MAX, FOLLOW_UPS_MAX, check_int
from telha_jobs.types import NewJob, Outcome, State, uuid_of

Operation = Callable[[Unit], Any]
Places = frozenset[tuple[bytes, str]]
"""Scopes and kinds."""
Replies = Sequence[Any]
Reply = TypeVar("Reply")

_HEARTBEATS = {
    "extended": pb.HeartbeatOutcome.STATUS_EXTENDED,
    "at_limit": pb.HeartbeatOutcome.STATUS_AT_LIMIT,
    "stale": pb.HeartbeatOutcome.STATUS_STALE,
    "not_found": pb.HeartbeatOutcome.STATUS_NOT_FOUND,
}


class Leases(Protocol):
    """Who keeps count of the leases in flight on streams."""

    def over(self, job_id: bytes, generation: int | None) -> None:
        """The lease (None: whichever the job had) is no longer current."""
        ...

    def extended(self, job_id: bytes, generation: int, deadline_ms: int) -> None:
        """The lease has a new deadline."""
        ...


class Call(NamedTuple):
    """A request's operations, and what makes its answer of their replies: refusals are exceptions among them.

    `ready`: the scopes and kinds of which there may be something to lease at once afterwards; None: of any.
    """

    operations: Sequence[Operation]
    answer: Callable[[Replies], Message]
    ready: Places | None = frozenset()


class Context(NamedTuple):
    """What every call needs besides its request."""

    config: QueueConfig
    access: Access
    leases: Leases


# -- producers


def enqueue(request: pb.EnqueueRequest, context: Context) -> Call:
    """One job."""
    if not request.HasField("job"):
        raise InvalidArgumentError("job", "must be given")
    job = wire.new_job_of("", request.job)
    draft = arguments.draft_of(job, context.config)
    context.access.require_scope("scope", draft.scope)
    return Call(
        [lambda unit: enqueuing.enqueue_one(unit, draft)],
        lambda replies: pb.EnqueueResponse(receipt=_receipt(_given(replies[0]))),
        frozenset(((draft.scope, draft.kind),)),
    )


def enqueue_batch(request: pb.EnqueueBatchRequest, context: Context) -> Call:
    """Many jobs, one operation: the first refusal refuses all."""
    _require_items("jobs", request.jobs, ENQUEUE_MANY_MAX)
    jobs = [wire.new_job_of(f"jobs[{index}].", job) for index, job in enumerate(request.jobs)]
    drafts = arguments.drafts("jobs", jobs, context.config, ENQUEUE_MANY_MAX)
    _require_scopes("jobs", jobs, context.access)
    return Call(
        [lambda unit: enqueuing.enqueue(unit, drafts, field="jobs")],
        lambda replies: pb.EnqueueBatchResponse(receipts=map(_receipt, _given(replies[0]))),
        _places(drafts),
    )


# -- workers


def heartbeat(request: pb.HeartbeatRequest, context: Context) -> Call:
    """Many leases, one operation."""
    arguments.worker(request.worker)
    most = items_max(context.config)
    _require_items("leases", request.leases, most)
    given = [wire.lease_ref_of(f"leases[{index}]", one) for index, one in enumerate(request.leases)]
    refs = arguments.refs("leases", given, most)
    kept = arguments.progress(_progress(request), refs, context.config)
    scopes = context.access.scopes

    def extend(unit: Unit) -> list[Outcome]:
        if scopes is None:
            return leasing.extend(unit, refs, kept)
        found = []
        for ref in refs:
            if hidden(unit, ref.job_id, scopes):
                found.append(leasing.outcome(ref.job_id, "not_found", error=_not_found(ref.job_id)))
            else:
                found += leasing.extend(unit, [ref], kept)
        return found

    def answer(replies: Replies) -> pb.HeartbeatResponse:
        outcomes: list[Outcome] = _given(replies[0])
        for ref, outcome in zip(refs, outcomes, strict=True):
            if outcome.deadline_ms is None:
                context.leases.over(*ref)
            else:
                context.leases.extended(*ref, outcome.deadline_ms)
        return pb.HeartbeatResponse(outcomes=map(_heartbeat, outcomes))

    return Call([extend], answer)


def submit_one(request: pb.SubmitRequest, context: Context) -> Call:
    """One submit."""
    ref, operation, ready = _submit("", request, context)

    def answer(replies: Replies) -> pb.SubmitResponse:
        _note_over(context.leases, ref, replies[0])
        return _submitted(_given(replies[0]))

    return Call([operation], answer, ready)


def submit_batch(request: pb.SubmitBatchRequest, context: Context) -> Call:
    """Many submits, each an operation of its own: its refusal concerns none of the others."""
    _require_items("items", request.items, items_max(context.config))
    parts = [_submit(f"items[{index}].", item, context) for index, item in enumerate(request.items)]

    def answer(replies: Replies) -> pb.SubmitBatchResponse:
        results = []
        for (ref, _, _), reply in zip(parts, replies, strict=True):
            _note_over(context.leases, ref, reply)
            if isinstance(reply, QueueError):
                results.append(pb.SubmitResult(error=error_message(reply)))
            else:
                results.append(pb.SubmitResult(response=_submitted(_given(reply))))
        return pb.SubmitBatchResponse(results=results)

    ready = frozenset().union(*(places for _, _, places in parts))
    return Call([operation for _, operation, _ in parts], answer, ready)


def release(request: pb.ReleaseRequest, context: Context) -> Call:
    """One release."""
    ref = arguments.ref("lease", wire.lease_ref_of("lease", request.lease))
    delay = check_int("delay_ms", request.delay_ms, 0, DURATION_MAX_MS)
    operation = _by_id(ref.job_id, context.access, lambda unit: leasing.release(unit, ref, delay))

    def answer(replies: Replies) -> pb.ReleaseResponse:
        _note_over(context.leases, ref, replies[0])
        _given(replies[0])
        return pb.ReleaseResponse()

    return Call([operation], answer, None)


# -- operators


def retry(request: pb.JobRequest, context: Context) -> Call:
    """Dead to pending."""
    return _operate(request, context, operator.retry)._replace(ready=None)


def cancel(request: pb.JobRequest, context: Context) -> Call:
    """To dead; a lease that the job had is over."""
    return _operate(request, context, operator.cancel)


def discard(request: pb.JobRequest, context: Context) -> Call:
    """Gone for good."""
    return _operate(request, context, operator.discard)


def items_max(config: QueueConfig) -> int:
    """Most items of a bulk call about leases."""
    return max(ENQUEUE_MANY_MAX, config.lease_batch_max)


# -- scopes


def hidden(unit: Unit, job_id: bytes, scopes: frozenset[bytes]) -> bool:
    """Whether there is such a job, but in a scope that the caller may not touch."""
    found = unit.find(job_id)
    match found:
        case None:
            return False
        case Unreadable():
            return found.key[:ID_BYTES] not in scopes
        case Record():
            return found.scope not in scopes


def _by_id(job_id: bytes, access: Access, operation: Callable[[Unit], Reply]) -> Callable[[Unit], Reply]:
    scopes = access.scopes
    if scopes is None:
        return operation

    def within(unit: Unit) -> Reply:
        if hidden(unit, job_id, scopes):
            raise _not_found(job_id)
        return operation(unit)

    return within


def _require_scopes(field: str, jobs: Sequence[NewJob], access: Access) -> None:
    if access.scopes is not None:
        for index, job in enumerate(jobs):
            access.require_scope(f"{field}[{index}].scope", job.scope.bytes)


def _not_found(job_id: bytes) -> JobNotFoundError:
    return JobNotFoundError(UUID(bytes=job_id))


# -- parts


def _submit(where: str, request: pb.SubmitRequest, context: Context) -> tuple[Ref, Operation, Places]:
    """The lease, what is done with it, and what may be leased at once afterwards: a failure waits out its back-off."""
    ref = arguments.ref(f"{where}lease", wire.lease_ref_of(f"{where}lease", request.lease))
    match request.WhichOneof("verb"):
        case "complete":
            operation, ready = _complete(where, ref, request.complete, context)
        case "fail":
            operation, ready = _fail(ref, request.fail, context), frozenset()
        case _:
            raise InvalidArgumentError(f"{where}verb", "must be complete or fail")
    return ref, _by_id(ref.job_id, context.access, operation), ready


def _complete(where: str, ref: Ref, request: pb.Complete, context: Context) -> tuple[Operation, Places]:
    field = f"{where}result"
    given = wire.value_of(field, request.result) if request.HasField("result") else None
    packed = arguments.result(field, given, context.config)
    if not request.enqueue:
        return lambda unit: (State.COMPLETED, submit.complete(unit, ref, packed, ())), frozenset()
    _require_items(f"{where}enqueue", request.enqueue, FOLLOW_UPS_MAX)
    jobs = [wire.new_job_of(f"{where}enqueue[{index}].", job) for index, job in enumerate(request.enqueue)]
    follow_ups = arguments.drafts(f"{where}enqueue", jobs, context.config, FOLLOW_UPS_MAX)
    _require_scopes(f"{where}enqueue", jobs, context.access)
    return lambda unit: (State.COMPLETED, submit.complete(unit, ref, packed, follow_ups)), _places(follow_ups)


def _places(drafts: Sequence[Draft]) -> Places:
    return frozenset((draft.scope, draft.kind) for draft in drafts)


def _fail(ref: Ref, request: pb.Fail, context: Context) -> Operation:
    kept = arguments.reason(request.reason, context.config)
    again = request.retryable if request.HasField("retryable") else True
    return lambda unit: (submit.fail(unit, ref, kept, as_given=request.reason, retryable=again), ())


def _operate(request: pb.JobRequest, context: Context, action: Callable[[Unit, bytes], None]) -> Call:
    job_id = wire.uuid_in("job_id", request.job_id).bytes
    operation = _by_id(job_id, context.access, lambda unit: action(unit, job_id))

    def answer(replies: Replies) -> pb.JobResponse:
        _given(replies[0])
        context.leases.over(job_id, None)
        return pb.JobResponse()

    return Call([operation], answer)


def _progress(request: pb.HeartbeatRequest) -> dict[UUID, Any] | None:
    if not request.progress:
        return None
    found: dict[UUID, Any] = {}
    for index, one in enumerate(request.progress):
        job_id = wire.uuid_in(f"progress[{index}].job_id", one.job_id)
        if job_id in found:
            raise InvalidArgumentError(f"progress[{job_id}]", "must be given once")
        found[job_id] = wire.value_of(f"progress[{job_id}]", one.value) if one.HasField("value") else None
    return found


def _require_items(field: str, given: Sequence[Any], most: int) -> None:
    """Before they are looked at one by one."""
    if len(given) > most:
        raise InvalidArgumentError(field, f"must have at most {most} items, not {len(given)}")


def _given(reply: Any) -> Any:
    """The reply, unless it is a refusal."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def _note_over(leases: Leases, ref: Ref, reply: Any) -> None:
    """After a submit or release the lease is over, unless it was refused for another reason than its being so."""
    if not isinstance(reply, Exception) or isinstance(reply, StaleLeaseError | JobNotFoundError):
        leases.over(*ref)


def _receipt(created: CreatedJob) -> pb.Receipt:
    job_id, fresh, state = created
    return pb.Receipt(job_id=str(uuid_of(job_id)), created=fresh, state=wire.STATES[state])


def _submitted(reply: tuple[State, Sequence[CreatedJob]]) -> pb.SubmitResponse:
    state, created = reply
    return pb.SubmitResponse(state=wire.STATES[state], receipts=map(_receipt, created) if created else ())


def _heartbeat(outcome: Outcome) -> pb.HeartbeatOutcome:
    return pb.HeartbeatOutcome(
        job_id=str(outcome.job_id),
        status=_HEARTBEATS[outcome.status],
        deadline_ms=outcome.deadline_ms,
        error=None if outcome.error is None else error_message(outcome.error),
    )
