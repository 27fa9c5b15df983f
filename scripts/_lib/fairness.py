"""scripts/fairness: can one scope's backlog starve the others? Over the wire, every grant judged; see --help."""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from scripts._lib.given import positive
from telha_jobs.rules import ENQUEUE_MANY_MAX
from tests.harness.fairness import BIG, Granted, Report, Waiter, competing, measure

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "out" / "fairness.svg"
MEMORY: Final = Path("/dev/shm")
HOLDS, FINDS, USAGE = 0, 1, 2
PROBLEMS_SHOWN: Final = 20
ROWS_SHOWN: Final = 3

DESCRIPTION: Final = """Can one scope's backlog starve the others? (seed OQ-1)

A scope has N jobs in the queue. Pollers with mixed filters (every kind, a family, a kind, some scopes) lease and
complete them over gRPC; then other scopes come, with a few jobs each, and the run ends when these were all granted.
Every grant is held against the promise "fair scopes": it serves the first scope of the ring that has something for it,
and a scope that waits is served within T grants for which it was eligible, T the ring's length when it joined."""
EPILOG: Final = """examples:
  scripts/fairness                        1,000,000 jobs against 100 scopes with 10 each; a minute or two
  scripts/fairness --jobs 2000 --json     small, for programs
  scripts/fairness --plot docs/fairness.svg

exit: 0 the bound holds, 1 it does not, 2 usage"""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line; exits with 2 when it cannot be read."""
    parser = argparse.ArgumentParser(
        prog="scripts/fairness",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=positive, default=1_000_000, metavar="N", help="of the one scope (1000000)")
    parser.add_argument("--scopes", type=positive, default=100, metavar="N", help="how many others come (100)")
    parser.add_argument("--each", type=positive, default=10, metavar="N", help="jobs of each of them (10)")
    parser.add_argument("--pollers", type=positive, default=8, metavar="N", help="clients that lease (8)")
    parser.add_argument("--plot", type=Path, default=PICTURE, metavar="FILE", help="the picture (out/fairness.svg)")
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    asked = parser.parse_args(given)
    if asked.scopes * asked.each > ENQUEUE_MANY_MAX:
        parser.error(f"--scopes times --each must be at most {ENQUEUE_MANY_MAX:,}: they come in one call")
    return asked


def main(given: Sequence[str]) -> int:
    """Run it; the exit code."""
    asked = arguments(given)
    scratch = Path(tempfile.mkdtemp(prefix="telha-fairness-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        report = measure(
            scratch / "queue",
            jobs=asked.jobs,
            tenants=asked.scopes,
            each=asked.each,
            pollers=asked.pollers,
            loaded=ticker("jobs of the backlog", asked.jobs),
            progress=ticker("grants to the others", asked.scopes * asked.each),
        )
    except RuntimeError as error:
        print(f"fairness: {error}", file=sys.stderr)
        return FINDS
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    plotted(report, asked.plot)
    figures = figures_of(report)
    print(json.dumps(figures) if asked.json else told(report, figures))
    where = sys.stderr if asked.json else sys.stdout
    for problem in report.problems[:PROBLEMS_SHOWN]:
        print(f"  {problem}", file=where)
    print(f"  picture: {shown(asked.plot)}", file=where)
    number = len(report.problems)
    verdict = "the bound holds" if not number else f"{number} things do not hold"
    print(f"fairness: {verdict} ({report.judge.grants:,} grants, {len(report.judge.scopes)} scopes)", file=where)
    return FINDS if number else HOLDS


def shown(path: Path) -> str:
    """A path as a command from the root takes it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def figures_of(report: Report) -> dict[str, Any]:
    """The run in numbers. Waits and gaps are in grants unless they say ms."""
    scopes = report.judge.scopes
    others = [one for number, one in scopes.items() if number != BIG]
    nearest = min((one for one in others if one.slack is not None), key=lambda one: one.slack or 0)
    shares = competing(report.events)
    return {
        "jobs": report.jobs,
        "scopes": report.tenants,
        "each": report.each,
        "pollers": len(report.filters),
        "filters": [str(one) for one in report.filters],
        "grants": report.judge.grants,
        "loaded_s": round(report.loaded_s, 1),
        "seconds": round(report.seconds, 1),
        "wait_for_first": spread([one.waits[0] for one in others if one.waits]),
        "wait_for_last": spread([one.waits[-1] for one in others if one.waits]),
        "wait_for_first_ms": spread([round(one.waits_s[0] * 1_000) for one in others if one.waits]),
        "wait_for_last_ms": spread([round(one.waits_s[-1] * 1_000) for one in others if one.waits]),
        "worst_gap": max(one.gap for one in others),
        "worst_gap_of_all": max(one.gap_of_all for one in others),
        "nearest_to_its_bound": nearest.slack,
        "worst_gap_of_backlog": scopes[BIG].gap,
        "jain": round(report.jain, 4),
        "competing_grants": shares.total(),
        "shares": spread(list(shares.values())),
        "per_scope": {number: row(one) for number, one in sorted(scopes.items())},
        "problems": report.problems,
    }


def row(one: Waiter) -> dict[str, Any]:
    """How one scope fared."""
    return {
        "granted": one.granted,
        "first": one.waits[0] if one.waits else None,
        "last": one.waits[-1] if one.waits else None,
        "mean_ms": round(statistics.fmean(one.waits_s) * 1_000, 1) if one.waits_s else None,
        "worst_gap": one.gap,
        "worst_gap_of_all": one.gap_of_all,
        "slack": one.slack,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median, most."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else {}


def told(report: Report, figures: dict[str, Any]) -> str:
    """The figures for people."""

    def line(name: str, key: str) -> str:
        one = figures[key]
        return f"  {name:<46} {one['min']:>9,.0f} {one['median']:>9,.0f} {one['max']:>9,.0f}"

    filters = "; ".join(sorted(set(figures["filters"])))
    late = f"in order of arrival the others would have come after {report.jobs:,} grants"
    title = f"{report.jobs:,} jobs of one scope, then {report.tenants} scopes with {report.each} each"
    return f"""{title}; {len(report.filters)} pollers: {filters}
  {figures["grants"]:,} grants in {figures["seconds"]} s, after {figures["loaded_s"]} s of loading
  {"":<46} {"least":>9} {"median":>9} {"most":>9}
{line("grants until a scope's first job was leased", "wait_for_first")}
{line("grants until its last one was", "wait_for_last")}
{line("ms until its first job was leased", "wait_for_first_ms")}
{line("ms until its last one was", "wait_for_last_ms")}
{line(f"grants to a scope, of {figures['competing_grants']:,} while all compete", "shares")}
  Jain's index of those {figures["jain"]:.4f}; {late}
  worst gap {figures["worst_gap"]} grants that a scope was eligible for, {figures["worst_gap_of_all"]} of all; \
nearest to its bound: {figures["nearest_to_its_bound"]} to spare
{table(figures["per_scope"])}"""


def table(rows: dict[int, dict[str, Any]]) -> str:
    """The scope with the backlog, and those that waited for longest."""
    lines = [f"  {'scope':<16} {'granted':>8} {'first':>7} {'last':>7} {'mean ms':>8} {'worst gap':>10} {'slack':>6}"]
    others = sorted((number for number in rows if number != BIG), key=lambda number: -(rows[number]["last"] or 0))
    for number in [BIG, *others[:ROWS_SHOWN]]:
        one = rows[number]
        name = "the backlog" if number == BIG else f"{number}"
        cells = [str(one[key]) for key in ("granted", "first", "last", "mean_ms", "worst_gap", "slack")]
        lines.append("  {:<16} {:>8} {:>7} {:>7} {:>8} {:>10} {:>6}".format(name, *cells))
    return "\n".join(lines)


def ticker(what: str, total: int) -> Callable[[int], None]:
    """A progress line on stderr: once a second on a terminal, every ten seconds elsewhere."""
    began = last = time.monotonic()
    terminal = sys.stderr.isatty()

    def tick(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (1 if terminal else 10):
            return
        last = now
        line = f"fairness: {done:,} of {total:,} {what}, {now - began:.0f} s"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return tick


def plotted(report: Report, path: Path) -> None:
    """Who was served when, and how long each scope waited."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    granted = [event for event in report.events if isinstance(event, Granted)]
    came = report.judge.scopes[1].arrived
    canvas = Figure(figsize=(8, 6))
    served, waited = canvas.subplots(2, 1)
    places = [(number - came, event.scope) for number, event in enumerate(granted, 1)]
    others = [place for place in places if place[1] != BIG]
    big = [place for place in places if place[1] == BIG]
    served.plot(*zip(*others, strict=True), ".", color="#1f4e79", markersize=2, label="the others")
    served.plot(
        *zip(*big, strict=True), "|", color="#b03a2e", markersize=8, label=f"the scope with {report.jobs:,} jobs"
    )
    served.set_xlabel("grants, counted from when the others came")
    served.set_ylabel("scope served")
    served.legend(loc="lower right", bbox_to_anchor=(1, 1), ncol=2, fontsize=8)
    scopes = [number for number in sorted(report.judge.scopes) if number != BIG]
    for name, at, colour in (("first", 0, "#7f9db9"), ("last", -1, "#1f4e79")):
        waits = [report.judge.scopes[number].waits[at] for number in scopes if report.judge.scopes[number].waits]
        waited.plot(range(1, len(waits) + 1), waits, ".", color=colour, label=f"its {name} job")
    waited.set_xlabel("scope")
    waited.set_ylabel("grants until leased")
    waited.set_ylim(bottom=0)
    waited.legend(loc="center right", fontsize=8)
    canvas.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "telha", "svg.fonttype": "none"}):
        canvas.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
