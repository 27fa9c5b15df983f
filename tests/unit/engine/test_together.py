"""Several calls in one commit: each has its own reply or refusal, and none feels the others."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from telha_jobs import (
    IdempotencyConflictError,
    JobNotFoundError,
    JobQueue,
    JobUnreadableError,
    LeaseRef,
    ManualClock,
    NewJob,
    QueueUnavailableError,
    StaleLeaseError,
    State,
    arguments,
)
from telha_jobs.engine import submit
from telha_jobs.engine.unit import Unit
from telha_jobs.store.port import Family, Put
from tests.unit.api.support import tamper

SCOPE = UUID(int=1)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    """A queue with a clock that only the test moves."""
    with JobQueue.open(tmp_path / "q", clock=ManualClock(1_700_000_000_000)) as opened:
        yield opened


def completing(queue: JobQueue, lease: LeaseRef, result: Any = None, follow_ups: Sequence[NewJob] = ()) -> Any:
    """The operation of a completion."""
    ref = arguments.ref("lease", lease)
    packed = arguments.result("result", result, queue.config)
    drafts = arguments.drafts("enqueue", follow_ups, queue.config, 10)
    return lambda unit: submit.complete(unit, ref, packed, drafts)


def leases(queue: JobQueue, number: int) -> list[Any]:
    """So many leased jobs."""
    queue.enqueue_many(NewJob(scope=SCOPE, kind="k", payload=n) for n in range(number))
    return list(queue.lease_batch("w", number))


def conflict(queue: JobQueue) -> list[NewJob]:
    """Follow-ups of which the second is refused, after the first was made."""
    queue.enqueue(SCOPE, "k", "taken", idempotency_key="taken", delay_ms=1_000)
    return [NewJob(scope=SCOPE, kind="k", payload=0), NewJob(scope=SCOPE, kind="k", payload=1, idempotency_key="taken")]


def test_refusals_that_changed_nothing_share_the_commit(queue: JobQueue) -> None:
    """Stale and unknown leases are answered as such, beside a completion, in one commit."""
    [lease] = leases(queue, 1)
    before = queue._store.counters
    replies, sequence = queue.engine.write_many(
        [
            completing(queue, LeaseRef(uuid4(), 1)),
            completing(queue, lease, 5),
            completing(queue, lease, 5),
            completing(queue, lease, 6),
        ]
    )
    assert [type(reply) for reply in replies] == [JobNotFoundError, list, list, StaleLeaseError]
    assert (queue._store.counters.commits - before.commits, queue._store.counters.syncs - before.syncs) == (1, 1)
    assert sequence == queue._store.sequence


def test_a_refusal_costs_the_others_no_commit(queue: JobQueue) -> None:
    """Two completions beside it are one."""
    first, second = leases(queue, 2)
    before = queue._store.counters.commits
    operations = [completing(queue, first), completing(queue, LeaseRef(uuid4(), 1)), completing(queue, second)]
    replies, _ = queue.engine.write_many(operations)
    assert [type(reply) for reply in replies] == [list, JobNotFoundError, list]
    assert queue._store.counters.commits - before == 1


def test_a_row_that_cannot_be_read_goes_to_quarantine(queue: JobQueue, tmp_path: Path) -> None:
    """As when the call were alone; the completion beside it is done."""
    bad, good = leases(queue, 2)
    rows = {key[-16:]: (key, value) for key, value in queue._store.scan(Family.JOBS, b"", None, 9)}
    key, value = rows[bad.job_id.bytes]
    queue.close()
    tamper(tmp_path / "q", Put(Family.JOBS, key, value[:-1]))
    with JobQueue.open(tmp_path / "q", clock=ManualClock(1_700_000_000_000)) as again:
        replies, _ = again.engine.write_many([completing(again, bad), completing(again, good)])
        assert [type(reply) for reply in replies] == [JobUnreadableError, list]
        assert again.check().quarantined == (bad.job_id,)


def test_a_store_that_is_gone_refuses_all(queue: JobQueue) -> None:
    """It is no reply of the one call that met it: nothing of the others is written."""
    [lease] = leases(queue, 1)
    gone = raising(QueueUnavailableError("gone", outcome="not_applied"))
    with pytest.raises(QueueUnavailableError, match="gone"):
        queue.engine.write_many([completing(queue, lease), gone])
    assert queue.get(lease.job_id).state is State.LEASED


def test_a_refusal_after_a_change_undoes_that_call_alone(queue: JobQueue) -> None:
    """A key conflict among follow-ups leaves its lease current and its first follow-up unmade; the others are done."""
    follow_ups = conflict(queue)
    first, second, third = leases(queue, 3)
    replies, _ = queue.engine.write_many(
        [completing(queue, first), completing(queue, second, None, follow_ups), completing(queue, third)]
    )
    assert [type(reply) for reply in replies] == [list, IdempotencyConflictError, list]
    assert [queue.get(one.job_id).state for one in (first, second, third)] == [
        State.COMPLETED,
        State.LEASED,
        State.COMPLETED,
    ]
    assert sum(queue.counts().values()) == 4
    assert queue.check().problems == ()


def test_a_flaw_that_one_call_meets_is_that_calls_alone(queue: JobQueue) -> None:
    """An exception that is no refusal comes back as the call's reply; what is derived in memory stays right."""

    def flawed(unit: Unit) -> None:
        unit.move(first.job_id.bytes, None) if unit.find(first.job_id.bytes) else None
        raise ZeroDivisionError

    first, second = leases(queue, 2)
    replies, _ = queue.engine.write_many([completing(queue, second), flawed])
    assert [type(reply) for reply in replies] == [list, ZeroDivisionError]
    assert [queue.get(one.job_id).state for one in (first, second)] == [State.LEASED, State.COMPLETED]
    assert queue.check().problems == ()


def test_nothing_to_do_is_done(queue: JobQueue) -> None:
    """No operations have no replies."""
    assert queue.engine.write_many([]) == ([], queue._store.sequence)


def test_a_closed_queue_refuses_all(queue: JobQueue) -> None:
    """There is no reply for some of them."""
    [lease] = leases(queue, 1)
    operation = completing(queue, lease)
    queue.close()
    with pytest.raises(QueueUnavailableError):
        queue.engine.write_many([operation, operation])


def test_a_watcher_is_told_of_work_and_of_sweeps(queue: JobQueue) -> None:
    """Enqueues of due jobs, releases and sweeps that did something are news; looks and empty sweeps are none."""
    news: list[None] = []
    queue.engine.watch(lambda: news.append(None))
    queue.counts()
    queue.reap()
    assert not news
    [lease] = leases(queue, 1)
    told = len(news)
    assert told
    queue.release(lease)
    assert len(news) > told
    told = len(news)
    queue.lease_next("w")
    queue._clock.advance(10_000_000)  # type: ignore[attr-defined]  # the manual clock
    told = len(news)
    queue.reap()
    assert len(news) > told


def raising(*errors: Exception) -> Any:
    """An operation that raises these in turn, one each time it is run."""
    left = iter(errors)

    def fails(_unit: Unit) -> None:
        raise next(left)

    return fails


def test_what_was_done_before_the_store_failed_is_unknown(queue: JobQueue) -> None:
    """A flaw makes the calls run one by one, and then the store fails: unknown once one of them is done, else not."""
    first, second = leases(queue, 2)
    for place, outcome in ((1, "unknown"), (0, "not_applied")):
        operations = [completing(queue, (second, first)[place])]
        operations.insert(place, raising(LookupError("a flaw"), QueueUnavailableError("gone", outcome="not_applied")))
        with pytest.raises(QueueUnavailableError, match="gone") as caught:
            queue.engine.write_many(operations)
        assert caught.value.outcome == outcome
    states = [queue.get(one.job_id).state for one in (first, second)]
    assert states == [State.COMPLETED, State.LEASED]
