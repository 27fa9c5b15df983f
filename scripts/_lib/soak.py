"""scripts/soak: the long forms of the checks (`soak_lanes`), one lane after another, within a budget of minutes.

Each lane gets a share of the budget; what one leaves over goes to the next. A lane that is cut by the end of its share
is *unfinished*, a lane whose command is not there is *missing*, and neither counts as green. Every run of a command
adds one line to out/runs.ndjson: what, seed, commit, versions, seconds, verdict, and the command that repeats it.

Exit codes: 0 every lane green, 1 a lane red or missing, 2 usage, 3 nothing red, but a lane unfinished.
"""

import argparse
import json
import os
import platform
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from scripts._lib.soak_lanes import LANES, Lane

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "out" / "runs.ndjson"
MINUTES_DEFAULT = 10
PACKAGES = ("telha-jobs", "rocksdict", "msgpack", "hypothesis", "pytest")
"""Whose versions a run may depend on."""


class Outcome(StrEnum):
    """How a lane ended."""

    GREEN = "green"
    RED = "red"
    MISSING = "missing"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a lane's command."""

    lane: str
    seed: int | None
    seconds: float
    outcome: Outcome
    command: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a lane; `seeds` are those of its rounds, the last one's too when it was cut."""

    lane: str
    outcome: Outcome
    seconds: float
    rounds: int
    seeds: tuple[int, ...]
    command: str


OnRun = Callable[[Run], None]


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


def filled(lane: Lane, seconds: float) -> tuple[list[str], int | None]:
    """The lane's command for one round, and the seed drawn for it if it takes one."""
    seed = secrets.randbelow(2**32) if any("{seed}" in word for word in lane.command) else None
    minutes = f"{max(seconds, 0.0) * 0.9 / 60:.2f}"  # the rest is for its last round to end
    return [word.format(seed=seed, minutes=minutes) for word in lane.command], seed


def run_lane(lane: Lane, *, seconds: float, on_run: OnRun = lambda _: None) -> Result:
    """Run a lane for at most `seconds`; each run of its command is told to `on_run`."""
    started = time.monotonic()
    rounds, seeds = 0, list[int]()
    command = " ".join(lane.command)

    def result(outcome: Outcome) -> Result:
        elapsed = round(time.monotonic() - started, 1)
        return Result(
            lane=lane.name, outcome=outcome, seconds=elapsed, rounds=rounds, seeds=tuple(seeds), command=command
        )

    if not (ROOT / lane.command[0]).exists():
        on_run(Run(lane=lane.name, seed=None, seconds=0.0, outcome=Outcome.MISSING, command=command))
        return result(Outcome.MISSING)
    while True:
        began = time.monotonic()
        left = seconds - (began - started)
        words, seed = filled(lane, left)
        seeds += [] if seed is None else [seed]
        command = " ".join(words)
        print(f"soak: {lane.name}: {command}", flush=True)
        code = run_command(words, seconds=left)
        outcome = Outcome.UNFINISHED if code is None else Outcome.GREEN if code == 0 else Outcome.RED
        elapsed = round(time.monotonic() - began, 1)
        on_run(Run(lane=lane.name, seed=seed, seconds=elapsed, outcome=outcome, command=command))
        if outcome is Outcome.UNFINISHED:
            return result(Outcome.GREEN if rounds else outcome)
        if outcome is Outcome.RED:
            return result(outcome)
        rounds += 1
        if not lane.repeats or time.monotonic() - started >= seconds:
            return result(outcome)


def run_lanes(lanes: Sequence[Lane], *, seconds: float, on_run: OnRun = lambda _: None) -> Iterator[Result]:
    """Run lanes in order; each may use its weight's share of what is left."""
    end = time.monotonic() + seconds
    for index, lane in enumerate(lanes):
        share = lane.weight / sum(later.weight for later in lanes[index:])
        yield run_lane(lane, seconds=(end - time.monotonic()) * share, on_run=on_run)


def verdict(results: Sequence[Result]) -> tuple[int, str]:
    """Exit code and word for a whole run; a run without lanes is red."""
    outcomes = {result.outcome for result in results}
    if not outcomes or outcomes & {Outcome.RED, Outcome.MISSING}:
        return 1, "RED"
    if Outcome.UNFINISHED in outcomes:
        return 3, "UNFINISHED"
    return 0, "GREEN"


def versions() -> dict[str, str]:
    """What a run depends on beside the commit."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def commit() -> str | None:
    """The commit of the tree, with `+` when tracked files differ from it; None outside a repository."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def recorder(path: Path = RUNS) -> OnRun:
    """Adds a line to the file for each run."""
    about = {"commit": commit(), "versions": versions()}

    def record(run: Run) -> None:
        told = {**asdict(run), **about}
        told["what"], told["verdict"] = told.pop("lane"), told.pop("outcome")
        line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **told}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    return record


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
    parser.add_argument("--json", action="store_true", help="the results as one JSON object, last on stdout")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error("--minutes must be more than zero")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the lanes that were asked for and print the verdict."""
    options = parse(arguments)
    lanes = [lane for lane in LANES if options.lane is None or lane.name in options.lane]
    results = list(run_lanes(lanes, seconds=options.minutes * 60, on_run=recorder()))
    code, word = verdict(results)
    if options.json:
        told = {"minutes": options.minutes, "verdict": word.lower(), "lanes": [asdict(result) for result in results]}
        print(json.dumps(told))
        return code
    print()
    for result in results:
        seeds = f", seeds {', '.join(map(str, result.seeds))}" if result.seeds else ""
        print(f"  {result.outcome.value:<10} {result.lane:<10} {result.seconds:8.1f} s, {result.rounds} rounds{seeds}")
        if result.outcome is not Outcome.GREEN:
            print(f"             {result.command}")
    print(f"soak: {word}, {len(results)} lanes, recorded in out/runs.ndjson")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
