"""Power loss: what is left of a cut log, and that the lane sees a queue which answers too early."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from telha_jobs.store.rocks import Durability
from tests.chaos import powerloss
from tests.chaos.frame import KEPT_VARIABLE, Run, Verdict, play
from tests.chaos.powerloss import LANE, sampled_log
from tests.chaos.powertrace import Killed, killed
from tests.chaos.wal import parse
from tests.harness.mutants import MUTANTS


def cut(durability: Durability, seed: int = 1) -> Verdict:
    """The verdict over one sampled log."""

    def body(run: Run) -> None:
        sampled_log(run, run.seed, durability)

    return play(replace(LANE, body=body), seed=seed)


def test_of_a_cut_log_a_prefix_is_left_that_holds_what_was_answered() -> None:
    """At "sync": 300 images and more, each an exact prefix of the commits, none short of an answer."""
    verdict = cut("sync")
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["images"] >= 300
    assert verdict.covered["commits behind an answer"] > 5_000


def test_at_os_commits_are_lost_and_their_leases_with_them() -> None:
    """At "os" answered calls are lost, the state is a prefix all the same, and no lost lease is accepted ever again."""
    verdict = cut("os")
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["os: most answers taken back"] > 10
    assert verdict.covered["lost leases refused"] > 100
    assert verdict.covered["leases of jobs whose lease was lost"] > 20


EARLY: Final = {
    "the sync is left out",
    "the reply leaves before its sync",
    "the reply is a commit ahead of the sync",
    "a sync counts for what was written while it ran",
    "a commit is two batches",
    "the open mark is not synced",
}


def test_queues_that_answer_too_early_have_to_die_in_this_lane() -> None:
    """Of the catalogue's mutants, each of which CI runs once in its lanes (tests/stateful/test_mutants.py)."""
    assert {one.name for one in MUTANTS if "powerloss" in one.lanes} >= EARLY


def test_the_image_of_a_bad_cut_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that tell of a commit more than was synced: the first cut that takes it back is found and counted."""

    def early(*args: Any, **given: Any) -> Killed:
        died = killed(*args, **given)
        return died._replace(answers=[one._replace(sequence=one.sequence + 1) for one in died.answers])

    monkeypatch.setattr(powerloss, "killed", early)
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))
    verdict = cut("sync")
    assert (verdict.lost, verdict.unexpected, verdict.duplicated) == (1, 0, 0)
    assert "was answered for and is gone" in (verdict.finding or "")
    assert verdict.kept is not None
    assert (verdict.kept / "image").is_dir()


def test_the_same_seed_makes_the_same_log(tmp_path: Path) -> None:
    """Two runs of a seed make the same records in the same places, and after each commit the same state."""
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        found.append(killed(tmp_path / name, seed=3, durability="sync", before=5, calls=20, large=True))
    one, two = found
    assert [parse(one.content), one.states, one.leases] == [parse(two.content), two.states, two.leases]
