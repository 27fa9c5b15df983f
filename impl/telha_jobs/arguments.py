"""Checks of the public calls' arguments: from what people pass to what the engine takes, or `InvalidArgumentError`
with field and rule.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from os import PathLike, fsencode, fspath
from typing import Any
from uuid import UUID

from telha_jobs.codec import kind_name, pack_value
from telha_jobs.config import QueueConfig, check_kind, check_kind_or_family, is_common_kind, is_system_kind
from telha_jobs.engine.commands import Draft, Filters, Ref
from telha_jobs.engine.reader import JobFilter
from telha_jobs.engine.submit import Result
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rules import (
    DURATION_MAX_MS,
    GENERATION_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    KIND_CHARS_MAX,
    PRIORITY_MAX,
    TIME_MAX_MS,
    VERSION_MAX,
    WORKER_CHARS_MAX,
    check_int,
    check_optional_int,
    check_text,
    check_unicode,
    plain,
    shown,
)
from telha_jobs.types import SYSTEM_SCOPE, LeaseRef, NewJob, State, named

FILTERS_MAX = 65_536
_EVERYTHING = Filters(None, None)
_NO_HEADERS: dict[str, str] = {}
"""Shared by the records of all jobs without: nothing that holds a record changes its headers."""


def draft(
    where: str,
    config: QueueConfig,
    scope: UUID,
    kind: str,
    payload: Any,
    priority: int,
    run_at_ms: int | None,
    delay_ms: int | None,
    max_attempts: int | None,
    key: str | None,
    headers: Mapping[str, str] | None,
    payload_version: int,
) -> Draft:
    """A job to create. `where` is put before a field's name: `jobs[3].`.

    What is plainly right passes by a glance: the checks proper, and the names they need, cost more than the rest.
    """
    scope_raw = scope.int.to_bytes(16, "big") if type(scope) is UUID else scope_bytes(f"{where}scope", scope)
    if type(kind) is not str or len(kind) > KIND_CHARS_MAX or not is_common_kind(kind):
        kind = _kind(f"{where}kind", kind, scope)
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        priority = check_int(f"{where}priority", priority, 0, PRIORITY_MAX)
    if run_at_ms is not None or delay_ms is not None:
        run_at_ms, delay_ms = _start(where, run_at_ms, delay_ms)
    return named(
        Draft,
        (
            scope_raw,
            kind,
            pack_value(where + "payload", payload, config.payload_bytes_max),
            payload,
            priority,
            run_at_ms,
            delay_ms,
            None if max_attempts is None else _max_attempts(where, max_attempts, config),
            None if key is None else _key(f"{where}idempotency_key", key),
            _NO_HEADERS if headers is None else _headers(f"{where}headers", headers),
            payload_version
            if type(payload_version) is int and 0 <= payload_version <= VERSION_MAX
            else check_int(f"{where}payload_version", payload_version, 0, VERSION_MAX),
        ),
    )


def draft_of(job: NewJob, config: QueueConfig, where: str = "") -> Draft:
    """The same for a `NewJob`."""
    return draft(
        where,
        config,
        job.scope,
        job.kind,
        job.payload,
        job.priority,
        job.run_at_ms,
        job.delay_ms,
        job.max_attempts,
        job.idempotency_key,
        job.headers,
        job.payload_version,
    )


def drafts(field: str, jobs: Iterable[NewJob], config: QueueConfig, most: int) -> list[Draft]:
    """Jobs to create, at most `most`; the field of a bad one is `jobs[3].kind`."""
    found = []
    for index, job in enumerate(items(field, jobs, most)):
        if not isinstance(job, NewJob):
            raise InvalidArgumentError(f"{field}[{index}]", f"must be a NewJob, not {kind_name(job)}")
        found.append(draft_of(job, config, f"{field}[{index}]."))
    return found


def ref(where: str, lease: LeaseRef) -> Ref:
    """A lease as presented. `where` names it: `lease`, `leases[2]`."""
    if not isinstance(lease, LeaseRef):
        raise InvalidArgumentError(where, f"must be a LeaseRef or Lease, not {kind_name(lease)}")
    job_id, generation = lease.job_id, lease.generation
    if type(job_id) is UUID and type(generation) is int and 0 <= generation <= GENERATION_MAX:
        return named(Ref, (job_id.int.to_bytes(16, "big"), generation))
    job = id_bytes(f"{where}.job_id", job_id)
    return Ref(job, check_int(f"{where}.generation", generation, 0, GENERATION_MAX))


def refs(field: str, leases: Iterable[LeaseRef], most: int) -> list[Ref]:
    """Leases as presented, at most `most`."""
    return [ref(f"{field}[{index}]", lease) for index, lease in enumerate(items(field, leases, most))]


def result(where: str, value: Any, config: QueueConfig) -> Result:
    """A job's result."""
    return named(Result, (value, pack_value(where, value, config.result_bytes_max)))


def completions(given: Iterable[tuple[LeaseRef, Any]], config: QueueConfig, most: int) -> list[tuple[Ref, Result]]:
    """The items of `complete_many`; the field of a bad one is `items[3].result`."""
    found = []
    for index, item in enumerate(items("items", given, most)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InvalidArgumentError(f"items[{index}]", f"must be a pair (lease, result), not {kind_name(item)}")
        where = f"items[{index}]"
        found.append((ref(f"{where}.lease", item[0]), result(f"{where}.result", item[1], config)))
    return found


def progress(given: Any, leases: Iterable[Ref], config: QueueConfig) -> dict[bytes, bytes]:
    """Progress by job id, for jobs among the leases only."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgumentError("progress", f"must be a mapping of job id to value, not {kind_name(given)}")
    listed = {lease.job_id for lease in leases}
    found = {}
    for job_id, value in given.items():
        where = f"progress[{job_id if isinstance(job_id, UUID | str) else shown(job_id)}]"
        key = id_bytes(where, job_id)
        if key not in listed:
            raise InvalidArgumentError(where, "is for a job that is not among the leases of this call")
        found[key] = pack_value(where, value, config.result_bytes_max)
    return found


def reason(value: Any, config: QueueConfig) -> str:
    """A failure reason as it is kept: cut at the limit, lone surrogates replaced by U+FFFD.

    Never refused for what it says.
    """
    if not isinstance(value, str):
        raise InvalidArgumentError("reason", f"must be a str, not {kind_name(value)}")
    kept = plain(value)[: config.reason_chars_max]
    if kept.isascii():
        return kept
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in kept)


def worker(value: Any) -> str:
    """A worker's name: recorded, never compared."""
    return check_text("worker", value, chars_max=WORKER_CHARS_MAX)


def filters(scopes: Iterable[UUID] | None, kinds: Iterable[str] | None) -> Filters:
    """Which jobs a lease may take."""
    if kinds is None and scopes is None:
        return _EVERYTHING
    return Filters(
        None if kinds is None else tuple(_kinds("kinds", kinds)),
        None if scopes is None else frozenset(_scopes("scopes", scopes)),
    )


def job_filter(state: State | None, scope: UUID | None, kind: str | None) -> JobFilter:
    """Which jobs a listing or count is about."""
    if state is not None and not isinstance(state, State):
        raise InvalidArgumentError("state", f"must be a State, not {kind_name(state)}")
    return JobFilter(
        state,
        None if scope is None else scope_bytes("scope", scope),
        None if kind is None else (check_kind_or_family("kind", kind),),
    )


def cursor(after: Any) -> bytes:
    """The last id of the page before; empty at the start."""
    if after is None:
        return b""
    if not isinstance(after, str):
        raise InvalidArgumentError("after", f"must be the `after` of a page, not {kind_name(after)}")
    try:
        return UUID(after).bytes
    except ValueError:
        raise InvalidArgumentError("after", f"must be the `after` of a page, not {after[:80]!r}") from None


def path(value: Any) -> str:
    """Where a queue is: text, or a path object, that can name a directory. An empty one would be the current one."""
    if not isinstance(value, str | PathLike):
        raise InvalidArgumentError("path", f"must be a str or a path, not {kind_name(value)}")
    where = fspath(value)
    if not isinstance(where, str):
        raise InvalidArgumentError("path", f"must be text, not {kind_name(where)}")
    try:
        usable = 0 not in fsencode(where)
    except UnicodeEncodeError:
        usable = False
    if not where or not usable:
        raise InvalidArgumentError("path", f"must name a directory, {where[:140]!r} cannot")
    return where


def flag(field: str, value: Any) -> bool:
    """A bool, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(field, f"must be a bool, not {kind_name(value)}")
    return value


def id_bytes(field: str, value: Any) -> bytes:
    """A job id."""
    if not isinstance(value, UUID):
        raise InvalidArgumentError(field, f"must be a UUID, not {kind_name(value)}")
    return value.bytes


def scope_bytes(field: str, value: Any) -> bytes:
    """A scope."""
    return id_bytes(field, value)


def items(field: str, given: Any, most: int) -> list[Any]:
    """The items of an iterable, at most `most`. A str, bytes or mapping is none, though Python could iterate it."""
    if isinstance(given, (list, tuple)):
        if len(given) > most:
            raise InvalidArgumentError(field, f"must have at most {most} items, not {len(given)}")
        return list(given)
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgumentError(field, f"must be an iterable of items, not {kind_name(given)}")
    found = list(islice(given, most + 1))
    if len(found) > most:
        raise InvalidArgumentError(field, f"must have at most {most} items")
    return found


def _kinds(field: str, given: Iterable[str]) -> list[str]:
    found = [
        check_kind_or_family(f"{field}[{index}]", kind) for index, kind in enumerate(items(field, given, FILTERS_MAX))
    ]
    if not found:
        raise InvalidArgumentError(field, "must not be empty: leave it out for every kind")
    return found


def _scopes(field: str, given: Iterable[UUID]) -> list[bytes]:
    found = [scope_bytes(f"{field}[{index}]", one) for index, one in enumerate(items(field, given, FILTERS_MAX))]
    if not found:
        raise InvalidArgumentError(field, "must not be empty: leave it out for every scope")
    return found


def _kind(where: str, kind: Any, scope: UUID) -> str:
    name = check_kind(where, kind)
    if is_system_kind(name) and scope != SYSTEM_SCOPE:
        raise InvalidArgumentError(where, f"{name!r} belongs to the nil scope (SYSTEM_SCOPE) only")
    return name


def _start(where: str, run_at_ms: int | None, delay_ms: int | None) -> tuple[int | None, int | None]:
    run_at = check_optional_int(f"{where}run_at_ms", run_at_ms, 0, TIME_MAX_MS)
    delay = check_optional_int(f"{where}delay_ms", delay_ms, 0, DURATION_MAX_MS)
    if run_at is not None and delay is not None:
        raise InvalidArgumentError(f"{where}delay_ms", "must not be given together with run_at_ms: choose one")
    return run_at, delay


def _max_attempts(where: str, value: Any, config: QueueConfig) -> int:
    attempts = check_int(f"{where}max_attempts", value, 1, VERSION_MAX)
    needed = config.events_needed(attempts)
    if needed > config.events_max:
        raise InvalidArgumentError(
            f"{where}max_attempts", f"{attempts} attempts need events_max >= {needed}, it is {config.events_max}"
        )
    return attempts


def _key(field: str, value: Any) -> str:
    key = check_text(field, value, chars_max=KEY_BYTES_MAX)
    if len(key.encode("utf-8")) > KEY_BYTES_MAX:
        raise InvalidArgumentError(field, f"must have at most {KEY_BYTES_MAX} bytes of UTF-8")
    return key


def _headers(field: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(field, f"must be a mapping of str to str, not {kind_name(value)}")
    if len(value) > HEADERS_MAX:
        raise InvalidArgumentError(field, f"must have at most {HEADERS_MAX} entries, not {len(value)}")
    found = {}
    for name, text in value.items():
        for part, what in ((name, "name"), (text, "value")):
            if not isinstance(part, str):
                raise InvalidArgumentError(field, f"must map str to str; a {what} is {kind_name(part)}")
            check_unicode(field, plain(part))
        found[plain(name)] = plain(text)
    size = sum(len(name.encode("utf-8")) + len(text.encode("utf-8")) for name, text in found.items())
    if size > HEADERS_BYTES_MAX:
        raise InvalidArgumentError(field, f"must have at most {HEADERS_BYTES_MAX} bytes of UTF-8, not {size}")
    return found
