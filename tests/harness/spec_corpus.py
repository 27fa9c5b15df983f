"""The corpus under two versions of the specification: every trace is played on both in lock-step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from telha_model.diff import Pair, Signature
from telha_model.ops import Reopen
from telha_model.trace import Cut, Run, Trace
from telha_model.versions import Translator, Unspeakable, told
from tests.harness.spec_versions import ROOT
from tests.harness.traces import load

CORPUS = ROOT / "tests" / "corpus"


class Difference(NamedTuple):
    """The first step of a trace at which the versions differ."""

    trace: str
    step: int
    op: str
    signature: Signature


class Played(NamedTuple):
    """How many traces and steps were compared, what differs, and the traces that a version has no words for."""

    traces: int
    steps: int
    differences: tuple[Difference, ...]
    unspoken: tuple[str, ...]


def traces(folder: Path = CORPUS) -> Iterator[tuple[str, Trace]]:
    """The traces of a folder, by the names of their files."""
    for path in sorted(folder.glob("*.json")):
        yield path.name, load(path)


def played(pair: Pair, folder: Path = CORPUS) -> Played:
    """Play every trace on both versions."""
    steps, count = 0, 0
    differences, unspoken = [], []
    for name, trace in traces(folder):
        count += 1
        try:
            taken, difference = _play(pair, name, trace)
        except Unspeakable as error:
            unspoken.append(f"{name}: {error}")
            continue
        steps += taken
        if difference is not None:
            differences.append(difference)
    return Played(count, steps, tuple(differences), tuple(unspoken))


def _play(pair: Pair, name: str, trace: Trace) -> tuple[int, Difference | None]:
    to_head, to_base = Translator(pair.head), Translator(pair.base)
    configs = to_head.said(trace.config)[0], to_base.said(trace.config)[0]
    queues: tuple[Any, Any] = (
        pair.head.modules["state"].new_queue(trace.start_ms),
        pair.base.modules["state"].new_queue(trace.start_ms),
    )
    run = Run(trace.config, trace.start_ms)
    commits: list[tuple[Any, Any]] = []
    for place, done in enumerate(trace.steps, 1):
        act = run.real(done.op)
        if isinstance(act, Cut):
            queues = tuple(map(_survivor, queues, commits[-act.commits] if act.commits else queues))
            run.take(act)
            act = Reopen(clean=False)
        else:
            run.take(act)
        op, base_op = to_head.said(act)[0], to_base.said(act)[0]
        reply, after = pair.step_head(configs[0], queues[0], op)
        base_reply, base_after = pair.answered(configs[1], queues[1], base_op)
        if not (pair.agree(reply, base_reply) and pair.agree(after, base_after)):
            signature, _ = pair.judge(queues[0], op, (reply, after), (base_reply, base_after))
            return place, Difference(name, place, told(op), signature)
        if isinstance(act, Reopen):
            commits.clear()
        elif after.jobs is not queues[0].jobs or after.last_served != queues[0].last_served:
            commits.append(queues)
        queues = after, base_after
    return len(trace.steps), None


def _survivor(now: Any, left: Any) -> Any:
    """What a cut leaves, as `telha_model.trace.Cut` says: the jobs of then, time and numbers of now."""
    return left._replace(now_ms=now.now_ms, next_job_id=now.next_job_id, incarnation=now.incarnation)
