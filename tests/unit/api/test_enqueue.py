"""Enqueue: what a job is at first, idempotency keys, and bulk calls that equal the sequence of singles."""

import itertools
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    JobQueue,
    ManualClock,
    NewJob,
    Receipt,
    State,
    rules,
)
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, A, B, each, healthy, lease, leased, refusal, refused, unchanged


def job(payload: Any = None, **changes: Any) -> NewJob:
    """A job of scope A."""
    return NewJob(**{"scope": A, "kind": "embed", "payload": payload, **changes})


def test_a_new_job_is_pending(queue: JobQueue) -> None:
    """The receipt says that it was created and is pending; the job shows what was given, and nothing of a lease."""
    made = queue.enqueue(A, "ingest:pdf", {"n": 1}, priority=7, headers={"h": "v"}, payload_version=3)
    found = queue.get(made.job_id)
    assert (made.created, made.state) == (True, State.PENDING)
    assert (
        found.scope,
        found.kind,
        found.state,
        found.priority,
        found.payload,
        found.payload_version,
        found.headers,
    ) == (A, "ingest:pdf", State.PENDING, 7, {"n": 1}, 3, {"h": "v"})
    assert (found.created_at_ms, found.due_ms, found.attempts, found.generation) == (START_MS, START_MS, 0, 0)
    nothing = (found.deadline_ms, found.ended_at_ms, found.run_at_ms, found.max_attempts, found.worker)
    assert {None} == {*nothing, found.dead_reason, found.result, found.progress, found.idempotency_key}


def test_defaults_of_a_job(queue: JobQueue) -> None:
    """Priority 128, payload version 1, no headers."""
    found = queue.get(queue.enqueue(A, "embed", None).job_id)
    assert (found.priority, found.payload_version, found.headers) == (128, 1, {})


@each(
    "arguments, due, run_at",
    [
        ({}, START_MS, None),
        ({"run_at_ms": START_MS - 1}, START_MS, START_MS - 1),
        ({"run_at_ms": START_MS}, START_MS, START_MS),
        ({"run_at_ms": START_MS + 1}, START_MS + 1, START_MS + 1),
        ({"delay_ms": 0}, START_MS, START_MS),
        ({"delay_ms": 5}, START_MS + 5, START_MS + 5),
    ],
)
def test_due_is_the_later_of_now_and_run_at(
    queue: JobQueue, arguments: dict[str, Any], due: int, run_at: int | None
) -> None:
    """A delay is a `run_at` counted from now, and recorded as one."""
    found = queue.get(queue.enqueue(A, "embed", None, **arguments).job_id)
    assert (due, run_at) == (found.due_ms, found.run_at_ms)


def test_a_delay_stops_at_the_end_of_time(queue: JobQueue, clock: ManualClock) -> None:
    """A computed time is at most the last millisecond of the year 9999."""
    clock.advance(253_402_300_799_999 - START_MS - 10)
    found = queue.get(queue.enqueue(A, "embed", None, delay_ms=11).job_id)
    assert found.due_ms == 253_402_300_799_999


def test_ids_are_uuids_of_version_7(queue: JobQueue, clock: ManualClock) -> None:
    """With the milliseconds of their creation in front."""
    clock.advance(12_345)
    made = queue.enqueue(A, "embed", None).job_id
    assert (made.version, made.int >> 80) == (7, START_MS + 12_345)


def test_ids_rise_in_commit_order(opened: Open, clock: ManualClock) -> None:
    """Within a millisecond, across scopes, bulk calls, refused calls, a clock set back and reopening."""
    queue = opened()
    ids: list[UUID] = []
    for scope in (B, A, B):
        ids += [one.job_id for one in queue.enqueue_many([job(scope=scope)] * 5)]
        ids.append(queue.enqueue(scope, "embed", None).job_id)
        refusal(InvalidArgumentError, lambda: queue.enqueue_many([job(), job(priority=-1)]))
    queue.discard(_cancelled(queue, ids[-1]))
    queue.close()
    clock.step_wall(-3_600_000)
    queue = opened()
    ids.append(queue.enqueue(A, "embed", None).job_id)
    assert all(one.int < other.int for one, other in itertools.pairwise(ids))


def _cancelled(queue: JobQueue, job_id: UUID) -> UUID:
    queue.cancel(job_id)
    return job_id


def test_an_id_routes_to_its_scope(queue: JobQueue) -> None:
    """16 of its bits depend on the scope alone."""
    bits = {
        scope: {queue.enqueue(scope, "embed", None).job_id.int >> 36 & 0xFFFF for _ in range(5)} for scope in (A, B)
    }
    assert [len(one) for one in bits.values()] == [1, 1]
    assert bits[A] != bits[B]


# -- idempotency keys


@pytest.mark.parametrize("state", State)
def test_a_key_answers_with_the_existing_job_in_any_state(queue: JobQueue, state: State) -> None:
    """And with that state; nothing is written."""
    made = queue.enqueue(A, "embed", {"n": 1}, idempotency_key="k")
    _bring(queue, made.job_id, state)
    with unchanged(queue):
        assert Receipt(made.job_id, created=False, state=state) == queue.enqueue(
            A, "embed", {"n": 1}, idempotency_key="k"
        )


def _bring(queue: JobQueue, job_id: UUID, state: State) -> None:
    """The pending job into another state."""
    if state is State.DEAD:
        queue.cancel(job_id)
    elif state is not State.PENDING:
        held = lease(queue)
        if state is State.COMPLETED:
            queue.complete(held)
        elif state is State.FAILED:
            queue.fail(held, "x")


@each(
    "changes",
    [
        {"kind": "other"},
        {"payload": {"n": 2}},
        {"payload": {"n": 1.0}},
        {"payload": {"n": True}},
        {"payload_version": 2},
    ],
)
def test_the_same_key_with_other_work_is_refused(queue: JobQueue, changes: dict[str, Any]) -> None:
    """Kind, payload (type for type) and payload version count; the error names job and key."""
    made = queue.enqueue(A, "embed", {"n": 1}, idempotency_key="k")
    arguments = {"kind": "embed", "payload": {"n": 1}, **changes}
    with unchanged(queue):
        error = refusal(IdempotencyConflictError, lambda: queue.enqueue(A, **arguments, idempotency_key="k"))
    assert (made.job_id, "k", None) == (error.job_id, error.key, error.index)


@each(
    "changes",
    [
        {"priority": 1},
        {"run_at_ms": START_MS + 9},
        {"delay_ms": 9},
        {"max_attempts": 2},
        {"headers": {"a": "b"}},
        {"payload": {"b": [2], "a": 1}},
    ],
)
def test_other_arguments_do_not_matter_on_a_hit(queue: JobQueue, changes: dict[str, Any]) -> None:
    """They are ignored, and so is the order of a map's keys."""
    made = queue.enqueue(A, "embed", {"a": 1, "b": [2]}, idempotency_key="k")
    arguments = {"payload": {"a": 1, "b": [2]}, **changes}
    assert Receipt(made.job_id, created=False, state=State.PENDING) == queue.enqueue(
        A, "embed", idempotency_key="k", **arguments
    )


def test_a_key_belongs_to_its_scope(queue: JobQueue) -> None:
    """Another scope may use the same key for other work."""
    queue.enqueue(A, "embed", 1, idempotency_key="k")
    assert queue.enqueue(B, "embed", 2, idempotency_key="k").created


def test_keys_are_compared_exactly(queue: JobQueue) -> None:
    """Case, white space and Unicode form count."""
    keys = ["k", "K", "k ", "é", "e\u0301"]
    assert [queue.enqueue(A, "embed", 1, idempotency_key=key).created for key in keys] == [True] * 5


def test_a_key_is_free_once_its_job_is_gone(queue: JobQueue, clock: ManualClock) -> None:
    """After discard and after purge; until then it is taken."""
    first = queue.enqueue(A, "embed", 1, idempotency_key="k")
    queue.complete(lease(queue))
    queue.discard(first.job_id)
    second = queue.enqueue(A, "other", 2, idempotency_key="k")
    assert second.created
    queue.complete(lease(queue))
    clock.advance(604_800_000 - 1)
    queue.reap()
    refusal(IdempotencyConflictError, lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"))
    clock.advance(1)
    queue.reap()
    assert queue.enqueue(A, "embed", 1, idempotency_key="k").created
    healthy(queue)


def test_a_large_payload_is_compared_too(queue: JobQueue) -> None:
    """One that lives in a family of its own."""
    queue.enqueue(A, "embed", "x" * 9_999, idempotency_key="k")
    assert not queue.enqueue(A, "embed", "x" * 9_999, idempotency_key="k").created
    refusal(IdempotencyConflictError, lambda: queue.enqueue(A, "embed", "x" * 9_998 + "y", idempotency_key="k"))


def test_keys_survive_reopening(opened: Open) -> None:
    """They are rows like all others."""
    queue = opened()
    made = queue.enqueue(A, "embed", 1, idempotency_key="k")
    queue.close()
    assert Receipt(made.job_id, created=False, state=State.PENDING) == opened().enqueue(
        A, "embed", 1, idempotency_key="k"
    )


# -- bulk


def test_enqueue_many_equals_the_singles(queue: JobQueue) -> None:
    """Receipts in order, in one commit; a key met twice within the call is a hit the second time."""
    before = queue._store.counters.commits
    made = queue.enqueue_many(
        [job(1), job(2, idempotency_key="k"), job(2, idempotency_key="k"), job(3, scope=B, kind="new")]
    )
    assert before + 1 == queue._store.counters.commits
    assert [one.created for one in made] == [True, True, False, True]
    assert made[1].job_id == made[2].job_id
    assert {one.job_id for one in made} == {one.job_id for one in queue.list_jobs().jobs}
    healthy(queue)


def test_the_first_conflict_refuses_all_and_names_its_index(queue: JobQueue) -> None:
    """Nothing of the call is written, not the jobs before it either."""
    made = queue.enqueue(A, "embed", 1, idempotency_key="k")
    with unchanged(queue):
        error = refusal(
            IdempotencyConflictError,
            lambda: queue.enqueue_many(
                [job(1), job(1, idempotency_key="k"), job(2, idempotency_key="k"), job(3, idempotency_key="k")]
            ),
        )
    assert (made.job_id, "k", 2) == (error.job_id, error.key, error.index)
    healthy(queue)


def test_a_conflict_within_the_call_is_one_too(queue: JobQueue) -> None:
    """Two jobs of one call with one key and different work: the second is refused, and with it both."""
    with unchanged(queue):
        error = refusal(
            IdempotencyConflictError,
            lambda: queue.enqueue_many([job(1, idempotency_key="new"), job(2, idempotency_key="new")]),
        )
    assert (error.key, error.index) == ("new", 1)
    refusal(JobNotFoundError, lambda: queue.get(error.job_id))
    assert queue.lease_next("w") is None
    assert queue.enqueue(A, "embed", 3, idempotency_key="new").created


def test_follow_ups_are_created_with_the_completion(queue: JobQueue) -> None:
    """One commit, receipts in item order, jobs like any other."""
    held = leased(queue)
    before = queue._store.counters.commits
    made = queue.complete(held, "done", enqueue=[job(1), job(2, scope=B, delay_ms=5)])
    assert before + 1 == queue._store.counters.commits
    assert [one.created for one in made] == [True, True]
    assert [(found.scope, found.payload) for found in (queue.get(one.job_id) for one in made)] == [(A, 1), (B, 2)]
    assert queue.get(held.job_id).state is State.COMPLETED


def test_a_follow_up_may_meet_an_existing_key(queue: JobQueue) -> None:
    """Then it is not created; the completing job itself shows as completed already."""
    held = leased(queue, payload=1, idempotency_key="self")
    other = queue.enqueue(A, "embed", 2, idempotency_key="other")
    made = queue.complete(held, enqueue=[job(2, idempotency_key="other"), job(1, idempotency_key="self")])
    expected = [Receipt(other.job_id, False, State.PENDING), Receipt(held.job_id, False, State.COMPLETED)]
    assert expected == made


def test_a_follow_up_in_conflict_refuses_all(queue: JobQueue) -> None:
    """The index is the follow-up's; the lease stays current and can be completed without it."""
    held = leased(queue, payload=1, idempotency_key="self")
    with unchanged(queue):
        error = refusal(
            IdempotencyConflictError,
            lambda: queue.complete(held, enqueue=[job(3), job(2, idempotency_key="self")]),
        )
    assert (held.job_id, "self", 1) == (error.job_id, error.key, error.index)
    assert len(queue.complete(held, enqueue=[job(3)])) == 1
    healthy(queue)


def test_a_queue_knows_so_many_kinds_and_no_more(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """65,536 (here 3): one more is refused by name, bulk calls name the position, and filters never use one up."""
    assert rules.KINDS_MAX == 65_536
    monkeypatch.setattr("telha_jobs.engine.unit.KINDS_MAX", 3)
    queue.enqueue_many(job(kind=f"k{number}") for number in range(3))
    assert queue.lease_next("w", kinds=["unknown", "un:*"]) is None
    assert set(queue.counts(kind="unknown").values()) == {0}
    held = lease(queue)
    with refused(queue, "kind"):
        queue.enqueue(A, "one-more", None)
    with refused(queue, "jobs[1].kind"):
        queue.enqueue_many([job(kind="k1"), job(kind="one-more")])
    with refused(queue, "enqueue[0].kind"):
        queue.complete(held, enqueue=[job(kind="one-more")])
    assert queue.enqueue(A, "k2", None).created
