"""scripts/coverage-lines: lines and branches of impl and model that no test reaches; see --help.

What is measured and how stands in pyproject.toml, [tool.coverage]. Processes that tests start are measured too, but for
those that are killed.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "out" / "coverage" / "lines"
QUIET_S: Final = 2.0
EVERY_S: Final = 5.0
HOLDS, FINDS, USAGE = 0, 1, 2

FAST: Final = (
    "tests/unit",
    "tests/contract",
    "tests/corpus",
    "tests/field_failures",
    "tests/stateful/test_probes.py",
    "tests/stateful/test_machine.py",
    "tests/rpc",
)
ABOUT_OTHERS: Final = (
    "bench",
    "classes_gate",
    "coverage_lines",
    "demo",
    "demo_documents",
    "mutate",
    "project",
    "soak",
    "wheel",
)
"""Tests in tests/unit of what is neither impl nor model."""
NOT_MEASURED: Final = ("tests/stateful/test_mutants.py", "tests/chaos")
"""Queues that are broken on purpose, and processes that are killed, which leave no data."""
FLOORS: Final = {"impl": 95.0, "model": 95.0}
"""Per cent of lines and branches together that the fast suites must reach."""

MOVED: Final = "sources were changed while the tests ran: these line numbers belong to no version"

EPILOG: Final = """examples:
  scripts/coverage-lines                     the fast suites: unit, contract, corpus, field failures, probes, rpc
  scripts/coverage-lines --all               every test but mutants and chaos: long (scripts/soak)
  scripts/coverage-lines tests/unit/model    what these tests reach; holds no floor
  scripts/coverage-lines --file agenda       only files whose path has this in it
  scripts/coverage-lines --json | jq .files  for programs

exit: 0 at or above the floors, 1 below one, or a test failed, or sources were changed meanwhile, 2 usage"""


class File(NamedTuple):
    """What was reached of one file; `lines` and `branches` are those that were not, a branch from line to line."""

    path: str
    part: str
    statements: int
    arcs: int
    lines: tuple[int, ...]
    branches: tuple[tuple[int, int], ...]

    @property
    def percent(self) -> float:
        """Lines and branches together."""
        return percent([self])


def percent(files: Sequence[File]) -> float:
    """Lines and branches together, of several files."""
    there = sum(file.statements + file.arcs for file in files)
    missing = sum(len(file.lines) + len(file.branches) for file in files)
    return 100.0 * (there - missing) / there if there else 100.0


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the command was asked; exits with 2 when that cannot be."""
    parser = argparse.ArgumentParser(
        prog="scripts/coverage-lines",
        description="Which lines and branches of impl and model no test reaches.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="pytest's words for what to run (the fast suites)")
    parser.add_argument("--all", action="store_true", help="every test but mutants and chaos")
    parser.add_argument("--file", metavar="PART", help="list only files whose path has this in it")
    parser.add_argument(
        "--html", type=Path, default=PICTURE, metavar="DIR", help="the sources, marked (out/coverage/lines)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of text")
    asked = parser.parse_args(given)
    if asked.tests and asked.all:
        parser.error("name tests, or --all")
    missing = [test for test in asked.tests if not (ROOT / test.partition("::")[0]).exists()]
    if missing:
        parser.error(f"there is no {', '.join(missing)}")
    return asked


def chosen(asked: argparse.Namespace) -> list[str]:
    """The words for pytest."""
    if asked.tests:
        return list(asked.tests)
    ignored = [f"--ignore=tests/unit/test_{name}.py" for name in ABOUT_OTHERS]
    if asked.all:
        return ["tests", *[f"--ignore={path}" for path in NOT_MEASURED], *ignored]
    return ["-m", "not slow", *FAST, *ignored]


def sources() -> dict[str, int]:
    """When each file that is measured was changed (ns). A line's number means nothing once its file has moved on."""
    return {str(path): path.stat().st_mtime_ns for part in FLOORS for path in sorted((ROOT / part).rglob("*.py"))}


def measured(tests: Sequence[str], html: Path) -> tuple[list[File], str | None]:
    """Run tests under coverage: what they reached, and what is wrong with the run, if anything."""
    began = sources()
    with tempfile.TemporaryDirectory(prefix="telha-lines-") as scratch:
        folder = Path(scratch)
        # Without what an outer run of coverage, or of pytest, has put there for its own processes.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
        environment = {**clean, "COVERAGE_FILE": str(folder / "data")}
        code, output = run(tests, folder, environment)
        for words in (["combine", "-q"], ["json", "-q", "-o", str(folder / "report")], ["html", "-q", "-d", str(html)]):
            command = [sys.executable, "-m", "coverage", *words]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(
                    f"coverage {words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}{output}"
                )
        wrong = output if code else None if began == sources() else MOVED
        return files(json.loads((folder / "report").read_text("utf-8"))), wrong


def run(tests: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of the tests."""
    log = folder / "output"
    memory = Path("/dev/shm")
    base = tempfile.mkdtemp(prefix="telha-lines-", dir=memory if memory.is_dir() else None)
    pytest = ["pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", f"--basetemp={base}/base"]
    command = [sys.executable, "-m", "coverage", "run", "-m", *pytest, *tests]
    began = said = time.monotonic()
    try:
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1.0)
            now = time.monotonic()
            if now - began > QUIET_S and now - said > EVERY_S:
                said = now
                print(f"coverage-lines: tests are running, {now - began:.0f} s", file=sys.stderr, flush=True)
    finally:
        subprocess.run(["rm", "-rf", base], check=False)
    return process.returncode, log.read_text("utf-8", errors="replace")


def files(report: Any) -> list[File]:
    """The files of coverage's own report."""
    found = []
    for path, data in sorted(report["files"].items()):
        part = Path(path).parts[0]
        branches = tuple([(start, end) for start, end in data["missing_branches"]])
        summary = data["summary"]
        lines = tuple(data["missing_lines"])
        found.append(File(path, part, summary["num_statements"], summary["num_branches"], lines, branches))
    return found


def ranges(lines: Sequence[int]) -> str:
    """Line numbers for people: 3-5 9."""
    found = []
    for _, run_of in groupby(enumerate(lines), lambda pair: pair[1] - pair[0]):
        numbers = [line for _, line in run_of]
        found.append(f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return " ".join(found)


def partial(file: File) -> Iterator[str]:
    """Branches never taken from lines that were reached: 12→15; those of lines never reached say nothing new."""
    for start, end in file.branches:
        if start not in file.lines:
            yield f"{start}→{end if end > 0 else 'end'}"


def table(found: Sequence[File]) -> Table:
    """The files that were not reached entirely."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, justify in (("file", "left"), ("lines", "right"), ("branches", "right"), ("%", "right")):
        shown.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    shown.add_column("not reached: lines | branches")
    for file in found:
        if file.lines or file.branches:
            missing = " | ".join(filter(None, (ranges(file.lines), " ".join(partial(file)))))
            counts = (
                f"{file.statements - len(file.lines)}/{file.statements}",
                f"{file.arcs - len(file.branches)}/{file.arcs}",
            )
            shown.add_row(file.path, *counts, f"{file.percent:.1f}", missing)
    return shown


def findings(found: Sequence[File], floors: dict[str, float]) -> list[str]:
    """The parts that are below their floor."""
    below = []
    for part, floor in floors.items():
        reached = percent([file for file in found if file.part == part])
        if reached < floor:
            below.append(f"{part} is at {reached:.1f} %, below its floor of {floor} %")
    return below


def verdict(found: Sequence[File], below: Sequence[str], *, failed: bool) -> str:
    """The last line."""
    told = []
    for part in FLOORS:
        of_part = [file for file in found if file.part == part]
        lines, branches = sum(len(file.lines) for file in of_part), sum(len(file.branches) for file in of_part)
        told.append(f"{part} {percent(of_part):.1f} % ({lines} lines and {branches} branches not reached)")
    return "; ".join([", ".join(told), *below, *(["THE RUN FAILED"] if failed else [])])


def main(given: Sequence[str]) -> int:
    """Run, report; the exit code."""
    asked = arguments(given)
    found, wrong = measured(chosen(asked), asked.html)
    below = [] if asked.tests else findings(found, FLOORS)
    sentence = verdict(found, below, failed=wrong is not None)
    listed = [file for file in found if asked.file is None or asked.file in file.path]
    if wrong is not None:
        print(wrong, file=sys.stderr)
    if asked.json:
        data = [{**file._asdict(), "percent": round(file.percent, 2)} for file in listed]
        print(json.dumps({"files": data, "below": below, "verdict": sentence, "ok": not below and wrong is None}))
    else:
        Console(width=None if sys.stdout.isatty() else 150, highlight=False).print(table(listed))
    print(f"coverage-lines: {sentence}", file=sys.stderr if asked.json else sys.stdout)
    return FINDS if below or wrong is not None else HOLDS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
