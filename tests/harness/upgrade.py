"""The upgrade run: rows that an older engine wrote, opened and continued by this tree's engine.

Walks lead the older engine through the states of a universe, one operation after the other; at the first visit
of each state the whole database is kept as it is on disk. This tree's engine then opens each of them, after a clean end
and after a crash in turn, repeats the submits recorded there, and goes on in lock-step with this tree's model,
everything compared after every step. The older engine runs in a process of its own, this tree's harness driving it by
its public interface.

    python -m tests.harness.upgrade UNIVERSE OUT STATES    what that process runs: writes databases as lines of JSON
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from telha_jobs import JobQueue, ManualClock
from telha_jobs.store.database import Database
from telha_jobs.store.port import Delete, Family, Put
from telha_model.alphabet import offers
from telha_model.explore import Graph, explore
from telha_model.ops import Complete, Fail, Op, Reopen
from telha_model.state import Digest, Queue, Submit, new_queue
from telha_model.step import step
from telha_model.types import Config, Ref
from telha_model.universes import universes
from tests.harness.lockstep import Lockstep
from tests.harness.spec_versions import ROOT, Place
from tests.harness.subject import EngineSubject
from tests.harness.translate import expected_reply

UNIVERSE: Final = "protocol"
CONTINUED: Final = 8
GOLDEN: Final = ROOT / "tests" / "unit" / "golden" / "v1" / "database.rows"
GOLDEN_MS: Final = 1_700_000_310_006
"""The newest time in the golden rows."""
OnState = Callable[[int, int], None]


class Kept(NamedTuple):
    """A database as an engine wrote it: which walk and step led there, its rows, and the ids of its jobs."""

    walk: int
    step: int
    rows: list[tuple[str, str, str]]
    ids: list[str]


class Upgraded(NamedTuple):
    """How many states were written, opened and continued, over how many steps, and what was wrong; by universe how
    many of how many.
    """

    states: int
    steps: int
    problems: tuple[str, ...]
    universes: tuple[tuple[str, int, int], ...] = ()


def chosen(graph: Graph, states: int | None) -> set[int]:
    """The places to visit: all but the fresh queue, or so many of them, spread evenly over the exploration."""
    places = range(1, len(graph.states))
    return set(places if states is None else places[:: -(-len(places) // states)])


def walks(graph: Graph, wanted: set[int]) -> list[list[int]]:
    """Walks of offers from the fresh queue that visit every wanted state: always the nearest one not visited yet."""
    left = set(wanted)
    found: list[list[int]] = []
    here = 0
    steps: list[int] = []
    while left:
        way, there = _nearest(graph, here, left)
        if there < 0:
            # No way leads from here: a new walk from the fresh queue.
            found.append(steps)
            here, steps = 0, []
            continue
        for offer in way:
            here = graph.targets[here][offer]
            left.discard(here)
        steps += way
    return [*found, steps]


def _nearest(graph: Graph, start: int, wanted: set[int]) -> tuple[list[int], int]:
    came: dict[int, tuple[int, int]] = {start: (start, -1)}
    work = deque([start])
    while work:
        place = work.popleft()
        if place in wanted:
            way: list[int] = []
            there = place
            while place != start:
                place, offer = came[place]
                way.append(offer)
            return way[::-1], there
        for offer, target in enumerate(graph.targets[place]):
            if target not in came:
                came[target] = (place, offer)
                work.append(target)
    return [], -1


# -- the older engine


def write(name: str, out: Path, states: int | None) -> None:
    """Lead the engine that can be imported here through states of a universe; a line per state, or a problem."""
    graph = explore(universes()[name]).graph
    universe = graph.universe
    offer = offers(universe.alphabet)
    with out.open("w", encoding="ascii") as file:
        left = chosen(graph, states)
        for number, walk in enumerate(walks(graph, left)):
            subject = EngineSubject(universe.config, universe.start_ms)
            queue, place = new_queue(universe.start_ms), 0
            try:
                for taken, choice in enumerate(walk, 1):
                    op = offer(queue)[choice]
                    reply, queue = step(universe.config, queue, op)
                    place = graph.targets[place][choice]
                    wanted, found = expected_reply(reply, subject.names.newest), subject.apply(op)
                    if wanted != found:
                        problem = f"walk {number}, step {taken}, {op}: this model says {wanted}, the old engine {found}"
                        file.write(json.dumps({"problem": problem}) + "\n")
                        break
                    if place in left:
                        left.remove(place)
                        file.write(json.dumps(_kept(number, taken, subject)._asdict()) + "\n")
            finally:
                subject.close()


def _kept(walk: int, taken: int, subject: EngineSubject) -> Kept:
    rows = [(family, key.hex(), value.hex()) for family, pairs in subject._raw().items() for key, value in pairs]
    ids = [str(subject.names.job_id(number)) for number in range(1, subject.names.newest + 1)]
    return Kept(walk, taken, rows, ids)


def written(place: Place, out: Path, universe: str = UNIVERSE, *, states: int | None = None) -> list[str]:
    """Have the engine at a place write its states, or so many, in a process of its own; what went wrong."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place.engine), str(ROOT / "model"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.harness.upgrade", universe, str(out), str(states or "all")]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        return [f"the engine of {place.name} cannot be driven from here: {last}"]
    return []


# -- this tree's engine


class _Successor(EngineSubject):
    """This tree's engine on a database that another one wrote."""

    def __init__(self, config: Config, now_ms: int, kept: Kept, history: list[Queue], *, clean: bool) -> None:
        self._kept, self._clean = kept, clean
        super().__init__(config, now_ms)
        for job_id in kept.ids:
            self.names.created(UUID(job_id))
        for queue in history:
            for job in queue.jobs:
                self._expectations.kinds.setdefault(job.spec.kind, len(self._expectations.kinds) + 1)
        self._expectations._jobs_seen = history[-1].next_job_id - 1
        self._commits = self._decoder.observe(self._raw()).meta.get("commit", (0, 0))[0]

    def _open(self) -> JobQueue:
        if self._opens == 0:
            rows = [row for row in self._kept.rows if not (self._clean and bytes.fromhex(row[1]) == b"store/open")]
            put_in_place(self._path, rows, self._clock)
        return super()._open()


def put_in_place(path: Path, rows: list[tuple[str, str, str]], clock: ManualClock) -> None:
    """A database that holds exactly these rows: family, key and value in hexadecimal."""
    JobQueue.open(path, clock=clock).close()
    database = Database.open(path)
    try:
        meta = [key for key, _ in database.iterate(Family.META, b"", None, 1_000)]
        puts = [Put(Family(family), bytes.fromhex(key), bytes.fromhex(value)) for family, key, value in rows]
        database.write(database.batch([*[Delete(Family.META, key) for key in meta], *puts]))
        database.flush()
    finally:
        database.close()


def upgraded(
    place: Place, scratch: Path, names: Sequence[str], *, states: int | None, on_state: Callable[[str], OnState]
) -> Upgraded:
    """The whole run: every universe's states written by the engine at a place and continued by this tree's.

    `states`: at most so many of each universe, spread over it evenly; None: all of them.
    """
    done = Upgraded(0, 0, ())
    for name in names:
        out = scratch / f"states-{name}"
        problems = written(place, out, name, states=states)
        if problems:
            return done._replace(problems=(*done.problems, *[f"{name}: {problem}" for problem in problems]))
        found = continued(out, name, states=states, on_state=on_state(name))
        out.unlink()
        done = Upgraded(
            done.states + found.states,
            done.steps + found.steps,
            (*done.problems, *[f"{name}: {problem}" for problem in found.problems]),
            (*done.universes, *found.universes),
        )
    return done


def continued(
    out: Path, universe: str = UNIVERSE, *, states: int | None = None, on_state: OnState | None = None
) -> Upgraded:
    """Open the databases of a file with this tree's engine and go on from each; `states` as they were written."""
    graph = explore(universes()[universe]).graph
    lines = [json.loads(line) for line in out.read_text("ascii").splitlines()]
    problems = [line["problem"] for line in lines if "problem" in line]
    kept = [Kept(**line) for line in lines if "rows" in line]
    wanted = chosen(graph, states)
    if len(kept) < len(wanted):
        problems.append(f"only {len(kept)} of {len(wanted)} states were written")
    histories = _histories(graph, walks(graph, wanted))
    steps = 0
    for number, one in enumerate(kept):
        try:
            steps += _go_on(graph, one, histories[one.walk][: one.step + 1], clean=number % 2 == 0, turn=number)
        except Exception as error:  # noqa: BLE001  an engine that meets foreign rows may raise anything
            problems.append(f"the state after walk {one.walk}, step {one.step}: {type(error).__name__}: {error}")
        if on_state is not None:
            on_state(number + 1, len(kept))
    return Upgraded(len(kept), steps, tuple(problems), ((universe, len(kept), len(graph.states) - 1),))


def _histories(graph: Graph, plan: list[list[int]]) -> list[list[Queue]]:
    """The model's queues along each walk."""
    universe = graph.universe
    offer = offers(universe.alphabet)
    histories = []
    for walk in plan:
        queue = new_queue(universe.start_ms)
        history = [queue]
        for choice in walk:
            _, queue = step(universe.config, queue, offer(queue)[choice])
            history.append(queue)
        histories.append(history)
    return histories


def _go_on(graph: Graph, kept: Kept, history: list[Queue], *, clean: bool, turn: int) -> int:
    universe = graph.universe
    offer = offers(universe.alphabet)
    _, queue = step(universe.config, history[-1], Reopen(clean=clean))

    def successor(config: Config, start_ms: int) -> _Successor:
        return _Successor(config, start_ms, kept, history, clean=clean)

    lockstep = Lockstep(universe.config, successor, start_ms=queue.now_ms)
    lockstep.queue = queue
    try:
        lockstep.compare(public=True)
        for op in _repeats(queue):
            lockstep.step(op)
        for taken in range(CONTINUED):
            offered = offer(lockstep.queue)
            lockstep.step(offered[(turn * 7 + taken * 13) % len(offered)])
        return len(lockstep.ops)
    finally:
        lockstep.close()


def _repeats(queue: Queue) -> list[Op]:
    """The newest recorded submit of every job once more: only this shows that its digest, opaque, is understood."""
    found: list[Op] = []
    for job in queue.jobs:
        match job.submit:
            case Submit(Digest("complete", generation, (result, follow_ups))):
                found.append(Complete(Ref(job.job_id, generation), result, follow_ups))  # type: ignore[arg-type]  # as recorded
            case Submit(Digest("fail", generation, (reason, retryable))):
                found.append(Fail(Ref(job.job_id, generation), str(reason), bool(retryable)))
            case _:
                pass
    return found


def golden_problems(scratch: Path) -> list[str]:
    """The golden rows of format version 1, opened by this tree's engine: what its check finds."""
    lines = [line.split() for line in GOLDEN.read_text("ascii").splitlines()]
    rows = [(family, key, "" if value == "-" else value) for family, key, value in lines]
    clock = ManualClock(GOLDEN_MS)
    put_in_place(scratch / "golden", rows, clock)
    with JobQueue.open(scratch / "golden", clock=clock) as queue:
        report = queue.check()
        told = sum(1 for row in rows if row[0] == Family.JOBS.value)
        counted = [] if report.rows == told else [f"golden rows: {told} jobs were written, {report.rows} are there"]
        return [*counted, *[f"golden rows: {problem}" for problem in report.problems]]


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), None if sys.argv[3] == "all" else int(sys.argv[3]))
