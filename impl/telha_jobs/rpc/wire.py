"""Messages of the wire and values of the library, both ways; server and client use the same.

What cannot be a value of the library raises `InvalidArgumentError` with the field's name; whether it keeps to the
queue's rules is for the queue to say.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from telha_jobs.audit.replay import Marks
from telha_jobs.codec import VALUE_VERSION, UnreadableError, pack_plain, unpack_value
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.json_form import NotJSONError, dumps, loads
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.types import CheckReport, Event, Job, Lease, LeaseRef, NewJob, ReapReport, Receipt, State

Put = Callable[[Any], pb.Value | None]
"""How an answer's values are written; None is null."""

STATES: Final[dict[State, pb.State]] = {
    State.PENDING: pb.STATE_PENDING,
    State.LEASED: pb.STATE_LEASED,
    State.FAILED: pb.STATE_FAILED,
    State.COMPLETED: pb.STATE_COMPLETED,
    State.DEAD: pb.STATE_DEAD,
}
_STATES_BACK: Final[dict[int, State]] = {int(number): state for state, number in STATES.items()}


# -- values


def msgpack_value(value: Any) -> pb.Value | None:
    """The value as msgpack."""
    return None if value is None else pb.Value(msgpack=pack_plain(value))


def json_value(value: Any) -> pb.Value | None:
    """The value as JSON text."""
    return None if value is None else pb.Value(json=dumps(value))


def put_of(wanted: int) -> Put:
    """How values are written in the format that a request asks for."""
    match wanted:
        case pb.VALUE_FORMAT_UNSPECIFIED | pb.VALUE_FORMAT_JSON:
            return json_value
        case pb.VALUE_FORMAT_MSGPACK:
            return msgpack_value
        case _:
            raise InvalidArgumentError("values", f"must be a ValueFormat, {wanted} is none")


def value_of(field: str, value: pb.Value) -> Any:
    """What a message says in either format."""
    form = value.WhichOneof("form")
    if form == "msgpack":
        try:
            return unpack_value(VALUE_VERSION + value.msgpack)
        except (UnreadableError, TypeError, RecursionError) as error:  # a list cannot be the key of a map
            raise InvalidArgumentError(field, f"is no msgpack that can be taken: {str(error)[:140]}") from None
    if form == "json":
        try:
            return loads(value.json)
        except NotJSONError as error:
            raise InvalidArgumentError(field, f"is no JSON that can be taken: {str(error)[:140]}") from None
    return None


def uuid_in(field: str, text: str) -> UUID:
    """A job id or scope; only the digits with or without dashes."""
    digits = text.replace("-", "")
    if len(digits) == 32:
        try:
            return UUID(int=int(digits, 16))
        except ValueError:
            pass
    raise InvalidArgumentError(field, f"must be a UUID, not {text[:80]!r}")


scope_in: Final = lru_cache(maxsize=4_096)(uuid_in)
"""The same for what comes again and again."""
scope_text: Final[Callable[[UUID], str]] = lru_cache(maxsize=4_096)(str)


def state_of(number: int) -> State:
    """A state of an answer. Raises `KeyError` for one that this library does not know."""
    return _STATES_BACK[number]


def state_in(field: str, number: int) -> State | None:
    """A state as a filter; unspecified is none."""
    if number == pb.STATE_UNSPECIFIED:
        return None
    state = _STATES_BACK.get(number)
    if state is None:
        raise InvalidArgumentError(field, f"must be a State, {number} is none")
    return state


# -- jobs to add, and receipts


def new_job_of(where: str, job: pb.NewJob) -> NewJob:
    """A job to add. `where` is put before a field's name: `jobs[3].`."""
    has = job.HasField
    return NewJob(
        scope=scope_in(f"{where}scope", job.scope),
        kind=job.kind,
        payload=value_of(f"{where}payload", job.payload) if has("payload") else None,
        priority=job.priority if has("priority") else 128,
        run_at_ms=job.run_at_ms if has("run_at_ms") else None,
        delay_ms=job.delay_ms if has("delay_ms") else None,
        max_attempts=job.max_attempts if has("max_attempts") else None,
        idempotency_key=job.idempotency_key if has("idempotency_key") else None,
        headers=headers_in(f"{where}headers", job.headers) if job.headers else None,
        payload_version=job.payload_version if has("payload_version") else 1,
    )


def headers(given: Mapping[str, str]) -> list[pb.Header]:
    """Headers, in their order."""
    return [pb.Header(name=name, value=value) for name, value in given.items()]


def headers_of(given: Iterable[pb.Header]) -> dict[str, str]:
    """Headers of an answer."""
    return {header.name: header.value for header in given}


def headers_in(field: str, given: Iterable[pb.Header]) -> dict[str, str]:
    """Headers of a request: no name twice."""
    found: dict[str, str] = {}
    for header in given:
        if header.name in found:
            raise InvalidArgumentError(field, f"must have each name once, {header.name[:80]!r} stands twice")
        found[header.name] = header.value
    return found


def receipt(given: Receipt) -> pb.Receipt:
    """What became of a job to add."""
    return pb.Receipt(job_id=str(given.job_id), created=given.created, state=STATES[given.state])


def receipt_of(given: pb.Receipt) -> Receipt:
    """The same, back."""
    return Receipt(uuid_in("job_id", given.job_id), given.created, state_of(given.state))


# -- leases


def lease_ref(given: LeaseRef) -> pb.LeaseRef:
    """A lease as presented."""
    return pb.LeaseRef(job_id=str(given.job_id), generation=given.generation)


def lease_ref_of(field: str, given: pb.LeaseRef) -> LeaseRef:
    """The same, back."""
    return LeaseRef(uuid_in(f"{field}.job_id", given.job_id), given.generation)


def lease(given: Lease, put: Put) -> pb.Lease:
    """A granted lease."""
    return pb.Lease(
        job_id=str(given.job_id),
        generation=given.generation,
        scope=scope_text(given.scope),
        kind=given.kind,
        payload=put(given.payload),
        payload_version=given.payload_version,
        headers=headers(given.headers) if given.headers else (),
        attempt=given.attempt,
        deadline_ms=given.deadline_ms,
        worker=given.worker,
        progress=put(given.progress),
    )


def lease_of(given: pb.Lease) -> Lease:
    """The same, back."""
    return Lease(
        job_id=uuid_in("job_id", given.job_id),
        generation=given.generation,
        scope=scope_in("scope", given.scope),
        kind=given.kind,
        payload=value_of("payload", given.payload),
        payload_version=given.payload_version,
        headers=headers_of(given.headers),
        attempt=given.attempt,
        deadline_ms=given.deadline_ms,
        worker=given.worker,
        progress=value_of("progress", given.progress),
    )


# -- jobs as they are


def job(given: Job, put: Put) -> pb.Job:
    """A job as it is."""
    return pb.Job(
        job_id=str(given.job_id),
        scope=scope_text(given.scope),
        kind=given.kind,
        state=STATES[given.state],
        priority=given.priority,
        payload=put(given.payload),
        payload_version=given.payload_version,
        headers=headers(given.headers),
        created_at_ms=given.created_at_ms,
        due_ms=given.due_ms,
        deadline_ms=given.deadline_ms,
        ended_at_ms=given.ended_at_ms,
        run_at_ms=given.run_at_ms,
        attempts=given.attempts,
        max_attempts=given.max_attempts,
        generation=given.generation,
        worker=given.worker,
        dead_reason=given.dead_reason,
        result=put(given.result),
        progress=put(given.progress),
        idempotency_key=given.idempotency_key,
        events=[pb.Event(at_ms=one.at_ms, transition=one.transition, detail=put(one.detail)) for one in given.events],
    )


def job_of(given: pb.Job) -> Job:
    """The same, back."""
    return Job(
        job_id=uuid_in("job_id", given.job_id),
        scope=scope_in("scope", given.scope),
        kind=given.kind,
        state=state_of(given.state),
        priority=given.priority,
        payload=value_of("payload", given.payload),
        payload_version=given.payload_version,
        headers=headers_of(given.headers),
        created_at_ms=given.created_at_ms,
        due_ms=optional(given, "due_ms"),
        deadline_ms=optional(given, "deadline_ms"),
        ended_at_ms=optional(given, "ended_at_ms"),
        run_at_ms=optional(given, "run_at_ms"),
        attempts=given.attempts,
        max_attempts=optional(given, "max_attempts"),
        generation=given.generation,
        worker=optional(given, "worker"),
        dead_reason=optional(given, "dead_reason"),
        result=value_of("result", given.result),
        progress=value_of("progress", given.progress),
        idempotency_key=optional(given, "idempotency_key"),
        events=tuple(Event(one.at_ms, one.transition, value_of("detail", one.detail) or {}) for one in given.events),
    )


def marks(given: Marks) -> pb.Marks:
    """What a row says besides the fields of a job."""
    return pb.Marks(**given._asdict())


def marks_of(given: pb.Marks) -> Marks:
    """The same, back."""
    return Marks(
        given.sequence,
        given.token,
        optional(given, "leased_at_ms"),
        optional(given, "purge_at_ms"),
        optional(given, "lease_end"),
    )


# -- reports


def counts(given: Mapping[State, int]) -> pb.CountsResponse:
    """How many jobs are in each state."""
    return pb.CountsResponse(**{state.value: number for state, number in given.items()})


def counts_of(given: pb.CountsResponse) -> dict[State, int]:
    """The same, back."""
    return {state: getattr(given, state.value) for state in State}


def check_report(given: CheckReport) -> pb.CheckResponse:
    """What a check found."""
    return pb.CheckResponse(
        rows=given.rows,
        problems=given.problems,
        repaired=given.repaired,
        quarantined=[str(job_id) for job_id in given.quarantined],
    )


def check_report_of(given: pb.CheckResponse) -> CheckReport:
    """The same, back."""
    ids = tuple(uuid_in("quarantined", job_id) for job_id in given.quarantined)
    return CheckReport(given.rows, tuple(given.problems), given.repaired, ids)


def reap_report(given: ReapReport) -> pb.ReapResponse:
    """What a sweep did."""
    return pb.ReapResponse(
        requeued=given.requeued,
        died=given.died,
        promoted=given.promoted,
        purged=given.purged,
        quarantined=given.quarantined,
        more=given.more,
    )


def reap_report_of(given: pb.ReapResponse) -> ReapReport:
    """The same, back."""
    return ReapReport(given.requeued, given.died, given.promoted, given.purged, given.quarantined, given.more)


def optional(message: Any, field: str) -> Any:
    """The value of a field that is `optional`; None when it is not set."""
    return getattr(message, field) if message.HasField(field) else None
