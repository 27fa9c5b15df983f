"""The lane `killpoints`: every point of every operation, how many there are, and that a broken queue does not pass."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.forks import Forks, LifeError
from tests.chaos.frame import Lane, Run, play
from tests.chaos.killpoints import LANE, every_call, every_hit, wandered
from tests.chaos.points import POINTS
from tests.harness.mutants import mutant
from tests.harness.mutation import environment
from tests.harness.scenarios import CUT_IN_THE_MIDDLE, SCENARIOS, Scenario

ROOT: Final = Path(__file__).parents[2]
SHARDS: Final = 2
SHARD: Final = [pytest.param(n, marks=pytest.mark.xdist_group(f"chaos-killpoints-{n}")) for n in range(SHARDS)]
COMMIT: Final = dict.fromkeys(("write.before", "write.after", "sync.before", "sync.after"), 1)
OPENING: Final = dict.fromkeys(("open.before", "open.after"), 1) | COMMIT
REOPENING: Final = dict.fromkeys(("look.before", "look.after"), 1) | OPENING
SYNC: Final = dict.fromkeys(("sync.before", "sync.after"), 1)
PINNED: Final[dict[str, dict[str, int]]] = {
    "first open": OPENING,
    "open after a close": REOPENING,
    "open after a kill": REOPENING,
    "open after a kill in an open": REOPENING,
    "close": COMMIT | dict.fromkeys(("close.before", "close.after"), 1),
    "enqueue, known key": {},
    "complete again": {},
    "a stale submit": {},
    "sweep of expired leases": {"write.before": 2, "write.after": 2, "sweep.between": 2} | SYNC,
    "sweep, with a limit": {"write.before": 2, "write.after": 2, "sweep.between": 1} | SYNC,
    "sweep of back-offs": {"write.before": 1, "write.after": 1, "sweep.between": 1} | SYNC,
    "sweep of ended jobs": {"write.before": 3, "write.after": 3, "sweep.between": 2} | SYNC,
    "repair": {"write.before": 3, "write.after": 3} | SYNC,
    "a sweep that kills": {"write.before": 3, "write.after": 3, "sweep.between": 3} | SYNC,
}
"""How often each point is met, scenario by scenario; the others are one commit."""
PINNED_CALLS: Final = {
    "first open": {"mkdir": 16, "write": 48, "rename": 4, "unlink": 1, "ftruncate": 1, "fsync": 8, "fdatasync": 14},
    "enqueue of many": {"write": 6, "fsync": 1, "fdatasync": 1},
}
KILLS: Final = 161
"""In the seam, all scenarios together."""


def covered(run: Run) -> dict[str, dict[str, int]]:
    """What a run covered: scenario, point, hits."""
    found: dict[str, dict[str, int]] = {}
    for name, number in run.tally.covered.items():
        scenario, _, point = name.rpartition(": ")
        if scenario:
            found.setdefault(scenario, {})[point] = number
    return found


def lane(body: object) -> Lane:
    """A lane that does a part of the real one."""
    return Lane(name=LANE.name, proves="", cannot="", body=body, repeats=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("shard", SHARD)
def test_a_call_that_was_cut_at_any_point_happened_or_did_not(shard: int) -> None:
    """Every hit of every point of every operation leaves a state of the model, and the counts are the pinned ones."""
    chosen, seen = SCENARIOS[shard::SHARDS], dict[str, dict[str, int]]()

    def body(run: Run) -> None:
        every_hit(run, chosen)
        seen.update(covered(run))

    verdict = play(lane(body), seed=0, say=print)
    assert verdict.finding is None, verdict.told()
    wanted = {scenario.name: PINNED.get(scenario.name, COMMIT) for scenario in chosen}
    assert seen == {name: hits for name, hits in wanted.items() if hits}


@pytest.mark.xdist_group("chaos-killpoints-1")
def test_an_open_and_a_large_batch_cut_at_any_system_call_happened_or_did_not() -> None:
    """The same for each system call of the very first open, and of a commit that is written in several pieces."""
    seen = dict[str, dict[str, int]]()

    def body(run: Run) -> None:
        every_call(run, CUT_IN_THE_MIDDLE)
        seen.update(covered(run))

    verdict = play(lane(body), seed=0, say=print)
    assert verdict.finding is None, verdict.told()
    wanted = {name: {f"call:{call}": number for call, number in calls.items()} for name, calls in PINNED_CALLS.items()}
    assert seen == wanted


@pytest.mark.xdist_group("chaos-killpoints-0")
def test_the_same_seed_gives_the_same_kills() -> None:
    """Drawn programs hold too, and meet the same points each time."""
    seen = list[dict[str, dict[str, int]]]()

    def body(run: Run) -> None:
        wandered(run)
        seen.append(covered(run))

    verdicts = [play(lane(body), seed=7) for _ in range(2)]
    assert [verdict.finding for verdict in verdicts] == [None, None]
    assert seen[0] == seen[1] != {}


def test_every_point_and_every_operation_is_in_the_scenarios() -> None:
    """No point is left out, and the kills add up to the pinned number."""
    hits = [PINNED.get(scenario.name, COMMIT) for scenario in SCENARIOS]
    assert ({point for one in hits for point in one}, sum(sum(one.values()) for one in hits)) == (set(POINTS), KILLS)


# -- reports from the field that need kills


@pytest.mark.xdist_group("chaos-killpoints-0")
def test_f14_an_enqueue_under_a_key_that_was_killed_made_one_job_or_none() -> None:
    """F14: two enqueues with one key made two jobs. Killed in between: zero or one, and no key that points nowhere.

    After each kill the same enqueue is made again, and every entry of `idem` is compared with the rows.
    """
    verdict = play(lane(lambda run: every_hit(run, only("enqueue"))), seed=0)
    assert verdict.finding is None, verdict.told()
    assert (verdict.covered["kills"], verdict.recovered) == (4, 3)


@pytest.mark.xdist_group("chaos-killpoints-1")
def test_f20_a_batch_that_was_cut_between_its_writes_is_in_no_family() -> None:
    """F20: one family had a batch and another had not. Killed between the writes of one batch, all families agree."""
    verdict = play(lane(lambda run: every_call(run, only("enqueue of many"))), seed=0)
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["enqueue of many: call:write"] == PINNED_CALLS["enqueue of many"]["write"]


# -- canaries


def only(name: str) -> tuple[Scenario, ...]:
    """The scenario of that name."""
    return tuple(scenario for scenario in SCENARIOS if scenario.name == name)


@pytest.mark.xdist_group("chaos-killpoints-0")
def test_a_commit_in_two_batches_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose commit is two writes is caught by a kill between them, and by nothing before that."""
    monkeypatch.setenv("TELHA_CHAOS", str(tmp_path))
    verdict = play(lane(lambda run: every_hit(run, only("complete"), database="torn")), seed=0)
    assert (verdict.finding or "").startswith("complete, killed at write.before 2 ")
    assert verdict.unexpected > 0
    assert verdict.kept is not None
    assert (verdict.kept / "3" / "history.ndjson").is_file()


@pytest.mark.xdist_group("chaos-killpoints-1")
def test_an_unclean_end_that_goes_unnoticed_is_found(tmp_path: Path) -> None:
    """With the mutant in the queue the command ends with 1 and says which incarnation was told."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--lane", "killpoints", "--seed", "1"],
        cwd=ROOT,
        env=environment(mutant("an unclean end goes unnoticed")) | {"TELHA_CHAOS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "told incarnation 0, which no state explains" in done.stdout


# -- lives


def test_a_life_that_raises_is_no_kill() -> None:
    """What a life raises reaches whoever runs it."""
    with Forks() as forks, pytest.raises(LifeError, match="TypeError"):
        forks.run("tests.harness.crashing:recover", {})


def test_a_life_that_ends_by_itself_is_told_from_a_killed_one() -> None:
    """An exit code is no signal."""
    with Forks() as forks:
        ended = forks.watch("os:_exit", {"status": 5})
    assert (ended.killed, ended.code) == (False, 5)
