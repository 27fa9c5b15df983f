"""scripts/chaos: kill, cut, fill, step and flip, and see what is left of the queue.

Exit codes: 0 every promise held, 1 one did not or a lane could not be run, 2 usage.
"""

import argparse
import json
import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.frame import FoundError, Say, Verdict, command, play
from tests.chaos.lanes import LANES, lane

_COVERED_SHOWN = 6


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; ends with exit code 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description="Run a queue under fire, one lane after another, and judge what is left of it.",
        epilog="examples:\n"
        "  scripts/chaos                                     every lane, in the size of CI\n"
        "  scripts/chaos --lane killpoints --seed 7          one lane\n"
        "  scripts/chaos --lane blackbox --minutes 60        for an hour\n"
        "  scripts/chaos --lane blackbox --judge out/chaos/blackbox-7-x/run   a kept run, judged again\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lane", action="append", choices=LANES, help="only this lane; may be given several times")
    parser.add_argument("--seed", type=int, metavar="S", help="of everything that the lanes decide (default: drawn)")
    parser.add_argument("--minutes", type=float, metavar="M", help="go on for so long, all lanes together")
    parser.add_argument("--json", action="store_true", help="the verdicts as one JSON object")
    parser.add_argument(
        "--judge", type=Path, metavar="DIR", help="judge the history of a kept run of the one lane given"
    )
    options = parser.parse_args(arguments)
    if options.minutes is not None and not options.minutes > 0:
        parser.error("--minutes must be more than zero")
    if options.seed is not None and options.seed < 0:
        parser.error("--seed must not be negative")
    if options.judge is not None:
        if len(options.lane or ()) != 1:
            parser.error("--judge needs the one --lane that the run is of")
        if not options.judge.is_dir():
            parser.error(f"--judge: {options.judge} is no directory")
        if lane(options.lane[0]).judge is None:
            parser.error(f"--judge: {options.lane[0]} repeats from its seed; there is no history to judge by itself")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; the exit code."""
    options = parse(arguments)
    if options.judge is not None:
        return _judge(options.lane[0], options.judge)
    names = list(dict.fromkeys(options.lane or LANES))
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    say = _progress()
    verdicts = list[Verdict]()
    began = time.monotonic()
    for index, name in enumerate(names):
        seconds = None
        if options.minutes is not None:
            left = max(options.minutes * 60 - (time.monotonic() - began), 1.0)
            weights = [_weight(later) for later in names[index:]]
            seconds = left * weights[0] / sum(weights)
        verdicts.append(_run(name, seed, seconds, say))
    broken = [verdict.lane for verdict in verdicts if verdict.finding is not None]
    word = f"chaos: BROKEN: {', '.join(broken)}" if broken else f"chaos: every promise held, {len(verdicts)} lanes"
    if options.json:
        print(json.dumps({"seed": seed, "held": not broken, "lanes": [verdict.row() for verdict in verdicts]}))
    else:
        _show(verdicts)
        print(f"{word}, seed {seed}, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def _run(name: str, seed: int, seconds: float | None, say: Say) -> Verdict:
    """Play a lane; one that fails by itself is no better than one that found something."""
    try:
        chosen = lane(name)
        say(f"chaos: {name}: {chosen.proves}")
        return play(chosen, seed=seed, seconds=seconds, say=lambda line: say(f"chaos: {name}: {line}"))
    except Exception as error:  # noqa: BLE001  whatever it was, the other lanes are run, and the verdict shows it
        return Verdict(
            lane=name,
            seed=seed,
            seconds=0.0,
            covered={},
            lost=0,
            unexpected=0,
            duplicated=0,
            recovered=0,
            finding="".join(traceback.format_exception(error)),
            repeat=command(name, seed, seconds),
            kept=None,
        )


def _weight(name: str) -> int:
    try:
        return lane(name).weight
    except ImportError:
        return 1  # it cannot be run, which its verdict will tell


def _judge(name: str, directory: Path) -> int:
    judge = lane(name).judge
    if judge is None:
        raise ValueError(f"{name} has no judge")
    try:
        print(f"chaos: {name}: held: {judge(directory)}")
    except FoundError as error:
        print(f"chaos: {name}: BROKEN: {error}")
        return 1
    return 0


def _show(verdicts: Sequence[Verdict]) -> None:
    """The table: what each lane covered, and the four words; then what was found."""
    print(f"\n  {'lane':<11} {'verdict':<8} {'lost':>5} {'unexp.':>6} {'dupl.':>5} {'recov.':>6} {'s':>6}  covered")
    for one in verdicts:
        word = "held" if one.finding is None else "BROKEN"
        # What a lane counts in all comes before what it counts by place.
        most = sorted(one.covered.items(), key=lambda item: (": " in item[0], -item[1]))
        covered = ", ".join(f"{count:,} {name}" for name, count in most[:_COVERED_SHOWN])
        covered += f", {len(most) - _COVERED_SHOWN} more" if len(most) > _COVERED_SHOWN else ""
        print(
            f"  {one.lane:<11} {word:<8} {one.lost:>5} {one.unexpected:>6} {one.duplicated:>5} {one.recovered:>6}"
            f" {one.seconds:>6.1f}  {covered}"
        )
    print()
    for one in verdicts:
        if one.finding is not None:
            print(f"{one.told()}\n")


def _progress() -> Say:
    """Lines to stderr: over one another on a terminal, at most one in ten seconds of the same lane elsewhere."""
    last, lane_of_last = 0.0, ""
    terminal = sys.stderr.isatty()

    def say(line: str) -> None:
        nonlocal last, lane_of_last
        name, now = line.split(":", 2)[1], time.monotonic()
        if not terminal and name == lane_of_last and now - last < 10:
            return
        last, lane_of_last = now, name
        end = "\n" if not terminal else ""
        print(f"\r\x1b[K{line}" if terminal else line, end=end, file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
