"""Facts about complete, fail and release: fence, repeats, follow-ups."""

import pytest

from telha_model.ops import Advance, Cancel, Complete, CompleteMany, Discard, Enqueue, Fail, Op, Reap, Release, Retry
from telha_model.replies import (
    BadArgument,
    Completed,
    CompletedMany,
    Failed,
    KeyConflict,
    NotFound,
    Outcome,
    Receipt,
    Released,
    StaleLease,
    Why,
)
from telha_model.states import COMPLETED, DEAD, FAILED, LEASED, PENDING, State
from telha_model.types import OVERSIZE, Backoff, KindPolicy, NewJob, Ref
from tests.unit.model.support import CONFIG, START_MS, Rig, leased

SUBMITS = [Complete(Ref(1, 1)), Fail(Ref(1, 1), "x"), Release(Ref(1, 1))]


def test_complete_ends_the_job() -> None:
    """A completed job has its result, its end and its purge time, and nothing of a lease."""
    rig = leased()
    rig.do(Advance(3))
    assert rig.do(Complete(Ref(1, 1), "r")) == Completed(())
    job = rig.job()
    assert (job.state, job.result, job.ended_at_ms, job.purge_at_ms) == (COMPLETED, "r", START_MS + 3, START_MS + 103)
    assert (job.due_ms, job.worker, job.deadline_ms, job.leased_at_ms) == (None, None, None, None)
    assert job.events[-1].detail == (("generation", 1), ("attempts", 0))


@pytest.mark.parametrize("submit", SUBMITS)
def test_a_submit_on_a_pending_job_is_stale(submit: Op) -> None:
    """What was never leased cannot be submitted."""
    rig = Rig()
    rig.enqueue()
    assert rig.refused(submit) == StaleLease(1, 1, 0, PENDING, "never_leased")


@pytest.mark.parametrize("submit", [Complete(Ref(7, 1)), Fail(Ref(7, 1), "x"), Release(Ref(7, 1))])
def test_a_submit_of_an_unknown_job_is_not_found(submit: Op) -> None:
    """A job that does not exist is not found, whatever the generation."""
    assert leased().refused(submit) == NotFound(7)


@pytest.mark.parametrize(
    ("ending", "state", "why"),
    [
        ((Release(Ref(1, 1)),), PENDING, "released"),
        ((Advance(10), Reap()), PENDING, "reaped"),
        ((Advance(10), Release(Ref(1, 1))), PENDING, "reaped"),
        ((Cancel(1),), DEAD, "cancelled"),
        ((Cancel(1), Retry(1)), PENDING, "cancelled"),
        ((Complete(Ref(1, 1), "other"),), COMPLETED, "completed"),
        ((Fail(Ref(1, 1), "other"),), FAILED, "failed"),
        ((Fail(Ref(1, 1), "other", retryable=False), Retry(1)), PENDING, "failed"),
    ],
)
@pytest.mark.parametrize("submit", SUBMITS)
def test_a_stale_lease_tells_how_it_ended(ending: tuple[Op, ...], state: State, why: Why, submit: Op) -> None:
    """The end of the current generation is remembered, through retry too."""
    rig = leased()
    rig.do(*ending)
    assert rig.refused(submit) == StaleLease(1, 1, 1, state, why)


@pytest.mark.parametrize("submit", SUBMITS)
def test_a_stale_submit_does_not_touch_the_next_lease(submit: Op) -> None:
    """The late submit of a reaped worker is discarded: the job belongs to the lease after it."""
    rig = leased()
    rig.do(Advance(10), Reap(), Advance(2))
    assert rig.lease() == [1]
    assert rig.refused(submit) == StaleLease(1, 1, 2, LEASED, "superseded")


@pytest.mark.parametrize("generation", [0, 2, 99])
def test_a_generation_that_was_never_granted(generation: int) -> None:
    """Zero, and whatever lies above the current generation, was never leased."""
    assert leased().refused(Complete(Ref(1, generation))) == StaleLease(1, generation, 1, LEASED, "never_leased")


def test_an_expired_lease_may_submit_before_the_sweep() -> None:
    """Expiry alone does not end a lease."""
    rig = leased()
    rig.do(Advance(1_000))
    assert rig.do(Complete(Ref(1, 1))) == Completed(())


def test_a_repeated_submit_gets_the_recorded_answer() -> None:
    """The same fail again answers as before and counts nothing, even when the job is leased anew."""
    rig = leased()
    rig.fail()
    rig.do(Advance(2))
    assert rig.lease() == [1]
    assert rig.refused(Fail(Ref(1, 1), "x")) == Failed(FAILED)
    assert rig.refused(Fail(Ref(1, 1), "y")) == StaleLease(1, 1, 2, LEASED, "superseded")
    assert rig.refused(Fail(Ref(1, 1), "x", retryable=False)) == StaleLease(1, 1, 2, LEASED, "superseded")


@pytest.mark.parametrize("later", [(Cancel(1),), (Cancel(1), Retry(1)), (Advance(2), Reap())])
def test_a_submit_is_remembered_through_everything_but_purge(later: tuple[Op, ...]) -> None:
    """Cancel, retry and the sweep keep the newest submit."""
    rig = leased()
    rig.fail()
    rig.do(*later)
    assert rig.refused(Fail(Ref(1, 1), "x")) == Failed(FAILED)


def test_a_submit_is_forgotten_with_its_job() -> None:
    """After discard there is nothing to repeat."""
    rig = leased()
    rig.complete()
    rig.do(Discard(1))
    assert rig.refused(Complete(Ref(1, 1))) == NotFound(1)


def test_a_repeat_compares_the_uncut_reason() -> None:
    """Two reasons that are cut to the same text are two submits."""
    rig = leased(CONFIG._replace(reason_chars_max=3))
    rig.do(Fail(Ref(1, 1), "abcd"))
    assert dict(rig.job().events[-1].detail)["reason"] == "abc"
    assert rig.refused(Fail(Ref(1, 1), "abcd")) == Failed(FAILED)
    assert rig.refused(Fail(Ref(1, 1), "abce")) == StaleLease(1, 1, 1, FAILED, "failed")


def test_a_release_is_never_a_repeat() -> None:
    """Releasing twice is stale, and a release forgets no submit."""
    rig = leased()
    rig.fail()
    rig.do(Advance(2))
    rig.lease()
    rig.do(Release(Ref(1, 2)))
    assert rig.refused(Release(Ref(1, 2))) == StaleLease(1, 2, 2, PENDING, "released")
    assert rig.refused(Fail(Ref(1, 1), "x")) == Failed(FAILED)


def test_fail_counts_and_backs_off() -> None:
    """Each failure counts one attempt and waits longer, until the last one kills the job."""
    rig = leased()
    waits = []
    for _ in range(2):
        rig.fail()
        waits.append((rig.job().due_ms or 0) - rig.queue.now_ms)
        rig.do(Advance(waits[-1]))
        rig.lease()
    rig.fail()
    assert waits == [2, 6]
    assert (rig.job().state, rig.job().dead_reason, rig.job().attempts) == (DEAD, "attempts", 3)
    assert rig.log() == ["enqueued", "leased", "failed", "promoted", "leased", "failed", "promoted", "leased", "dead"]


def test_a_failure_that_is_not_retryable_rejects() -> None:
    """It counts its attempt and the job is dead at once, also when it was the last one."""
    rig = leased()
    assert rig.do(Fail(Ref(1, 1), "bad", retryable=False)) == Failed(DEAD)
    assert (rig.job().dead_reason, rig.job().attempts, rig.job().purge_at_ms) == ("rejected", 1, START_MS + 200)
    detail = (("reason", "bad"), ("generation", 1), ("attempts", 1), ("dead_reason", "rejected"))
    assert rig.job().events[-1].detail == detail


@pytest.mark.parametrize(
    ("own", "of_kind", "expected"), [(1, 2, 1), (None, 2, 2), (None, None, 3)], ids=["job", "kind", "queue"]
)
def test_max_attempts_is_the_jobs_else_the_kinds_else_the_queues(
    own: int | None, of_kind: int | None, expected: int
) -> None:
    """The nearest number wins, asked at the time of the failure."""
    rig = Rig(CONFIG._replace(kinds=(("a", KindPolicy(max_attempts=of_kind)),)))
    rig.enqueue(max_attempts=own)
    while rig.queue.jobs[0].state is not DEAD:
        rig.lease()
        rig.fail()
        rig.do(Advance(1_000))
    assert rig.job().attempts == expected


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (KindPolicy(), [10, 40, 100, 100]),
        (KindPolicy(backoff_base_ms=30), [30, 100, 100, 100]),
        (KindPolicy(backoff_base_ms=500), [500, 500, 500, 500]),
        (KindPolicy(backoff_base_ms=30, backoff_cap_ms=20), [30, 30, 30, 30]),
        (KindPolicy(backoff_factor=1), [10, 10, 10, 10]),
        (KindPolicy(backoff_cap_ms=15), [10, 15, 15, 15]),
    ],
)
def test_a_kinds_base_is_also_the_least_cap(policy: KindPolicy, waits: list[int]) -> None:
    """The seed's rule for per-kind overrides; fail and expiry pace alike."""
    config = CONFIG._replace(max_attempts=9, backoff=Backoff(10, 4, 100), kinds=(("a", policy),))
    for expiring in (False, True):
        rig = leased(config)
        found = []
        for _ in waits:
            if expiring:
                rig.do(Advance(10), Reap())
            else:
                rig.fail()
            found.append((rig.job().due_ms or 0) - rig.queue.now_ms)
            rig.do(Advance(found[-1]))
            rig.lease()
        assert found == waits


def test_release_keeps_the_place() -> None:
    """A released job is pending at its old due time, no attempt counted."""
    rig = leased()
    rig.do(Advance(5))
    assert rig.do(Release(Ref(1, 1))) == Released()
    assert (rig.job().due_ms, rig.job().attempts, rig.job().state) == (START_MS, 0, PENDING)
    assert rig.job().events[-1].detail == (("generation", 1), ("attempts", 0), ("due", START_MS))


def test_release_with_a_delay_goes_later() -> None:
    """The delay counts from now."""
    rig = leased()
    rig.do(Advance(5), Release(Ref(1, 1), 7))
    assert rig.job().due_ms == START_MS + 12


def test_a_late_release_is_an_expiry() -> None:
    """From the deadline on a release is exactly what the sweep would do, delay ignored."""
    late, swept = leased(), leased()
    late.do(Advance(10))
    assert late.do(Release(Ref(1, 1), 40)) == Released()
    swept.do(Advance(10), Reap())
    assert late.queue == swept.queue


def test_a_release_with_a_wrong_delay_is_refused() -> None:
    """The argument goes before everything, an unknown job included."""
    assert leased().refused(Release(Ref(9, 1), -1)) == BadArgument("delay_ms")


def test_follow_ups_are_created_with_the_completion() -> None:
    """Receipts come in item order; a key that is held gives its job, the completed one itself included."""
    rig = Rig()
    keyed = NewJob(1, "a", 5, idempotency_key="k")
    rig.do(Enqueue(keyed))
    rig.lease()
    follow_ups = (NewJob(2, "b"), keyed, NewJob(1, "c"))
    expected = (
        Receipt(2, created=True, state=PENDING),
        Receipt(1, created=False, state=COMPLETED),
        Receipt(3, created=True, state=PENDING),
    )
    assert rig.do(Complete(Ref(1, 1), None, follow_ups)) == Completed(expected)
    assert rig.queue.ring == (2, 1)
    assert rig.refused(Complete(Ref(1, 1), None, follow_ups)) == Completed(expected)


def test_a_conflicting_follow_up_refuses_all() -> None:
    """Nothing changes, and the lease stays current."""
    rig = Rig()
    rig.do(Enqueue(NewJob(1, "a", 5, idempotency_key="k")))
    rig.lease()
    follow_ups = (NewJob(2, "b"), NewJob(1, "a", 6, idempotency_key="k"))
    assert rig.refused(Complete(Ref(1, 1), None, follow_ups)) == KeyConflict(1, "k", 1)
    rig.complete()


def test_a_conflict_is_judged_last() -> None:
    """A stale completion is stale, whatever its follow-ups."""
    rig = Rig()
    rig.do(Enqueue(NewJob(1, "a", 5, idempotency_key="k")))
    conflicting = Complete(Ref(1, 1), None, (NewJob(1, "a", 6, idempotency_key="k"),))
    assert rig.refused(conflicting) == StaleLease(1, 1, 0, PENDING, "never_leased")


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Complete(Ref(9, 9), OVERSIZE), "result"),
        (Complete(Ref(9, 9), 1, (NewJob(1, "a"), NewJob(1, "a", OVERSIZE))), "enqueue[1].payload"),
        (Complete(Ref(9, 9), 1, (NewJob(1, "a"),) * 1_001), "enqueue"),
        (CompleteMany(((Ref(1, 1), 0), (Ref(9, 9), OVERSIZE))), "items[1].result"),
    ],
)
def test_a_malformed_completion_is_refused_first(op: Op, field: str) -> None:
    """Arguments are judged before the job is looked for; nothing changes."""
    assert leased().refused(op) == BadArgument(field)


def test_complete_many_answers_per_item() -> None:
    """Each item as the single completion, duplicates included: the same again repeats, another result is stale."""
    rig = leased()
    reply = rig.do(CompleteMany(((Ref(9, 1), 0), (Ref(1, 1), 0), (Ref(1, 1), 0), (Ref(1, 1), 1))))
    assert reply == CompletedMany(
        (
            Outcome(9, "not_found", None, NotFound(9)),
            Outcome(1, "completed"),
            Outcome(1, "completed"),
            Outcome(1, "stale", None, StaleLease(1, 1, 1, COMPLETED, "completed")),
        )
    )


def test_complete_repeats_across_single_and_bulk() -> None:
    """An item of a bulk call is the same submit as the single one without follow-ups."""
    rig = leased()
    rig.do(CompleteMany(((Ref(1, 1), "r"),)))
    assert rig.refused(Complete(Ref(1, 1), "r")) == Completed(())
