"""The interface is fixed: every name, parameter, default and field that programs use, written down once more."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import telha_jobs
from telha_jobs import JobQueue, QueueConfig, QueueError, State

NAMES = {
    "SYSTEM_SCOPE",
    "State",
    "QueueError",
    "InvalidArgumentError",
    "JobNotFoundError",
    "WrongStateError",
    "StaleLeaseError",
    "IdempotencyConflictError",
    "JobUnreadableError",
    "QueueUnavailableError",
    "QueueLockedError",
    "FormatVersionError",
    "Backoff",
    "KindPolicy",
    "QueueConfig",
    "Clock",
    "ManualClock",
    "NewJob",
    "Receipt",
    "LeaseRef",
    "Lease",
    "Event",
    "Job",
    "Outcome",
    "Page",
    "ReapReport",
    "CheckReport",
    "JobQueue",
}

# "name", "name=default" or "*"; everything behind "*" is keyword-only.
SIGNATURES = {
    "open": "path * config=<QueueConfig> clock=None",
    "close": "",
    "__enter__": "",
    "__exit__": "t e tb",
    "enqueue": "scope kind payload * priority=128 run_at_ms=None delay_ms=None max_attempts=None idempotency_key=None "
    "headers=None payload_version=1",
    "enqueue_many": "jobs",
    "lease_next": "worker * scopes=None kinds=None wait_ms=0",
    "lease_batch": "worker limit * scopes=None kinds=None wait_ms=0",
    "extend": "worker leases * progress=None",
    "complete": "lease result=None * enqueue=()",
    "complete_many": "items",
    "fail": "lease reason * retryable=True",
    "release": "lease * delay_ms=0",
    "reap": "limit=None",
    "start_reaper": "",
    "retry": "job_id",
    "cancel": "job_id",
    "discard": "job_id",
    "get": "job_id",
    "list_jobs": "* state=None scope=None kind=None limit=100 after=None",
    "counts": "* scope=None kind=None",
    "check": "* repair=False",
    "now_ms": "",
    "clock_ahead_ms": "",
}

RETURNS = {
    "open": "Self",
    "enqueue": "Receipt",
    "enqueue_many": "list[Receipt]",
    "lease_next": "Lease | None",
    "lease_batch": "list[Lease]",
    "extend": "list[Outcome]",
    "complete": "list[Receipt]",
    "complete_many": "list[Outcome]",
    "fail": "State",
    "release": "None",
    "reap": "ReapReport",
    "start_reaper": "None",
    "retry": "None",
    "cancel": "None",
    "discard": "None",
    "get": "Job",
    "list_jobs": "Page",
    "counts": "dict[State, int]",
    "check": "CheckReport",
    "now_ms": "int",
    "clock_ahead_ms": "int",
    "close": "None",
}

# Fields in order, with defaults; a value is positional unless its class is in KEYWORD_ONLY.
FIELDS = {
    "Backoff": "base_ms=10000 factor=4 cap_ms=3600000",
    "KindPolicy": "lease_ttl_ms=None max_attempts=None backoff_base_ms=None backoff_factor=None backoff_cap_ms=None "
    "max_lease_age_ms=None",
    "QueueConfig": "lease_ttl_ms=300000 reaper_interval_ms=30000 max_attempts=5 backoff=<Backoff> kinds=<dict> "
    "max_lease_age_ms=None retention_completed_ms=604800000 retention_dead_ms=None durability='sync' "
    "payload_bytes_max=4194304 result_bytes_max=1048576 reason_chars_max=8192 events_max=256 lease_batch_max=10000",
    "NewJob": "scope kind payload priority=128 run_at_ms=None delay_ms=None max_attempts=None idempotency_key=None "
    "headers=None payload_version=1",
    "Receipt": "job_id created state",
    "LeaseRef": "job_id generation",
    "Lease": "job_id generation scope kind payload payload_version headers attempt deadline_ms worker progress",
    "Event": "at_ms transition detail",
    "Job": "job_id scope kind state priority payload payload_version headers created_at_ms due_ms deadline_ms "
    "ended_at_ms run_at_ms attempts max_attempts generation worker dead_reason result progress idempotency_key events",
    "Outcome": "job_id status deadline_ms error",
    "Page": "jobs after",
    "ReapReport": "requeued died promoted purged quarantined more",
    "CheckReport": "rows problems repaired quarantined",
}
KEYWORD_ONLY = {"Backoff", "KindPolicy", "QueueConfig", "NewJob"}

ERROR_FIELDS = {
    "InvalidArgumentError": "field",
    "JobNotFoundError": "job_id",
    "WrongStateError": "job_id state needed",
    "StaleLeaseError": "job_id generation current_generation state why",
    "IdempotencyConflictError": "job_id key index",
    "JobUnreadableError": "job_id",
    "QueueUnavailableError": "outcome",
    "QueueLockedError": "path",
    "FormatVersionError": "found supported",
}


def told(default: Any) -> str:
    """A default as the tables above write it."""
    return f"<{type(default).__name__}>" if isinstance(default, QueueConfig) else repr(default)


def parameters(function: Callable[..., object]) -> str:
    """A signature as the tables above write it, without `self`."""
    parts = []
    starred = False
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        parts.append(name if parameter.default is parameter.empty else f"{name}={told(parameter.default)}")
    return " ".join(parts)


def fields(cls: type) -> str:
    """The fields of a dataclass as the tables above write them."""
    parts = []
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            parts.append(f"{field.name}={field.default!r}")
        elif field.default_factory is not dataclasses.MISSING:
            parts.append(f"{field.name}=<{type(field.default_factory()).__name__}>")
        else:
            parts.append(field.name)
    return " ".join(parts)


def test_the_package_exports_these_names_and_no_others() -> None:
    """`telha_jobs.__all__` is the interface."""
    assert set(telha_jobs.__all__) == NAMES
    assert all(hasattr(telha_jobs, name) for name in NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_method_has_this_signature(name: str) -> None:
    """Parameter names, their order, what is keyword-only, and defaults."""
    assert SIGNATURES[name] == parameters(getattr(JobQueue, name))


def test_the_queue_has_no_further_public_methods() -> None:
    """Whatever else the class has starts with an underscore, but for what the server and the metrics use."""
    public = {name for name in vars(JobQueue) if not name.startswith("_")}
    assert {name for name in SIGNATURES if not name.startswith("_")} == public - {"engine", "config"}


@pytest.mark.parametrize("name", RETURNS)
def test_a_method_returns_this_type(name: str) -> None:
    """The annotation of the answer."""
    hint = typing.get_type_hints(getattr(JobQueue, name))["return"]
    text = str(hint) if typing.get_origin(hint) or not isinstance(hint, type) else hint.__name__
    for module in ("telha_jobs.types.", "telha_jobs.queue.", "typing."):
        text = text.replace(module, "")
    assert RETURNS[name] == ("None" if text == "NoneType" else text)


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_has_these_fields(name: str) -> None:
    """Fields in order with their defaults, keyword-only where the interface says so, and frozen."""
    cls = getattr(telha_jobs, name)
    assert FIELDS[name] == fields(cls)
    assert cls.__dataclass_params__.frozen
    assert {name in KEYWORD_ONLY} == {field.kw_only for field in dataclasses.fields(cls)}


def test_a_lease_is_a_lease_ref() -> None:
    """What was granted can be presented as it is."""
    assert issubclass(telha_jobs.Lease, telha_jobs.LeaseRef)


@pytest.mark.parametrize("name", ERROR_FIELDS)
def test_an_error_has_these_fields(name: str) -> None:
    """Every error is a `QueueError` and declares its fields."""
    error = getattr(telha_jobs, name)
    assert issubclass(error, QueueError)
    assert set(ERROR_FIELDS[name].split()) == set(error.__annotations__)


def test_two_errors_are_also_what_python_calls_them() -> None:
    """A bad argument is a ValueError, a missing job a KeyError."""
    assert issubclass(telha_jobs.InvalidArgumentError, ValueError)
    assert issubclass(telha_jobs.JobNotFoundError, KeyError)


def test_the_five_states() -> None:
    """Names and values."""
    assert issubclass(State, Enum)
    expected = {name: name.lower() for name in ("PENDING", "LEASED", "FAILED", "COMPLETED", "DEAD")}
    assert expected == {state.name: state.value for state in State}


def test_the_system_scope_is_the_nil_uuid() -> None:
    """System jobs live in the nil scope."""
    assert UUID("00000000-0000-0000-0000-000000000000") == telha_jobs.SYSTEM_SCOPE


def test_the_clock_protocol() -> None:
    """A clock has two readings; the manual one is moved in two ways."""
    assert [parameters(telha_jobs.Clock.wall_ms), parameters(telha_jobs.Clock.boot_ms)] == ["", ""]
    manual = telha_jobs.ManualClock
    assert [parameters(one) for one in (manual.__init__, manual.advance, manual.step_wall)] == ["start_ms", "ms", "ms"]


@pytest.mark.parametrize(
    ("cls", "field", "values"),
    [
        ("StaleLeaseError", "why", "reaped superseded released cancelled completed failed never_leased"),
        ("QueueUnavailableError", "outcome", "not_applied unknown"),
        ("Outcome", "status", "completed failed extended at_limit stale not_found"),
        ("QueueConfig", "durability", "sync os"),
    ],
)
def test_a_field_has_these_values(cls: str, field: str, values: str) -> None:
    """Literal types list exactly the values of the interface."""
    module = inspect.getmodule(getattr(telha_jobs, cls))
    names = {**vars(module), "QueueError": QueueError}
    hint = typing.get_type_hints(getattr(telha_jobs, cls), globalns=names)[field]
    assert set(values.split()) == set(typing.get_args(hint))
