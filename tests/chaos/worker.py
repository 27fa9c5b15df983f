"""The lane `worker`: workers in processes of their own that are killed, stopped and woken; the queue stays alive.

Each scenario says what the job's log must tell in the end; everything that anybody was told is judged by the model as
well, as in the lane `blackbox`. The seed draws how long a worker lives on after it has its lease.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos import blackbox
from tests.chaos.frame import FoundError, Lane, Run
from tests.chaos.hand import caller_of
from tests.chaos.history import History
from tests.chaos.remote import Hand, Owner
from tests.harness.judging import ROWS, judged, snapshot

CONFIG: Final[dict[str, Any]] = blackbox.CONFIG | {"lease_ttl_ms": 1_000}
"""The black box's, with leases that a busy machine does not let expire by itself."""
WAIT_S: Final = 30.0
JOB: Final = {"scope": 1, "kind": "work", "payload": 5}


class Stage:
    """A queue that is alive, and whoever looks at it."""

    def __init__(self, owner: Owner, caller: Any, history: Path, chance: Random) -> None:
        self.caller = caller
        self.chance = chance
        self._owner = owner
        self._history = history

    def enqueue(self) -> str:
        """One job; its id."""
        [receipt] = self.caller.ask("enqueue", jobs=[JOB])
        return str(receipt["job"])

    def hand(self, name: str, *steps: str) -> Hand:
        """A worker."""
        return Hand(self._owner.address, self._history, name, *steps)

    def job(self, job: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of the states."""
        until = time.monotonic() + WAIT_S
        while True:
            told: dict[str, Any] = self.caller.ask("get", job=job)
            if told["state"] in states:
                return told
            if time.monotonic() > until:
                raise FoundError(f"a job stays {told['state']} and does not become {' or '.join(states)}")
            time.sleep(0.005)


@contextmanager
def stage(run: Run, name: str, owned_by: type[Owner] = Owner) -> Iterator[Stage]:
    """A queue's process for one scenario; when that has ended, all that was told is judged."""
    root = run.room(name)
    history = root / "history.ndjson"
    with History(history, "stage") as kept, owned_by(root / "db", CONFIG, root / "owner.log") as owner:
        kept.note("opened", **owner.opened())
        caller = caller_of(owner.address, kept)
        try:
            yield Stage(owner, caller, history, Random(f"{run.seed}/{name}"))
        finally:
            caller.close()
        owner.kill()
        kept.note("killed", life=1)
    snapshot(root / "db", root / ROWS.format(1))
    report = judged(root, CONFIG)
    tally = run.tally
    tally.covered["scenarios"] += 1
    tally.covered["calls"] += report.calls
    tally.lost += report.lost
    tally.unexpected += report.unexpected
    tally.duplicated += report.duplicated
    tally.recovered += report.recovered
    if report.sentences:
        raise FoundError("; ".join(report.sentences[:3]))


def expect(what: str, wanted: object, found: object) -> None:
    """`FoundError` unless they are equal."""
    if wanted != found:
        raise FoundError(f"{what}: {found!r}, it should be {wanted!r}")


def log(job: dict[str, Any]) -> list[str]:
    """The transitions of a job's log."""
    return [transition for _, transition, _ in job["events"]]


def killed_worker(run: Run, owned_by: type[Owner] = Owner) -> None:
    """A worker that holds a lease dies of kill -9: after the ttl, not before, the job is leased again and completes."""
    with stage(run, "killed-worker", owned_by) as here:
        job = here.enqueue()
        with here.hand("first", "lease", "hang") as first:
            lease = first.said("lease")
            time.sleep(here.chance.uniform(0, 0.1))
            first.signal(signal.SIGKILL)
        with here.hand("second", "lease", "complete") as second:
            again = second.said("lease")
            told = second.said("complete")
        end = here.job(job, "completed")
        expect("what the second worker was told", [], told)
        expect(
            "job and attempts of the leases",
            [(job, 1), (job, 2)],
            [(one["job"], one["attempt"]) for one in (lease, again)],
        )
        expect("the log", ["enqueued", "leased", "reaped", "leased", "completed"], log(end))
        expect("the result", "second", end["result"])
        granted_ms = end["events"][3][0]
        expect("whether it was granted again before the deadline", False, granted_ms < lease["deadline_ms"])


def stopped_worker(run: Run, owned_by: type[Owner] = Owner) -> None:
    """A worker stopped past its deadline wakes and submits: stale, and the winner's result stands."""
    with stage(run, "stopped-worker", owned_by) as here:
        job = here.enqueue()
        with here.hand("sleeper", "lease", "wait", "complete") as sleeper:
            lease = sleeper.said("lease")
            sleeper.signal(signal.SIGSTOP)
            with here.hand("winner", "lease", "complete") as winner:
                again = winner.said("lease")
                winner.said("complete")
            sleeper.go()
            sleeper.signal(signal.SIGCONT)
            sleeper.said("wait")
            told = sleeper.said("complete")
        end = here.job(job, "completed")
        expect("the generations", True, again["generation"] > lease["generation"])
        expect(
            "what the sleeper was told",
            {"refused": "StaleLeaseError", "why": "superseded", "state": "completed", "current": again["generation"]},
            told,
        )
        expect("the result", "winner", end["result"])
        expect("the log", ["enqueued", "leased", "reaped", "leased", "completed"], log(end))


def stopped_while_leased_again(run: Run, owned_by: type[Owner] = Owner) -> None:
    """The same while the other worker still holds the job: stale, and its lease and its result stand."""
    with stage(run, "stopped-while-leased-again", owned_by) as here:
        job = here.enqueue()
        with here.hand("sleeper", "lease", "wait", "complete") as sleeper:
            sleeper.said("lease")
            sleeper.signal(signal.SIGSTOP)
            with here.hand("winner", "lease", "wait", "complete") as winner:
                again = winner.said("lease")
                sleeper.go()
                sleeper.signal(signal.SIGCONT)
                sleeper.said("wait")
                told = sleeper.said("complete")
                winner.go()
                winner.said("wait")
                won = winner.said("complete")
        end = here.job(job, "completed", "failed", "pending")
        wanted = {"refused": "StaleLeaseError", "why": "superseded", "state": "leased", "current": again["generation"]}
        expect("what the sleeper was told", wanted, told)
        expect("what the winner was told, and the result", ([], "winner"), (won, end["result"]))


def poison(run: Run, owned_by: type[Owner] = Owner) -> None:
    """A job that kills every worker: dead after exactly three leases, by expiry, with a back-off that grew (F8, F9)."""
    with stage(run, "poison", owned_by) as here:
        job = here.enqueue()
        for attempt in (1, 2, 3):
            with here.hand(f"victim-{attempt}", "lease", "hang") as victim:
                expect("the attempt", attempt, victim.said("lease")["attempt"])
                victim.signal(signal.SIGKILL)
        end = here.job(job, "dead")
        expect("the log", ["enqueued", "leased", "reaped", "leased", "reaped", "leased", "dead"], log(end))
        expect("why it is dead, and after how many attempts", ("expired", 3), (end["dead_reason"], end["attempts"]))
        delays = [detail["due"] - at_ms for at_ms, transition, detail in end["events"] if transition == "reaped"]
        expect("the back-offs", [20, 40], delays)
        nobody = here.caller.ask("lease", worker="late", limit=1)
        expect("what a later worker gets", [], nobody)


def killed_in_every_phase(run: Run, owned_by: type[Owner] = Owner) -> None:
    """A worker killed after its lease, in its handler, while its completion is under way: one outcome each (F13)."""
    with stage(run, "killed-in-every-phase", owned_by) as here:
        for phase in (("lease", "hang"), ("lease", "wait", "hang"), ("lease", "complete unheard")):
            job = here.enqueue()
            with here.hand(f"first-{len(phase)}-{phase[-1][0]}", *phase) as first:
                first.said("lease")
                if phase[1] == "wait":
                    first.go()
                    first.said("wait")
                if phase[-1] == "hang":
                    first.signal(signal.SIGKILL)
                first.process.wait()
            if phase[-1] == "hang":
                with here.hand(f"second-{len(phase)}", "lease", "complete") as second:
                    expect("the job that comes back", job, second.said("lease")["job"])
                    second.said("complete")
            end = here.job(job, "completed")
            expect("completions", 1, log(end).count("completed"))


def shut_down_worker(run: Run, owned_by: type[Owner] = Owner) -> None:
    """A worker that is told to end gives its job back: leased again at once, untried; what it submits then is stale."""
    with stage(run, "shut-down-worker", owned_by) as here:
        job = here.enqueue()
        with here.hand("leaver", "lease", "stop", "release", "complete") as leaver:
            lease = leaver.said("lease")
            leaver.signal(signal.SIGTERM)
            leaver.said("stop")
            given_back, told = leaver.said("release"), leaver.said("complete")
        with here.hand("second", "lease", "complete") as second:
            again = second.said("lease")
            second.said("complete")
        end = here.job(job, "completed")
        expect("what the release was told", None, given_back)
        wanted = {
            "refused": "StaleLeaseError",
            "why": "released",
            "state": "pending",
            "current": lease["generation"],
        }
        expect("what the submit after it was told", wanted, told)
        expect("the attempts", (1, 1), (lease["attempt"], again["attempt"]))
        expect("the log", ["enqueued", "leased", "released", "leased", "completed"], log(end))
        expect("the result", "second", end["result"])


SCENARIOS: Final[tuple[Callable[[Run], None], ...]] = (
    killed_worker,
    stopped_worker,
    stopped_while_leased_again,
    shut_down_worker,
    poison,
    killed_in_every_phase,
)


def _body(run: Run) -> None:
    rounds = 0
    while run.goes_on(rounds, ci=1):
        again = Run(run.lane, seed=run.seed + rounds, seconds=run.seconds, root=run.room(str(rounds)), say=run.say)
        again.tally = run.tally
        for scenario in SCENARIOS:
            scenario(again)
            run.say(f"{run.tally.covered['scenarios']} scenarios")
        rounds += 1


LANE: Final = Lane(
    name="worker",
    proves="a killed worker's job comes back after its deadline and completes; a worker that wakes late is stale",
    cannot="anything about the queue's own death; that no other moment than these exists",
    body=_body,
    repeats=False,
)
