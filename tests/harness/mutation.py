"""scripts/mutants: runs the catalogue, each mutant in the lanes that it names, in a process of its own.

What is held against what: the lanes that killed a mutant against those that it names, and both against the record
(`mutants.json`), so that a lane which stops noticing is seen even when another one still does.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.harness.mutants import MUTANTS, Mutant
from tests.harness.mutants_record import RECORD, Recorded, recorded, unlike, written

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(__file__).with_name("mutation_site")
OUT: Final = ROOT / "out" / "mutants"
FOR_ALL: Final = ("corpus", "runs")
"""Lanes cheap enough to try every mutant of the queue in, so that the table tells who else notices."""
HANGS_S: Final = 600

KILLED: Final = "killed"
PENDING: Final = "pending"
SURVIVED: Final = "SURVIVED"
ELSEWHERE: Final = "KILLED ELSEWHERE"
DOES_NOT_APPLY: Final = "DOES NOT APPLY"
BROKEN: Final = "COULD NOT RUN"

EPILOG: Final = """examples:
  scripts/mutants                                             every mutant in every lane that it names, and a few more
  scripts/mutants --predicted                                 only in the lanes that it names
  scripts/mutants --only "dead one failure late" --verbose    one, and what it died of
  scripts/mutants --record                                    write what kills what into tests/harness/mutants.json

exit: 0 each killed where it has to be, and as recorded; 1 not so; 2 usage"""


class Verdict(NamedTuple):
    """What became of a mutant. `steps`, `program` and `data` are those of the first lane that it names."""

    mutant: Mutant
    outcome: str
    killers: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    steps: int = 0
    program: int = 0
    seconds: float = 0.0
    report: str = ""
    data: dict[str, Any] | None = None
    trace: str | None = None

    @property
    def good(self) -> bool:
        """Whether all is as predicted, as far as lanes are there to tell."""
        return self.outcome in (KILLED, PENDING)

    def row(self) -> dict[str, Any]:
        """The verdict as JSON-able data."""
        found = {"mutant": self.mutant.name, "promise": self.mutant.promise, "predicted": list(self.mutant.lanes)}
        told = self._asdict() | {"outcome": self.outcome.lower(), "run": self.data}
        del told["mutant"], told["data"]
        return found | told


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


def tried(mutant: Mutant | None, *lanes: str, traces: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run lanes in a child, one after another; a line of JSON for each. Traces go to a folder of their own if told."""
    command = [sys.executable, "-m", "tests.harness.mutation", *[word for lane in lanes for word in ("--lane", lane)]]
    told = environment(mutant) | ({} if traces is None else {"TELHA_TRACES": str(traces)})
    return subprocess.run(
        command, cwd=ROOT, env=told, capture_output=True, text=True, check=False, timeout=HANGS_S * len(lanes)
    )


def slug(name: str) -> str:
    """A mutant's name as a file's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def run_mutant(mutant: Mutant, *, out: Path = OUT, wide: bool = False) -> Verdict:
    """Run a mutant in the lanes that it names, as far as they are built; `wide`: and in those for all."""
    from tests.harness.lanes import built

    started = time.monotonic()
    found = places(mutant)
    if found != 1:
        return Verdict(mutant, DOES_NOT_APPLY, report=f"its text stands {found} times in {mutant.module}")
    named = [lane for lane in mutant.lanes if built(lane)]
    waiting = tuple(lane for lane in mutant.lanes if not built(lane))
    others = [lane for lane in FOR_ALL if wide and not mutant.of_model and lane not in named]
    if not named:
        return Verdict(mutant, PENDING, pending=waiting, report="no lane that it names is built")
    folder = out / slug(mutant.name)
    shutil.rmtree(folder, ignore_errors=True)
    done = tried(mutant, *named, *others, traces=folder)
    seconds = round(time.monotonic() - started, 1)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) < len(named) + len(others):
        return Verdict(mutant, BROKEN, pending=waiting, seconds=seconds, report=done.stdout + done.stderr)
    deaths = dict(zip([*named, *others], map(json.loads, lines[-len(named) - len(others) :]), strict=True))
    killers = tuple(lane for lane, death in deaths.items() if death["killed"])
    outcome = KILLED if set(named) <= set(killers) else ELSEWHERE if killers else SURVIVED
    first = deaths[named[0]]
    traces = sorted(folder.glob("*.json")) if folder.is_dir() else []
    trace = _shown(traces[0]) if traces else None
    numbers = (first["steps"], first["program"], seconds)
    return Verdict(mutant, outcome, killers, waiting, *numbers, first["report"], first["data"], trace)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def run_mutants(mutants: Sequence[Mutant], *, jobs: int, out: Path = OUT, wide: bool = False) -> Iterator[Verdict]:
    """Run mutants, `jobs` at a time; verdicts in the order of the catalogue."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(run_mutant, out=out, wide=wide), mutants)


def _lanes(lanes: Sequence[str]) -> int:
    # Imported here: in a child, after the change is in place, and in the parent not at all.
    from tests.harness.lanes import run_lane

    if "stateful" in lanes:
        from tests import conftest

        del conftest  # its import sets the Hypothesis profile
    lines = [json.dumps(run_lane(lane)._asdict()) for lane in lanes]
    print("\n".join(lines))  # last, and together: lanes may print what they like before
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutants",
        description="Break queue and model on purpose, one bug at a time, and see whether the tests notice.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="only name the mutants, their promises and lanes")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--predicted", action="store_true", help="only in the lanes that each names")
    parser.add_argument("--record", action="store_true", help="write what is found into the record")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for killing traces (out/mutants)")
    parser.add_argument("--json", action="store_true", help="one object per line instead of the table")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="show what each died of")
    parser.add_argument("--lane", action="append", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = {mutant.name for mutant in MUTANTS}
    for name in options.only or ():
        if name not in names:
            parser.error(f"no mutant is called {name!r}; --list names them")
    if options.jobs < 1:
        parser.error("--jobs must be 1 or more")
    if options.record and options.predicted:
        parser.error("--record needs all the lanes: it does not go with --predicted")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for and print the table."""
    options = parse(arguments)
    if options.lane is not None:
        return _lanes(options.lane)
    chosen = [mutant for mutant in MUTANTS if options.only is None or mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            told = {"mutant": mutant.name, "promise": mutant.promise, "predicted": mutant.lanes}
            line = f"{mutant.name:<54} {mutant.promise:<30} {', '.join(mutant.lanes)}"
            print(json.dumps(told) if options.json else line)
        return 0
    verdicts = list(shown(options, chosen))
    found = {one.mutant.name: Recorded.of(one.mutant, one.killers, one.pending) for one in verdicts}
    known = recorded()
    if options.record:
        written({name: entry for name, entry in known.items() if options.only} | found)
        known = recorded()
    problems = [f"{one.mutant.name}: {one.outcome}" for one in verdicts if not one.good]
    for name, entry in found.items():
        lanes = {*entry.predicted, *(() if options.predicted else FOR_ALL)}
        problems += unlike(name, entry, known.get(name), lanes)
    if options.only is None:
        problems += [f"{name}: recorded, but there is no such mutant" for name in known if name not in found]
    return concluded(options, verdicts, problems)


def shown(options: argparse.Namespace, chosen: Sequence[Mutant]) -> Iterator[Verdict]:
    """Run, and print each verdict as it comes."""
    if not options.json:
        print(f"{'mutant':<54} {'promise':<30} {'predicted':<42} {'killed by':<52} {'ops':>6} {'left':>4} {'s':>6}")
    runs = run_mutants(chosen, jobs=options.jobs, out=options.out, wide=not options.predicted)
    for number, verdict in enumerate(runs, 1):
        if options.json:
            print(json.dumps(verdict.row()), flush=True)
        else:
            print(line_of(verdict), flush=True)
            if options.verbose or not verdict.good:
                print("    " + verdict.report.replace("\n", "\n    "))
        if sys.stderr.isatty():
            print(f"  {number} of {len(chosen)}", end="\r", file=sys.stderr, flush=True)
        yield verdict


def line_of(verdict: Verdict) -> str:
    """A row of the table. A lane that counts no operations shows none."""
    mutant = verdict.mutant
    killed = ", ".join([*verdict.killers, *[f"({lane}: pending)" for lane in verdict.pending]])
    word = killed if verdict.outcome == KILLED else f"{verdict.outcome} {killed}".strip()
    ops, left = (str(number) if verdict.data else "-" for number in (verdict.steps, verdict.program))
    return (
        f"{mutant.name:<54} {mutant.promise:<30} {', '.join(mutant.lanes):<42} {word:<52} {ops:>6} {left:>4}"
        f" {verdict.seconds:>6}"
    )


def concluded(options: argparse.Namespace, verdicts: Sequence[Verdict], problems: Sequence[str]) -> int:
    """The last lines, and the exit code."""
    where = sys.stderr if options.json else sys.stdout
    for problem in problems:
        print(problem, file=where)
    killed = sum(one.outcome == KILLED for one in verdicts)
    waiting = sum(one.outcome == PENDING for one in verdicts)
    traces = sum(one.trace is not None for one in verdicts)
    word = "as recorded" if not problems else f"{len(problems)} PROBLEMS"
    told = f"{len(verdicts)} mutants, {killed} killed where they have to be, {waiting} pending, {traces} traces"
    print(f"mutants: {told} in {_shown(options.out)}, {word}", file=where)
    if options.record:
        print(f"mutants: recorded in {_shown(RECORD)}", file=where)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
