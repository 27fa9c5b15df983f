"""Listings, counts, events and check: what the queue shows, and that showing changes nothing."""

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import JobQueue, JobUnreadableError, LeaseRef, ManualClock, NewJob, QueueUnavailableError, State
from telha_jobs.keys import kind_key
from telha_jobs.store.port import Family, Put
from tests.unit.api.conftest import Open
from tests.unit.api.support import (
    START_MS,
    A,
    B,
    C,
    each,
    healthy,
    lease,
    leased,
    refusal,
    row_of,
    tamper,
    transitions,
    unchanged,
)


def fill(queue: JobQueue) -> list[UUID]:
    """Thirty jobs over scopes, kinds and states; their ids in order."""
    kinds = ("ingest:pdf", "ingest:html", "embed")
    made = [
        queue.enqueue((A, B)[number % 2], kinds[number % 3], number, priority=number % 5).job_id for number in range(30)
    ]
    held = queue.lease_batch("w", 16)
    queue.complete_many([(one, None) for one in held[:4]])
    for one in held[4:8]:
        queue.fail(one, "x")
    for one in held[8:12]:
        queue.fail(one, "x", retryable=False)
    return made


FILTERS: list[dict[str, Any]] = [
    {},
    *({"state": state} for state in State),
    {"scope": A},
    {"scope": C},
    {"kind": "embed"},
    {"kind": "ingest:*"},
    {"kind": "nobody"},
    {"kind": "nobody:*"},
    {"state": State.PENDING, "scope": B, "kind": "ingest:*"},
]


def matching(queue: JobQueue, ids: list[UUID], filters: dict[str, Any]) -> list[UUID]:
    """The ids whose jobs pass the filters, by looking at each."""
    found = []
    for job_id in ids:
        job = queue.get(job_id)
        kind = filters.get("kind", job.kind)
        if (
            job.state is filters.get("state", job.state)
            and job.scope == filters.get("scope", job.scope)
            and (job.kind == kind or (kind.endswith("*") and job.kind.startswith(kind[:-1])))
        ):
            found.append(job_id)
    return found


@each("filters", FILTERS)
@pytest.mark.parametrize("limit", [1, 2, 7, 30, 31])
def test_a_listing_is_in_id_order_and_pages_are_full(queue: JobQueue, filters: dict[str, Any], limit: int) -> None:
    """Under every filter, every job once; every page but the last has `limit` jobs."""
    expected = matching(queue, fill(queue), filters)
    pages = [queue.list_jobs(limit=limit, **filters)]
    while pages[-1].after is not None:
        pages.append(queue.list_jobs(limit=limit, after=pages[-1].after, **filters))
    assert expected == [job.job_id for page in pages for job in page.jobs]
    assert all(len(page.jobs) == limit for page in pages[:-1])


def test_a_listed_job_is_the_job(queue: JobQueue) -> None:
    """The same value that `get` gives."""
    made = fill(queue)
    assert [queue.get(job_id) for job_id in made] == list(queue.list_jobs().jobs)


def test_a_page_has_a_hundred_jobs_by_default(queue: JobQueue) -> None:
    """And the next one goes on behind it."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 150)
    first = queue.list_jobs()
    rest = queue.list_jobs(after=first.after)
    assert (len(first.jobs), len(rest.jobs), rest.after) == (100, 50, None)


def test_a_cursor_is_the_last_id_and_fits_any_filter(queue: JobQueue) -> None:
    """It was made under one filter and used under another."""
    made = fill(queue)
    first = queue.list_jobs(scope=A, limit=3)
    assert str(first.jobs[-1].job_id) == first.after
    expected = [job_id for job_id in matching(queue, made, {"kind": "embed"}) if job_id.int > first.jobs[-1].job_id.int]
    assert expected == [job.job_id for job in queue.list_jobs(kind="embed", after=first.after).jobs]


def test_a_cursor_outlives_its_job(queue: JobQueue) -> None:
    """The job it names may be gone."""
    made = fill(queue)
    first = queue.list_jobs(limit=3)
    queue.complete(LeaseRef(made[2], 1))
    queue.discard(made[2])
    assert made[3] == queue.list_jobs(limit=1, after=first.after).jobs[0].job_id


def test_a_large_listing_with_a_sparse_filter(queue: JobQueue) -> None:
    """A thousand jobs, three of which match, far apart: one full page."""
    made = queue.enqueue_many(
        NewJob(scope=B if number % 400 == 7 else A, kind="embed", payload=None) for number in range(1_000)
    )
    page = queue.list_jobs(scope=B, limit=3)
    assert [made[number].job_id for number in (7, 407, 807)] == [job.job_id for job in page.jobs]


@each("filters", [one for one in FILTERS if "state" not in one])
def test_counts_have_all_five_states(opened: Open, filters: dict[str, Any]) -> None:
    """Under every filter, unknown ones in zeros; the same after reopening."""
    queue = opened()
    made = fill(queue)
    ids = matching(queue, made, filters)
    found = Counter(queue.get(job_id).state for job_id in ids)
    expected = {state: found[state] for state in State}
    assert expected == queue.counts(**filters)
    queue.close()
    assert expected == opened().counts(**filters)


def test_counts_do_not_scan(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a single row is read."""
    fill(queue)
    monkeypatch.setattr(queue._store, "read", None)
    monkeypatch.setattr(queue._store, "scan", None)
    assert sum(queue.counts().values()) == 30


def test_counts_of_a_scope_and_a_family(queue: JobQueue) -> None:
    """Both filters at once."""
    for scope, kind in ((A, "a:x"), (A, "a:y"), (A, "b"), (B, "a:x")):
        queue.enqueue(scope, kind, None)
    assert queue.counts(scope=A, kind="a:*")[State.PENDING] == 2


def test_counters_at_zero_leave_no_row(queue: JobQueue) -> None:
    """A queue whose jobs are gone keeps no counters of them."""
    held = leased(queue)
    queue.complete(held)
    queue.discard(held.job_id)
    assert queue._store.scan(Family.META, b"count/", b"count0", 9) == []


def test_looking_changes_nothing(queue: JobQueue) -> None:
    """get, list, counts, check, now and clock_ahead write nothing."""
    made = fill(queue)
    with unchanged(queue):
        queue.get(made[0])
        queue.list_jobs()
        queue.counts()
        queue.check()
        queue.now_ms()
        queue.clock_ahead_ms()


# -- the event log


def test_the_log_tells_everything(queue: JobQueue, clock: ManualClock) -> None:
    """Each transition with its time and detail; heartbeats are not told."""
    job_id = queue.enqueue(A, "embed", None, max_attempts=3).job_id
    held = lease(queue)
    clock.advance(1)
    queue.extend("w", [held])
    queue.release(held, delay_ms=4)
    clock.advance(4)
    queue.fail(lease(queue), "broken")
    clock.advance(10_000)
    queue.reap()
    lease(queue)
    clock.advance(300_000)
    queue.reap()
    clock.advance(40_000)
    queue.fail(lease(queue), "again")
    queue.retry(job_id)
    queue.cancel(job_id)
    t = START_MS
    expected: list[tuple[int, str, dict[str, Any]]] = [
        (t, "enqueued", {"due": t}),
        (t, "leased", {"worker": "w", "generation": 1, "attempt": 1}),
        (t + 1, "released", {"generation": 1, "attempts": 0, "due": t + 5}),
        (t + 5, "leased", {"worker": "w", "generation": 2, "attempt": 1}),
        (t + 5, "failed", {"reason": "broken", "generation": 2, "attempts": 1, "due": t + 10_005}),
        (t + 10_005, "promoted", {}),
        (t + 10_005, "leased", {"worker": "w", "generation": 3, "attempt": 2}),
        (t + 310_005, "reaped", {"reason": "expired", "generation": 3, "attempts": 2, "due": t + 350_005}),
        (t + 350_005, "leased", {"worker": "w", "generation": 4, "attempt": 3}),
        (t + 350_005, "dead", {"reason": "again", "generation": 4, "attempts": 3, "dead_reason": "attempts"}),
        (t + 350_005, "retried", {"due": t + 350_005}),
        (t + 350_005, "cancelled", {"reason": "cancelled", "generation": 4, "attempts": 0}),
    ]
    assert expected == [(event.at_ms, event.transition, event.detail) for event in queue.get(job_id).events]


@each(
    "end, detail",
    [
        ("complete", ("completed", {"generation": 1, "attempts": 0})),
        ("reject", ("dead", {"reason": "no", "generation": 1, "attempts": 1, "dead_reason": "rejected"})),
        ("cancel", ("cancelled", {"reason": "cancelled", "generation": 1, "attempts": 0})),
    ],
)
def test_an_end_is_one_event(queue: JobQueue, end: str, detail: tuple[str, dict[str, Any]]) -> None:
    """Completion, rejection and cancellation of a leased job."""
    held = leased(queue)
    if end == "complete":
        queue.complete(held)
    elif end == "reject":
        queue.fail(held, "no", retryable=False)
    else:
        queue.cancel(held.job_id)
    events = queue.get(held.job_id).events
    assert [event.transition for event in events[:-1]] == ["enqueued", "leased"]
    assert detail == (events[-1].transition, events[-1].detail)


def test_a_long_log_collapses_in_the_middle(opened: Open) -> None:
    """The first half stays, the newest stay, one entry counts what lies between and the state it ends in."""
    queue = opened(max_attempts=1, events_max=8)
    job_id = queue.enqueue(A, "embed", None).job_id
    for _ in range(10):
        queue.release(lease(queue))
    lease(queue)
    events = queue.get(job_id).events
    assert transitions(queue, job_id) == [
        "enqueued",
        "leased",
        "released",
        "leased",
        "elided",
        "leased",
        "released",
        "leased",
    ]
    assert events[4].detail == {"count": 15, "state": "pending"}
    healthy(queue)


@pytest.mark.parametrize("length", [8, 9, 10, 11])
def test_a_log_collapses_only_beyond_its_cap(opened: Open, length: int) -> None:
    """`events_max` events are told in full; the next one starts the elision with two events."""
    queue = opened(max_attempts=1, events_max=8)
    job_id = queue.enqueue(A, "embed", None).job_id
    for _ in range((length - 1) // 2):
        queue.release(lease(queue))
    if length % 2 == 0:
        lease(queue)
    found = queue.get(job_id).events
    elided = [event.detail["count"] for event in found if event.transition == "elided"]
    assert (min(length, 8), [length - 7] if length > 8 else []) == (len(found), elided)


def test_check_counts_rows(queue: JobQueue) -> None:
    """A healthy queue: as many rows as jobs, no problems, true."""
    fill(queue)
    report = queue.check()
    assert (
        report.rows,
        report.problems,
        report.repaired,
        report.quarantined,
        bool(report),
    ) == (30, (), 0, (), True)


def test_a_kind_that_cannot_be_read_refuses_the_open(queue: JobQueue, opened: Open, tmp_path: Path) -> None:
    """A damaged name in `meta` is a typed refusal: going on would give the kind's number out again."""
    queue.enqueue(A, "embed", None)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.META, kind_key(1), b"\xff"))
    error = refusal(QueueUnavailableError, opened)
    assert (error.outcome, "check --repair" in str(error)) == ("not_applied", True)
    tamper(tmp_path / "queue", Put(Family.META, kind_key(1), b"embed"))
    healthy(opened())


def test_check_reads_each_family_once_however_many_rows_are_bad(
    queue: JobQueue, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable rows, with keys and payloads of their own, met by a writer or not, cost no scan each."""
    ids = [queue.enqueue(A, "embed", "x" * 600, idempotency_key=f"k{number}").job_id for number in range(12)]
    rows = [row_of(queue, job_id) for job_id in ids]
    queue.close()
    tamper(tmp_path / "queue", *(Put(Family.JOBS, key, b"bad") for key, _ in rows))
    queue = opened()
    for job_id in ids[:6]:
        refusal(JobUnreadableError, lambda job_id=job_id: queue.cancel(job_id))  # type: ignore[misc]
    scans: list[Family] = []
    real = queue._store.scan

    def scan(family: Family, *arguments: Any) -> Any:
        scans.append(family)
        return real(family, *arguments)

    monkeypatch.setattr(queue._store, "scan", scan)
    report = queue.check()
    assert (report.rows, len(report.problems), report.quarantined) == (6, 6, tuple(ids[:6]))
    assert {1} == {scans.count(family) for family in (Family.READY, Family.TIMERS, Family.IDEM, Family.PAYLOADS)}
