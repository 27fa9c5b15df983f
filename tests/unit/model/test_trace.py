"""Traces on the model: symbolic names, restart, crash and cut, strict data, and the words of a step."""

import copy
import json
from typing import Any

import pytest

from telha_model import SPEC_VERSION, ops
from telha_model.explain import broken_promises, changed, guards
from telha_model.ops import Op
from telha_model.replies import Completed, Reopened, StaleLease
from telha_model.states import COMPLETED, PENDING
from telha_model.trace import Agrees, Crash, Cut, Origin, Restart, Run, Token, Trace, TraceError, recorded
from telha_model.trace_data import from_data, to_data
from telha_model.types import Config, NewJob, Ref

CONFIG = Config(lease_ttl_ms=10)
JOB = NewJob(1, "a", 1)
# Tokens stand where an operation has a Ref.
OURS: Any = Token(0)
NEVER: Any = Token(0, 1)
RUN: tuple[Any, ...] = (
    ops.Enqueue(JOB),
    ops.Lease("w"),
    ops.Complete(OURS, 1),
    ops.Complete(NEVER, 1),
    ops.Advance(3),
    Restart(),
    Crash(),
    ops.CompleteMany(((OURS, None), (Ref(9, 1), 2))),
)


def trace_of(*run: Any) -> Trace:
    """A trace that is to agree."""
    return recorded(CONFIG, 1_000, run, title="a test", origin=Origin("hand"), verdict=Agrees())


def test_tokens_are_the_grants_in_order() -> None:
    """A real token is written as the grant that gave it, one never granted by its distance from the newest."""
    real = (
        ops.Enqueue(JOB),
        ops.Lease("w"),
        ops.Fail(Ref(1, 1), "x"),
        ops.Fail(Ref(1, 3), "x"),
        ops.Fail(Ref(2, 1), "x"),
    )
    written = [getattr(step.op, "ref", None) for step in trace_of(*real).steps[2:]]
    assert written == [Token(0), Token(0, 2), Ref(2, 1)]


def test_every_step_has_its_time_and_reply() -> None:
    """Times are those before the step, replies the model's."""
    steps = trace_of(*RUN).steps
    assert [step.at_ms for step in steps] == [1_000] * 5 + [1_003] * 3
    assert [Completed(()), StaleLease(1, 2, 1, COMPLETED, "never_leased")] == [step.reply for step in steps[2:4]]
    assert [Reopened(0), Reopened(1)] == [step.reply for step in steps[5:7]]


def test_a_token_of_no_grant_is_an_error() -> None:
    """A trace cannot name a grant that its run did not make."""
    with pytest.raises(TraceError, match=r"\$t0 names a grant that was not made"):
        trace_of(ops.Complete(OURS))


def test_a_trace_without_steps_is_an_error() -> None:
    """It would agree with anything."""
    with pytest.raises(TraceError, match="without steps"):
        trace_of()
    with pytest.raises(TraceError, match="without steps"):
        from_data({**to_data(trace_of(*RUN)), "steps": []})


def test_a_trace_comes_back_from_its_data() -> None:
    """Through JSON, with every kind of step that a trace has."""
    trace = trace_of(*RUN, ops.Extend("w", (Ref(1, 1),), ((1, 2),)), Cut(0))
    assert trace == from_data(json.loads(json.dumps(to_data(trace))))
    assert to_data(trace)["spec"] == SPEC_VERSION


def broken(path: str, value: Any) -> Any:
    """The data of a trace with one value replaced, or a field added; `-` takes one away."""
    data = copy.deepcopy(to_data(trace_of(*RUN)))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = data
    for part in way:
        place = place[part]
    if value == "-":
        del place[last]
    else:
        place[last] = value
    return data


WRONG = [
    ("format", 2, "format: 2 is unknown"),
    ("format", True, "format: True is unknown"),
    ("spec", "9.9", "spec: '9.9' is unknown"),
    ("surprise", 1, "trace: no field is called 'surprise'"),
    ("title", "-", "the field 'title' is missing"),
    ("start_ms", "1000", "start_ms: '1000' is no int"),
    ("config.surprise", 1, "config: no field is called"),
    ("config.max_attempts", "-", "config: the field 'max_attempts' is missing"),
    ("verdict.is", "maybe", "verdict.is: 'maybe' is unknown"),
    ("origin.lane", None, "origin.lane: None is no str"),
    ("steps.0.op.is", "explode", r"steps\[0\].op.is: 'explode' is unknown"),
    ("steps.0.op.is", "-", r"steps\[0\].op.is: None is unknown"),
    ("steps.0.op.job.surprise", 1, r"steps\[0\].op.job: no field is called"),
    ("steps.0.op.job.priority", True, r"priority: True is no int"),
    ("steps.0.op.job.payload", "text", r"payload: 'text' is no"),
    ("steps.0.at_ms", 1.5, r"steps\[0\].at_ms: 1.5 is no int"),
    ("steps.2.op.ref", "$t01", r"'\$t01' is no token"),
    ("steps.2.op.ref", "$t0+0", "is no token"),
    ("steps.2.op.ref", {"job": 1}, "the field 'generation' is missing"),
    ("steps.3.reply.why", "tired", "why: 'tired' is unknown"),
    ("steps.7.op.items.0", ["$t0"], "has 1 parts, not 2"),
    ("steps.4.reply", "-", r"steps\[4\]: the field 'reply' is missing"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG, ids=str)
def test_what_a_reader_does_not_know_is_an_error(path: str, value: Any, sentence: str) -> None:
    """Unknown words, versions and fields, missing fields and values of the wrong type are refused, and said where."""
    with pytest.raises(TraceError, match=sentence):
        from_data(broken(path, value))


def test_a_cut_loses_the_last_commits() -> None:
    """What the last commits did was never done; time stands, numbers are not given again, the incarnation rises."""
    run = Run(CONFIG, 1_000)
    lost: tuple[Op, ...] = (ops.Lease("w"), ops.Advance(5), ops.Lease("w"), ops.Enqueue(JOB))
    for op in (ops.Enqueue(JOB), *lost):
        run.take(op)
    after = run.take(Cut(2)).after
    assert (after.now_ms, after.incarnation, after.next_job_id) == (1_005, 1, 3)
    assert [(job.job_id, job.state, job.generation) for job in after.jobs] == [(1, PENDING, 0)]
    assert after.ring == (1,)


def test_a_cut_cannot_reach_behind_an_opening() -> None:
    """An opening is durable before it answers, and so is all that came before it."""
    with pytest.raises(TraceError, match="1 were made since the last opening"):
        trace_of(ops.Enqueue(JOB), Restart(), ops.Enqueue(JOB), Cut(2))


def test_a_cut_of_nothing_is_a_crash() -> None:
    """A cut that loses no commit leaves what a crash leaves."""
    cut, crash = Run(CONFIG, 1_000), Run(CONFIG, 1_000)
    for run, end in ((cut, Cut(0)), (crash, ops.Reopen(clean=False))):
        run.take(ops.Enqueue(JOB))
        run.take(end)
    assert crash.queue == cut.queue


def said(*run: Op) -> list[str]:
    """The guards of the last step of a run."""
    played = Run(CONFIG, 1_000)
    for op in run[:-1]:
        played.take(op)
    last = run[-1]
    before, reply = played.queue, played.take(last).reply
    return guards(before, last, reply)


LEASED_TWICE = (
    ops.Enqueue(NewJob(1, "a", 1, idempotency_key="k")),
    ops.Lease("w"),
    ops.Release(Ref(1, 1)),
    ops.Lease("w"),
)


@pytest.mark.parametrize(
    ("op", "sentences"),
    [
        (ops.Complete(Ref(1, 1)), ["generation 1 ≠ 2"]),
        (ops.Complete(Ref(1, 3)), ["generation 3 ≠ 2, never granted"]),
        (ops.Complete(Ref(7, 1)), ["job 7 does not exist"]),
        (ops.Retry(1), ["state leased ∉ {dead}"]),
        (ops.Enqueue(NewJob(1, "no blanks")), ["argument kind"]),
        (
            ops.EnqueueMany((JOB, NewJob(1, "a", 2, idempotency_key="k"))),
            ["item 1: key 'k' is job 1's, of another kind, payload or payload version"],
        ),
        (ops.Extend("w", (Ref(1, 2), Ref(1, 1))), ["item 1: generation 1 ≠ 2"]),
        (ops.Complete(Ref(1, 2)), []),
    ],
    ids=["superseded", "never", "gone", "state", "argument", "key", "bulk", "acts"],
)
def test_the_guard_that_refused_is_named(op: Op, sentences: list[str]) -> None:
    """A refusal is told as the comparison that it comes from; what acted has no guard."""
    assert sentences == said(*LEASED_TWICE, op)


def test_a_repeat_and_an_ended_lease_are_told_apart() -> None:
    """The same submit again is answered as then; another one under the ended lease is refused by its state."""
    done = (*LEASED_TWICE, ops.Complete(Ref(1, 2), 1))
    assert said(*done, ops.Complete(Ref(1, 2), 1)) == ["repeats the recorded submit: answered as then"]
    assert said(*done, ops.Complete(Ref(1, 2), 2)) == [
        "generation 2 is job 1's newest, but its lease was completed: completed ≠ leased"
    ]


def test_a_change_is_told_field_by_field() -> None:
    """A step's changes name the job, the ring and the time, each with what it was."""
    fields = "state pending → leased; generation 0 → 1; worker none → w; leased_at none → 1000; deadline none → 1010"
    run = Run(CONFIG, 1_000)
    new = run.take(ops.Enqueue(JOB))
    leased = run.take(ops.Lease("w"))
    assert changed(new.before, new.after) == ["job 1: new, pending, scope 1, kind a, due 1000", "ring: empty → 1"]
    assert [
        f"job 1: {fields}; logged leased",
        "ring: 1 → empty",
        "served last: none → 1",
    ] == changed(leased.before, leased.after)


def test_a_step_that_breaks_a_promise_says_which() -> None:
    """A made-up step that grants a generation twice is told by the name of the promise."""
    run = Run(CONFIG, 1_000)
    run.take(ops.Enqueue(JOB))
    played = run.take(ops.Lease("w"))
    [job] = played.after.jobs
    forged = played.after._replace(jobs=(job._replace(generation=0),))
    assert broken_promises(CONFIG, played.before, ops.Lease("w"), played.reply, played.after) == []
    found = broken_promises(CONFIG, played.before, ops.Lease("w"), played.reply, forged)
    assert {"exclusive_lease"} <= {sentence.partition(":")[0] for sentence in found}
