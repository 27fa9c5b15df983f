"""Errors of the library and statuses of the wire, both ways; server and client use the same.

A status carries a google.rpc.ErrorInfo (reason and metadata) and, for a bad argument, a google.rpc.BadRequest, in
`grpc-status-details-bin`. The refusal of one item of a bulk call is the same in a message of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, get_args
from uuid import UUID

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from telha_jobs.errors import (
    CommitOutcome,
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    JobUnreadableError,
    LeaseEnd,
    QueueError,
    QueueUnavailableError,
    StaleLeaseError,
    WrongStateError,
)
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from telha_jobs.types import State

DOMAIN: Final = "telha.jobs.v1"
DETAILS_KEY: Final = "grpc-status-details-bin"
COMMIT_KEY: Final = "telha-commit-seq"
INDEX_KEY: Final = "telha-commit-index"
END_KEY: Final = "telha-end"
MESSAGE_CHARS_MAX: Final = 1_000
"""Metadata of 8 KiB have to hold the message twice, once as percent codes."""

TOO_MUCH: Final = "TOO_MUCH"
TOKEN_UNKNOWN: Final = "TOKEN_UNKNOWN"
ROLE_MISSING: Final = "ROLE_MISSING"
SCOPE_FORBIDDEN: Final = "SCOPE_FORBIDDEN"
INTERNAL: Final = "INTERNAL"

_Code = grpc.StatusCode
_CODES: Final[dict[str, grpc.StatusCode]] = {
    TOO_MUCH: _Code.RESOURCE_EXHAUSTED,
    TOKEN_UNKNOWN: _Code.UNAUTHENTICATED,
    ROLE_MISSING: _Code.PERMISSION_DENIED,
    SCOPE_FORBIDDEN: _Code.PERMISSION_DENIED,
    INTERNAL: _Code.INTERNAL,
}
_NUMBERS: Final[dict[grpc.StatusCode, int]] = {code: code.value[0] for code in _Code}


class RemoteRefusalError(QueueError):
    """The server refused for a reason that an embedded queue does not have: too much, or not allowed.

    `reason` is that of the ErrorInfo: TOO_MUCH, TOKEN_UNKNOWN, ROLE_MISSING, SCOPE_FORBIDDEN, INTERNAL.
    """

    reason: str

    def __init__(self, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata = dict(metadata or {})


class Status(NamedTuple):
    """What the wire says of an error."""

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str]


def status_of(error: QueueError) -> Status:
    """The status of an error."""
    code, reason, metadata = _told(error)
    message = str(error)[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")
    return Status(code, reason, message, metadata)


def _told(error: QueueError) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    match error:
        case StaleLeaseError():
            return _Code.ABORTED, "STALE_LEASE", _stale_metadata(error)
        case JobNotFoundError():
            return _Code.NOT_FOUND, "JOB_NOT_FOUND", {"job_id": str(error.job_id)}
        case WrongStateError():
            needed = ",".join(sorted(state.value for state in error.needed))
            metadata = {"job_id": str(error.job_id), "state": error.state.value, "needed": needed}
            return _Code.FAILED_PRECONDITION, "WRONG_STATE", metadata
        case IdempotencyConflictError():
            metadata = {"job_id": str(error.job_id), "key": error.key}
            if error.index is not None:
                metadata["index"] = str(error.index)
            return _Code.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT", metadata
        case InvalidArgumentError():
            return _Code.INVALID_ARGUMENT, "INVALID_ARGUMENT", _argument_metadata(error)
        case JobUnreadableError():
            return _Code.DATA_LOSS, "JOB_UNREADABLE", {"job_id": str(error.job_id)}
        case QueueUnavailableError():
            return _Code.UNAVAILABLE, "QUEUE_UNAVAILABLE", {"outcome": error.outcome}
        case RemoteRefusalError():
            return _CODES.get(error.reason, _Code.UNKNOWN), error.reason, error.metadata
        case _:
            return _Code.INTERNAL, INTERNAL, {}


def _stale_metadata(error: StaleLeaseError) -> dict[str, str]:
    return {
        "job_id": str(error.job_id),
        "generation": str(error.generation),
        "current_generation": str(error.current_generation),
        "state": error.state.value,
        "why": error.why,
    }


def _argument_metadata(error: InvalidArgumentError) -> dict[str, str]:
    def cut(text: str) -> str:
        return text[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")

    return {"field": cut(error.field), "rule": cut(error.rule)}


def details(status: Status) -> bytes:
    """The status as google.rpc.Status, for `grpc-status-details-bin`."""
    told = [_packed(ErrorInfo(reason=status.reason, domain=DOMAIN, metadata=status.metadata))]
    if status.code is _Code.INVALID_ARGUMENT:
        field, rule = status.metadata["field"], status.metadata["rule"]
        told.append(_packed(BadRequest(field_violations=[BadRequest.FieldViolation(field=field, description=rule)])))
    packed: bytes = RpcStatus(code=_NUMBERS[status.code], message=status.message, details=told).SerializeToString()
    return packed


def error_message(error: QueueError) -> pb.Error:
    """The refusal of one item."""
    status = status_of(error)
    return pb.Error(code=_NUMBERS[status.code], reason=status.reason, message=status.message, metadata=status.metadata)


def error_of_message(message: pb.Error) -> QueueError:
    """The same, back."""
    return error_of(message.reason, message.message, message.metadata)


def error_of_trailers(message: str, trailers: Iterable[tuple[str, str | bytes]]) -> QueueError | None:
    """The error of a call that failed, from its trailing metadata; None when this server did not say it."""
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            info = _info(value)
            return None if info is None else error_of(info.reason, message, info.metadata)
    return None


def error_of(reason: str, message: str, metadata: Mapping[str, str]) -> QueueError:
    """The library's error for a reason of the wire."""
    make = _MAKERS.get(reason)
    if make is not None:
        try:
            return make(message, metadata)
        except (KeyError, ValueError):
            pass  # a newer server's words: told as they are
    return RemoteRefusalError(reason, message, metadata)


def _stale(message: str, metadata: Mapping[str, str]) -> QueueError:
    del message  # the library's own is the same
    ends: dict[str, LeaseEnd] = {end: end for end in get_args(LeaseEnd)}
    return StaleLeaseError(
        UUID(metadata["job_id"]),
        generation=int(metadata["generation"]),
        current_generation=int(metadata["current_generation"]),
        state=State(metadata["state"]),
        why=ends[metadata["why"]],
    )


def _wrong_state(message: str, metadata: Mapping[str, str]) -> QueueError:
    del message
    needed = frozenset(map(State, metadata["needed"].split(",")))
    return WrongStateError(UUID(metadata["job_id"]), State(metadata["state"]), needed)


def _conflict(message: str, metadata: Mapping[str, str]) -> QueueError:
    del message
    index = int(metadata["index"]) if "index" in metadata else None
    return IdempotencyConflictError(UUID(metadata["job_id"]), metadata["key"], index=index)


def _unavailable(message: str, metadata: Mapping[str, str]) -> QueueError:
    outcomes: dict[str, CommitOutcome] = {outcome: outcome for outcome in get_args(CommitOutcome)}
    return QueueUnavailableError(message, outcome=outcomes[metadata["outcome"]])


_MAKERS: Final[dict[str, Callable[[str, Mapping[str, str]], QueueError]]] = {
    "STALE_LEASE": _stale,
    "JOB_NOT_FOUND": lambda _, metadata: JobNotFoundError(UUID(metadata["job_id"])),
    "WRONG_STATE": _wrong_state,
    "IDEMPOTENCY_CONFLICT": _conflict,
    "INVALID_ARGUMENT": lambda _, metadata: InvalidArgumentError(metadata["field"], metadata["rule"]),
    "JOB_UNREADABLE": lambda _, metadata: JobUnreadableError(UUID(metadata["job_id"])),
    "QUEUE_UNAVAILABLE": _unavailable,
}


def _packed(message: ErrorInfo | BadRequest) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _info(value: bytes) -> ErrorInfo | None:
    """The ErrorInfo of this domain in a serialised google.rpc.Status."""
    try:
        told = RpcStatus.FromString(value)
        for detail in told.details:
            info = ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info
    except DecodeError:
        pass
    return None
