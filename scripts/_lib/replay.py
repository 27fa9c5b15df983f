"""scripts/replay: a trace step by step, or a lane's run once more; see --help."""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from telha_model.trace import Agrees, Differs, Trace, TraceError
from tests.harness.lanes import Death, played, toured
from tests.harness.mutants import MUTANTS, mutant
from tests.harness.mutation import ROOT, environment
from tests.harness.replay import Line, NotDeterministicError, Played, anew, as_json, has_cuts, play, shortest_trace
from tests.harness.subject import SubjectError
from tests.harness.subjects import ALL, AT, MODEL, SUBJECTS
from tests.harness.traces import BUDGET_S, for_mutant, load, save, shown
from tests.harness.walking import ci_names

QUIET_S: Final = 2.0
AGREES, DIFFERS, USAGE = 0, 1, 2

EPILOG: Final = """examples:
  scripts/replay tests/corpus/death-by-expiry.json                    on the model, then on the engine
  scripts/replay out/traces/X.json --subject engine --minimise        and write X.min.json
  scripts/replay tests/corpus/late-release.json --subject grpc        by the client of a server that the replay starts
  scripts/replay X.json --step --subject grpc://127.0.0.1:7700        and on that port, for others to look at it
  scripts/replay --lane hypothesis --seed 1                           the run that a log names, in the same steps
  scripts/replay --lane tours --universe keys --mutant "a key is free once its job has ended"
  scripts/replay --selftest                                           does the minimiser do what it is for?

exit: 0 all agrees, 1 something differs, 2 usage, an unreadable trace, or one that the subject cannot replay"""


NAMES: Final = (MODEL, *SUBJECTS, f"{AT}HOST:PORT", "all")


def subject(word: str) -> str:
    """The name of a subject, for argparse."""
    if word not in NAMES and not word.startswith(AT):
        raise argparse.ArgumentTypeError(f"no subject is called {word}: one of {', '.join(NAMES)}")
    return word


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the command was asked; exits with 2 when that cannot be."""
    parser = argparse.ArgumentParser(
        prog="scripts/replay",
        description="Replay traces up to the first difference, or a lane's run once more.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", nargs="*", type=Path, metavar="TRACE", help="trace files (docs/traces.md)")
    parser.add_argument("--subject", type=subject, metavar="SUBJECT", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--minimise", action="store_true", help="write the shortest trace that still differs beside it")
    parser.add_argument("--step", action="store_true", help="wait for Enter before each step; q ends")
    parser.add_argument("--twice", action="store_true", help="play twice, and compare to the byte")
    parser.add_argument("--record", action="store_true", help="write the replies anew, as the model gives them now")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of text")
    parser.add_argument("--mutant", choices=[one.name for one in MUTANTS], metavar="NAME", help="break the queue first")
    lanes = parser.add_argument_group("instead of a trace")
    lanes.add_argument("--lane", choices=("hypothesis", "tours", "contention"), help="run a lane once more")
    lanes.add_argument("--seed", type=int, help="of the lane (hypothesis, contention)")
    lanes.add_argument("--profile", choices=("gate", "soak", "dev"), default="gate", help="of Hypothesis (gate)")
    lanes.add_argument("--universe", choices=(*sorted(ci_names()), "all"), help="of the tour; all: one after another")
    lanes.add_argument("--jobs", type=int, default=200, help="of contention (200)")
    lanes.add_argument("--pollers", type=int, default=8, help="of contention (8)")
    lanes.add_argument("--selftest", action="store_true", help="minimise a long run of every mutant")
    lanes.add_argument("--only", action="append", metavar="NAME", help="with --selftest: this mutant")
    asked = parser.parse_args(given)
    told = [name for name in ("trace", "lane", "selftest") if getattr(asked, name)]
    if len(told) != 1:
        parser.error("name trace files, or a --lane, or --selftest")
    if asked.lane == "tours" and asked.universe is None:
        parser.error("--lane tours needs a --universe")
    if asked.lane in ("hypothesis", "contention") and asked.seed is None:
        parser.error(f"--lane {asked.lane} needs a --seed")
    if asked.lane is not None and asked.subject in (MODEL, "all"):
        parser.error("a lane has one subject besides the model")
    if asked.minimise and asked.subject == "all":
        parser.error("--minimise needs one --subject")
    unknown = set(asked.only or ()) - {one.name for one in MUTANTS}
    if unknown:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    return asked


def main(given: Sequence[str]) -> int:
    """Do what was asked; the exit code."""
    asked = arguments(given)
    if asked.mutant is not None and for_mutant() == "":
        # The change is made as a module is imported: it takes a process that has imported none of them.
        sys.stdout.flush()
        command = [sys.executable, "-m", "scripts._lib.replay", *given]
        os.execve(sys.executable, command, environment(mutant(asked.mutant)))
    if asked.selftest:
        from scripts._lib.replay_selftest import selftest

        return selftest(asked.only, as_objects=asked.json)
    try:
        return replay_all(asked) if asked.lane is None else run_lane(asked)
    except (TraceError, SubjectError) as error:
        return verdict(asked, USAGE, f"no replay: {error}", {})


def verdict(asked: argparse.Namespace, code: int, sentence: str, data: dict[str, Any]) -> int:
    """The last line, and the object for machines."""
    if asked.json:
        print(json.dumps({**data, "verdict": sentence, "exit": code}, ensure_ascii=False))
    print(f"replay: {sentence}", file=sys.stderr if asked.json else sys.stdout)
    return code


# -- traces


def replay_all(asked: argparse.Namespace) -> int:
    """Replay each trace on each subject asked for."""
    results: list[dict[str, Any]] = []
    sentences: list[str] = []
    for path in asked.trace:
        if asked.record:
            trace = anew(load(path, draft=True))
            save(trace, path)
            sentences.append(f"{shown(path)} recorded anew, {len(trace.steps)} steps")
            continue
        trace = load(path)
        subjects = subjects_of(asked.subject, trace)
        if asked.minimise:
            trace, sentence = minimise(path, trace, subjects[-1], quiet=asked.json)
            sentences.append(sentence)
        for subject in subjects:
            result = replay(asked, path, trace, subject)
            if result is None:
                return verdict(asked, USAGE, "ended before the end: nothing is proved", {})
            results.append({"trace": shown(path), **as_json(result)})
    differing = [result for result in results if not result["agrees"]]
    if differing:
        first = differing[0]
        sentences.append(f"{first['subject']} differs at step {first['played']} of {first['steps']}: {first['trace']}")
    elif results:
        steps = sum(result["steps"] for result in results)
        names = ", ".join(dict.fromkeys(result["subject"] for result in results))
        sentences.append(f"{len(asked.trace)} traces agree on {names}, {steps} steps")
    return verdict(asked, DIFFERS if differing else AGREES, "; ".join(sentences), {"replays": results})


def subjects_of(asked: str | None, trace: Trace) -> tuple[str, ...]:
    """Unless told: the model, and whatever the trace says that it differs on, or the engine."""
    if asked == "all":
        return ALL
    if asked is not None:
        return (asked,)
    if isinstance(trace.verdict, Differs):
        found = trace.verdict.subject
        return (MODEL,) if found == MODEL else (MODEL, found if found in SUBJECTS else "engine")
    return (MODEL,) if has_cuts(trace) else (MODEL, "engine")


def replay(asked: argparse.Namespace, path: Path, trace: Trace, subject: str) -> Played | None:
    """One trace on one subject, printed as it goes; None when the person at the keyboard ended it."""
    on_line: Callable[[Line], None] = (lambda _: None) if asked.json else tell
    if not asked.json:
        print(f"{shown(path)} on {subject}: {trace.title}")
        print(f"  from {trace.origin.lane}, {len(trace.steps)} steps, expected to {expected(trace)}")
    try:
        result = play(trace, subject, on_line=waiting(on_line) if asked.step else on_line, twice=asked.twice)
    except KeyboardInterrupt:
        return None
    except NotDeterministicError as error:
        lines = (Line(0, trace.start_ms, "", "", (), (), (str(error),)),)
        result = Played(subject, len(trace.steps), lines, twice=True)
        if not asked.json:
            print(f"  {error}")
    return result


def expected(trace: Trace) -> str:
    """What the trace says that a replay finds."""
    match trace.verdict:
        case Agrees():
            return "agree"
        case Differs(subject, step, _):
            return f"differ on {subject} at step {step}"


def tell(line: Line) -> None:
    """One step: the operation and its reply, why it did not act, what it changed, what differs."""
    print(f"{line.number:>5}  at {line.at_ms}  {line.op}")
    print(f"         → {line.reply}")
    for guard in line.guards:
        print(f"         guard: {guard}")
    for change in line.changes:
        print(f"         {change}")
    for difference in line.differences:
        print(f"         DIFFERS: {difference}")


def waiting(on_line: Callable[[Line], None]) -> Callable[[Line], None]:
    """Show a line, and wait before the next one."""

    def on(line: Line) -> None:
        on_line(line)
        if not line.differences and input("         [Enter: next, q: end] ").strip() == "q":
            raise KeyboardInterrupt

    return on


def minimise(path: Path, trace: Trace, subject: str, *, quiet: bool) -> tuple[Trace, str]:
    """The shortest trace that differs, written beside the one given."""
    began = time.monotonic()
    tick = ticker("minimising", quiet=quiet)

    def goes_on() -> bool:
        tick(int(time.monotonic() - began))
        return time.monotonic() - began < BUDGET_S

    try:
        shorter = shortest_trace(trace, subject, goes_on=goes_on)
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{shown(path)} agrees on {subject}: there is nothing to minimise") from error
    target = path.with_suffix(".min.json")
    save(shorter, target)
    seconds = time.monotonic() - began
    return shorter, f"{len(trace.steps)} steps made {len(shorter.steps)} in {seconds:.1f} s, in {shown(target)}"


# -- lanes


def run_lane(asked: argparse.Namespace) -> int:
    """A lane once more, from its seed or universe."""
    tick = ticker(f"lane {asked.lane}", quiet=False)
    if asked.lane == "contention":
        from scripts._lib import contention

        return contention.main([f"--{name}={getattr(asked, name)}" for name in ("jobs", "pollers", "seed")])
    if asked.lane == "tours":
        subject = asked.subject or "engine-renewed"
        death = tour(asked.universe, subject, on_steps=tick)
        name = f"lane tours, universe {asked.universe}, subject {subject}"
    else:
        from hypothesis import settings

        from tests import conftest

        del conftest  # its import registers the profiles
        settings.load_profile(asked.profile)
        subject = asked.subject or "engine"
        with contextlib.redirect_stdout(sys.stderr):  # Hypothesis tells its own story
            death = played(subject, asked.seed, on_steps=tick)
        name = f"lane hypothesis, seed {asked.seed}, profile {asked.profile}, subject {subject}"
    return lane_verdict(asked, name, death)


def tour(universe: str, subject: str, *, on_steps: Callable[[int], None]) -> Death:
    """The tour of a universe, or of all of them up to the first that differs."""
    steps = 0
    for name in sorted(ci_names()) if universe == "all" else [universe]:
        death = toured(name, subject, on_steps=lambda taken, before=steps: on_steps(before + taken))  # type: ignore[misc]
        steps += death.steps
        if death.killed:
            return death._replace(steps=steps)
    return Death(killed=False, steps=steps, program=0, report="to the end")


def lane_verdict(asked: argparse.Namespace, name: str, death: Death) -> int:
    """How the lane ended."""
    if death.killed and not asked.json:
        print(death.report)
    sentence = f"differs after {death.steps} steps, minimised to {death.program}" if death.killed else "agrees"
    told = f"{name}: {sentence}" if death.killed else f"{name}: agrees, {death.steps} steps"
    data = {"steps": death.steps, "program": death.program, "trace": death.data}
    return verdict(asked, DIFFERS if death.killed else AGREES, told, data)


def ticker(name: str, *, quiet: bool) -> Callable[[int], None]:
    """Progress on stderr, once something takes longer than a moment."""
    began = last = time.monotonic()

    def tick(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if not quiet and now - began > QUIET_S and now - last > 1.0:
            last = now
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"replay: {name}: {done:,}, {now - began:.0f} s", end=end, file=sys.stderr, flush=True)

    return tick


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
