"""Jobs held against each other: keys, ids, commits, incarnations, and the order of grants.

Whatever grows with the number of jobs goes to a private database of SQLite's, which spills to a temporary file and is
gone with it; memory is bounded by its page cache, and by the largest backlog of one scope and kind while the order of
grants is judged (beyond `WAITING_MAX` a group is not judged, and the report says so).
"""

import heapq
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple, Self
from uuid import UUID

from telha_jobs.audit.replay import Finding, Marks, Replayed
from telha_jobs.types import Job, State

WAITING_MAX = 500_000
_BATCH = 5_000
_CACHE_KIB = 16_384
_NEVER = 1 << 62

_TABLES = f"""
pragma journal_mode = off;
pragma synchronous = off;
pragma cache_size = -{_CACHE_KIB};
create table jobs (id blob, created integer, line integer);
create table keys (scope blob, digest blob, id blob);
create table commits (sequence integer, at integer, known integer, token blob, id blob);
create table waits (
    scope blob, kind text, at integer, grants integer, until integer, priority integer, due integer, id blob
);
"""
_INSERTS = {
    "jobs": "insert into jobs values (?, ?, ?)",
    "keys": "insert into keys values (?, ?, ?)",
    "commits": "insert into commits values (?, ?, ?, ?, ?)",
    "waits": "insert into waits values (?, ?, ?, ?, ?, ?, ?, ?)",
}


class _Span(NamedTuple):
    """The first and the last grant of an incarnation."""

    first_ms: int
    last_ms: int
    last_id: UUID


class Across:
    """Takes jobs one by one, in any order, and judges them together in `findings`; a context manager."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_TABLES)
        self._database.execute("begin")
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._incarnations: dict[int, _Span] = {}
        self._taken = 0
        self.unjudged: list[str] = []
        """Groups of scope and kind whose backlog was too large for the order of grants; known after `findings`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def take(self, job: Job, told: Replayed, marks: Marks | None) -> None:
        """Keep what comparisons need of a job whose own log is true."""
        job_id, scope = job.job_id.bytes, job.scope.bytes
        self._taken += 1
        self._add("jobs", (job_id, job.created_at_ms, self._taken))
        if job.idempotency_key is not None:
            digest = sha256(job.idempotency_key.encode("utf-8", "surrogatepass")).digest()[:16]
            self._add("keys", (scope, digest, job_id))
        if marks is not None:
            # Only a heartbeat writes a row without an event, and only a leased one.
            known = job.state is not State.LEASED
            self._add("commits", (marks.sequence, told.last_ms, known, marks.token, job_id))
        for wait in told.waits:
            until = _NEVER if wait.end_ms is None else wait.end_ms
            place = (until, job.priority, wait.due_ms, job_id)
            self._add("waits", (scope, job.kind, wait.start_ms, 0, *place))
            if wait.granted:
                self._add("waits", (scope, job.kind, until, 1, *place))
        for at_ms, generation in told.grants:
            self._granted(job.job_id, at_ms, generation >> 32)

    def _granted(self, job_id: UUID, at_ms: int, incarnation: int) -> None:
        span = self._incarnations.get(incarnation)
        if span is None:
            self._incarnations[incarnation] = _Span(at_ms, at_ms, job_id)
        elif at_ms < span.first_ms:
            self._incarnations[incarnation] = span._replace(first_ms=at_ms)
        elif at_ms > span.last_ms:
            self._incarnations[incarnation] = _Span(span.first_ms, at_ms, job_id)

    def _add(self, table: str, row: tuple[Any, ...]) -> None:
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= _BATCH:
            self._database.executemany(_INSERTS[table], rows)
            rows.clear()

    def findings(self) -> Iterator[Finding]:
        """One finding for each job that breaks a rule in the company of others, rule by rule."""
        for table, rows in self._rows.items():
            self._database.executemany(_INSERTS[table], rows)
            rows.clear()
        blamed: set[UUID | None] = set()
        for check in (self._ids, self._keys, self._commits, self._spans, self._order):
            for finding in check():
                if finding.job_id not in blamed:
                    blamed.add(finding.job_id)
                    yield finding

    def _ids(self) -> Iterator[Finding]:
        """An id names one job, and later jobs have higher ids."""
        before, newest, newest_id = b"", -1, b""
        for job_id, created in self._database.execute("select id, created from jobs order by id, line"):
            if job_id == before:
                yield Finding(UUID(bytes=job_id), "id", "it is there twice")
            elif created < newest:
                yield Finding(
                    UUID(bytes=job_id),
                    "id",
                    f"created at {created}, and job {UUID(bytes=newest_id)} with a lower id at {newest}",
                )
            else:
                newest, newest_id = created, job_id
            before = job_id

    def _keys(self) -> Iterator[Finding]:
        """A key names one job in its scope."""
        before: tuple[Any, ...] = ()
        for scope, digest, job_id in self._database.execute("select * from keys order by scope, digest, id"):
            if before[:2] == (scope, digest) and before[2] != job_id:
                yield Finding(UUID(bytes=job_id), "key", f"its key is that of job {UUID(bytes=before[2])} too")
            before = (scope, digest, job_id)

    def _commits(self) -> Iterator[Finding]:
        """A commit has one token and one time, and later commits have no earlier times."""
        newest, newest_id = -1, b""
        before: tuple[int, bytes, bytes] = (-1, b"", b"")
        rows = self._database.execute("select * from commits order by sequence, at, known desc, id")
        for sequence, at_ms, known, its_token, job_id in rows:
            name = UUID(bytes=job_id)
            if sequence == before[0] and its_token != before[1]:
                other = UUID(bytes=before[2])
                yield Finding(name, "commit", f"commit {sequence} wrote it and job {other}, with different tokens")
            elif known and at_ms < newest:
                other = UUID(bytes=newest_id)
                yield Finding(
                    name, "commit", f"commit {sequence} wrote it at {at_ms}, one before wrote job {other} at {newest}"
                )
            if at_ms >= newest:
                newest, newest_id = at_ms, job_id
            before = (sequence, its_token, job_id)

    def _spans(self) -> Iterator[Finding]:
        """Generations of a later incarnation are granted later."""
        last: tuple[int, _Span] | None = None
        for incarnation, span in sorted(self._incarnations.items()):
            if last is not None and span.first_ms < last[1].last_ms:
                yield Finding(
                    last[1].last_id,
                    "incarnation",
                    f"leased at {last[1].last_ms} in incarnation {last[0]}, and number {incarnation}"
                    f" had begun by {span.first_ms}",
                )
            last = (incarnation, span)

    def _order(self) -> Iterator[Finding]:
        """In a scope, among jobs of a kind that waited at the time, a grant took the first by priority, due time, id.

        Grants of other kinds prove nothing: the poller may not have asked for them. Nor does one of the same
        millisecond.
        """
        group: tuple[bytes, str] | None = None
        waiting: list[tuple[int, int, bytes, int, int]] = []
        judged = True
        rows = self._database.execute("select * from waits order by scope, kind, at, grants desc, priority, due, id")
        for scope, kind, at_ms, grants, until, priority, due, job_id in rows:
            if group != (scope, kind):
                group, waiting, judged = (scope, kind), [], True
            if not judged:
                continue
            if not grants:
                heapq.heappush(waiting, (priority, due, job_id, at_ms, until))
                if len(waiting) > WAITING_MAX:
                    judged = False
                    self.unjudged.append(f"scope {UUID(bytes=scope)}, kind {kind}")
                continue
            while waiting and waiting[0][4] <= at_ms:
                heapq.heappop(waiting)
            # Grants stand before the waits that begin in the same millisecond, so whoever is in here began before.
            if waiting and waiting[0][:3] < (priority, due, job_id):
                yield Finding(
                    UUID(bytes=job_id),
                    "order",
                    f"leased at {at_ms} although job {UUID(bytes=waiting[0][2])} of its scope and kind stood before it",
                )
