"""scripts/fairness: what it measures, what its judge says of grants out of turn, and what it ends with."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts._lib import fairness as command
from tests.harness.fairness import BIG, KINDS, Arrived, Filters, Granted, Judge, jain
from tests.harness.mutants import mutant
from tests.harness.mutation import ROOT, environment

EVERY = Filters()


def judged(scopes: Sequence[int], *, filters: Filters = EVERY) -> Judge:
    """A backlog of ten in scope 0, two jobs each in scopes 1 and 2, and grants to these scopes in this order."""
    judge = Judge()
    for scope, jobs in ((BIG, 10), (1, 2), (2, 2)):
        judge.take(Arrived((0, 0), scope, ("embed",) * jobs, 0.0))
    for number, scope in enumerate(scopes, 1):
        judge.take(Granted((number, 0), scope, "embed", filters, 0.0))
    return judge


def test_grants_in_turn_are_fair() -> None:
    """Each scope gets its turn; a gap is as long as the ring was at most."""
    judge = judged([0, 1, 2, 0, 1, 2, 0, 0])
    assert (judge.problems, [judge.scopes[scope].gap for scope in (0, 1, 2)]) == ([], [3, 3, 3])


def test_a_scope_that_is_passed_over_is_told() -> None:
    """A grant out of turn is wrong at once, and again when somebody waits for more grants than the ring was long."""
    judge = judged([0, 1, 0, 1])
    assert judge.problems == [
        "grant 3 (every kind) went to scope 0, but scope 2 stood before it",
        "grant 4 (every kind) went to scope 1, but scope 2 stood before it",
        "grant 4: scope 2 was eligible for 4 grants, its bound is 3",
    ]


def test_grants_that_leave_a_scope_out_are_not_counted() -> None:
    """What a filter leaves out neither breaks an order nor adds to a gap, only to the gap over all grants."""
    judge = judged([0, 0, 0, 0], filters=Filters(None, frozenset([BIG])))
    judge.take(Granted((9, 0), 1, "embed", EVERY, 0.0))
    assert (judge.problems, judge.scopes[1].gap, judge.scopes[1].gap_of_all) == ([], 1, 5)


def test_a_grant_of_nothing_is_told() -> None:
    """A scope without a job of the kind cannot have been served."""
    judge = judged([1, 1, 1])
    assert judge.problems[-1] == "grant 3: scope 1 has no job of kind embed that waits"


@pytest.mark.parametrize(
    ("filters", "taken"),
    [
        (EVERY, True),
        (Filters(("ingest:*",)), True),
        (Filters(("embed",)), False),
        (Filters(None, frozenset([2])), False),
    ],
)
def test_filters(filters: Filters, taken: bool) -> None:
    """What a poller asks for: kinds, families, scopes."""
    assert filters.take(1, Counter({"ingest:pdf": 1, "embed": 0})) is taken


def test_jain_s_index() -> None:
    """One for equal shares, 1/n when one has everything."""
    assert [jain([5, 5, 5, 5]), jain([8, 0, 0, 0])] == [1.0, 0.25]


def test_a_backlog_does_not_starve_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2,000 jobs of one scope, then 100 scopes with 10 each: in turn, within the bound, in equal shares."""
    picture = tmp_path / "fairness.svg"
    code = command.main(["--jobs", "2000", "--json", "--plot", str(picture)])
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (code, told["problems"], told["worst_gap"] <= 101) == (0, [], True)
    assert [one["granted"] for number, one in told["per_scope"].items() if number != "0"] == [10] * 100
    assert told["wait_for_first"]["max"] < 2 * 101
    assert told["jain"] > 0.95
    assert {kinds.split(" of ")[0] for kinds in told["filters"]} == {"every kind", "ingest:*", KINDS[0], KINDS[1]}
    assert picture.read_text("utf-8").startswith("<?xml")
    assert "fairness: the bound holds" in printed.err


def test_a_ring_that_does_not_turn_is_found(tmp_path: Path) -> None:
    """A canary: on a queue that serves one scope until it is empty the command ends with 1 and says who waited."""
    words = ["--jobs", "200", "--scopes", "4", "--each", "2", "--plot", str(tmp_path / "x.svg")]
    done = subprocess.run(
        [sys.executable, "-m", "scripts._lib.fairness", *words],
        cwd=ROOT,
        env=environment(mutant("the ring does not turn")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "was eligible for 6 grants, its bound is 5" in done.stdout
    assert "fairness: " in done.stdout.splitlines()[-1]
    assert "things do not hold" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("given", [["--jobs", "0"], ["--scopes", "5000"], ["--nothing"]], ids=" ".join)
def test_usage(given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2
