"""Turned bits: each target is hit and judged, and the same seed hits the same entries."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import corruption
from tests.chaos.corruption import ENTRIES_A_ROUND, FILES_A_ROUND, LANE, TARGETS
from tests.chaos.frame import Run, play
from tests.chaos.history import Note, read
from tests.harness.mutants import mutant
from tests.harness.mutation import tried


def test_a_turned_bit_costs_no_more_than_it_hits() -> None:
    """Three cases of each target and 24 bits in files: others go on, a repair undoes it, a damaged file is named."""
    verdict = play(LANE, seed=1)
    assert verdict.finding is None, verdict.told()
    covered = verdict.covered
    assert {name: covered[f"{name}: turned"] for name in TARGETS} == dict.fromkeys(TARGETS, ENTRIES_A_ROUND)
    assert sum(covered[f"{kind}: bits turned"] for kind in ("tables", "MANIFEST", "CURRENT")) == FILES_A_ROUND
    refused = covered["opens refused, the file named"] + covered["calls refused, the file named"]
    assert refused + covered["bits that mean nothing"] == FILES_A_ROUND
    assert refused > FILES_A_ROUND * 3 // 4
    assert covered["jobs read beside damage"] >= 600
    assert covered["leases granted beside damage"] >= 250
    assert covered["jobs with a row in quarantine, listed"] == 3 * ENTRIES_A_ROUND


CANARIES = ("a record's checksum is not compared", "a repair leaves the counters")


@pytest.mark.parametrize("name", CANARIES)
def test_a_queue_that_trusts_its_bytes_is_seen(name: str) -> None:
    """A canary: the lane finds it."""
    done = tried(mutant(name), "corruption")
    assert '"killed": true' in done.stdout, done.stdout + done.stderr


def test_the_same_seed_hits_the_same_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of a seed: the same cases in the same order, to the byte."""
    monkeypatch.setattr(corruption, "FILES_A_ROUND", 2)
    monkeypatch.setattr(corruption, "ENTRIES_A_ROUND", 1)
    found = []
    for name in ("first", "second"):
        kept = tmp_path / name

        def body(run: Run, kept: Path = kept) -> None:
            corruption.body(run)
            shutil.copyfile(run.history, kept)

        assert play(replace(LANE, body=body), seed=5).finding is None
        notes = [line.data for line in read(kept) if isinstance(line, Note)]
        found.append([note for note in notes if "target" in note])
    assert found[0] == found[1]
    assert len(found[0]) == len(TARGETS)
