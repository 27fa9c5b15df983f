"""Complete, fail, extend, release: what becomes of the job, and who is refused with which reason."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    Backoff,
    JobNotFoundError,
    JobQueue,
    KindPolicy,
    Lease,
    LeaseRef,
    ManualClock,
    NewJob,
    Outcome,
    StaleLeaseError,
    State,
)
from tests.unit.api.conftest import Open
from tests.unit.api.support import (
    MISSING,
    START_MS,
    A,
    each,
    healthy,
    lease,
    leased,
    refusal,
    rows,
    transitions,
    unchanged,
)

TTL = 300_000


def times(queue: JobQueue, job_id: UUID) -> tuple[int | None, int | None, int | None]:
    """Due, deadline and end of a job, from now's point of view of the start."""
    found = queue.get(job_id)
    return tuple(
        None if one is None else one - START_MS for one in (found.due_ms, found.deadline_ms, found.ended_at_ms)
    )  # type: ignore[return-value]  # three of them


# -- complete and fail


def test_complete_ends_the_job(queue: JobQueue, clock: ManualClock) -> None:
    """Completed now, with the result; nothing of the lease is left but its generation."""
    held = leased(queue)
    clock.advance(5)
    assert queue.complete(held, {"n": 1}) == []
    found = queue.get(held.job_id)
    assert (
        found.state,
        found.result,
        found.worker,
        found.attempts,
        found.generation,
    ) == (State.COMPLETED, {"n": 1}, None, 0, 1)
    assert times(queue, held.job_id) == (None, None, 5)


def test_a_result_is_optional(queue: JobQueue) -> None:
    """None, then."""
    held = leased(queue)
    queue.complete(held)
    assert queue.get(held.job_id).result is None


def test_fail_waits_out_a_back_off(queue: JobQueue, clock: ManualClock) -> None:
    """10 s, then four times as long each time; the attempt counts."""
    held = leased(queue)
    delays = []
    for attempt in range(1, 5):
        assert attempt == held.attempt
        assert queue.fail(held, "x") is State.FAILED
        found = queue.get(held.job_id)
        assert (State.FAILED, attempt, None, None) == (found.state, found.attempts, found.deadline_ms, found.worker)
        delays.append((found.due_ms or 0) - queue.now_ms())
        clock.advance(delays[-1])
        held = lease(queue)
    assert delays == [10_000, 40_000, 160_000, 640_000]


def test_the_last_failure_is_death(opened: Open) -> None:
    """With `max_attempts` used up: dead, by attempts."""
    queue = opened(max_attempts=1)
    held = leased(queue)
    assert queue.fail(held, "x") is State.DEAD
    found = queue.get(held.job_id)
    assert (
        found.state,
        found.dead_reason,
        found.attempts,
        found.ended_at_ms,
    ) == (State.DEAD, "attempts", 1, START_MS)


def test_a_failure_that_is_not_retryable_is_death(queue: JobQueue) -> None:
    """At once: rejected; the attempt counts."""
    held = leased(queue)
    assert queue.fail(held, "x", retryable=False) is State.DEAD
    found = queue.get(held.job_id)
    assert (found.dead_reason, found.attempts) == ("rejected", 1)


@each(
    "reason, kept",
    [
        ("", ""),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 10),
        ("é" * 11, "é" * 10),
        ("\U0001f600" * 11, "\U0001f600" * 10),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\ufffd\ufffd"),
        ("x" * 9 + "\udfff\udfff", "x" * 9 + "\ufffd"),
        ("\0\n", "\0\n"),
    ],
)
def test_a_reason_is_kept_as_far_as_it_can_be(opened: Open, reason: str, kept: str) -> None:
    """Cut at a character, lone surrogates replaced; never refused."""
    queue = opened(reason_chars_max=10)
    held = leased(queue)
    queue.fail(held, reason)
    assert kept == queue.get(held.job_id).events[-1].detail["reason"]


def test_reasons_have_8192_characters_by_default(queue: JobQueue) -> None:
    """Of whatever size in bytes."""
    held = leased(queue)
    queue.fail(held, "é" * 9_000)
    assert queue.get(held.job_id).events[-1].detail["reason"] == "é" * 8_192


def test_an_expired_lease_may_still_submit(queue: JobQueue, clock: ManualClock) -> None:
    """As long as it was not reaped: complete, fail and extend all go through."""
    held = [leased(queue) for _ in range(3)]
    clock.advance(TTL + 1)
    queue.complete(held[0])
    queue.fail(held[1], "x")
    assert queue.extend("w", [held[2]])[0].status == "extended"


def test_the_workers_name_is_not_compared(queue: JobQueue) -> None:
    """A lease belongs to whoever presents it; an extension does not change the recorded worker."""
    queue.enqueue(A, "embed", None)
    held = queue.lease_next("somebody")
    assert held is not None
    assert queue.extend("another", [held])[0].status == "extended"
    assert queue.get(held.job_id).worker == "somebody"


def test_a_plain_lease_ref_will_do(queue: JobQueue) -> None:
    """Job id and generation are all that counts."""
    held = leased(queue)
    queue.complete(LeaseRef(held.job_id, held.generation))
    assert queue.get(held.job_id).state is State.COMPLETED


# -- stale leases

Ender = Callable[[JobQueue, ManualClock, Lease], object]


def _reap(queue: JobQueue, clock: ManualClock, held: Lease) -> None:
    del held
    clock.advance(TTL)
    assert queue.reap().requeued == 1


def _supersede(queue: JobQueue, clock: ManualClock, held: Lease) -> None:
    _reap(queue, clock, held)
    clock.advance(10_000)
    lease(queue)


ENDS: list[tuple[str, State, Ender]] = [
    ("reaped", State.PENDING, _reap),
    ("superseded", State.LEASED, _supersede),
    ("released", State.PENDING, lambda queue, _, held: queue.release(held)),
    ("cancelled", State.DEAD, lambda queue, _, held: queue.cancel(held.job_id)),
    ("completed", State.COMPLETED, lambda queue, _, held: queue.complete(held, "other")),
    ("failed", State.FAILED, lambda queue, _, held: queue.fail(held, "other")),
]


@pytest.mark.parametrize(("why", "state", "end"), ENDS, ids=[end[0] for end in ENDS])
def test_a_stale_lease_is_refused_with_the_reason(
    queue: JobQueue, clock: ManualClock, why: str, state: State, end: Ender
) -> None:
    """Complete, fail, release and extend alike; the error tells both generations and the state; nothing changes."""
    held = leased(queue)
    end(queue, clock, held)
    current = queue.get(held.job_id).generation
    expected = (held.job_id, held.generation, current, state, why)
    calls: list[Callable[[], object]] = [
        lambda: queue.complete(held, "late"),
        lambda: queue.fail(held, "late"),
        lambda: queue.release(held),
    ]
    for call in calls:
        with unchanged(queue):
            error = refusal(StaleLeaseError, call)
        assert expected == (error.job_id, error.generation, error.current_generation, error.state, error.why)
    bulk: list[Callable[[], list[Outcome]]] = [
        lambda: queue.extend("w", [held], progress={held.job_id: 1}),
        lambda: queue.complete_many([(held, "late")]),
    ]
    for outcomes in bulk:
        with unchanged(queue):
            [found] = outcomes()
        assert (held.job_id, "stale", None) == (found.job_id, found.status, found.deadline_ms)
        stale = found.error
        assert isinstance(stale, StaleLeaseError)
        assert (why, state) == (stale.why, stale.state)


@pytest.mark.parametrize("generation", [0, 2, 2**63 - 1])
@pytest.mark.parametrize("state", [State.PENDING, State.LEASED])
def test_a_generation_that_was_never_granted_is_stale(queue: JobQueue, generation: int, state: State) -> None:
    """0, or above the current one."""
    held = leased(queue)
    if state is State.PENDING:
        queue.release(held)
    with unchanged(queue):
        error = refusal(StaleLeaseError, lambda: queue.complete(LeaseRef(held.job_id, generation)))
    assert ("never_leased", state, 1) == (error.why, error.state, error.current_generation)


def test_a_job_that_was_never_leased_has_no_lease(queue: JobQueue) -> None:
    """Generation 0 is nobody's."""
    made = queue.enqueue(A, "embed", None)
    error = refusal(StaleLeaseError, lambda: queue.fail(LeaseRef(made.job_id, 0), "x"))
    assert (error.why, error.current_generation) == ("never_leased", 0)


def test_how_a_lease_ended_is_kept_through_retry(queue: JobQueue) -> None:
    """Cancelled, retried, pending again: the old lease still ended by cancel."""
    held = leased(queue)
    queue.cancel(held.job_id)
    queue.retry(held.job_id)
    error = refusal(StaleLeaseError, lambda: queue.complete(held))
    assert (error.why, error.state) == ("cancelled", State.PENDING)


def test_cancelling_a_waiting_job_does_not_rewrite_how_its_lease_ended(queue: JobQueue) -> None:
    """A released job that is cancelled later: its lease ended by release."""
    held = leased(queue)
    queue.release(held)
    queue.cancel(held.job_id)
    assert refusal(StaleLeaseError, lambda: queue.complete(held)).why == "released"


def test_a_job_that_is_not_there(queue: JobQueue) -> None:
    """Never was, or is gone: single calls raise, bulk calls say so by item."""
    ref = LeaseRef(MISSING, 1)
    calls: list[Callable[[], object]] = [
        lambda: queue.complete(ref),
        lambda: queue.fail(ref, "x"),
        lambda: queue.release(ref),
        lambda: queue.get(MISSING),
        lambda: queue.retry(MISSING),
        lambda: queue.cancel(MISSING),
        lambda: queue.discard(MISSING),
    ]
    with unchanged(queue):
        assert [refusal(JobNotFoundError, call).job_id for call in calls] == [MISSING] * 7
        for found in (*queue.extend("w", [ref]), *queue.complete_many([(ref, None)])):
            assert (found.job_id, found.status, found.deadline_ms) == (MISSING, "not_found", None)
            assert isinstance(found.error, JobNotFoundError)


# -- repeats


def test_a_repeated_complete_is_answered_alike(queue: JobQueue) -> None:
    """The recorded receipts; nothing is created again."""
    held = leased(queue)
    follow_ups = [NewJob(scope=A, kind="next", payload={"a": 1, "b": 2}), NewJob(scope=A, kind="next", payload=2)]
    first = queue.complete(held, {"x": 1, "y": [2]}, enqueue=follow_ups)
    queue.cancel(first[0].job_id)
    with unchanged(queue):
        follow_ups[0] = NewJob(scope=A, kind="next", payload={"b": 2, "a": 1})
        assert first == queue.complete(held, {"y": [2], "x": 1}, enqueue=follow_ups)


@each(
    "result, follow_ups",
    [
        ({"n": 2}, []),
        ({"n": 1.0}, []),
        ({"n": True}, []),
        (None, []),
        ({"n": 1}, [NewJob(scope=A, kind="next", payload=1)]),
    ],
)
def test_other_arguments_are_no_repeat(queue: JobQueue, result: Any, follow_ups: list[NewJob]) -> None:
    """Types count: 1, 1.0 and True are three values."""
    held = leased(queue)
    queue.complete(held, {"n": 1})
    with unchanged(queue):
        error = refusal(StaleLeaseError, lambda: queue.complete(held, result, enqueue=follow_ups))
    assert error.why == "completed"


@each(
    "changes",
    [
        {"payload": 2},
        {"kind": "other"},
        {"priority": 3},
        {"delay_ms": 0},
        {"run_at_ms": 5},
        {"max_attempts": 2},
        {"idempotency_key": "k"},
        {"headers": {"a": "b"}},
        {"payload_version": 2},
    ],
)
def test_every_argument_of_a_follow_up_counts(queue: JobQueue, changes: dict[str, Any]) -> None:
    """A follow-up that differs in anything is another call."""
    held = leased(queue)
    queue.complete(held, enqueue=[NewJob(scope=A, kind="next", payload=1)])
    other = NewJob(**{"scope": A, "kind": "next", "payload": 1, **changes})
    refusal(StaleLeaseError, lambda: queue.complete(held, enqueue=[other]))


def test_a_repeated_fail_is_answered_alike(queue: JobQueue) -> None:
    """The state it gave, by the uncut reason and the flag."""
    held = leased(queue)
    reason = "x" * 9_000
    assert queue.fail(held, reason) is State.FAILED
    with unchanged(queue):
        assert queue.fail(held, reason) is State.FAILED
        refusal(StaleLeaseError, lambda: queue.fail(held, reason + "y"))
        refusal(StaleLeaseError, lambda: queue.fail(held, reason, retryable=False))
        refusal(StaleLeaseError, lambda: queue.complete(held))


def test_a_repeated_death_is_answered_with_death(queue: JobQueue) -> None:
    """Also after the job was retried and runs again."""
    held = leased(queue)
    assert queue.fail(held, "x", retryable=False) is State.DEAD
    queue.retry(held.job_id)
    lease(queue)
    with unchanged(queue):
        assert queue.fail(held, "x", retryable=False) is State.DEAD


def test_reasons_that_differ_in_a_surrogate_are_two(queue: JobQueue) -> None:
    """The digest is over the reason as given, not as kept."""
    held = leased(queue)
    queue.fail(held, "\ud800")
    assert queue.fail(held, "\ud800") is State.FAILED
    refusal(StaleLeaseError, lambda: queue.fail(held, "\ufffd"))


def test_a_repeat_is_remembered_through_everything(queue: JobQueue, clock: ManualClock) -> None:
    """Failed, promoted, leased again, reaped, cancelled, retried, released: the newest submit is still answered."""
    held = leased(queue)
    queue.fail(held, "x")
    steps: list[Callable[[], object]] = [
        lambda: clock.advance(10_000),
        queue.reap,
        lambda: lease(queue),
        lambda: clock.advance(TTL),
        queue.reap,
        lambda: queue.cancel(held.job_id),
        lambda: queue.retry(held.job_id),
        lambda: queue.release(lease(queue)),
    ]
    for step in steps:
        step()
        with unchanged(queue):
            assert queue.fail(held, "x") is State.FAILED


def test_only_the_newest_submit_is_remembered(queue: JobQueue, clock: ManualClock) -> None:
    """After another lease submitted, the first is stale."""
    first = leased(queue)
    queue.fail(first, "x")
    clock.advance(10_000)
    second = lease(queue)
    queue.fail(second, "x")
    assert queue.fail(second, "x") is State.FAILED
    assert refusal(StaleLeaseError, lambda: queue.fail(first, "x")).why == "superseded"


def test_a_repeat_is_remembered_until_purge(queue: JobQueue, clock: ManualClock) -> None:
    """Then the job is not found."""
    held = leased(queue)
    queue.complete(held, 1)
    clock.advance(604_800_000)
    assert queue.complete(held, 1) == []
    queue.reap()
    refusal(JobNotFoundError, lambda: queue.complete(held, 1))


def test_a_repeat_survives_reopening(opened: Open) -> None:
    """It is part of the row."""
    queue = opened()
    held = leased(queue)
    made = queue.complete(held, 1, enqueue=[NewJob(scope=A, kind="next", payload=None)])
    queue.close()
    assert made == opened().complete(held, 1, enqueue=[NewJob(scope=A, kind="next", payload=None)])


def test_a_bulk_item_repeats_a_single_call(queue: JobQueue) -> None:
    """Both ways: complete_many after complete, and complete after complete_many."""
    one, two = leased(queue), leased(queue)
    queue.complete(one, 1)
    queue.complete_many([(two, 2)])
    with unchanged(queue):
        assert [found.status for found in queue.complete_many([(one, 1), (two, 2)])] == ["completed"] * 2
        assert queue.complete(two, 2) == []


def test_a_release_is_never_a_repeat(queue: JobQueue) -> None:
    """The second one is stale."""
    held = leased(queue)
    queue.release(held)
    assert refusal(StaleLeaseError, lambda: queue.release(held)).why == "released"


# -- bulk


def test_complete_many_answers_by_item(queue: JobQueue) -> None:
    """In order, in one commit; duplicates act as the singles would."""
    one, two = leased(queue), leased(queue)
    queue.release(two)
    before = queue._store.counters.commits
    found = queue.complete_many([(one, 1), (two, 2), (one, 1), (one, 3), (LeaseRef(MISSING, 1), 4)])
    assert before + 1 == queue._store.counters.commits
    assert [outcome.status for outcome in found] == ["completed", "stale", "completed", "stale", "not_found"]
    assert [one.job_id, two.job_id, one.job_id, one.job_id, MISSING] == [outcome.job_id for outcome in found]
    assert (queue.get(one.job_id).result, [None, None]) == (1, [found[0].error, found[2].error])
    healthy(queue)


# -- extend


def test_extend_moves_the_deadline(queue: JobQueue, clock: ManualClock) -> None:
    """To now + ttl, whatever the job was given before; due, attempts and log stay."""
    held = leased(queue)
    clock.advance(7)
    assert [Outcome(held.job_id, "extended", START_MS + 7 + TTL, None)] == queue.extend("w", [held])
    assert times(queue, held.job_id) == (0, 7 + TTL, None)
    assert transitions(queue, held.job_id) == ["enqueued", "leased"]


def test_a_deadline_never_moves_back(opened: Open) -> None:
    """A shorter ttl after reopening does not shorten a lease."""
    queue = opened()
    held = leased(queue)
    queue.close()
    queue = opened(lease_ttl_ms=1)
    assert [Outcome(held.job_id, "extended", START_MS + TTL, None)] == queue.extend("w", [held])


def test_max_lease_age_holds_the_deadline(opened: Open, clock: ManualClock) -> None:
    """Not beyond leased_at + age: at the limit exactly it is still extended, a millisecond later it is at_limit."""
    queue = opened(lease_ttl_ms=100, max_lease_age_ms=150)
    held = leased(queue)
    clock.advance(50)
    assert [Outcome(held.job_id, "extended", START_MS + 150, None)] == queue.extend("w", [held])
    clock.advance(1)
    assert [Outcome(held.job_id, "at_limit", START_MS + 150, None)] == queue.extend("w", [held])
    clock.advance(99)
    assert queue.reap().requeued == 1


def test_max_lease_age_counts_from_each_lease(opened: Open, clock: ManualClock) -> None:
    """A new lease starts anew."""
    queue = opened(lease_ttl_ms=100, max_lease_age_ms=100)
    held = leased(queue)
    clock.advance(90)
    queue.release(held)
    assert lease(queue).deadline_ms == START_MS + 190


def test_a_kind_may_have_its_own_max_lease_age(opened: Open, clock: ManualClock) -> None:
    """Ttl and age of the kind's policy."""
    queue = opened(kinds={"embed": KindPolicy(lease_ttl_ms=10, max_lease_age_ms=15)})
    held = leased(queue)
    clock.advance(9)
    assert [Outcome(held.job_id, "at_limit", START_MS + 15, None)] == queue.extend("w", [held])


def test_at_limit_still_records_progress(opened: Open) -> None:
    """Progress and a deadline that stays are two things."""
    queue = opened(lease_ttl_ms=100, max_lease_age_ms=100)
    held = leased(queue)
    queue.extend("w", [held], progress={held.job_id: {"page": 3}})
    assert queue.get(held.job_id).progress == {"page": 3}


def test_progress_is_kept(queue: JobQueue, clock: ManualClock) -> None:
    """Through extensions without it, failure, retry and completion; the next lease gets it."""
    held = leased(queue)
    queue.extend("w", [held], progress={held.job_id: 3})
    queue.extend("w", [held])
    queue.fail(held, "x", retryable=False)
    queue.retry(held.job_id)
    again = lease(queue)
    assert again.progress == 3
    queue.complete(again)
    assert queue.get(held.job_id).progress == 3


def test_progress_can_be_set_to_none(queue: JobQueue) -> None:
    """None is a value like any other."""
    held = leased(queue)
    queue.extend("w", [held], progress={held.job_id: 3})
    queue.extend("w", [held], progress={held.job_id: None})
    assert queue.get(held.job_id).progress is None


def test_extend_answers_by_item(queue: JobQueue, clock: ManualClock) -> None:
    """In order, in one commit, duplicates included."""
    one, two = leased(queue), leased(queue)
    queue.release(two)
    clock.advance(1)
    before = queue._store.counters.commits
    found = queue.extend("w", [one, two, LeaseRef(MISSING, 1), one])
    assert before + 1 == queue._store.counters.commits
    assert [outcome.status for outcome in found] == ["extended", "stale", "not_found", "extended"]
    assert [outcome.deadline_ms for outcome in found] == [START_MS + 1 + TTL, None, None, START_MS + 1 + TTL]


def test_extending_nothing_that_is_current_writes_nothing(queue: JobQueue) -> None:
    """All stale: no commit."""
    held = leased(queue)
    queue.release(held)
    with unchanged(queue):
        queue.extend("w", [held, held], progress={held.job_id: 1})


# -- release


@each(
    "delay, due",
    [(0, 5), (1, 21), (100, 120)],
)
def test_release_goes_back_to_the_old_place_or_later(queue: JobQueue, clock: ManualClock, delay: int, due: int) -> None:
    """The old due, or now + delay if that is later; no attempt counted."""
    queue.enqueue(A, "embed", None, delay_ms=5)
    clock.advance(10)
    held = lease(queue)
    clock.advance(10)
    queue.release(held, delay_ms=delay)
    found = queue.get(held.job_id)
    assert (found.state, found.attempts, found.worker, found.deadline_ms) == (State.PENDING, 0, None, None)
    assert times(queue, held.job_id) == (due, None, None)


def test_a_released_job_comes_before_younger_ones(queue: JobQueue) -> None:
    """Its place in the order is the old one."""
    held = leased(queue)
    queue.enqueue(A, "embed", None)
    queue.release(held)
    assert held.job_id == lease(queue).job_id


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_release_is_an_expiry(queue: JobQueue, clock: ManualClock, late: int) -> None:
    """At or after the deadline: the attempt counts, the back-off applies, the delay is ignored; exactly a reap."""
    one, two = leased(queue), leased(queue)
    clock.advance(TTL + late)
    queue.release(one, delay_ms=999_999)
    queue.reap()
    found = [queue.get(job.job_id) for job in (one, two)]
    same = [(job.state, job.attempts, job.due_ms, job.events[-1]) for job in found]
    assert same[0] == same[1]
    assert (State.PENDING, 1, START_MS + TTL + late + 10_000, "reaped") == (*same[0][:3], same[0][3].transition)
    assert refusal(StaleLeaseError, lambda: queue.complete(one)).why == "reaped"


def test_a_late_release_of_the_last_attempt_is_death(opened: Open, clock: ManualClock) -> None:
    """Dead by expiry."""
    queue = opened(max_attempts=1)
    held = leased(queue)
    clock.advance(TTL)
    queue.release(held)
    assert (queue.get(held.job_id).state, queue.get(held.job_id).dead_reason) == (State.DEAD, "expired")


def test_releasing_does_not_use_up_attempts(opened: Open) -> None:
    """Ten times over with a ceiling of one."""
    queue = opened(max_attempts=1)
    queue.enqueue(A, "embed", None)
    for _ in range(10):
        queue.release(lease(queue))
    assert lease(queue).attempt == 1


def test_a_back_off_is_at_most_the_cap(opened: Open, clock: ManualClock) -> None:
    """And factor 1 keeps it level."""
    queue = opened(backoff=Backoff(base_ms=10, factor=4, cap_ms=50), max_attempts=9)
    queue.enqueue(A, "embed", None)
    delays = []
    for _ in range(4):
        held = lease(queue)
        queue.fail(held, "x")
        delays.append((queue.get(held.job_id).due_ms or 0) - queue.now_ms())
        clock.advance(delays[-1])
    assert delays == [10, 40, 50, 50]


def test_every_submit_keeps_the_families_in_step(queue: JobQueue, clock: ManualClock) -> None:
    """After one of each: a row and its entries, no more and no less."""
    for act in (
        queue.complete,
        lambda held: queue.fail(held, "x"),
        lambda held: queue.fail(held, "x", retryable=False),
        lambda held: queue.release(held, delay_ms=9),
        lambda held: queue.extend("w", [held]),
    ):
        act(leased(queue))
        clock.advance(3)
        healthy(queue)
    assert sum(len(family) for family in rows(queue).values()) > 0
