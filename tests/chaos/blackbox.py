"""The lane `blackbox`: a queue's process under mixed load, killed at random moments, opened again, killed again.

The callers are threads of this process, so the history outlives every kill. After a kill the rows are read from the
directory as it was left; at the end the history and the rows are judged with the model, job by job
(`tests.harness.judging`), and in a last life every job is brought to its end.

It does not repeat from its seed: the seed decides what callers ask and when kills come, not how their calls interleave.
What it found stays in the kept directory, and `scripts/chaos --lane blackbox --judge DIR` judges that again.
"""

import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos.frame import FoundError, Lane, Run
from tests.chaos.history import History
from tests.chaos.load import Crew, Line
from tests.chaos.remote import Caller, Owner
from tests.harness.judging import ROWS, judge_kept, judged, snapshot, take

CI_LIVES: Final = 16
LIVES_PER_DATABASE: Final = 16
"""A database grows with every life, and each is judged as a whole; then a new one is begun."""
LIFE_S: Final = (0.05, 0.6)
"""A life under load is killed after a time drawn from here."""
DRAIN_S: Final = 60.0
IN_FLIGHT_SHARE_MIN: Final = 0.5
WRITES: Final = ("enqueue", "complete", "fail", "release", "extend")
"""Calls that a kill can cut between their write and their answer; a lease mostly waits for work."""
CONFIG: Final[dict[str, Any]] = {
    "lease_ttl_ms": 300,
    "reaper_interval_ms": 40,
    "max_attempts": 3,
    "backoff": {"base_ms": 20, "factor": 2, "cap_ms": 100},
    "retention_completed_ms": None,
    "retention_dead_ms": None,
}


def _body(run: Run) -> None:
    done = 0
    while run.goes_on(done, ci=CI_LIVES):
        root = run.room(f"database-{done}")
        chance = Random(f"{run.seed}/{done}")
        done += _one_database(run, root, chance, done)
    covered = run.tally.covered
    share = covered["kills with writes in flight"] / covered["kills"]
    if not share > IN_FLIGHT_SHARE_MIN:
        raise FoundError(f"only {share:.0%} of the kills met writes in flight: the lane proves too little")


def _one_database(run: Run, root: Path, chance: Random, before: int) -> int:
    """Lives on one database, then the last one, then the judgement; how many lives were killed under load."""
    line, lives = Line(), 0
    with History(root / "history.ndjson", "supervisor") as history:
        crew = Crew(line, root / "history.ndjson", chance.randrange(2**32))
        try:
            while lives < LIVES_PER_DATABASE and run.goes_on(before + lives, ci=CI_LIVES):
                lives += 1
                _killed_life(run, root, history, (line, crew), lives, chance.uniform(*LIFE_S))
                run.say(f"{before + lives} kills")
            _last_life(root, history, line, lives + 1)
        finally:
            crew.end()
    take(run, judged(root, CONFIG))
    return lives


def _killed_life(run: Run, root: Path, history: History, load: tuple[Line, Crew], number: int, seconds: float) -> None:
    line, crew = load
    with Owner(root / "db", CONFIG, root / "owner.log") as owner:
        history.note("opened", **owner.opened())
        line.set(owner.address)
        time.sleep(seconds)
        _stop_on(line)
        pending = crew.pending()
        owner.kill()
        line.set(None)
        history.note("killed", life=number)
    run.tally.covered["kills"] += 1
    run.tally.covered["kills with calls in flight"] += bool(pending)
    run.tally.covered["kills with writes in flight"] += any(call in WRITES for call in pending)
    snapshot(root / "db", root / ROWS.format(number))


def _last_life(root: Path, history: History, line: Line, number: int) -> None:
    """No faults any more: every job comes to its end. Then this process is killed as well."""
    line.draining = True
    with Owner(root / "db", CONFIG, root / "owner.log") as owner:
        history.note("opened", **owner.opened())
        line.set(owner.address)
        watcher = Caller(owner.address, history)
        until = time.monotonic() + DRAIN_S
        while any((counts := watcher.ask("counts"))[state] for state in ("pending", "leased", "failed")):
            _stop_on(line)
            if time.monotonic() > until:
                raise FoundError(f"after {DRAIN_S:.0f} s without a fault jobs are left: {counts}")
            time.sleep(0.02)
        watcher.close()
        owner.kill()
        line.set(None)
        history.note("killed", life=number)
    snapshot(root / "db", root / ROWS.format(number))


def _stop_on(line: Line) -> None:
    if line.failure is not None:
        raise line.failure


LANE: Final = Lane(
    name="blackbox",
    proves="under load and random kills every answer stands; what was not answered happened whole or not at all",
    cannot="that a rare interleaving came up; anything about power",
    body=_body,
    repeats=False,
    judge=lambda directory: judge_kept(directory, lambda root: judged(root, CONFIG)),
)
