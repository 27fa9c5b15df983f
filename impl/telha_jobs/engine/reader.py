"""Reads: a job, a listing, counts. They follow the rows and change nothing, not even a row that cannot be decoded."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from telha_jobs.codec import UnreadableError, decode_record, unpack_value
from telha_jobs.core.record import ENDED, TRANSITION_NAMES, Record
from telha_jobs.counters import Counters
from telha_jobs.errors import JobNotFoundError, JobUnreadableError
from telha_jobs.keys import ID_BYTES, parse_job_key, parse_place
from telha_jobs.kinds import Kinds
from telha_jobs.recovery import pages
from telha_jobs.store.port import Family, Store
from telha_jobs.types import Event, Job, Page, State

LISTED_PER_LOOK = 256
"""Ids looked at under one hold of the lock, so that a long listing does not keep writers out."""


class Source(NamedTuple):
    """What a read needs: an open queue's shared state has it, and so has a read-only view."""

    store: Store
    kinds: Kinds
    counters: Counters


class JobFilter(NamedTuple):
    """Which jobs a listing or count is about; None: no filter. `kinds` are exact names or families.

    `within`: jobs of other scopes do not exist for who asks.
    """

    state: State | None
    scope: bytes | None
    kinds: tuple[str, ...] | None
    within: frozenset[bytes] | None = None


class Look(NamedTuple):
    """Part of a listing: the jobs found, the last id looked at, and whether the end was reached."""

    jobs: list[Job]
    last: bytes
    ended: bool


def get(source: Source, job_id: bytes) -> Job:
    """The job. Raises `JobNotFoundError` or `JobUnreadableError`."""
    job = _read(source, job_id, _any)
    if job is None:
        raise JobNotFoundError(UUID(bytes=job_id))
    return job


def look(source: Source, wanted: JobFilter, after: bytes, limit: int) -> Look:
    """Up to `limit` jobs with ids above `after`, among the next few ids. Unreadable jobs are left out."""
    numbers = None if wanted.kinds is None else source.kinds.matching(wanted.kinds)

    def matches(key: bytes, kind: int) -> bool:
        place = parse_job_key(key)
        return (
            (wanted.state is None or place.state is wanted.state)
            and (wanted.scope is None or place.scope == wanted.scope)
            and (wanted.within is None or place.scope in wanted.within)
            and (numbers is None or kind in numbers)
        )

    ids = source.store.scan(Family.IDS, after + b"\0" if after else b"", None, LISTED_PER_LOOK)
    found: list[Job] = []
    last = after
    for job_id, _ in ids:
        if len(found) == limit:
            return Look(found, last, ended=False)
        last = job_id
        try:
            job = _read(source, job_id, matches)
        except JobUnreadableError:
            continue
        if job is not None:
            found.append(job)
    return Look(found, last, ended=len(ids) < LISTED_PER_LOOK)


def page(read: Callable[[Callable[[Source], Look]], Look], wanted: JobFilter, after: bytes, limit: int) -> Page:
    """A full page, or the last one; `read` runs one look at a time."""
    jobs: list[Job] = []
    while True:
        part = read(partial(look, wanted=wanted, after=after, limit=limit - len(jobs)))
        jobs += part.jobs
        after = part.last
        if part.ended:
            return Page(tuple(jobs), None)
        if len(jobs) == limit:
            return Page(tuple(jobs), str(UUID(bytes=after)))


def counts(source: Source, wanted: JobFilter) -> dict[State, int]:
    """How many jobs are in each of the five states, from the counters."""
    numbers = None if wanted.kinds is None else source.kinds.matching(wanted.kinds)
    if wanted.scope is not None or wanted.within is None:
        return source.counters.totals(wanted.scope, numbers)
    found = dict.fromkeys(State, 0)
    for scope in wanted.within:
        for state, number in source.counters.totals(scope, numbers).items():
            found[state] += number
    return found


def ids_between(source: Source, low: bytes, high: bytes, limit: int) -> list[bytes]:
    """At most `limit` job ids from `low` to `high`, both included."""
    return [key for key, _ in source.store.scan(Family.IDS, low, high + b"\0", limit)]


def rows(source: Source) -> Iterator[tuple[bytes, tuple[Job, Record] | None]]:
    """Every job in id order: its id, and the job with its record; None for one that cannot be read."""
    for job_id, _ in pages(source.store, Family.IDS, b"", None):
        yield job_id, row(source, job_id)


def row(source: Source, job_id: bytes) -> tuple[Job, Record] | None:
    """A job with its record; None when it cannot be read."""
    try:
        record = _record(source, job_id, _any)
        return None if record is None else (_job(source, record), record)
    except UnreadableError:
        return None


def _any(key: bytes, kind: int) -> bool:
    del key, kind
    return True


def _read(source: Source, job_id: bytes, wanted: Callable[[bytes, int], bool]) -> Job | None:
    try:
        record = _record(source, job_id, wanted)
        return None if record is None else _job(source, record)
    except UnreadableError:
        raise JobUnreadableError(UUID(bytes=job_id)) from None


def _record(source: Source, job_id: bytes, wanted: Callable[[bytes, int], bool]) -> Record | None:
    """The job's record, if there is such a job and it is wanted. Raises `UnreadableError`."""
    [place] = source.store.read(((Family.IDS, job_id),))
    if place.value is None or len(job_id) != ID_BYTES:
        return None
    try:
        key, kind = parse_place(place.value, job_id)
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    if not wanted(key, kind):
        return None
    [row] = source.store.read(((Family.JOBS, key),))
    return decode_record(key, row.value or b"")  # no row reads as an empty one: unreadable


def _job(source: Source, record: Record) -> Job:
    payload = record.payload
    if payload is None:
        [stored] = source.store.read(((Family.PAYLOADS, record.job_id),))
        payload = stored.value
    if payload is None:
        raise UnreadableError("the payload is missing")
    ended = record.state in ENDED
    return Job(
        job_id=UUID(bytes=record.job_id),
        scope=UUID(bytes=record.scope),
        kind=record.kind,
        state=record.state,
        priority=record.priority,
        payload=unpack_value(payload),
        payload_version=record.payload_version,
        headers=dict(record.headers),
        created_at_ms=record.created_at,
        due_ms=None if ended else record.due,
        deadline_ms=record.deadline,
        ended_at_ms=record.ended_at,
        run_at_ms=record.run_at,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        generation=record.generation,
        worker=record.worker,
        dead_reason=record.dead_reason,
        result=None if record.result is None else unpack_value(record.result),
        progress=None if record.progress is None else unpack_value(record.progress),
        idempotency_key=record.key,
        events=tuple(Event(at, TRANSITION_NAMES[transition], detail) for at, transition, detail in record.events),
    )
