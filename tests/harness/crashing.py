"""Lives of a queue that end badly, and the recovery that judges them: the functions that `tests.chaos.forks` runs.

A life is a list of steps: opens, closes and operations of the model, each announced in the history before it is made
and told there afterwards. `recover` follows the history with the model's set of states (`telha_model.crash`), opens the
database as anybody would, and asks which of the states it is: exactly one must be left. Then it goes on in lock-step,
the cut call first, until every job has ended.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from rocksdict import ReadOptions

from telha_jobs import JobQueue, ManualClock
from telha_jobs.store.database import Database
from telha_jobs.store.port import Family
from telha_jobs.store.rocks import RocksStore
from telha_model import crash, ops, replies
from telha_model.ops import Op
from telha_model.replies import Reply
from telha_model.state import Queue
from telha_model.states import COMPLETED, DEAD, LEASED
from telha_model.step import step
from telha_model.trace_data import read, write
from telha_model.types import Config, Ref
from tests.chaos import syscalls
from tests.chaos.history import Call, History, Note
from tests.chaos.history import read as read_history
from tests.chaos.points import PointedDatabase, TornDatabase, install
from tests.harness.decode import Decoder, Observed, Raw
from tests.harness.expect import Expectations, ring_difference
from tests.harness.program import as_code
from tests.harness.translate import Translator, expected_reply, queue_config
from tests.harness.values import Names

START_MS: Final = 1_000
SWEEP_COMMIT: Final = 2
"""Of the sweeps in these lives, so that a few jobs are enough for several commits."""
STEPS_MAX: Final = 200
DATABASES: Final = {"real": Database, "pointed": PointedDatabase, "torn": TornDatabase}

Answer = dict[str, Any]


class StoppedError(Exception):
    """The recovery stops here, and why: a sentence for the verdict."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = list(sentences)
        super().__init__("; ".join(self.sentences))


class Past(NamedTuple):
    """What a history tells: the happenings, the states they leave, the trail of states known for certain before, the
    job ids that were told, the time, and the call that was cut, if one was.
    """

    states: crash.States
    before: crash.States
    trail: list[Queue]
    ids: list[str]
    now_ms: int
    cut: Op | None


# -- a life


class Life:
    """A queue at a path, and the history of what it is asked."""

    def __init__(self, path: Path, history: History, config: Config, names: Names, clock: ManualClock) -> None:
        self.queue: JobQueue | None = None
        self.names = names
        self._path = path
        self._history = history
        self._settings = replace(queue_config(config), durability="sync")
        self._clock = clock
        self._translator = Translator(names)

    @property
    def opened(self) -> JobQueue:
        """The queue, which must be open."""
        if self.queue is None:
            raise ValueError("the queue is not open")
        return self.queue

    def open(self, database: type[Database] = Database) -> int:
        """Open; the incarnation."""
        call = self._history.intent("open", {})
        store = RocksStore.open(self._path, clock=self._clock, durability="sync", database=database)
        self.queue = JobQueue(store, self._settings, self._clock)
        self._history.outcome(call, {"incarnation": store.incarnation})
        return store.incarnation

    def close(self) -> None:
        """Close."""
        call = self._history.intent("close", {})
        self.opened.close()
        self._history.outcome(call, {})
        self.queue = None

    def repair(self) -> None:
        """Let the queue make everything derived follow from its rows again, which is no step of the model."""
        call = self._history.intent("repair", {})
        report = self.opened.check(repair=True)
        self._history.outcome(call, {"repaired": report.repaired, "problems": list(report.problems)})

    def ask(self, op: Op) -> Reply:
        """One operation; its reply."""
        call = self._history.intent("op", {"op": write(Op, op)})
        known = self.names.newest
        reply = self._reply(op)
        created = [self.names.job_id(number).hex for number in range(known + 1, self.names.newest + 1)]
        self._history.outcome(call, {"reply": write(Reply, reply), "created": created})
        return reply

    def _reply(self, op: Op) -> Reply:
        match op:
            case ops.Advance(ms):
                self._clock.advance(ms)
                return replies.Advanced(self.opened.now_ms())
            case ops.Reopen():
                raise ValueError("lives are opened and closed by steps of their own")
            case _:
                return self._translator.call(self.opened, op)


def live(
    *, path: str, history: str, config: Any, steps: list[Any], point: str | None, number: int, database: str
) -> Answer:
    """Take the steps; `"arm"` among them is where the kill point is armed. How often each point was met since then.

    Points that begin with `call:` are system calls (`tests.chaos.syscalls`): those are counted when `point` is `call:`.
    """
    install(sweep_commit=SWEEP_COMMIT)
    points, tracer = PointedDatabase.points, None
    past = remember(Path(history), read(Config, config, "config"))
    with History(Path(history), f"life-{os.getpid()}") as kept:
        life = Life(Path(path), kept, read(Config, config, "config"), named(past.ids), ManualClock(past.now_ms))
        for one in steps:
            match one:
                case "arm" if point is not None and point.startswith(syscalls.PREFIX):
                    name = point.removeprefix(syscalls.PREFIX)
                    log = Path(history).with_suffix(".strace")
                    tracer = syscalls.Tracer(log, (name, number) if name else None).wait()
                case "arm":
                    points.arm(point, number)
                case "open":
                    life.open(DATABASES[database])
                case "close":
                    life.close()
                case "damage":
                    damage(life.opened)
                case "repair":
                    life.repair()
                case {"op": op}:
                    life.ask(read(Op, op, "step"))
                case _:
                    raise ValueError(f"{one!r} is no step")
        if tracer is not None:
            return dict(tracer.counted())
        points.disarm()
    return dict(points.hits)


def damage(queue: JobQueue) -> None:
    """Put every derived family out of step with the rows: entries gone, one that nothing explains, a false count."""
    families = queue._store._database._families
    for family in (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM):
        keys = [key for key, _ in raw(queue)[family.value]]
        for key in keys[:2]:
            families[family].delete(key)
    families[Family.TIMERS].put(bytes(8) + b"nobody's job id.", b"")
    count = next(key for key, _ in raw(queue)["meta"] if key.startswith(b"count/"))
    families[Family.META].put(count, (9).to_bytes(8, "big"))


def said(steps: Iterable[Op | str]) -> list[Any]:
    """Steps as `live` takes them: `"open"`, `"close"`, `"arm"` and operations."""
    return [one if isinstance(one, str) else {"op": write(Op, one)} for one in steps]


# -- what a history tells


def remember(path: Path, config: Config) -> Past:
    """Follow a history. Raises `StoppedError` when no state of the model is left: a reply that cannot be."""
    states = before = crash.vacant(START_MS)
    trail: list[Queue] = []
    ids: list[str] = []
    now_ms, cut = START_MS, None
    for line in read_history(path) if path.exists() else ():
        if isinstance(line, Call) and line.call == "repair":
            continue
        happening = _happening(line)
        if isinstance(line, Call) and line.call == "op" and line.told is not None:
            ids += line.told["created"]
        if isinstance(happening, crash.Call) and isinstance(happening.reply, replies.Advanced):
            now_ms = happening.reply.now_ms
        after = crash.follow(config, states, happening, sweep_commit=SWEEP_COMMIT)
        if not after:
            raise StoppedError([f"{_as_text(happening)} is no reply of the model's in {_as_text(min(states))}"])
        if isinstance(happening, crash.Call) and happening.reply is None:
            cut, before = happening.op, states
        elif not isinstance(happening, crash.Kill):
            cut = None
        states = after
        if len(states) == 1:
            [one] = states
            trail.append(one.queue)
    return Past(states, before, trail, ids, now_ms, cut)


def _happening(line: Call | Note) -> crash.Happening:
    match line:
        case Note("killed"):
            return crash.Kill()
        case Call(call="open", told=told):
            return crash.Open(None if told is None else told["incarnation"])
        case Call(call="close", told=told):
            return crash.Close(told is not None)
        case Call(call="op", given=given, told=told):
            reply = None if told is None else read(Reply, told["reply"], "reply")
            return crash.Call(read(Op, given["op"], "op"), reply)
        case _:
            raise ValueError(f"{line} is no happening")


def named(ids: Iterable[str]) -> Names:
    """Numbers for the job ids that were told, in the order in which they were."""
    names = Names()
    for job_id in ids:
        names.created(UUID(job_id))
    return names


# -- looking


def raw(queue: JobQueue) -> Raw:
    """The pairs of every family."""
    found = {}
    for family, handle in queue._store._database._families.items():
        pairs = []
        iterator = handle.iter(ReadOptions())
        iterator.seek_to_first()
        while iterator.valid():
            pairs.append((iterator.key(), iterator.value()))
            iterator.next()
        iterator.status()
        found[family.value] = pairs
    return found


def meet_strangers(pairs: Raw, names: Names) -> int:
    """Number the jobs that no receipt told: a cut call made them. Ids rise in creation order. How many there are."""
    strangers = sorted(key for key, _ in pairs["ids"] if names.number(key) < 1)
    for key in strangers:
        names.created(UUID(bytes=key))
    return len(strangers)


def fitting(states: crash.States, trail: Sequence[Queue], seen: Observed) -> list[tuple[crash.Disk, Expectations]]:
    """The states that the database is, each with what was learnt by comparing.

    Raises `StoppedError` with what differs from the nearest when there is none.
    """
    found, nearest = [], None
    for disk in states:
        expectations = Expectations()
        for queue in trail:
            expectations.meet(queue)
        sentences = list(expectations.differences(disk.queue, seen))
        newest = seen.meta.get("commit", (0, 0))[0]
        sentences += [
            f"job {number}: its row says commit {row.sequence}, the newest is {newest}"
            for number, row in seen.rows.items()
            if row.sequence > newest
        ]
        if not sentences:
            found.append((disk, expectations))
        elif nearest is None or len(sentences) < len(nearest):
            nearest = sentences
    if not found:
        raise StoppedError(nearest or ["no state is left"])
    return found


# -- the recovery


def recover(*, path: str, history: str, config: Any, repair: bool = False) -> Answer:
    """Judge what a history's lives left at `path`, `repair` it first if asked to, then go on to the end of every job.

    The answer: `sentences` (what is wrong, none if nothing is), `states` (how many were possible before the look),
    `happened` (whether the cut call did something; None when there was none), `steps` (taken in lock-step after it).
    """
    settings = read(Config, config, "config")
    answer: Answer = {"sentences": [], "states": 0, "happened": None, "steps": 0}
    try:
        past = remember(Path(history), settings)
        answer["states"] = len(past.states)
        with History(Path(history), f"recovery-{os.getpid()}") as kept:
            _recovered(Path(path), kept, settings, past, answer, repair=repair)
    except StoppedError as error:
        answer["sentences"] = error.sentences
    return answer


def _recovered(path: Path, kept: History, config: Config, past: Past, answer: Answer, *, repair: bool) -> None:
    life = Life(path, kept, config, named(past.ids), ManualClock(past.now_ms))
    told = life.open()
    if repair:
        life.repair()
    states = crash.follow(config, past.states, crash.Open(told))
    if not states:
        raise StoppedError([f"the open told incarnation {told}, which no state explains"])
    decoder = Decoder(life.names)
    pairs = raw(life.opened)
    meet_strangers(pairs, life.names)
    decoder.observe(pairs)
    seen = decoder.observe(pairs)  # the second look: no row is new to it
    found = fitting(states, past.trail, seen)
    if len(found) != 1:
        raise StoppedError([f"{len(found)} states are what was found: the look tells too little"])
    [(disk, expectations)] = found
    if past.cut is not None:
        answer["happened"] = crash.happened(past.before, frozenset((disk,)))
    problems = life.opened.check().problems
    if problems:
        raise StoppedError([f"check: {problem}" for problem in problems])
    _go_on(life, config, disk.queue, past.cut, answer, lambda: decoder.observe(raw(life.opened)), expectations)
    life.close()


def _go_on(
    life: Life,
    config: Config,
    queue: Queue,
    cut: Op | None,
    answer: Answer,
    look: Callable[[], Observed],
    expectations: Expectations,
) -> None:
    """The cut call once more, then whatever brings every job to its end; model and queue compared at each step."""
    settled, commits = True, look().meta.get("commit")
    for number in range(STEPS_MAX):
        op = cut if number == 0 and cut is not None else next_to_the_end(config, queue, number)
        if op is None:
            break
        wanted, queue = step(config, queue, op)
        found = life.ask(op)
        seen = look()
        sentences = list(expectations.differences(queue, seen))
        before, commits = commits, seen.meta.get("commit")
        # Who only came due joins the ring by the next call that writes, at the latest.
        settled = commits != before or (settled and not isinstance(op, ops.Advance))
        ring = ring_difference(queue, life.opened._engine._shared.agenda.ring(), settled=settled)
        sentences += [] if ring is None else [ring]
        if expected_reply(wanted, life.names.newest) != found:
            sentences.insert(0, f"reply: model {as_code(wanted)}, queue {as_code(found)}")
        if sentences:
            raise StoppedError([f"afterwards, {as_code(op)}: {sentence}" for sentence in sentences])
        answer["steps"] += 1
    left = [job.job_id for job in queue.jobs if job.state not in (COMPLETED, DEAD)]
    problems = life.opened.check().problems
    if left or problems:
        raise StoppedError([*(f"job {number} came to no end" for number in left), *problems])


def next_to_the_end(config: Config, queue: Queue, number: int) -> Op | None:
    """The operation that brings the jobs nearer to their end: complete what is leased, else let time pass, sweep and
    lease in turn. None when every job has ended.
    """
    held = [
        Ref(job.job_id, job.generation)
        for job in queue.jobs
        if job.state is LEASED and job.deadline_ms is not None and job.deadline_ms > queue.now_ms
    ]
    if held:
        return ops.Complete(held[0], 1) if number % 2 else ops.CompleteMany(tuple([(ref, 1) for ref in held]))
    if all(job.state in (COMPLETED, DEAD) for job in queue.jobs):
        return None
    turns = (ops.Lease("last", config.lease_batch_max), ops.Advance(config.backoff.cap_ms), ops.Reap())
    return turns[number % len(turns)]


def _as_text(value: Any) -> str:
    return as_code(value) if isinstance(value, tuple) else str(value)
