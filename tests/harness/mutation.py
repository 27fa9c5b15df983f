"""scripts/mutants: runs the catalogue, each mutant in the lane that it names, in a process of its own.

Exit codes: 0 every mutant was killed, 1 a survivor or one that does not apply, 2 usage.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.harness.mutants import MUTANTS, Mutant

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(__file__).with_name("mutation_site")
KILLED: Final = "killed"
SURVIVED: Final = "SURVIVED"
DOES_NOT_APPLY: Final = "DOES NOT APPLY"
BROKEN: Final = "COULD NOT RUN"


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    outcome: str
    steps: int
    program: int
    seconds: float
    report: str
    data: dict[str, Any] | None = None

    def row(self) -> dict[str, Any]:
        """The verdict as JSON-able data."""
        return {
            "mutant": self.mutant.name,
            "promise": self.mutant.promise,
            "lane": self.mutant.lane,
            "outcome": self.outcome.lower(),
            "steps": self.steps,
            "program": self.program,
            "seconds": self.seconds,
            "report": self.report,
            "run": self.data,
        }


def places(mutant: Mutant) -> int:
    """How often the mutant's text stands in its module: it applies when that is once."""
    spec = importlib.util.find_spec(mutant.module)
    if spec is None or spec.origin is None:
        return 0
    return Path(spec.origin).read_text("utf-8").count(mutant.old)


def environment(mutant: Mutant | None) -> dict[str, str]:
    """What a child needs to import and start everything with the mutant in it (None: the real queue)."""
    found = dict(os.environ)
    path = [str(SITE), str(ROOT), found.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    if mutant is not None:
        found["TELHA_MUTANT"] = json.dumps({"module": mutant.module, "old": mutant.old, "new": mutant.new})
    return found


def tried(mutant: Mutant | None, lane: str) -> subprocess.CompletedProcess[str]:
    """Run a lane in a child."""
    command = [sys.executable, "-m", "tests.harness.mutation", "--lane", lane]
    return subprocess.run(command, cwd=ROOT, env=environment(mutant), capture_output=True, text=True, check=False)


def run_mutant(mutant: Mutant) -> Verdict:
    """Run a mutant in its lane."""
    started = time.monotonic()

    def verdict(outcome: str, report: str, steps: int = 0, program: int = 0) -> Verdict:
        return Verdict(mutant, outcome, steps, program, round(time.monotonic() - started, 1), report)

    found = places(mutant)
    if found != 1:
        return verdict(DOES_NOT_APPLY, f"its text stands {found} times in {mutant.module}")
    done = tried(mutant, mutant.lane)
    if done.returncode != 0:
        return verdict(BROKEN, done.stdout + done.stderr)
    death = json.loads(done.stdout.splitlines()[-1])
    outcome = KILLED if death["killed"] else SURVIVED
    return verdict(outcome, death["report"], death["steps"], death["program"])._replace(data=death["data"])


def run_mutants(mutants: Sequence[Mutant], *, jobs: int) -> Iterator[Verdict]:
    """Run mutants, `jobs` at a time; verdicts in the order of the catalogue."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run_mutant, mutants)


def _lane(lane: str) -> int:
    # Imported here: in a child, after the change is in place, and in the parent not at all.
    from tests import conftest
    from tests.harness.lanes import run_lane

    del conftest  # its import sets the Hypothesis profile
    print(json.dumps(run_lane(lane)._asdict()))
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutants",
        description="Break the queue on purpose, one bug at a time, and see whether the tests notice.",
        epilog='example: scripts/mutants --only "dead one failure late" --verbose',
    )
    parser.add_argument("--list", action="store_true", help="only name the mutants, their promises and lanes")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--json", action="store_true", help="one object per line instead of the table")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="show the program that each died of")
    parser.add_argument("--lane", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = {mutant.name for mutant in MUTANTS}
    for name in options.only or ():
        if name not in names:
            parser.error(f"no mutant is called {name!r}; --list names them")
    if options.jobs < 1:
        parser.error("--jobs must be 1 or more")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for and print the table."""
    options = parse(arguments)
    if options.lane is not None:
        return _lane(options.lane)
    chosen = [mutant for mutant in MUTANTS if options.only is None or mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            told = {"mutant": mutant.name, "promise": mutant.promise, "lane": mutant.lane}
            print(json.dumps(told) if options.json else f"{mutant.name:<52} {mutant.promise:<30} {mutant.lane}")
        return 0
    if not options.json:
        print(f"{'mutant':<52} {'promise':<30} {'lane':<42} {'outcome':<14} {'steps':>6} {'program':>7} {'s':>6}")
    bad = 0
    for number, verdict in enumerate(run_mutants(chosen, jobs=options.jobs), 1):
        bad += verdict.outcome != KILLED
        if options.json:
            print(json.dumps(verdict.row()), flush=True)
            continue
        name, promise, lane, *_ = verdict.mutant
        counts = f"{verdict.steps:>6} {verdict.program:>7} {verdict.seconds:>6}"
        print(f"{name:<52} {promise:<30} {lane:<42} {verdict.outcome:<14} {counts}", flush=True)
        if options.verbose or verdict.outcome != KILLED:
            print("    " + verdict.report.replace("\n", "\n    "))
        if sys.stderr.isatty():
            print(f"  {number} of {len(chosen)}", end="\r", file=sys.stderr, flush=True)
    word = "every one was killed" if not bad else f"{bad} NOT KILLED"
    print(f"mutants: {len(chosen)} mutants, {word}", file=sys.stderr if options.json else sys.stdout)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
