"""Judges a run of concurrent callers over gRPC whose server was killed and started again: is it linearizable?

For each life two verdicts. By the commits that the server named: their order must be one that real time allows, and the
model, played in it, must give every caller the answer he got and end in the rows that were found after the kill; that
is a proof, whatever the server did. And, for a sampled beginning of the life, by a search that believes none of the
server's stamps. Each life begins where the last one ended, opened again after an unclean end.

Besides: leases told twice, keys with two jobs, acknowledged jobs that are gone, jobs that lay ready while somebody
waited for one, sweeps that report more than the logs have.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from telha_model import witness
from telha_model.course import Course
from telha_model.history import UndecidedError
from telha_model.linear import Call, Look, Start, Stuck, search
from telha_model.ops import Lease
from telha_model.replies import Leased
from telha_model.state import Job, Queue, new_queue
from telha_model.states import Transition
from telha_model.types import Config
from tests.harness.concurrent import Numbers, Trace, Translator, answer, gone, ids_of
from tests.harness.decode import Decoder, Observed
from tests.harness.judging import ROWS, Report, model_config
from tests.harness.lives import Life, lives
from tests.harness.values import Names
from tests.harness.waking import ready, waits

WOKEN_S: Final = 5.0
"""No job may lie ready for longer while somebody waits for one. It takes milliseconds; machines halt at times."""
WITNESS_S: Final = 60.0
WINDOW_S: Final = 20.0
"""CPU time after which a search is given up: that is a finding, too."""
WINDOW_CALLS: Final = (60, 500)
_SWEPT: Final = (Transition.REAPED, Transition.PROMOTED, Transition.DEAD)


@dataclass(slots=True)
class Judged:
    """The report, and what was covered, in words."""

    report: Report = field(default_factory=Report)
    covered: Counter[str] = field(default_factory=Counter)

    def wrong(self, life: Life, sentences: Sequence[str]) -> int:
        """Take what is wrong with a life; how much that is."""
        self.report.sentences += [f"life {life.number}: {sentence}" for sentence in sentences]
        return len(sentences)


class _Run(NamedTuple):
    """A run as it was kept: its lives, the rows after each, and what went in each."""

    config: Config
    lives: Sequence[Life]
    numbers: Numbers
    rows: Sequence[Observed]
    went: Sequence[Mapping[int, Trace]]


class _Asked(NamedTuple):
    """A life in the model's words. `queue`: before its open; `starts`: opened, once for each moment that matters."""

    life: Life
    course: Course
    queue: Queue
    starts: Sequence[Start]
    calls: Sequence[Call]


def judged(root: Path, config: Mapping[str, Any], chance: Random) -> Judged:
    """Judge a run's directory, whose server had these settings. `chance` samples what is searched."""
    run, found = _read(root, model_config(config)), Judged()
    queue: Queue | None = new_queue(0)
    before, every = dict[int, Job](), list[Call]()
    for life, seen, went in zip(run.lives, run.rows, run.went, strict=True):
        rows = {number: row.job for number, row in seen.rows.items()}
        calls = Translator(run.config, run.numbers, life, rows=rows, before=before, went=went).calls()
        _look_around(found, run, life, seen)
        _count(found, calls)
        if queue is not None:  # else nobody knows where this life began
            logs = {number: trace.log for number, trace in went.items() if number not in rows}
            course = Course(run.config, rows, seen.meta.get("last_served"), logs)
            starts = [((), queue)] if life.number == 1 else list(course.openings(queue, life.opened["now_ms"]))
            asked = _Asked(life, course, queue, starts, calls)
            _search_window(found, asked, chance)
            queue = _by_commit(found, asked)
        before, every = rows, [*every, *calls]
    found.report.duplicated += found.wrong(run.lives[-1], witness.granted_twice(every))
    found.report.jobs = len(run.numbers.ids)
    return found


def _by_commit(found: Judged, asked: _Asked) -> Queue | None:
    """The witness check of a life; the queue after it, None: that is not known."""
    wrong = witness.out_of_order(asked.calls)
    after: Queue | None = None
    try:
        order = search(asked.course, asked.starts, asked.calls, by_commit=True, whole=True, give_up=_after(WITNESS_S))
    except UndecidedError as error:
        wrong.append(f"undecided: {error}")
    else:
        if isinstance(order, Stuck):
            wrong.append(f"after {order.done} calls in the order of commits: {'; '.join(order.sentences)}")
        else:
            wrong += witness.problems(asked.course.config, asked.queue, order, asked.calls, by_commit=True)
            found.report.recovered += len(witness.happened(order, asked.calls))
            found.covered["steps proved"] += len(order.steps)
            found.covered["lives proved"] += 1
            after = order.queue
    found.report.unexpected += bool(found.wrong(asked.life, wrong))
    return after


def _search_window(found: Judged, asked: _Asked, chance: Random) -> None:
    """The search that believes no stamp, in a beginning of the life."""
    calls = sorted(asked.calls, key=lambda call: call.asked)
    answered = [call.asked for call in calls if call.answered]
    if not answered:
        return
    number = min(chance.randint(*WINDOW_CALLS), len(answered))
    window = _begun(calls, answered[number - 1])
    wrong = []
    try:
        order = search(asked.course, asked.starts, window, by_commit=False, whole=False, give_up=_after(WINDOW_S))
    except UndecidedError as error:
        wrong.append(f"undecided without commits: {error}")
    else:
        if isinstance(order, Stuck):
            wrong.append(f"after {order.done} calls, in any order: {'; '.join(order.sentences)}")
        else:
            wrong += witness.problems(asked.course.config, asked.queue, order, window, by_commit=False)
    found.covered["windows searched"] += not wrong
    found.covered["calls in windows"] += len(window)
    found.report.unexpected += bool(found.wrong(asked.life, wrong))


def _begun(calls: Sequence[Call], until: float) -> list[Call]:
    """What was asked up to a moment; what was told later is not told yet, so it may or may not have happened."""
    found = []
    names = {call.name for call in calls if call.asked <= until}
    for call in calls:
        if call.asked > until or (call.after is not None and call.after not in names):
            continue
        if call.told <= until:
            found.append(call)
        elif not isinstance(call.op, Look) and not _is_empty(call):
            found.append(call._replace(reply=None))
    return found


def _is_empty(call: Call) -> bool:
    return isinstance(call.reply, Leased) and not call.reply.grants


def _after(seconds: float) -> Callable[[], bool]:
    until = time.process_time() + seconds
    return lambda: time.process_time() > until


# -- what needs no order


def _count(found: Judged, calls: Sequence[Call]) -> None:
    report, covered = found.report, found.covered
    report.lives += 1
    report.calls += len(calls)
    report.unanswered += sum(not call.answered for call in calls)
    for call in calls:
        covered[f"op: {type(call.op).__name__}"] += 1
    covered["kills with calls in flight"] += any(not call.answered and not isinstance(call.op, Lease) for call in calls)


def _look_around(found: Judged, run: _Run, life: Life, seen: Observed) -> None:
    """Acknowledged jobs, keys, sweeps, and jobs that nobody was woken for."""
    report = found.report
    wrong = [*seen.problems, *(f"check: {problem}" for problem in life.opened["problems"])]
    report.unexpected += found.wrong(life, wrong)
    lost = [
        f"job {job}, which {name} was told of, is gone"
        for job, name in _acknowledged(run, life).items()
        if run.numbers.number(job) not in seen.rows
    ]
    report.lost += found.wrong(life, lost)
    keys = Counter((row.job.spec.scope, row.job.spec.idempotency_key) for row in seen.rows.values())
    twice = [
        f"key {key} of scope {scope} has {number} jobs"
        for (scope, key), number in keys.items()
        if key is not None and number > 1
    ]
    report.duplicated += found.wrong(life, twice)
    found.covered["waits for jobs"] += sum(1 for _ in waits(life))
    report.unexpected += found.wrong(life, witness.overlooked(ready(life), waits(life), WOKEN_S))
    report.unexpected += found.wrong(life, _swept_too_much(run, life, seen))


def _acknowledged(run: _Run, life: Life) -> dict[str, str]:
    """The jobs whose making was answered up to this life, and that nobody wanted discarded; by which call."""
    made: dict[str, str] = {}
    gone: set[str] = set()
    for one in run.lives[: life.number]:
        for said in one.calls:
            told = answer(said)
            if said.call in ("enqueue", "complete") and isinstance(told, list):
                made |= {receipt["job"]: said.id for receipt in told if receipt["created"]}
            if said.call == "discard":
                gone.add(said.given["job"])
    return {job: name for job, name in made.items() if job not in gone}


def _swept_too_much(run: _Run, life: Life, seen: Observed) -> list[str]:
    """Sweeps that somebody asked for report no more than all sweeps can have done."""
    reports = [answer(said) for said in life.calls if said.call == "reap" and said.told is not None]
    told = sum(one["requeued"] + one["died"] + one["promoted"] for one in reports)
    logs = [row.job.events for row in seen.rows.values()]
    logs += [trace.log for one in run.went for trace in one.values()]
    done = sum(event.transition in _SWEPT for log in logs for event in log)
    return [f"sweeps report {told} pieces of work, the logs have {done}"] if told > done else []


# -- reading


def _read(root: Path, config: Config) -> _Run:
    run = lives(root / "history.ndjson")
    raw = [json.loads((root / ROWS.format(life.number)).read_text()) for life in run]
    pairs = [
        {family: [(bytes.fromhex(k), bytes.fromhex(v)) for k, v in found] for family, found in one.items()}
        for one in raw
    ]
    numbers = Numbers(
        [job for life in run for said in life.calls for job in ids_of(said)]
        + [key.hex() for one in pairs for key, _ in one["ids"]]
    )
    names = Names()
    for job in numbers.ids:
        names.created(UUID(hex=job))
    decoder = Decoder(names)
    return _Run(config, run, numbers, [decoder.observe(one) for one in pairs], [gone(life, numbers) for life in run])
