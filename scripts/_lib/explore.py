"""The command `scripts/explore`: see its --help. What it says about liveness is in `liveness`."""

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence

from scripts._lib import liveness
from telha_model.describe import program
from telha_model.explore import Progress, Report, explore
from telha_model.invariants import ALWAYS, GOALS
from telha_model.universe import Universe
from telha_model.universes import universes
from telha_model.universes.liveness import JOBS_MAX

QUIET_S = 2.0
JOBS_DEFAULT = 3

EPILOG = """example:
  scripts/explore --universe protocol        one universe
  scripts/explore --jobs 3 --liveness        whether every job ends, and what happens where one does not
  scripts/explore --json | jq .verdict       for programs

exit: 0 every promise holds and every situation was reached, 1 not so, 2 usage"""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the command was asked."""
    parser = argparse.ArgumentParser(
        prog="scripts/explore",
        description="Visit every state of the model's universes and ask every promise on every step.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = list(universes())
    parser.add_argument("--universe", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--size", choices=["ci", "large"], default="ci", help="large: minutes each")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--liveness", action="store_true", help="search for fair cycles on which a job never ends")
    parser.add_argument("--jobs", type=int, metavar="N", help=f"with --liveness: 1 to {JOBS_MAX} jobs (default: 3)")
    asked = parser.parse_args(given)
    if asked.liveness and (asked.universe or asked.size != "ci"):
        parser.error("--liveness has a universe of its own: it goes with --jobs and --json only")
    if asked.jobs is not None and not asked.liveness:
        parser.error("--jobs goes with --liveness; a universe says itself how many jobs it has")
    if asked.jobs is not None and not 1 <= asked.jobs <= JOBS_MAX:
        parser.error(f"--jobs must be 1 to {JOBS_MAX}")
    return asked


def ticker(name: str) -> Progress:
    """Progress on stderr, once a universe takes longer than a moment."""
    begun = last = time.monotonic()

    def tick(done: int, states: int, edges: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - begun > QUIET_S and now - last > 1.0:
            last = now
            print(f"{name}: {edges:,} edges, {done:,} of {states:,} states so far", file=sys.stderr)

    return tick


def told(universe: Universe, report: Report, seconds: float, wall_seconds: float) -> dict[str, object]:
    """A report as plain data. `seconds` are those of the processor: others may be using it too, which is not the
    search's speed on one core.
    """
    edges = report.graph.edges()
    broken = {violation.invariant: violation for violation in report.violations}
    whole = not broken or set(broken) <= set(GOALS)
    return {
        "universe": universe.name,
        "states": len(report.graph.states),
        "edges": edges,
        "seconds": round(seconds, 3),
        "wall_seconds": round(wall_seconds, 3),
        "edges_per_second": round(edges / seconds) if seconds else 0,
        "invariants": {
            name: "broken" if name in broken else "holds" if whole else "held until then" for name in (*ALWAYS, *GOALS)
        },
        "reached": [name for name in universe.sometimes if name not in report.missed] if whole else [],
        "missed": list(report.missed),
        "violations": [
            {
                "invariant": violation.invariant,
                "sentence": violation.sentence,
                "trace": program(universe.config, universe.start_ms, violation.trace),
            }
            for violation in report.violations
        ],
    }


def printed(universe: Universe, report: Report, found: dict[str, object]) -> None:
    """A report for people."""
    print(
        f"{universe.name:9} {found['states']:>7,} states {found['edges']:>9,} edges {found['seconds']:>8} s"
        f" {found['edges_per_second']:>8,} edges/s   {universe.concern}"
    )
    verdicts = found["invariants"]
    if isinstance(verdicts, dict):
        for verdict in ("holds", "held until then", "broken"):
            names = [name for name, said in verdicts.items() if said == verdict]
            if names:
                print(f"          {verdict}: {', '.join(names)}")
    reached = found["reached"]
    if isinstance(reached, list) and reached:
        print(f"          situations reached: {len(reached)} of {len(universe.sometimes)}")
    for name in report.missed:
        print(f"          NEVER REACHED: {name}")
    for violation in report.violations:
        print(f"          BROKEN {violation.invariant}: {violation.sentence}; the shortest way there:")
        for line in program(universe.config, universe.start_ms, violation.trace):
            print(f"            {line}")


def run(chosen: list[Universe], show: Callable[[Universe, Report, dict[str, object]], None]) -> list[dict[str, object]]:
    """Explore one after another."""
    all_found = []
    for universe in chosen:
        begun, begun_wall = time.process_time(), time.perf_counter()
        report = explore(universe, on_progress=ticker(universe.name))
        found = told(universe, report, time.process_time() - begun, time.perf_counter() - begun_wall)
        all_found.append(found)
        show(universe, report, found)
    return all_found


def main(given: Sequence[str]) -> int:
    """Explore, report, and say in one line how it went."""
    asked = arguments(given)
    if asked.liveness:
        gc.disable()
        return liveness.run(asked.jobs or JOBS_DEFAULT, as_json=asked.json, ticker=ticker)
    every = universes(asked.size)
    chosen = [every[name] for name in asked.universe or every]
    # States are tuples of tuples without cycles: the collector would walk millions of them and never find anything.
    gc.disable()
    all_found = run(chosen, (lambda _u, _r, _f: None) if asked.json else printed)
    bad = [str(found["universe"]) for found in all_found if found["violations"] or found["missed"]]
    edges = sum(int(str(found["edges"])) for found in all_found)
    seconds, wall = (sum(float(str(found[name])) for found in all_found) for name in ("seconds", "wall_seconds"))
    verdict = (
        f"{len(chosen)} universes, {edges:,} edges in {seconds:.1f} s of one core"
        f" ({edges / max(seconds, 1e-9):,.0f} per second; {wall:.1f} s by the clock),"
        f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MiB: "
    )
    verdict += f"findings in {', '.join(bad)}" if bad else "every promise holds, every situation reached"
    if asked.json:
        print(json.dumps({"universes": all_found, "verdict": verdict, "ok": not bad}, indent=1))
    else:
        print(f"explore: {verdict}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
