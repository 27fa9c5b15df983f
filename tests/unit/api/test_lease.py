"""Leases: what is granted, in which order, to whom; and what a lease carries."""

from typing import Any
from uuid import UUID

from telha_jobs import SYSTEM_SCOPE, JobQueue, KindPolicy, Lease, ManualClock, NewJob, State
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, A, B, C, each, healthy, lease, leased, transitions, unchanged


def granted(queue: JobQueue, count: int, **filters: Any) -> list[Any]:
    """The payloads of the next leases, one call each."""
    return [lease(queue, **filters).payload for _ in range(count)]


def test_a_lease_carries_the_job(queue: JobQueue) -> None:
    """Scope, kind, payload and its version, headers, worker, attempt, deadline, progress; the row says the same."""
    made = queue.enqueue(A, "embed", {"n": 1}, payload_version=3, headers={"h": "v"})
    expected = Lease(made.job_id, 1, A, "embed", {"n": 1}, 3, {"h": "v"}, 1, START_MS + 300_000, "w1", None)
    assert expected == queue.lease_next("w1")
    found = queue.get(made.job_id)
    assert (
        found.state,
        found.worker,
        found.generation,
        found.deadline_ms,
        found.due_ms,
        found.attempts,
    ) == (State.LEASED, "w1", 1, START_MS + 300_000, START_MS, 0)


def test_nothing_due_is_none(queue: JobQueue) -> None:
    """From an empty queue, and from one whose jobs are all leased, ended or not due; nothing is written."""
    assert queue.lease_next("w") is None
    leased(queue)
    queue.complete(leased(queue))
    queue.enqueue(A, "embed", None, delay_ms=1)
    with unchanged(queue):
        assert (queue.lease_next("w"), queue.lease_batch("w", 5)) == (None, [])


def test_a_job_is_leased_at_its_due_time_and_not_before(queue: JobQueue, clock: ManualClock) -> None:
    """Due when due <= now."""
    queue.enqueue(A, "embed", None, delay_ms=10)
    clock.advance(9)
    assert queue.lease_next("w") is None
    clock.advance(1)
    assert queue.lease_next("w") is not None


def test_a_job_has_one_lease_at_a_time(queue: JobQueue) -> None:
    """A leased job is not leased again, not by the same worker either."""
    leased(queue)
    assert queue.lease_next("w") is None


def test_order_within_a_scope(queue: JobQueue, clock: ManualClock) -> None:
    """By priority (0 first), then due, then job id."""
    for payload, priority, delay in (
        ("late", 1, 7),
        ("early", 1, 3),
        ("urgent", 0, 9),
        ("first", 2, 0),
        ("second", 2, 0),
    ):
        queue.enqueue(A, "embed", payload, priority=priority, delay_ms=delay)
    clock.advance(9)
    assert granted(queue, 5) == ["urgent", "early", "late", "first", "second"]


def test_a_job_that_is_not_due_does_not_hold_up_others(queue: JobQueue) -> None:
    """An urgent job of tomorrow is passed over."""
    queue.enqueue(A, "embed", "tomorrow", priority=0, delay_ms=86_400_000)
    queue.enqueue(A, "embed", "now", priority=255)
    assert granted(queue, 1) == ["now"]


def test_kinds_are_compared_by_one_order(queue: JobQueue) -> None:
    """Among the kinds asked for, order is by priority, due, id: never by kind."""
    for number, kind in enumerate(("b", "a", "c", "a", "b")):
        queue.enqueue(A, kind, number)
    assert granted(queue, 4, kinds=["b", "a"]) == [0, 1, 3, 4]


@each(
    "kinds, expected",
    [
        (["ingest:pdf"], ["ingest:pdf"]),
        (["ingest:*"], ["ingest:pdf", "ingest:a:b", "ingest:"]),
        (["ingest:a:*"], ["ingest:a:b"]),
        (["ingest:a:*", "embed"], ["embed", "ingest:a:b"]),
        (["ingest"], ["ingest"]),
        (["ingest:html", "none:*"], []),
        (None, ["ingest:pdf", "embed", "ingest:a:b", "ingest", "ingest:"]),
    ],
)
def test_kind_filters_are_exact_names_or_families(
    queue: JobQueue, kinds: list[str] | None, expected: list[str]
) -> None:
    """A family is a prefix through a colon; None is every kind."""
    queue.enqueue_many(
        NewJob(scope=A, kind=kind, payload=None) for kind in ("ingest:pdf", "embed", "ingest:a:b", "ingest", "ingest:")
    )
    assert expected == [one.kind for one in queue.lease_batch("w", 9, kinds=kinds)]


@each("scopes, expected", [([A], [A]), ([B, A], [A, B]), ([C], []), (None, [A, B, SYSTEM_SCOPE])])
def test_scope_filters_are_sets(queue: JobQueue, scopes: list[UUID] | None, expected: list[UUID]) -> None:
    """None is every scope, the nil one included; an unknown scope has nothing."""
    for scope in (A, B, SYSTEM_SCOPE):
        queue.enqueue(scope, "embed", None)
    assert expected == [one.scope for one in queue.lease_batch("w", 9, scopes=scopes)]


def test_a_batch_equals_that_many_singles(opened: Open, tmp_path: Any) -> None:
    """Same jobs, same order, over scopes in turn; one commit, one moment."""
    queue = opened()
    made = [queue.enqueue(scope, "embed", None).job_id for scope in (A, A, B, C, C, A)]
    before = queue._store.counters.commits
    batch = queue.lease_batch("w", 5)
    assert before + 1 == queue._store.counters.commits
    assert [made[number] for number in (0, 2, 3, 1, 4)] == [one.job_id for one in batch]
    assert len({one.deadline_ms for one in batch}) == 1
    for one in batch:
        queue.release(one)
    assert {one.job_id for one in batch} <= {lease(queue).job_id for _ in range(6)}


def test_a_batch_takes_what_there_is(queue: JobQueue) -> None:
    """Fewer jobs than the limit are all granted."""
    queue.enqueue(A, "embed", None)
    assert len(queue.lease_batch("w", 9)) == 1


def test_large_batches_keep_the_order(queue: JobQueue) -> None:
    """Hundreds of jobs of one kind, more than any window in memory: by id."""
    made = [one.job_id for one in queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 500)]
    taken = [one.job_id for one in queue.lease_batch("w", 100)]
    taken += [lease(queue).job_id for _ in range(150)]
    assert made == taken + [one.job_id for one in queue.lease_batch("w", 9_999)]
    healthy(queue)


# -- fair scopes


def test_scopes_take_turns(queue: JobQueue) -> None:
    """A scope goes to the tail when it is served, if it still has a ready job."""
    for scope, count in ((A, 3), (B, 2), (C, 1)):
        queue.enqueue_many([NewJob(scope=scope, kind="embed", payload=None)] * count)
    assert [lease(queue).scope for _ in range(6)] == [A, B, C, A, B, A]


def test_a_scope_joins_the_tail_with_its_first_ready_job(queue: JobQueue, clock: ManualClock) -> None:
    """When the job comes due, not when it was enqueued; ties by due, then scope."""
    queue.enqueue(C, "embed", None, delay_ms=5)
    queue.enqueue(B, "embed", None, delay_ms=6)
    queue.enqueue(A, "embed", None, delay_ms=6)
    clock.advance(3)
    last = UUID(int=0xD)
    queue.enqueue(last, "embed", None)
    clock.advance(3)
    assert [last, C, A, B] == [lease(queue).scope for _ in range(4)]


def test_a_filter_skips_scopes_without_moving_them(queue: JobQueue) -> None:
    """A grant takes the first scope that is eligible; the ones before it keep their places."""
    for scope, kind in ((A, "x"), (B, "y"), (B, "x"), (C, "x")):
        queue.enqueue(scope, kind, None)
    assert lease(queue, kinds=["y"]).scope == B
    assert [lease(queue).scope for _ in range(3)] == [A, C, B]


def test_a_due_failed_job_keeps_its_scope_in_the_ring(queue: JobQueue, clock: ManualClock) -> None:
    """It is ready; promotion by the sweep does not move the scope."""
    for scope in (A, B):
        queue.fail(leased(queue, scope), "x")
    clock.advance(10_000)
    queue.enqueue(C, "embed", None)
    assert queue.reap().promoted == 2
    assert [lease(queue).scope for _ in range(3)] == [A, B, C]


def test_the_ring_after_reopening_starts_behind_the_last_served(opened: Open) -> None:
    """In cyclic order of scopes, after a clean end and whatever the order was before."""
    queue = opened()
    for scope in (C, B, A):
        queue.enqueue_many([NewJob(scope=scope, kind="embed", payload=None)] * 2)
    assert lease(queue).scope == C
    assert lease(queue).scope == B
    queue.close()
    queue = opened()
    assert [lease(queue).scope for _ in range(4)] == [C, A, B, A]


# -- generations


def test_generations_rise_with_every_lease(queue: JobQueue, clock: ManualClock) -> None:
    """Through release, failure, expiry, cancel and retry: never reset."""
    held = leased(queue)
    queue.release(held)
    second = lease(queue)
    queue.fail(second, "x")
    clock.advance(10_000)
    third = lease(queue)
    clock.advance(300_000)
    queue.reap()
    clock.advance(40_000)
    fourth = lease(queue)
    queue.cancel(held.job_id)
    queue.retry(held.job_id)
    fifth = lease(queue)
    assert [one.generation for one in (held, second, third, fourth, fifth)] == [1, 2, 3, 4, 5]
    assert [one.attempt for one in (held, second, third, fourth, fifth)] == [1, 1, 2, 3, 1]


def test_leasing_a_due_failed_job_promotes_it_first(queue: JobQueue, clock: ManualClock) -> None:
    """Both events, in one write; before it is due it is not leased."""
    held = leased(queue)
    queue.fail(held, "x")
    clock.advance(9_999)
    assert queue.lease_next("w") is None
    clock.advance(1)
    before = queue._store.counters.commits
    assert lease(queue).attempt == 2
    assert before + 1 == queue._store.counters.commits
    assert transitions(queue, held.job_id) == ["enqueued", "leased", "failed", "promoted", "leased"]


def test_the_deadline_is_now_plus_the_kinds_ttl(opened: Open) -> None:
    """The kind's own, the family's, or the queue's."""
    queue = opened(
        lease_ttl_ms=100,
        kinds={"a": KindPolicy(lease_ttl_ms=7), "b:*": KindPolicy(lease_ttl_ms=8), "b:c": KindPolicy(lease_ttl_ms=9)},
    )
    for kind in ("a", "b:x", "b:c", "b"):
        queue.enqueue(A, kind, None)
    expected = {"a": START_MS + 7, "b:x": START_MS + 8, "b:c": START_MS + 9, "b": START_MS + 100}
    assert expected == {one.kind: one.deadline_ms for one in queue.lease_batch("w", 9)}


def test_a_deadline_stops_at_the_end_of_time(opened: Open, clock: ManualClock) -> None:
    """The last millisecond of the year 9999, when the lease is expired at last."""
    queue = opened()
    clock.advance(253_402_300_799_999 - START_MS - 10)
    assert leased(queue).deadline_ms == 253_402_300_799_999
    clock.advance(10)
    assert queue.reap().requeued == 1
