"""What a failed call means: the library's error, and whether it may be sent again.

A server that refused has said so in the status details; that is the reply. Everything else came from the transport:
the answer, if there was one, is lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from telha_jobs.client.exchanges import Exchange
from telha_jobs.errors import CommitOutcome, InvalidArgumentError, QueueError, QueueUnavailableError
from telha_jobs.rpc.status import (
    COMMIT_KEY,
    DETAILS_KEY,
    INDEX_KEY,
    INTERNAL,
    TOO_MUCH,
    RemoteRefusalError,
    error_of_trailers,
)
from telha_jobs.rpc.v1 import jobs_pb2 as pb

_FIRST_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_LOST: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""What the transport says when a connection broke, a proxy gave up, or time ran out."""
_REASONS: Final = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: TOO_MUCH,
    grpc.StatusCode.UNAUTHENTICATED: "TOKEN_UNKNOWN",
    grpc.StatusCode.PERMISSION_DENIED: "ROLE_MISSING",
}


Trailers = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed. `again`: it certainly changed nothing, or changes nothing more when it is sent again."""

    error: QueueError
    again: bool


def failure_of(
    exchange: Exchange[object],
    code: grpc.StatusCode,
    message: str,
    trailers: Trailers,
    target: str,
) -> Failure:
    """What a status means for this call."""
    error = error_of_trailers(message, trailers)
    if error is not None:
        return Failure(_renamed(exchange, error), _may_repeat(exchange, error))
    if code in _LOST and not any(key == DETAILS_KEY for key, _ in trailers):
        outcome: CommitOutcome = "unknown" if exchange.changes else "not_applied"
        text = f"no answer from {target} ({message or code.name}): is the server running?"
        if exchange.changes:
            text += " The call may have been applied: look before you repeat it"
        return Failure(QueueUnavailableError(text, outcome=outcome), exchange.again)
    reason = _REASONS.get(code, INTERNAL)
    return Failure(RemoteRefusalError(reason, f"{target} refused ({code.name}): {message}"), again=False)


def commits_of(answer: Any, trailers: Iterable[tuple[str, str | bytes]] | None) -> Trailers:
    """The trailing metadata of an answer; a poll's commit stands in its messages, and is put with them."""
    found = list(trailers or ())
    for message in answer if isinstance(answer, list) else ():
        if isinstance(message, pb.PollJobsResponse):
            found += [(COMMIT_KEY, str(message.commit_seq)), (INDEX_KEY, str(message.commit_index))]
    return found


def pause_s(attempt: int, fraction: float) -> float:
    """How long to rest before the call is sent again; `fraction`, from 0 to 1, spreads callers apart."""
    return min(_PAUSE_MAX_S, _FIRST_PAUSE_S * 2.0**attempt) * (0.5 + fraction / 2)


def _may_repeat(exchange: Exchange[object], error: QueueError) -> bool:
    match error:
        case QueueUnavailableError():
            return exchange.again or error.outcome == "not_applied"
        case RemoteRefusalError():
            return error.reason == TOO_MUCH  # refused at the door
        case _:
            return False


def _renamed(exchange: Exchange[object], error: QueueError) -> QueueError:
    """An argument by its name in the library."""
    if isinstance(error, InvalidArgumentError) and exchange.fields is not None and error.field in exchange.fields:
        return InvalidArgumentError(exchange.fields[error.field], error.rule)
    return error
