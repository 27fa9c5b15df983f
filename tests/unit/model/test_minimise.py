"""The minimiser on the model alone: names keep their meaning, and nothing that can go stays."""

from collections.abc import Callable

import pytest

from telha_model import ops
from telha_model.minimise import minimised
from telha_model.ops import Op
from telha_model.replies import Completed, Reply, StaleLease
from telha_model.state import new_queue
from telha_model.step import step
from telha_model.types import Config, NewJob, Ref

CONFIG = Config(lease_ttl_ms=10, lease_batch_max=10)
START_MS = 1_000
JOB = NewJob(1, "a", 1)


def fails_on(wanted: Callable[[Op, Reply], bool]) -> Callable[[list[Op]], int | None]:
    """A failure: the first step that is as wanted."""

    def fails(run: list[Op]) -> int | None:
        queue = new_queue(START_MS)
        for number, op in enumerate(run, 1):
            reply, queue = step(CONFIG, queue, op)
            if wanted(op, reply):
                return number
        return None

    return fails


def superseded(_: Op, reply: Reply) -> bool:
    """A submit under an older lease while the job is leased."""
    return isinstance(reply, StaleLease) and reply.why == "superseded"


def busy(rounds: int) -> list[Op]:
    """Plain work on other jobs: each made, leased, completed, discarded."""
    run: list[Op] = []
    for number in range(1, rounds + 1):
        token = Ref(number, 1)
        run += [ops.Enqueue(JOB), ops.Lease("w"), ops.Complete(token, 1), ops.Advance(1), ops.Discard(number)]
    return run


def test_what_does_not_matter_goes() -> None:
    """Of two thousand steps the five stay that a superseded submit takes."""
    job, run = 401, busy(400)
    run += [ops.EnqueueMany((JOB, JOB, JOB)), ops.Lease("w", 2), ops.Advance(3), ops.Release(Ref(job, 1))]
    run += [ops.Lease("v", 3), ops.Complete(Ref(job, 1), 1)]
    assert [
        ops.Enqueue(JOB),
        ops.Lease("w"),
        ops.Release(Ref(1, 1)),
        ops.Lease("v"),
        ops.Complete(Ref(1, 1), 1),
    ] == minimised(CONFIG, START_MS, run, fails_on(superseded))


def test_names_follow_what_they_name() -> None:
    """A follow-up's job is still itself when everything before it is gone but the completion that made it."""
    run = busy(3)
    run += [ops.Enqueue(JOB), ops.Lease("w"), ops.Complete(Ref(4, 1), 1, (NewJob(2, "b"), NewJob(3, "c")))]
    run += [ops.Lease("v", 2), ops.Complete(Ref(6, 1), 7)]

    def seven(op: Op, reply: Reply) -> bool:
        return isinstance(op, ops.Complete) and op.result == 7 and isinstance(reply, Completed)

    assert [
        ops.Enqueue(JOB),
        ops.Lease("w"),
        ops.Complete(Ref(1, 1), 1, (NewJob(3, "c"),)),
        ops.Lease("v"),
        ops.Complete(Ref(2, 1), 7),
    ] == minimised(CONFIG, START_MS, run, fails_on(seven))


def test_time_is_joined() -> None:
    """Stretches of time that nothing happens between become one."""
    run: list[Op] = [ops.Enqueue(NewJob(1, "a", delay_ms=30)), *[ops.Advance(10)] * 3, ops.Lease("w")]

    def granted(op: Op, reply: Reply) -> bool:
        return isinstance(op, ops.Lease) and bool(getattr(reply, "grants", ()))

    assert [ops.Enqueue(NewJob(1, "a", delay_ms=30)), ops.Advance(30), ops.Lease("w")] == minimised(
        CONFIG, START_MS, run, fails_on(granted)
    )


def test_the_end_of_the_budget_is_not_the_end_of_the_run() -> None:
    """Told to stop at once it gives back the run up to where it fails."""
    run: list[Op] = [*busy(2), ops.Complete(Ref(9, 1)), *busy(1)]

    def nine(op: Op, _: Reply) -> bool:
        return isinstance(op, ops.Complete) and op.ref.job_id == 9

    assert run[:11] == minimised(CONFIG, START_MS, run, fails_on(nine), goes_on=lambda: False)
    assert [ops.Complete(Ref(9, 1))] == minimised(CONFIG, START_MS, run, fails_on(nine))


def test_a_run_that_does_not_fail_is_an_error() -> None:
    """There is nothing to minimise in it."""
    with pytest.raises(ValueError, match="does not fail"):
        minimised(CONFIG, START_MS, busy(1), fails_on(superseded))
