"""Jobs as lines of JSON: what an export writes and an audit reads.

A line is an object with the fields of `Job`, as `telha jobs ls --json` prints them, and perhaps `row`, the marks. The
audit reads payload, result and progress only for their presence.
"""

import json
from typing import Any, Final
from uuid import UUID

from telha_jobs.audit.replay import Marks
from telha_jobs.rules import is_int
from telha_jobs.types import Event, Job, State


class LineError(ValueError):
    """The line is no job; `str()` says why."""


_INTS: Final = ("priority", "payload_version", "created_at_ms", "attempts", "generation")
_OPTIONAL_INTS: Final = ("due_ms", "deadline_ms", "ended_at_ms", "run_at_ms", "max_attempts")
_OPTIONAL_TEXTS: Final = ("worker", "dead_reason", "idempotency_key")


def job_of(line: str) -> tuple[Job, Marks | None]:
    """The job that a line tells. Raises `LineError`."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"no JSON ({error})") from None
    if not isinstance(told, dict):
        raise LineError("no object")
    try:
        return _job(told), _marks(told.get("row"))
    except KeyError as error:
        raise LineError(f"{error.args[0]} is missing") from None


def row_of(marks: Marks) -> dict[str, Any]:
    """The marks as a line tells them, under `row`."""
    return {**marks._asdict(), "token": marks.token.hex()}


def _job(told: dict[str, Any]) -> Job:
    given: dict[str, Any] = {}
    for name in _INTS:
        given[name] = _checked(name, told[name], is_int(told[name]))
    for name in _OPTIONAL_INTS:
        given[name] = _checked(name, told[name], told[name] is None or is_int(told[name]))
    for name in _OPTIONAL_TEXTS:
        given[name] = _checked(name, told[name], told[name] is None or isinstance(told[name], str))
    return Job(
        job_id=_uuid("job_id", told["job_id"]),
        scope=_uuid("scope", told["scope"]),
        kind=_checked("kind", told["kind"], isinstance(told["kind"], str)),
        state=_state(told["state"]),
        payload=None,
        headers={},
        result=told["result"],
        progress=told["progress"],
        events=tuple(map(_event, _checked("events", told["events"], isinstance(told["events"], list)))),
        **given,
    )


def _marks(row: Any) -> Marks | None:
    if row is None:
        return None
    _checked("row", row, isinstance(row, dict))
    _checked("sequence", row["sequence"], is_int(row["sequence"]))
    _checked("token", row["token"], isinstance(row["token"], str))
    for name in ("leased_at_ms", "purge_at_ms"):
        _checked(name, row[name], row[name] is None or is_int(row[name]))
    _checked("lease_end", row["lease_end"], row["lease_end"] is None or isinstance(row["lease_end"], str))
    try:
        token = bytes.fromhex(row["token"])
    except ValueError:
        raise LineError("token is no hexadecimal text") from None
    return Marks(row["sequence"], token, row["leased_at_ms"], row["purge_at_ms"], row["lease_end"])


def _event(told: Any) -> Event:
    if not isinstance(told, dict) or not isinstance(told["detail"], dict):
        raise LineError("an event is an object with at_ms, transition and detail")
    return Event(told["at_ms"], str(told["transition"]), told["detail"])


def _checked(name: str, value: Any, right: bool) -> Any:  # noqa: FBT001  a verdict on the value before it
    if not right:
        raise LineError(f"{name} is {json.dumps(value)[:80]}")
    return value


def _uuid(name: str, value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise LineError(f"{name} is {json.dumps(value)[:80]}, no UUID") from None


def _state(value: Any) -> State:
    try:
        return State(value)
    except ValueError:
        raise LineError(f"state is {json.dumps(value)[:80]}") from None
