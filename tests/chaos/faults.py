"""Storage faults: every write and every sync of a life fails once, disks run full, and what the queue says and keeps.

A life opens a queue, makes seeded calls and closes it, with one fault in force. For errors of system calls that is the
first write on any of the database's files, in the next life the second, and so on, until a life runs through; the same
for syncs. Each life is judged alone:

- an open that met the fault is refused with `QueueUnavailableError(outcome="not_applied")`
- the call that met it is refused with `QueueUnavailableError`, every later one too, and none of them writes
- a close that met it while something was still to be made durable raises `QueueUnavailableError`
- the queue opens again, and its state is that after a commit: of the last answered call, or of the refused one
- all families agree, and the queue can be used.

First come the opens that must be refused and leave every byte alone: `tests.chaos.refusals`. A long run also lets calls
fail while RocksDB's own threads write tables: that part does not repeat call by call.
"""

import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_jobs import JobQueue, ManualClock, QueueUnavailableError, State
from tests.chaos import history
from tests.chaos.faultload import CONFIG
from tests.chaos.forks import Forks
from tests.chaos.frame import HISTORY, FoundError, Lane, Run
from tests.chaos.injection import Failed, mounts_allowed
from tests.chaos.refusals import refusals
from tests.chaos.seeded import SCOPES, START_MS
from tests.chaos.states import State as Rows
from tests.chaos.states import change, copied, differences, empty, state_of, telling

IMPORTS: Final = ("tests.chaos.faultload",)
LIVE: Final = "tests.chaos.faultload:live"
BASE: Final = "tests.chaos.faultload:base"
CALLS: Final = 6
NO_MOUNTS: Final = "lives that need a mount, which the system refuses"
CI_STRIDE: Final = 4
_MORE_CALLS: Final = 40
_SMALL_LOG_BYTES: Final = 3_000
_LATER_MS: Final = 3_600_000
_NUMBERS_MAX: Final = 500
_UNNOTICED: Final = frozenset({"ftruncate", "unlink", "openat"})
"""Room that is given back, files that are not needed any more, and looks: nothing is lost when one of these fails. Nor
when a thread of RocksDB's meets an error while it makes tables: the log has it all.
"""

Fault = dict[str, Any]


class Told(NamedTuple):
    """A life as its history tells it. `states`: after each commit, and after the one that nobody knows the outcome of.

    `refused` are the calls refused for the storage: their number in the life, and the outcome they were told.
    `written_late`: batches that went to RocksDB after the first of them.
    """

    answered: int
    states: dict[int, Rows]
    calls: int
    refused: list[tuple[int, str]]
    written_late: int


class Faults:
    """Lives of one run of the lane, all of one seed."""

    def __init__(self, run: Run, forks: Forks, seed: int) -> None:
        self._run = run
        self._forks = forks
        self._seed = seed
        self._lives = 0
        room = run.room(f"base-{seed}")
        self.killed = room / "database"
        data = {"database": str(self.killed), "history": str(room / HISTORY), "seed": seed}
        forks.run(BASE, {**data, "calls": CALLS})
        self._base = told(room / HISTORY, None)

    def every(
        self, call: str, error: str, *, fresh: bool, lasting: bool = False, first: int = 1, stride: int = 1, **more: Any
    ) -> int:
        """Let the first call of a kind fail, then the second, until a life meets none; how many there were."""
        for number in range(first, _NUMBERS_MAX, stride):
            when = f"{number}{'+' if lasting else ''}"
            fault = {"kind": "call", "call": call, "error": error, "when": when, **more}
            if not self.life(fault, fresh=fresh, calls=_MORE_CALLS if "log_bytes_max" in more else CALLS):
                return number - 1
        raise FoundError(f"{call}: {_NUMBERS_MAX} lives and no end")

    def life(self, fault: Fault, *, fresh: bool = False, calls: int = CALLS) -> bool:
        """One life and its judgement; whether it met its fault in a system call."""
        self._lives += 1
        room = self._run.room(f"{self._seed}-{self._lives}")
        data = {"database": str(room / "database"), "history": str(room / HISTORY), "seed": self._seed + 1}
        source = None if fresh else str(self.killed)
        answer = self._forks.run(LIVE, {**data, "calls": calls, "fault": fault, "copy_of": source}).answer
        where = f"{'first open' if fresh else 'open after a kill'}, {_shown(fault)} ({room.name})"
        life = told(room / HISTORY, None if fresh else self._base)
        self._judge_answers(answer, life, where)
        self._judge_refusals(life, where)
        self._judge_state(room / "database", life, where)
        covered = self._run.tally.covered
        covered["lives"] += 1
        covered[f"lives: {_kind(fault)}"] += 1
        covered["refused opens"] += answer["open"] is not None
        covered["refused closes"] += answer["close"] is not None
        if self._lives % 10 == 0:
            self._run.say(f"{self._lives} lives, {where}")
        shutil.rmtree(room)
        return bool(answer["failed"])

    def _judge_answers(self, answer: dict[str, Any], life: Told, where: str) -> None:
        for step in ("open", "call", "close"):
            said = answer[step]
            if said is not None and (step == "call" or said["error"] != QueueUnavailableError.__name__):
                raise FoundError(f"{where}: {step} raised {said['text']}")
        if answer["open"] is not None and answer["open"]["outcome"] != "not_applied":
            raise FoundError(f"{where}: an open that is refused applied nothing, this says {answer['open']}")
        for failed in answer["failed"]:
            self._judge_noticed(Failed(*failed), answer, life, where)

    def _judge_noticed(self, failed: Failed, answer: dict[str, Any], life: Told, where: str) -> None:
        """Whoever was at work when it failed was told so: the open, the call or the close."""
        if not failed.own or failed.call in _UNNOTICED or answer["open"] is not None:
            return
        what = f"{where}: {failed.call} of {failed.file} failed"
        if failed.marks == 0:
            raise FoundError(f"{what} while the queue was opened, and it was opened")
        if failed.marks <= life.calls:
            if failed.marks - 1 not in [number for number, _ in life.refused]:
                raise FoundError(f"{what} in call {failed.marks - 1}, and it was answered")
        elif failed.marks == life.calls + 1 and answer["close"] is None and not life.refused:
            raise FoundError(f"{what} while the queue was closed, before all was durable, and nobody was told")

    def _judge_refusals(self, life: Told, where: str) -> None:
        covered = self._run.tally.covered
        if not life.refused:
            return
        first, outcome = life.refused[0]
        covered["first refusals"] += 1
        covered[f"first refusals: {outcome}"] += 1
        covered["later refusals"] += len(life.refused) - 1
        if [number for number, _ in life.refused] != list(range(first, life.calls)):
            raise FoundError(f"{where}: after call {first} was refused another was answered: {life.refused}")
        if any(later != "not_applied" for _, later in life.refused[1:]):
            raise FoundError(f"{where}: a call after the failure may have been applied: {life.refused}")
        if life.written_late:
            self._run.tally.unexpected += life.written_late
            raise FoundError(f"{where}: {life.written_late} batches were written after the failure")

    def _judge_state(self, database: Path, life: Told, where: str) -> None:
        tally = self._run.tally
        try:
            queue = JobQueue.open(database, config=CONFIG, clock=ManualClock(START_MS + _LATER_MS))
        except QueueUnavailableError as error:
            tally.lost += life.answered
            raise FoundError(f"{where}: the queue does not open any more: {error}") from error
        with queue:
            sequence = queue._store.sequence
            if sequence < life.answered:
                tally.lost += life.answered - sequence
                raise FoundError(f"{where}: commit {life.answered} was answered, {sequence} is the newest there")
            if sequence not in life.states:
                tally.unexpected += 1
                raise FoundError(f"{where}: commit {sequence} is there, the newest made is {max(life.states)}")
            differing = telling(differences(life.states[sequence], state_of(queue._store)))
            if differing:
                tally.unexpected += 1
                raise FoundError(f"{where}: this is not the state after commit {sequence}: {differing}")
            tally.recovered += sequence > life.answered
            self._healthy(queue, where)
            _use(queue)
            self._healthy(queue, f"{where}, used")

    def _healthy(self, queue: JobQueue, where: str) -> None:
        report = queue.check()
        if not report:
            self._run.tally.unexpected += len(report.problems)
            raise FoundError(f"{where}: check: {'; '.join(report.problems)}")


def told(path: Path, base: Told | None) -> Told:
    """What a history tells, from the state that the life began with (None: nothing)."""
    answered = 0 if base is None else base.answered
    now = empty() if base is None else copied(base.states[max(base.states)])
    sequence = 0 if base is None else max(base.states)
    states, refused = {sequence: copied(now)}, list[tuple[int, str]]()
    calls, late, over = 0, 0, False
    for one in history.read(path):
        match one:
            case history.Note("written", data):
                change(now, data["changes"])
                late += over
            case history.Note("commit", data):
                sequence = data["sequence"]
                states[sequence] = copied(now)
            case history.Note("over"):
                over = bool(refused)
            case history.Call() if one.told is not None:
                over = bool(refused)  # the batch of the refused call itself stands behind the call
                outcome = one.told.get("outcome")
                if outcome is not None:
                    refused.append((calls, outcome))
                else:
                    answered = one.told["sequence"]
                calls += 1
            case _:
                pass
    if now != states[sequence]:
        states[sequence + 1] = now
    return Told(answered, states, calls, refused, late)


def calls_fail(run: Run, forks: Forks, seed: int, *, fresh: bool, stride: int) -> None:
    """Every write, and every sync of a file or a directory, by itself; and the disk gone from each `stride`-th on."""
    faults = Faults(run, forks, seed)
    for call in ("fdatasync", "fsync", "write"):
        met = faults.every(call, "EIO", fresh=fresh)
        run.tally.covered[f"{'first open' if fresh else 'open after a kill'}: {call}"] = met
        if call == "write":
            # At "os" no sync follows in which RocksDB would tell of the error a second time.
            faults.every("write", "EIO", fresh=fresh, first=met - CALLS, durability="os")
    for call, error in (("write", "ENOSPC"), ("fdatasync", "EIO")):
        faults.every(call, error, fresh=fresh, lasting=True, stride=stride)


def opens_refused(run: Run, forks: Forks, seed: int) -> None:
    """Opens that cannot or must not succeed touch nothing."""
    refusals(run, forks, Faults(run, forks, seed).killed, mounts=mounts_allowed() is None)


def disks_full(run: Run, forks: Forks, seed: int) -> None:
    """No more room at this byte of the log and at that, and a disk that has so many pages left."""
    faults = Faults(run, forks, seed)
    refused = mounts_allowed()
    for spare in (0, 1, 6, 7, 300, 400, 700, 1_100, 1_500):
        faults.life({"kind": "size", "spare": spare})
    if refused is not None:
        run.say(f"disks and their refusals are NOT shown: mounts are not allowed here: {refused}")
        run.tally.covered[NO_MOUNTS] += 1
    else:
        for spare in (0, 1, 2, 5):
            faults.life({"kind": "space", "spare": spare, "when": "opened"}, calls=_MORE_CALLS)


def body(run: Run) -> None:
    """In CI one seed; a long run goes on with other calls failing, and with more seeds."""
    rounds = 0
    with Forks(IMPORTS) as forks:
        while run.goes_on(rounds, ci=1):
            seed = run.seed * 1_000 + 5 * rounds
            stride = CI_STRIDE if run.seconds is None else 1
            # A lane ends at its finding: the quickest first, then the richest.
            opens_refused(run, forks, seed + 4)
            calls_fail(run, forks, seed + 2, fresh=False, stride=stride)
            calls_fail(run, forks, seed + 1, fresh=True, stride=stride)
            disks_full(run, forks, seed)
            if run.seconds is not None:
                _more_calls_fail(Faults(run, forks, seed + 3))
            rounds += 1


def _more_calls_fail(faults: Faults) -> None:
    """Calls of other kinds; and writes and syncs beside which RocksDB's threads write tables, as they happen to."""
    for call in ("rename", "ftruncate", "unlink", "openat"):
        faults.every(call, "EIO", fresh=False)
    for call in ("write", "fdatasync", "fsync"):
        for lasting in (False, True):
            faults.every(call, "EIO", fresh=False, lasting=lasting, log_bytes_max=_SMALL_LOG_BYTES)


def _use(queue: JobQueue) -> None:
    """A job through its life."""
    made = queue.enqueue(SCOPES[0], "after", None, priority=0)
    leases = queue.lease_batch("after", 1_000, kinds=["after"])
    queue.complete(leases[0])
    if [lease.job_id for lease in leases] != [made.job_id] or queue.get(made.job_id).state is not State.COMPLETED:
        raise FoundError(f"a job enqueued after the failure was not leased and completed: {leases}")


def _shown(fault: Fault) -> str:
    return " ".join(str(value) for value in fault.values())


def _kind(fault: Fault) -> str:
    return f"{fault['call']} {fault['error']}" if fault["kind"] == "call" else str(fault["kind"])


LANE: Final = Lane(
    name="faults",
    proves="a write or sync that fails, a full disk: refused until reopened, nothing answered lost, families agree",
    cannot="errors of reads; a disk that loses what it acknowledged (powerloss) or returns other bytes (corruption)",
    body=body,
    repeats=True,
    weight=2,
)
