"""scripts/soak: the long forms of the checks, one lane after another, within a budget of minutes.

A lane is a command. Each gets a share of the budget; what one leaves over goes to the next. A lane that is cut by the
end of its share is *unfinished*, a lane whose command is not there is *missing*, and neither counts as green. The
machine lane repeats with fresh seeds until its time is up, and needs at least one whole round. Every run adds one line
to out/runs.ndjson.

Exit codes: 0 every lane green, 1 a lane red or missing, 2 usage, 3 nothing red, but a lane unfinished.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "out" / "runs.ndjson"
MINUTES_DEFAULT = 10


class Outcome(StrEnum):
    """How a lane ended."""

    GREEN = "green"
    RED = "red"
    MISSING = "missing"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A command and its weight in the budget. `{seed}` in it is drawn afresh for each round of a lane that repeats."""

    name: str
    command: tuple[str, ...]
    weight: int
    repeats: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a lane; `seeds` are those of its rounds, the last one's too when it was cut."""

    lane: str
    outcome: Outcome
    seconds: float
    rounds: int
    seeds: tuple[int, ...]
    command: str


LANES = (
    Lane(name="contention", command=("scripts/contention", "--jobs", "100000", "--pollers", "16"), weight=2),
    Lane(name="explore", command=("scripts/explore", "--size", "large"), weight=4),
    Lane(
        name="machine",
        command=(
            "scripts/test",
            "tests/stateful/test_machine.py",
            "--hypothesis-profile=soak",
            "--hypothesis-seed={seed}",
        ),
        weight=4,
        repeats=True,
    ),
)


def run_command(command: Sequence[str], *, seconds: float) -> int | None:
    """Exit code of the command, or None when it was ended after `seconds`: it and what it started, nothing else."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(timeout=max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the command's own process group to end, so that it can tidy up; make it after ten seconds."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_lane(lane: Lane, *, seconds: float) -> Result:
    """Run a lane for at most `seconds`."""
    started = time.monotonic()
    rounds, seeds = 0, list[int]()
    command = " ".join(lane.command)

    def result(outcome: Outcome) -> Result:
        elapsed = round(time.monotonic() - started, 1)
        return Result(
            lane=lane.name, outcome=outcome, seconds=elapsed, rounds=rounds, seeds=tuple(seeds), command=command
        )

    if not (ROOT / lane.command[0]).exists():
        return result(Outcome.MISSING)
    while True:
        words = list(lane.command)
        if lane.repeats:
            seeds.append(secrets.randbelow(2**32))
            words = [word.format(seed=seeds[-1]) for word in words]
        command = " ".join(words)
        print(f"soak: {lane.name}: {command}", flush=True)
        code = run_command(words, seconds=seconds - (time.monotonic() - started))
        if code is None:
            return result(Outcome.GREEN if rounds else Outcome.UNFINISHED)
        if code != 0:
            return result(Outcome.RED)
        rounds += 1
        if not lane.repeats or time.monotonic() - started >= seconds:
            return result(Outcome.GREEN)


def run_lanes(lanes: Sequence[Lane], *, seconds: float) -> Iterator[Result]:
    """Run lanes in order; each may use its weight's share of what is left."""
    end = time.monotonic() + seconds
    for index, lane in enumerate(lanes):
        share = lane.weight / sum(later.weight for later in lanes[index:])
        yield run_lane(lane, seconds=(end - time.monotonic()) * share)


def verdict(results: Sequence[Result]) -> tuple[int, str]:
    """Exit code and word for a whole run; a run without lanes is red."""
    outcomes = {result.outcome for result in results}
    if not outcomes or outcomes & {Outcome.RED, Outcome.MISSING}:
        return 1, "RED"
    if Outcome.UNFINISHED in outcomes:
        return 3, "UNFINISHED"
    return 0, "GREEN"


def record(results: Sequence[Result], *, minutes: float, word: str) -> None:
    """Add the run's line to out/runs.ndjson."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "soak",
        "commit": commit.stdout.strip() or None,
        "minutes": minutes,
        "verdict": word.lower(),
        "lanes": [asdict(result) for result in results],
    }
    RUNS.parent.mkdir(exist_ok=True)
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Run the long forms of the checks, one lane after another, within a budget.",
        epilog="example: scripts/soak --minutes 60 --lane machine --lane explore",
    )
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT, help="the budget (default: %(default)s)")
    names = [lane.name for lane in LANES]
    parser.add_argument("--lane", action="append", choices=names, help="only this lane; may be given several times")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error("--minutes must be more than zero")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the lanes that were asked for, print the verdict, record the run."""
    options = parse(arguments)
    lanes = [lane for lane in LANES if options.lane is None or lane.name in options.lane]
    results = list(run_lanes(lanes, seconds=options.minutes * 60))
    code, word = verdict(results)
    print()
    for result in results:
        seeds = f", seeds {', '.join(map(str, result.seeds))}" if result.seeds else ""
        print(f"  {result.outcome.value:<10} {result.lane:<10} {result.seconds:8.1f} s, {result.rounds} rounds{seeds}")
        if result.outcome is not Outcome.GREEN:
            print(f"             {result.command}")
    record(results, minutes=options.minutes, word=word)
    print(f"soak: {word}, {len(results)} lanes, recorded in out/runs.ndjson")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
