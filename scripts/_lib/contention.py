"""scripts/contention: many threads contend for the jobs of one queue, and everything they were told is judged.

    scripts/contention --jobs 100000 --pollers 16

Producers (a quarter as many as pollers) add the jobs; pollers lease, complete, fail, release, and let leases expire.
At the end every (job, generation) must have been granted once and every job completed once, ids and grants in the
promised order, nothing left, and every derived family in step. Figures go to stdout, progress to stderr.

Exit codes: 0 it all holds, 1 something does not, 2 usage.
"""

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts._lib.given import positive
from tests.harness.contention import Durability, Report, contend

_TMPFS = Path("/dev/shm")  # where Linux has it


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line; exits with 2 when it cannot be read."""
    parser = argparse.ArgumentParser(
        prog="scripts/contention", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=positive, default=10_000, metavar="N", help="jobs in all (default 10000)")
    parser.add_argument("--pollers", type=positive, default=16, metavar="P", help="threads that lease (default 16)")
    parser.add_argument("--durability", choices=("os", "sync"), default="os", help="as in QueueConfig (default os)")
    parser.add_argument("--seed", type=int, help="of the threads' choices; their timing is nobody's (default: drawn)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where to put the queue (default: memory, removed)")
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    return parser.parse_args(given)


def shown(jobs: int, *, terminal: bool) -> Callable[[int], None]:
    """A progress line on stderr: once a second on a terminal, every ten seconds elsewhere."""
    began = last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (1 if terminal else 10):
            return
        last = now
        line = f"contention: {done:,} of {jobs:,} jobs completed, {now - began:.0f} s"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return show


def told(report: Report) -> str:
    """The figures for people."""
    return (
        f"{report.jobs:,} jobs, {report.pollers} pollers, durability {report.durability}, seed {report.seed}\n"
        f"  {report.seconds:.1f} s, {report.jobs_per_second:,.0f} jobs per second\n"
        f"  {report.grants:,} grants, {report.returned:,} failed or released, {report.left_to_expire:,} left to expire,"
        f" {report.stale_submits:,} submits came too late\n"
        f"  {report.commits:,} commits, {report.syncs:,} syncs, {report.syncs_per_job:.3f} syncs per job"
    )


def main(given: Sequence[str]) -> int:
    """Run it; the exit code."""
    chosen = arguments(given)
    seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
    durability: Durability = chosen.durability
    scratch: Path | None = None
    if chosen.data is None:
        scratch = Path(tempfile.mkdtemp(prefix="telha-contention-", dir=_TMPFS if _TMPFS.is_dir() else None))
    elif chosen.data.exists() and (not chosen.data.is_dir() or any(chosen.data.iterdir())):
        print(f"contention: {chosen.data} must be an empty directory, or not be there yet", file=sys.stderr)
        return 2
    try:
        report = contend(
            chosen.data or scratch or Path(),
            jobs=chosen.jobs,
            pollers=chosen.pollers,
            durability=durability,
            seed=seed,
            progress=shown(chosen.jobs, terminal=sys.stderr.isatty()),
        )
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(json.dumps(report.figures()) if chosen.json else told(report))
    for problem in report.problems[:20]:
        print(f"  {problem}", file=sys.stderr)
    if report.trace is not None:
        print("  " + report.trace.replace("\n", "\n  "), file=sys.stderr)
    verdict = "holds" if not report.problems else f"{len(report.problems)} things do not hold"
    print(
        f"contention: {verdict} ({report.jobs:,} jobs, {report.pollers} pollers)",
        file=sys.stderr if chosen.json else sys.stdout,
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
