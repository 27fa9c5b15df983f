"""scripts/coverage-classes: the matrix of transition classes and lanes, and the gate over it; see --help."""

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from scripts._lib.classes_matrix import Matrix, page, summary, table
from telha_model.reachable import Progress, Reachable, reachable
from tests.harness.classes import FOLDER_VARIABLE, Hits, kept_reachable, load
from tests.harness.classes_gate import DECLARED, DeclarationError, Finding, Lane, declared, judge

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "out" / "coverage" / "classes.html"
QUIET_S: Final = 2.0
EVERY_S: Final = 5.0
WORDS_WIDE, LANE_WIDE = 100, 13
HOLDS, FINDS, USAGE = 0, 1, 2

EPILOG: Final = """examples:
  scripts/coverage-classes                        run every lane, then the matrix; about three minutes
  scripts/coverage-classes --lane corpus          one lane: seconds
  scripts/coverage-classes --from DIR             judge what a run counted: TELHA_CLASSES=DIR scripts/test tests
  scripts/coverage-classes --json | jq .findings  for programs

A class is (op, reply, state before, token, expiry, attempts). What each lane must hit, and how often, stands in
tests/harness/required_classes.toml; what is reachable is computed by exploration. How to read it: docs/verification.md.

exit: 0 every required class is hit, 1 a finding, 2 usage"""


class UsageError(Exception):
    """Something was asked that cannot be."""


def arguments(given: Sequence[str], lanes: Sequence[str]) -> argparse.Namespace:
    """What the command was asked; exits with 2 when that cannot be."""
    parser = argparse.ArgumentParser(
        prog="scripts/coverage-classes",
        description="Which kinds of steps each lane took on the real queue, held against what it declares.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lane", action="append", choices=lanes, metavar="NAME", help=f"only: {', '.join(lanes)}")
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="DIR", help="judge the counts in a folder; run nothing"
    )
    parser.add_argument(
        "--html", type=Path, default=PICTURE, metavar="FILE", help="the picture (out/coverage/classes.html)"
    )
    parser.add_argument("--brief", action="store_true", help="the lanes and the findings, without the matrix")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of text")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Run, judge, draw; the exit code."""
    gc.disable()  # the explored states are tuples without cycles
    try:
        every = declared(DECLARED)
        asked = arguments(given, [lane.name for lane in every])
        lanes = [lane for lane in every if asked.lane is None or lane.name in asked.lane]
        there, hits, failed = collected(asked, lanes)
    except (DeclarationError, UsageError) as error:
        print(f"coverage-classes: {error}", file=sys.stderr)
        return USAGE
    findings = (*failed, *judge(lanes, hits, there))
    matrix = Matrix(tuple(lanes), hits, there, findings)
    asked.html.parent.mkdir(parents=True, exist_ok=True)
    sentence = verdict(matrix)
    asked.html.write_text(page(matrix, sentence), "utf-8")
    tell(asked, matrix, sentence)
    return FINDS if findings else HOLDS


def collected(
    asked: argparse.Namespace, lanes: Sequence[Lane]
) -> tuple[Reachable, Mapping[str, Hits], tuple[Finding, ...]]:
    """What is reachable, what the lanes hit, and which of them failed."""
    if asked.folder is not None:
        if not asked.folder.is_dir():
            raise UsageError(f"{asked.folder} is no folder")
        hits = load(asked.folder)
        there = kept_reachable(asked.folder) or reachable(on_progress=ticker())
        return there, hits if asked.lane is None else only(hits, asked.lane), ()
    with tempfile.TemporaryDirectory(prefix="telha-classes-") as scratch:
        folder = Path(scratch)
        running = start(lanes, folder)
        there = reachable(on_progress=ticker())
        failed = wait(running, folder)
        return there, load(folder), failed


def only(hits: Mapping[str, Hits], names: Sequence[str]) -> dict[str, Hits]:
    """The hits of some lanes."""
    return {name: found for name, found in hits.items() if name in names}


class Running(NamedTuple):
    """The lanes on their way."""

    process: subprocess.Popen[str]
    output: Path


def start(lanes: Sequence[Lane], folder: Path) -> Running:
    """Start the tests of the lanes, which leave their counts in the folder."""
    tests = list(dict.fromkeys(test for lane in lanes for test in lane.tests))
    output = folder / "output"
    command = [str(ROOT / "scripts" / "test"), "-q", *tests]
    environment = {**os.environ, FOLDER_VARIABLE: str(folder)}
    with output.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, text=True)
    return Running(process, output)


def wait(running: Running, folder: Path) -> tuple[Finding, ...]:
    """Wait for the lanes; a finding if tests of theirs failed."""
    tick = Ticker()
    while running.process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(timeout=1.0)
        tick(f"lanes are running, {len(list(folder.glob('*.json')))} parts of them done")
    code = running.process.returncode
    if code == 0:
        return ()
    output = running.output.read_text("utf-8")
    print(output, file=sys.stderr)
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return tuple([Finding("all", "failed", line) for line in lines or [f"the tests of the lanes ended with {code}"]])


def verdict(matrix: Matrix) -> str:
    """The last line."""
    steps = sum(found.steps for found in matrix.hits.values())
    ground = f"{len(matrix.reachable)} classes are reachable, {len(matrix.lanes)} lanes took {steps:,} steps"
    if not matrix.findings:
        return f"{ground}: every required class is hit"
    kinds = [finding.kind for finding in matrix.findings]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"{ground}: {len(kinds)} finding{'s' if len(kinds) > 1 else ''} ({told})"


def tell(asked: argparse.Namespace, matrix: Matrix, sentence: str) -> None:
    """The matrix for whoever asked."""
    if asked.json:
        print(json.dumps({**matrix.as_data(), "verdict": sentence, "ok": not matrix.findings}, indent=1))
        print(f"coverage-classes: {sentence}", file=sys.stderr)
        return
    wide = WORDS_WIDE + LANE_WIDE * len(matrix.lanes)
    console = Console(width=None if sys.stdout.isatty() else wide, highlight=False, soft_wrap=False)
    if not asked.brief:
        console.print(table(matrix))
    console.print(summary(matrix))
    for lane, kind, what in matrix.findings:
        console.print(f"{kind.upper():12} {lane}: {what}", markup=False, soft_wrap=True)
    shown = asked.html.relative_to(ROOT) if asked.html.is_relative_to(ROOT) else asked.html
    console.print(f"picture: {shown}", markup=False, soft_wrap=True)
    print(f"coverage-classes: {sentence}")


class Ticker:
    """Progress on stderr, once something takes longer than a moment."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        if now - self._began > QUIET_S and now - self._last > EVERY_S:
            self._last = now
            print(f"coverage-classes: {what}, {now - self._began:.0f} s", file=sys.stderr, flush=True)


def ticker() -> Progress:
    """Progress of the exploration."""
    tick: Callable[[str], None] = Ticker()
    return lambda universe, done, states: tick(f"exploring {universe}, {done:,} of {states:,} states classified")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
