"""The alarm rings: broken models, each caught by the promise it breaks; and the order of precedence."""

from collections.abc import Callable

import pytest

from telha_model.describe import program
from telha_model.explore import Step, explore
from telha_model.invariants import ALWAYS, GOALS
from telha_model.ops import Advance, Cancel, Complete, Enqueue, Fail, Lease, Op, Reap, Release, Reopen, Retry
from telha_model.replies import Completed, Leased, Reaped, Receipt, Reply, Ruling, StaleLease
from telha_model.rules import rule
from telha_model.state import Job, Queue, find
from telha_model.states import LEASED, PENDING
from telha_model.step import RULES, step
from telha_model.types import Config, NewJob, Ref
from telha_model.universes import universes

UNIVERSES = universes()


def _with(queue: Queue, job_id: int, change: Callable[[Job], Job]) -> Queue:
    return queue._replace(jobs=tuple(change(job) if job.job_id == job_id else job for job in queue.jobs))


def no_fence(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Complete under any token of a leased job."""
    if isinstance(op, Complete):
        job = find(queue, op.ref.job_id)
        if job is not None and job.state is LEASED and op.ref.generation > 0:
            op = op._replace(ref=Ref(job.job_id, job.generation))
    return step(config, queue, op)


def generation_reset(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Retry starts generations afresh."""
    reply, after = step(config, queue, op)
    if isinstance(op, Retry) and after is not queue:
        after = _with(after, op.job_id, lambda job: job._replace(generation=0))
    return reply, after


def granted_twice(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Every lease runs under generation 1."""
    reply, after = step(config, queue, op)
    if isinstance(reply, Leased):
        for grant in reply.grants:
            after = _with(after, grant.job_id, lambda job: job._replace(generation=1))
        reply = Leased(tuple(grant._replace(generation=1) for grant in reply.grants))
    return reply, after


def stays_out_of_limbo_not(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """The sweep gives one attempt too many."""
    if isinstance(op, Reap):
        config = config._replace(max_attempts=config.max_attempts + 1)
    return step(config, queue, op)


def uncounted_expiry(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """An expiry counts no attempt."""
    reply, after = step(config, queue, op)
    if isinstance(op, Reap):
        for job in queue.jobs:
            if job.state is LEASED:
                count = job.attempts
                after = _with(after, job.job_id, lambda now, count=count: now._replace(attempts=count))  # type: ignore[misc]
    return reply, after


def early_reaper(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """The sweep runs a millisecond ahead of the clock."""
    if isinstance(op, Reap):
        reply, after = step(config, queue._replace(now_ms=queue.now_ms + 1), op)
        return reply, queue if after.jobs is queue.jobs else after._replace(now_ms=queue.now_ms, ring=queue.ring)
    return step(config, queue, op)


def early_lease(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A lease looks a millisecond ahead."""
    if isinstance(op, Lease) and op.limit == 1:
        ahead = step(config, queue, Advance(1))[1]
        reply, after = step(config, ahead, op)
        return reply, queue if after is ahead else after._replace(now_ms=queue.now_ms)
    return step(config, queue, op)


def lost_on_fail(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A failed job's row is deleted and not put back."""
    reply, after = step(config, queue, op)
    if isinstance(op, Fail) and after is not queue:
        after = after._replace(jobs=tuple(job for job in after.jobs if job.job_id != op.ref.job_id))
    return reply, after


def forgets_on_crash(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Recovery drops leased rows."""
    reply, after = step(config, queue, op)
    if isinstance(op, Reopen) and not op.clean:
        after = after._replace(jobs=tuple(job for job in after.jobs if job.state is not LEASED))
    return reply, after


def silent_cancel(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Cancel writes no event."""
    reply, after = step(config, queue, op)
    before = find(queue, op.job_id) if isinstance(op, Cancel) else None
    if before is not None and after is not queue:
        after = _with(after, before.job_id, lambda job: job._replace(events=before.events))
    return reply, after


def newest_first(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """The sense of the priorities is turned round."""
    if isinstance(op, Lease):
        swapped = queue._replace(
            jobs=tuple(
                job._replace(spec=job.spec._replace(priority=255 - job.spec.priority))
                if job.due_ms is not None
                else job
                for job in queue.jobs
            )
        )
        reply, after = step(config, swapped, op)
        pairs = zip(queue.jobs, swapped.jobs, after.jobs, strict=True)
        jobs = tuple(was if now is turned else now._replace(spec=was.spec) for was, turned, now in pairs)
        return reply, queue if after is swapped else after._replace(jobs=jobs)
    return step(config, queue, op)


def stuck_ring(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A served scope that still has work stays at the head."""
    reply, after = step(config, queue, op)
    if isinstance(op, Lease) and isinstance(reply, Leased) and reply.grants and len(after.ring) > 1:
        scope = reply.grants[-1].scope
        if scope in after.ring:
            after = after._replace(ring=(scope, *[other for other in after.ring if other != scope]))
    return reply, after


def key_freed_at_the_end(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A key is looked up among living jobs only."""
    if isinstance(op, Enqueue):
        hidden = tuple(job for job in queue.jobs if job.ended_at_ms is None)
        reply, after = step(config, queue._replace(jobs=hidden), op)
        if len(after.jobs) == len(hidden):
            return reply, queue
        return reply, after._replace(jobs=(*queue.jobs, *after.jobs[len(hidden) :]))
    return step(config, queue, op)


def phantom_receipt(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A completion acknowledges a follow-up that it does not create."""
    reply, after = step(config, queue, op)
    if isinstance(reply, Completed) and after is not queue and isinstance(op, Complete) and not op.follow_ups:
        reply = Completed((Receipt(queue.next_job_id, created=True, state=PENDING),))
    return reply, after


def refusal_with_effect(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A stale release makes the job pending all the same."""
    reply, after = step(config, queue, op)
    if isinstance(op, Release) and isinstance(reply, StaleLease) and reply.state is LEASED:
        current = Release(Ref(op.ref.job_id, reply.current_generation))
        return reply, step(config, queue, current)[1]
    return reply, after


def no_reaper(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """The sweep finds nothing, ever."""
    return (Reaped(0, 0, 0, 0, more=False), queue) if isinstance(op, Reap) else step(config, queue, op)


BROKEN: list[tuple[Step, str, set[str]]] = [
    (no_fence, "protocol", {"stale_submit"}),
    (generation_reset, "protocol", {"exclusive_lease"}),
    (granted_twice, "protocol", {"exclusive_lease"}),
    (stays_out_of_limbo_not, "protocol", {"attempts_are_exact"}),
    (uncounted_expiry, "sweep", {"attempts_are_exact"}),
    (early_reaper, "sweep", {"attempts_are_exact"}),
    (early_lease, "order", {"no_early_run"}),
    (lost_on_fail, "protocol", {"no_job_is_lost"}),
    (forgets_on_crash, "reopen", {"acknowledged_is_durable", "no_job_is_lost"}),
    (silent_cancel, "protocol", {"the_log_tells_the_truth"}),
    (newest_first, "order", {"order"}),
    (stuck_ring, "fairness", {"fair_scopes"}),
    (key_freed_at_the_end, "keys", {"one_key_one_job"}),
    (phantom_receipt, "bulk", {"no_job_is_lost"}),
    (refusal_with_effect, "protocol", {"stale_submit"}),
]


@pytest.mark.parametrize(("take", "universe", "caught_by"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_model_is_caught_by_the_promise_it_breaks(take: Step, universe: str, caught_by: set[str]) -> None:
    """Each deliberate bug is found, by name, with a trace that ends in the step that shows it."""
    report = explore(UNIVERSES[universe], take=take)
    assert caught_by <= {violation.invariant for violation in report.violations}
    assert report.violations[0].trace


def test_every_promise_has_a_bug_that_breaks_it() -> None:
    """No promise is there for show."""
    assert set().union(*(names for _, _, names in BROKEN)) == set(ALWAYS)


def test_a_queue_without_a_reaper_makes_no_progress() -> None:
    """Where leases can fall silent and nobody sweeps, some state cannot reach the end any more."""
    universe = UNIVERSES["sweep"]
    silent = universe._replace(alphabet=universe.alphabet._replace(by_token=()), sometimes=())
    assert explore(silent).holds
    report = explore(silent, take=no_reaper)
    assert [violation.invariant for violation in report.violations] == list(GOALS)


def test_a_missed_situation_is_told() -> None:
    """A universe that does not get where it wants to get fails."""
    universe = UNIVERSES["keys"]._replace(sometimes=("the incarnation makes a generation jump",))
    report = explore(universe)
    assert (report.missed, report.holds) == (("the incarnation makes a generation jump",), False)


def test_a_trace_reads_as_a_program() -> None:
    """Time, operation and reply, a line each, in the words that build them."""
    ops = (Enqueue(NewJob(1, "a")), Advance(1), Lease("w"), Fail(Ref(1, 5), "x"))
    lines = program(Config(), 1_000, ops)
    assert lines[1] == "    1000  Advance(ms=1)  ->  Advanced(now_ms=1001)"
    assert lines[3].startswith("    1001  Fail(ref=Ref(job_id=1, generation=5), reason='x')  ->  StaleLease(")


def test_precedence_is_written_once() -> None:
    """A rule sorts its checks by ruling, whatever order they were listed in."""

    def check(_config: Config, _queue: Queue, _op: Op, _job: Job | None) -> Reply | None:
        return None

    def other(_config: Config, _queue: Queue, _op: Op, _job: Job | None) -> Reply | None:
        return None

    made = rule(RULES[Reopen].apply, [(Ruling.STALE, check), (Ruling.ARGUMENT, other)])
    assert made.checks == (other, check)


def test_the_rulings_are_in_order() -> None:
    """Unavailable, argument, not found, repeat, stale, wrong state, key conflict."""
    assert [ruling.name for ruling in Ruling] == [
        "UNAVAILABLE",
        "ARGUMENT",
        "NOT_FOUND",
        "REPEAT",
        "STALE",
        "WRONG_STATE",
        "KEY_CONFLICT",
    ]
