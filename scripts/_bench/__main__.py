"""scripts/bench: what an operation costs, in times beside bare rocksdict and in counts, with a limit for what has one.

Every case is measured in rounds, what it is compared with in the same round; the report gives medians and ranges. The
column "by CPU" has the CPU time of the same work, for machines that do other things too; --cpu holds the limits to it.
The last line is the verdict. A full run takes about a quarter of an hour and 4 GB of disk, a quick one two minutes.

Exit codes: 0 every limit holds, 1 some do not, 2 usage.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts._bench import guard, report
from scripts._bench.amounts import Counted
from scripts._bench.cycle import cycles
from scripts._bench.grants import Grants
from scripts._bench.measure import Figure
from scripts._bench.place import Place
from scripts._bench.processes import Endurance, Opening
from scripts._bench.runner import Case, run
from scripts._bench.service import Idle, Service
from scripts._bench.sweeps import Sweeps
from scripts._bench.syncs import Threads

ROUNDS, ROUNDS_QUICK = 7, 3
LONG_JOBS, LONG_JOBS_QUICK = 1_000_000, 20_000
EXAMPLES = """\
examples:
  scripts/bench                              everything
  scripts/bench --quick --only single        enqueue, lease, complete beside bare rocksdict, in seconds
  scripts/bench --only long --long 100000    the long run, shorter
  scripts/bench --service                    telha serve beside an echo over gRPC
  scripts/bench --plot                       everything, and docs/performance.md with its pictures anew
  scripts/bench --guard                      the counts beside the recorded ones (no times: for CI)
  scripts/bench --record                     keep the counts as they are now
"""


def cases(*, long_jobs: int) -> list[list[Case]]:
    """In groups: first what is measured in turns, then one by one what wants the machine to itself.

    What is compared with bare rocksdict has nothing else open beside it, as a queue in use: beside the seven large
    databases of the grants the share that is left was a tenth lower.
    """
    return [
        [*cycles(), Threads()],
        [Grants(), Sweeps()],
        [Opening()],
        [Counted()],
        [Service()],
        [Idle()],
        [Endurance(number=long_jobs)],
    ]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments; ends the process with 2 when they make no sense."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for group in cases(long_jobs=0) for case in group]
    parser.add_argument("--only", action="append", choices=names, metavar="CASE", help=f"only this: {', '.join(names)}")
    parser.add_argument(
        "--service", action="append_const", dest="only", const=Service.name, help="only what goes over the wire"
    )
    parser.add_argument("--rounds", type=_positive, help=f"rounds (default {ROUNDS}, {ROUNDS_QUICK} with --quick)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes or less: indications only")
    parser.add_argument("--long", type=_positive, metavar="N", help=f"jobs of the long run (default {LONG_JOBS:,})")
    parser.add_argument("--cpu", action="store_true", help="hold limits to CPU time where there is one")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--plot", action="store_true", help="write docs/performance.md and docs/performance-*.svg anew")
    parser.add_argument("--dir", type=Path, default=report.ROOT / "out", help="where databases go (default: out/)")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--guard", action="store_true", help="compare counts with the recorded ones, and nothing else")
    alone.add_argument("--record", action="store_true", help="record the counts, and nothing else")
    options = parser.parse_args(words)
    if options.only and Service.name in options.only:
        options.only.append(Idle.name)
    if options.long is not None and options.long < 20_000:
        parser.error("--long needs at least 20000 jobs: the run is measured in 40 parts, each of many batches")
    if (options.guard or options.record) and (options.only or options.plot or options.json):
        parser.error("--guard and --record go by themselves")
    if options.quick and options.plot:
        parser.error("--plot needs the full sizes: docs/performance.md names them")
    return options


def _positive(word: str) -> int:
    value = int(word)
    if value < 1:
        raise ValueError(word)
    return value


def main(words: Sequence[str]) -> int:
    """Run the command."""
    options = parse(words)
    if options.guard:
        return guarded()
    if options.record:
        found = guard.measured()
        guard.record(found)
        report.refresh({"counts": report.counts_section(found)})
        print(f"bench: recorded the counts of {len(found)} operations in scripts/_bench/{guard.RECORDED.name}")
        return 0
    long_jobs = options.long or (LONG_JOBS_QUICK if options.quick else LONG_JOBS)
    groups = [
        [case for case in group if not options.only or case.name in options.only]
        for group in cases(long_jobs=long_jobs)
    ]
    rounds = options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS)
    facts = report.machine()
    place = Place(root=options.dir / f"bench-{os.getpid()}", quick=options.quick)
    place.root.mkdir(parents=True)
    try:
        figures = [figure for group in groups for figure in run(group, place, rounds)]
    finally:
        shutil.rmtree(place.root, ignore_errors=True)
    chosen = [case for group in groups for case in group]
    code, line = report.verdict(figures, by_cpu=options.cpu)
    if options.json:
        print(json.dumps({"machine": facts, "figures": [one.as_json() for one in figures], "verdict": line}, indent=1))
    else:
        print("\n".join(report.table(figures, {case.name: case.about for case in chosen}, by_cpu=options.cpu)))
        if options.quick:
            print("bench: --quick: sizes were a tenth of what the names say, or less")
        print(line)
    if options.plot:
        command = " ".join(["scripts/bench", *words])
        write_documents(chosen, figures, report.machine_section(facts, command), by_cpu=options.cpu)
    return code


def guarded() -> int:
    """Print what grew; 1 if anything did."""
    found = guard.measured()
    complaints = sorted(guard.grown(guard.recorded(), found))
    for complaint in complaints:
        print(f"  {complaint}")
    if complaints:
        print(
            f"bench: {len(complaints)} counts grew by more than 5 %: find the cause, or record them on purpose "
            "(scripts/bench --record)"
        )
        return 1
    print(f"bench: the counts of {len(found)} operations are within 5 % of the recorded ones")
    return 0


def write_documents(chosen: Sequence[Case], figures: Sequence[Figure], where: str, *, by_cpu: bool) -> None:
    """Sections and pictures of the cases that were run."""
    from scripts._bench import plots  # matplotlib takes a second, which only pictures need

    sections: dict[str, str] = {}
    for case in chosen:
        mine = [one for one in figures if one.case == case.name]
        section = report.figures_section(mine, by_cpu=by_cpu)
        if isinstance(case, Service | Idle):  # measured apart from the rest, as a rule
            sections[case.name] = f"{where}\n\n{section}"
        else:
            sections |= {"machine": where, case.name: section}
        ratios = [one for one in mine if one.unit == "x"]
        match case.name:
            case "single" | "hundred":
                plots.bars(case.name, case.about, "raw time / queue time", ratios)
            case "grant":
                plots.bars(case.name, case.about, "times the cost on a fresh queue", ratios)
            case "long" if isinstance(case, Endurance):
                plots.run(plots.document(case.name), case.parts)
    report.refresh(sections)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
