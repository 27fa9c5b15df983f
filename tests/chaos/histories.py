"""The lane `histories`: eight processes call one server over gRPC at once, every call there is; the server is killed
and started again in between, and what everybody was told is held against the model, as one call after another.

Two verdicts for each life (`tests.harness.linearity`): a proof by the commits that the server names, and a search that
believes none of them. In the last life all but two fall silent: one waits for jobs, the other makes some.

It does not repeat from its seed: the seed decides what callers ask and when kills come, not how their calls interleave.
What it found stays in the kept directory, and `scripts/chaos --lane histories --judge DIR` judges that again.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos import blackbox
from tests.chaos.fleet import LOST, Fleet, Word
from tests.chaos.frame import HISTORY, FoundError, Lane, Run
from tests.chaos.history import History
from tests.chaos.roles import WAKE, WAKING, WAKINGS
from tests.chaos.service import Service
from tests.harness.judging import ROWS, judge_kept, snapshot, take
from tests.harness.linearity import Judged, judged

CONFIG: Final[dict[str, Any]] = blackbox.CONFIG | {"lease_ttl_ms": 400}
CALLERS: Final = ("p0", "p1", "w0", "w1", "w2", "w3", "o0", "m0")
CI_DATABASES: Final = 1
LIVES: Final = 4
"""Of each database; the queue grows with every life, and is judged as a whole."""
LINES: Final = (400, 900)
"""A life is killed when its history has grown by so many lines: two for a call."""
LIFE_S_MAX: Final = 60.0
"""Until a life has come as far as it has to: one to seven seconds, and more where the machine has other work."""
WAKE_ROUNDS: Final = 3
"""How often each kind of waking comes up."""
UNANSWERED_SHARE_MIN: Final = 0.5


class Plan:
    """The size of a run, and a flaw to start its servers with."""

    def __init__(self, *, lives: int = LIVES, broken: str | None = None) -> None:
        self.lives = lives
        self.broken = broken


def body(run: Run, plan: Plan) -> None:
    """Databases, one after another."""
    done = 0
    while run.goes_on(done, ci=CI_DATABASES):
        root = run.room(f"database-{done}")
        chance = Random(f"{run.seed}/{done}")
        found = one_database(run, root, chance, plan)
        run.tally.covered += found.covered
        take(run, found.report)
        done += 1
    covered = run.tally.covered
    if not covered["kills with calls in flight"] >= covered["kills"] * UNANSWERED_SHARE_MIN:
        raise FoundError(
            f"only {covered['kills with calls in flight']} of {covered['kills']} kills met calls in flight"
        )


def one_database(run: Run, root: Path, chance: Random, plan: Plan) -> Judged:
    """Lives on one database, and what they are found to be."""
    with History(root / HISTORY, "supervisor") as history, Fleet(root, chance.randrange(2**32), CALLERS) as fleet:
        for life in range(1, plan.lives + 1):
            with Service(root / "db", CONFIG, root / "server.log", life=life, broken=plan.broken) as server:
                history.note("opened", **server.opened())
                fleet.say(Word(life, server.address, "load"))
                _grow(root / HISTORY, life, chance.randint(*LINES), fleet)
                if life == plan.lives:
                    fleet.say(Word(life, server.address, WAKE))
                    _wake(root / HISTORY, life, fleet)
                fleet.check()
                server.kill()
                fleet.say(Word(life, None, "load"))
                history.note("killed", life=life)
            snapshot(root / "db", root / ROWS.format(life))
            run.tally.covered["kills"] += 1
            run.say(f"{run.tally.covered['kills']} kills")
        fleet.end()
    return judged(root, CONFIG, chance)


def _grow(history: Path, life: int, lines: int, fleet: Fleet) -> None:
    """Wait until a history has so many lines more."""
    for new in _followed(history, life, fleet):
        lines -= len(new)
        if lines <= 0:
            return


def _wake(history: Path, life: int, fleet: Fleet) -> None:
    """Wait until every kind of waking has come up often enough, or one was waited for in vain."""
    wakings = list[bool]()
    for new in _followed(history, life, fleet):
        wakings += [line["data"]["vain"] for line in new if line.get("what") == WAKING]
        if any(wakings) or len(wakings) >= WAKINGS * WAKE_ROUNDS:
            return


def _followed(history: Path, life: int, fleet: Fleet) -> Iterator[list[dict[str, Any]]]:
    """The lines that are added to a history from now on, as they come, until somebody has seen enough."""
    until = time.monotonic() + LIFE_S_MAX
    with history.open("rb") as file:
        rest = file.read().rpartition(b"\n")[2]
        while time.monotonic() < until:
            fleet.check()
            time.sleep(0.02)
            *new, rest = (rest + file.read()).split(b"\n")
            lines = [json.loads(line) for line in new]
            lost = [line["data"] for line in lines if line.get("what") == LOST and line["data"]["life"] == life]
            if lost:
                raise FoundError(f"callers lost a server that lives: {lost}")
            yield lines
    raise FoundError(f"in {LIFE_S_MAX:.0f} s of life {life} the callers came less far than they have to")


LANE: Final = Lane(
    name="histories",
    proves="what eight callers at once were told over gRPC is what one after another would be, over kills",
    cannot="that a rare interleaving came up; anything about power or networks that lose packets",
    body=lambda run: body(run, Plan()),
    repeats=False,
    judge=lambda directory: judge_kept(directory, lambda root: judged(root, CONFIG, Random(0)).report),
)
