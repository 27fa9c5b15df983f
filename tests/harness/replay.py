"""Replaying a trace: on the model alone, or on a subject in lock-step with it, step by step up to the first difference.

The model's replies are held against those that the trace records, its steps against the promises; a subject's replies
and whole state against the model's, and at the end what its public interface says. Nothing of a replay depends on
anything but the trace and the subject: `play` repeats one replay in twenty and compares the two to the byte.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from telha_model.explain import broken_promises, changed, guards
from telha_model.minimise import minimised
from telha_model.ops import Op
from telha_model.trace import Act, Agrees, Cut, Differs, Run, Trace, TraceError, recorded
from telha_model.trace_data import to_data
from telha_model.types import Config
from tests.harness.classes import Hits
from tests.harness.lockstep import DisagreementError, Lockstep, Subjects
from tests.harness.program import as_code
from tests.harness.subjects import MODEL, plain
from tests.harness.subjects import subjects as subjects_of

TWICE_EVERY: Final = 20

GoesOn = Callable[[], bool]


class Line(NamedTuple):
    """One step of a replay, for people: the operation, its reply, why it did not act, what it changed, what differs."""

    number: int
    at_ms: int
    op: str
    reply: str
    guards: tuple[str, ...]
    changes: tuple[str, ...]
    differences: tuple[str, ...] = ()


class Played(NamedTuple):
    """A replay: its lines, the last of which differs when any does; and whether it was played twice."""

    subject: str
    steps: int
    lines: tuple[Line, ...]
    twice: bool = False

    @property
    def agrees(self) -> bool:
        """Whether every step was as the trace and the model have it."""
        return not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs at the last step played."""
        return self.lines[-1].differences if self.lines else ("nothing was played",)

    def transcript(self) -> bytes:
        """All of it as bytes: equal for two replays of one trace on one subject."""
        lines = [line._asdict() for line in self.lines]
        return json.dumps({"subject": self.subject, "lines": lines}, ensure_ascii=False).encode("utf-8")


OnLine = Callable[[Line], None]


class NotDeterministicError(AssertionError):
    """Two replays of one trace on one subject were not the same."""


def play(
    trace: Trace,
    subject: str,
    *,
    on_line: OnLine = lambda _: None,
    twice: bool = False,
    hits: Hits | None = None,
) -> Played:
    """Replay a trace on a subject. `TraceError` when the subject cannot do what it asks for.

    Traces in a twentieth of all, by their digest, are played twice (`twice`: this one is in any case); two that differ
    are a `NotDeterministicError`. Steps on which a subject agrees with the model go to `hits`, of the first time.
    """
    played = _played(trace, subject, on_line, hits)
    if not twice and digest(trace) % TWICE_EVERY:
        return played
    again = _played(trace, subject, lambda _: None)
    if again.transcript() != played.transcript():
        raise NotDeterministicError(f"{subject} does not do the same twice: {trace.title}")
    return played._replace(twice=True)


def has_cuts(trace: Trace) -> bool:
    """Whether the trace loses commits, which takes a subject that can."""
    return any(isinstance(step.op, Cut) for step in trace.steps)


def digest(trace: Trace) -> int:
    """A number that depends on every byte of the trace."""
    data = json.dumps(to_data(trace), sort_keys=True).encode("utf-8")
    return int.from_bytes(hashlib.sha256(data).digest()[:8])


def _played(trace: Trace, subject: str, on_line: OnLine, hits: Hits | None = None) -> Played:
    lines: list[Line] = []
    for line in _on_model(trace) if subject == MODEL else _on_subject(trace, subject, hits):
        lines.append(line)
        on_line(line)
        if line.differences:
            break
    return Played(subject, len(trace.steps), tuple(lines))


def _on_model(trace: Trace) -> Iterator[Line]:
    return (line for _, line in _taken(trace))


def _taken(trace: Trace) -> Iterator[tuple[Act, Line]]:
    """The trace on the model: against the recorded times and replies, and the promises."""
    run = Run(trace.config, trace.start_ms)
    for number, step in enumerate(trace.steps, 1):
        act = run.real(step.op)
        _, reply, before, after = run.take(act)
        differences: list[str] = []
        if step.at_ms != before.now_ms:
            differences.append(f"time: the trace has {step.at_ms}, the model {before.now_ms}")
        if step.reply != reply:
            differences.append(f"reply: the trace has {as_code(step.reply)}, the model {as_code(reply)}")
        told: list[str] = []
        if not isinstance(act, Cut):  # a cut is above the promises: it says itself what it loses
            differences += broken_promises(trace.config, before, act, reply, after)
            told = guards(before, act, reply)
        lost = tuple(changed(before, after))
        yield act, Line(number, step.at_ms, as_code(act), as_code(reply), tuple(told), lost, tuple(differences))


def _on_subject(trace: Trace, subject: str, hits: Hits | None) -> Iterator[Line]:
    """The trace on a subject in lock-step with the model."""
    if has_cuts(trace):
        raise TraceError(
            f"subject {subject} cannot lose commits: a trace with a cut is for the power-loss lane, or for the model"
        )
    lockstep = Lockstep(trace.config, subjects_of(subject), start_ms=trace.start_ms, hits=hits)
    try:
        for act, line in _taken(trace):
            if line.differences or isinstance(act, Cut):
                yield line
            else:
                found = _differences(lockstep, act, last=line.number == len(trace.steps))
                yield line._replace(differences=tuple(found))
    finally:
        lockstep.close()


def _differences(lockstep: Lockstep, op: Op, *, last: bool) -> list[str]:
    try:
        lockstep.step(op)
        if last:
            lockstep.compare(public=True)
    except DisagreementError as error:
        return error.sentences
    return []


# -- minimising


def failing(config: Config, start_ms: int, ops: Sequence[Op], subjects: Subjects) -> DisagreementError | None:
    """Run operations from a fresh queue, at the end ask all there is to ask; the difference met, if any."""
    lockstep = Lockstep(config, subjects, start_ms=start_ms)
    try:
        for op in ops:
            lockstep.step(op)
        lockstep.compare(public=True)
    except DisagreementError as error:
        return error
    finally:
        lockstep.close()
    return None


def shortest(
    config: Config, start_ms: int, ops: Sequence[Op], subjects: Subjects, *, goes_on: GoesOn = lambda: True
) -> DisagreementError:
    """The difference at the end of a minimised run. ValueError when the run does not differ."""

    def fails(candidate: list[Op]) -> int | None:
        error = failing(config, start_ms, candidate, subjects)
        return None if error is None else len(error.ops)

    found = failing(config, start_ms, minimised(config, start_ms, ops, fails, goes_on=goes_on), subjects)
    if found is None:
        raise NotDeterministicError("the minimised run failed, and then did not")
    return found


def shortest_trace(trace: Trace, subject: str, *, goes_on: GoesOn = lambda: True) -> Trace:
    """The trace minimised for a subject. ValueError when it does not differ there."""
    config, start_ms = trace.config, trace.start_ms
    ops = real_ops(trace)
    if subject == MODEL:
        ops = minimised(config, start_ms, ops, partial(breaks_a_promise, config, start_ms), goes_on=goes_on)
        because = ["a promise is broken"]
    else:
        error = shortest(config, start_ms, ops, subjects_of(subject), goes_on=goes_on)
        ops, because = error.ops, error.sentences
    verdict = Differs(plain(subject), len(ops), tuple(because))
    return recorded(config, start_ms, ops, title=trace.title, origin=trace.origin, verdict=verdict)


def real_ops(trace: Trace) -> list[Op]:
    """The operations with the tokens that the model gives; `TraceError` when one is a cut."""
    run = Run(trace.config, trace.start_ms)
    found: list[Op] = []
    for step in trace.steps:
        act = run.real(step.op)
        if isinstance(act, Cut):
            raise TraceError("a trace with a cut is not minimised: what a cut loses depends on all before it")
        found.append(act)
        run.take(act)
    return found


def breaks_a_promise(config: Config, start_ms: int, ops: Sequence[Op]) -> int | None:
    """At which step the model breaks a promise of its own; None: at none."""
    run = Run(config, start_ms)
    for number, op in enumerate(ops, 1):
        _, reply, before, after = run.take(op)
        if broken_promises(config, before, op, reply, after):
            return number
    return None


def anew(trace: Trace) -> Trace:
    """The trace with times, names and replies as the model has them now, and expected to agree: how a found trace
    becomes one of the corpus.
    """
    ops = [step.op for step in trace.steps]
    return recorded(trace.config, trace.start_ms, ops, title=trace.title, origin=trace.origin, verdict=Agrees())


def as_json(played: Played) -> dict[str, Any]:
    """A replay for machines."""
    return {
        "subject": played.subject,
        "agrees": played.agrees,
        "steps": played.steps,
        "played": len(played.lines),
        "differences": list(played.differences),
        "twice": played.twice,
        "lines": [line._asdict() for line in played.lines],
    }
