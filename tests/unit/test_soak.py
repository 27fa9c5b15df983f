"""Soak: what counts as green, what a run leaves behind, and that its lanes can be started at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts._lib import soak
from scripts._lib.soak_lanes import LANES, Lane

ROOT = Path(__file__).parents[2]
TRUE = ("/bin/true",)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], (1, "RED")),
        ([soak.Outcome.GREEN], (0, "GREEN")),
        ([soak.Outcome.GREEN, soak.Outcome.UNFINISHED], (3, "UNFINISHED")),
        ([soak.Outcome.UNFINISHED, soak.Outcome.RED], (1, "RED")),
        ([soak.Outcome.GREEN, soak.Outcome.MISSING], (1, "RED")),
    ],
)
def test_soak_is_green_only_when_every_lane_is(outcomes: list[soak.Outcome], expected: tuple[int, str]) -> None:
    """A soak run with no lane, a missing lane, a red one or one cut short is not green."""
    results = [
        soak.Result(lane="x", outcome=outcome, seconds=1.0, rounds=1, seeds=(), command="x") for outcome in outcomes
    ]
    assert expected == soak.verdict(results)


def test_soak_ends_a_lane_at_the_end_of_its_share() -> None:
    """A lane whose command outlives its share is ended and unfinished; one whose command is absent is missing."""
    cut = soak.run_lane(Lane(name="x", command=("/bin/sleep", "60"), weight=1), seconds=0.0)
    absent = soak.run_lane(Lane(name="y", command=("scripts/no-such-command",), weight=1), seconds=0.0)
    assert (cut.outcome, absent.outcome) == (soak.Outcome.UNFINISHED, soak.Outcome.MISSING)


def test_every_run_leaves_a_line(tmp_path: Path) -> None:
    """What, seed, commit, versions, seconds, verdict and the command to repeat: a line for each run of a command."""
    path = tmp_path / "out" / "runs.ndjson"
    lanes = [
        Lane(name="a", command=(*TRUE, "--seed", "{seed}"), weight=1),
        Lane(name="b", command=("/bin/false",), weight=1),
        Lane(name="c", command=("scripts/no-such-command",), weight=1),
    ]
    results = list(soak.run_lanes(lanes, seconds=30.0, on_run=soak.recorder(path)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["what"], line["verdict"]) for line in lines] == [("a", "green"), ("b", "red"), ("c", "missing")]
    assert {"at", "what", "seed", "commit", "versions", "seconds", "verdict", "command"} == set(lines[0])
    assert lines[0]["command"] == f"/bin/true --seed {lines[0]['seed']}"
    assert results[0].seeds == (lines[0]["seed"],)
    assert {"python", "rocksdict", "hypothesis"} <= set(lines[0]["versions"])


def test_a_lane_that_repeats_draws_a_seed_for_each_round(tmp_path: Path) -> None:
    """Until its share is over, a line for each."""
    path = tmp_path / "runs.ndjson"
    lane = Lane(name="a", command=(*TRUE, "{seed}"), weight=1, repeats=True)
    result = soak.run_lane(lane, seconds=0.3, on_run=soak.recorder(path))
    seeds = [json.loads(line)["seed"] for line in path.read_text().splitlines()]
    assert (result.outcome, len(set(seeds)) > 1) == (soak.Outcome.GREEN, True)
    assert tuple(seeds) == result.seeds


def test_a_lane_is_told_how_long_it_may_take() -> None:
    """Nine tenths of its share, so that its last round can end."""
    words, seed = soak.filled(Lane(name="a", command=("x", "--minutes", "{minutes}"), weight=1), 600.0)
    assert (words, seed) == (["x", "--minutes", "9.00"], None)


def test_every_lane_has_its_command() -> None:
    """What soak starts is there, and has a name and a weight of its own."""
    assert [lane.command[0] for lane in LANES if not (ROOT / lane.command[0]).is_file()] == []
    assert len(LANES) == len({lane.name for lane in LANES})
    assert all(lane.weight > 0 for lane in LANES)


@pytest.mark.parametrize("lane", [lane for lane in LANES if lane.name != "machine"], ids=lambda lane: lane.name)
def test_every_command_takes_the_arguments_it_is_given(lane: Lane) -> None:
    """No lane of a long run ends in a usage error: each command reads its line as far as --help."""
    words, _ = soak.filled(lane, 60.0)
    done = subprocess.run([*words, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given", [["--minutes", "0"], ["--lane", "nobody"]], ids=" ".join)
def test_usage(given: list[str]) -> None:
    """What cannot be asked ends with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        soak.main(given)
    assert caught.value.code == 2


def test_json_is_one_object() -> None:
    """The verdict and every lane's result, last on stdout."""
    code = (
        "from scripts._lib import soak, soak_lanes; import sys;"
        "soak.LANES = (soak_lanes.Lane(name='a', command=('/bin/true',), weight=1),);"
        "soak.recorder = lambda: lambda run: None;"
        "sys.exit(soak.main(['--minutes', '1', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["verdict"], [lane["lane"] for lane in told["lanes"]]) == (0, "green", ["a"])
