"""The lane `killpoints`: SIGKILL at every named point of every operation, at its first hit, its second, and so on.

For each scenario (`tests.harness.scenarios`) a run without a kill counts how often each point is met from the moment
that is armed; then there is one run for each of these hits, in which the process ends there. After every run, the
uncut one too, a process of its own recovers and judges (`tests.harness.crashing`): the cut call happened or it did
not, and nothing in between; everything before it stands; and all jobs can be brought to their end. The very first open
and a commit too large for one write are cut at every system call, too (`tests.chaos.syscalls`).

The same seed gives the same runs. A long run goes on with programs drawn from the seed.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos.forks import Ended, Forks, LifeError
from tests.chaos.frame import FoundError, Lane, Run
from tests.chaos.history import History
from tests.chaos.syscalls import PREFIX
from tests.harness.crashing import said
from tests.harness.scenarios import CONFIG_DATA, CUT_IN_THE_MIDDLE, SCENARIOS, Scenario, wanderings

LIVE: Final = "tests.harness.crashing:live"
RECOVER: Final = "tests.harness.crashing:recover"
WANDERING_CALLS: Final = 30
CI_WANDERINGS: Final = 4
DRAWN_HITS: Final = 4
"""Kills of each program that is drawn."""


class Killer:
    """Runs scenarios of one run of the lane. `database`: which one the cut life has (`tests.harness.crashing`)."""

    def __init__(self, run: Run, forks: Forks, *, database: str = "pointed") -> None:
        self._run = run
        self._forks = forks
        self._database = database
        self._cuts = 0

    def every_hit(self, scenario: Scenario, *, calls: bool = False) -> None:
        """Let the scenario run through, then kill it at every hit of every point; `calls`: at every system call."""
        hits: dict[str, int] = self._cut(scenario, PREFIX if calls else None, 0).answer
        self._kill(scenario, [(point, number) for point, met in hits.items() for number in range(1, met + 1)])

    def some_hits(self, scenario: Scenario, chance: Random) -> None:
        """The same at a few hits drawn by chance."""
        hits: dict[str, int] = self._cut(scenario, None, 0).answer
        every = [(point, number) for point, met in hits.items() for number in range(1, met + 1)]
        self._kill(scenario, chance.sample(every, min(len(every), DRAWN_HITS)))

    def _kill(self, scenario: Scenario, hits: list[tuple[str, int]]) -> None:
        covered = self._run.tally.covered
        for point, number in hits:
            if not self._cut(scenario, point, number).killed:
                raise FoundError(f"{scenario.name}: {point} {number} was not met, although it was before")
            covered[f"{scenario.name}: {point}"] += 1
            covered["kills"] += 1
        self._run.say(f"{covered['kills']} kills, in {scenario.name}")

    def _cut(self, scenario: Scenario, point: str | None, number: int) -> Ended:
        """One run: every life but the last ends as it is, the last one at the point; then the recovery."""
        self._cuts += 1
        room = self._run.room(str(self._cuts))
        where = scenario.name if number == 0 else f"{scenario.name}, killed at {point} {number}"
        given = {"path": str(room / "db"), "history": str(room / "history.ndjson"), "config": CONFIG_DATA}
        last = len(scenario.lives) - 1
        ended = Ended(None, 0, {}, "")
        try:
            for index, life in enumerate(scenario.lives):
                cut = {"point": point if index == last else None, "number": number, "database": self._database}
                ended = self._forks.run(LIVE, given | cut | {"steps": said(life)})
                _note_kill(room)
            told = self._forks.run(RECOVER, given | {"repair": scenario.repair}).answer
        except LifeError as error:
            # Whatever the queue raised, no reply of the model stands for it: an open that is refused, say.
            raise FoundError(f"{where} ({room.name}): {error}") from error
        self._judge(told, f"{where} ({room.name})")
        shutil.rmtree(room)
        return ended

    def _judge(self, told: dict[str, Any], where: str) -> None:
        tally = self._run.tally
        tally.covered["steps after"] += told["steps"]
        tally.recovered += told["happened"] is True
        sentences = told["sentences"]
        if sentences:
            lost = sum("has no row" in sentence for sentence in sentences)
            tally.lost += lost
            tally.unexpected += len(sentences) - lost
            raise FoundError(f"{where}: {'; '.join(sentences[:4])}")


def _note_kill(room: Path) -> None:
    with History(room / "history.ndjson", "killer") as history:
        history.note("killed")


def every_hit(run: Run, scenarios: Iterable[Scenario], *, database: str = "pointed") -> None:
    """Every hit of every point of the scenarios."""
    with Forks() as forks:
        killer = Killer(run, forks, database=database)
        for scenario in scenarios:
            killer.every_hit(scenario)


def every_call(run: Run, scenarios: Iterable[Scenario]) -> None:
    """Every system call of the scenarios."""
    with Forks() as forks:
        killer = Killer(run, forks)
        for scenario in scenarios:
            killer.every_hit(scenario, calls=True)


def wandered(run: Run) -> None:
    """Programs drawn from the run's seed, a few in CI, else as long as there is time.

    In a long run one in ten is followed by a scenario that is cut at every system call.
    """
    calls = list(SCENARIOS)
    Random(run.seed).shuffle(calls)
    with Forks() as forks:
        killer = Killer(run, forks)
        for number, scenario in enumerate(wanderings(run.seed, WANDERING_CALLS)):
            if not run.goes_on(number, ci=CI_WANDERINGS):
                break
            killer.some_hits(scenario, Random(f"{run.seed}/{number}"))
            if number % 10 == 9 and calls:
                killer.every_hit(calls.pop(), calls=True)


def _body(run: Run) -> None:
    every_hit(run, SCENARIOS)
    every_call(run, CUT_IN_THE_MIDDLE)
    wandered(run)


LANE: Final = Lane(
    name="killpoints",
    proves="an operation, an open or a close that is cut at any step has happened as a whole or not at all",
    cannot="anything about power: the page cache outlives a killed process, so no sync is missed",
    body=_body,
    repeats=True,
)
