"""The command `scripts/mutate`: see its --help."""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.harness.mutate.changes import Change, changes, modules, source_of
from tests.harness.mutate.forge import ROOT, Forge, Tried
from tests.harness.mutate.verdicts import KILLED_MIN, Verdict, judged, listed, shares

QUIET_S: Final = 2.0
RESULTS: Final = ROOT / "out" / "mutate.ndjson"
EPILOG: Final = """examples:
  scripts/mutate --module agenda --module core.decide      these, about a second for each change
  scripts/mutate --sample 100 --seed 7                     a hundred of all, what soak runs
  scripts/mutate --resume                                  all; what an ended run has tried is not tried again
  scripts/mutate --tried                                   nothing: what out/mutate.ndjson has of these sources
  scripts/mutate --list --module core.backoff              only show the changes

Results go to out/mutate.ndjson as they come. Survivors that nothing could notice, or that only a slower lane notices,
stand with their reasons in tests/harness/mutate/survivors.json.

exit: 0 enough killed and every survivor is listed, 1 not so, 2 usage"""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the command was asked; exits with 2 when that cannot be."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Let a machine break core, agenda and engine, one small change at a time, and see what notices.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [name.removeprefix("telha_jobs.") for name in modules()]
    parser.add_argument("--module", action="append", choices=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--sample", type=int, metavar="N", help="only N changes, drawn from the seed")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument(
        "--resume", action="store_true", help="take over what out/mutate.ndjson has of the same sources"
    )
    parser.add_argument("--tried", action="store_true", help="try nothing: tell what out/mutate.ndjson has of them")
    parser.add_argument("--list", action="store_true", help="only show the changes")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of text")
    asked = parser.parse_args(given)
    if asked.jobs < 1 or (asked.sample is not None and asked.sample < 1):
        parser.error("--jobs and --sample take 1 or more")
    return asked


def digest(module: str) -> str:
    """Names a module's text, so that results of another text are not taken over."""
    return hashlib.sha256(source_of(module).encode("utf-8")).hexdigest()[:12]


def earlier(path: Path, chosen: Iterable[Change]) -> dict[str, Tried]:
    """What a run before this one found about the same changes of the same sources."""
    digests = {change.module: digest(change.module) for change in chosen}
    found: dict[str, Tried] = {}
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        row = json.loads(line)
        if digests.get(row.pop("module")) == row.pop("digest"):
            found[row["key"]] = Tried(**row)
    return found


def main(given: Sequence[str]) -> int:
    """Make the changes, try them, and say in one line how it went."""
    asked = arguments(given)
    # Children are in groups of their own: whoever asks this process to end has them ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = [f"telha_jobs.{name}" for name in asked.module] if asked.module else modules()
    chosen = [change for name in names for change in changes(name)]
    if asked.list:
        print("\n".join(f"{change.line:>5}  {change.key}" for change in chosen))
        return 0
    every = len(chosen)
    if asked.sample is not None and asked.sample < every:
        chosen = random.Random(asked.seed).sample(chosen, asked.sample)
    done = earlier(RESULTS, chosen) if asked.resume or asked.tried else {}
    if asked.tried:
        chosen = [change for change in chosen if change.key in done]
    whole = len(chosen) == every
    tried = [done[change.key] for change in chosen if change.key in done]
    left = [change for change in chosen if change.key not in done]
    if left:
        forge = Forge()
        kept = RESULTS.stat().st_size if RESULTS.is_file() else 0
        if not sound(forge):
            return 2
        tried += run(forge, left, asked)
        if not sound(forge):  # something else broke meanwhile, and would have killed anything
            os.truncate(RESULTS, kept)
            return 2
    # Of one module so many changes may say the same that the share tells nothing: it is held over all of them.
    least = KILLED_MIN if whole and not asked.module else 0.0
    most_of = None if asked.module else every
    verdict = judged(tried, listed(), names if whole else [], least=least, every=most_of)
    return told(asked, verdict, len(chosen))


def sound(forge: Forge) -> bool:
    """Whether everything passes without any change; says what does not."""
    for tests in (False, True):
        for _, nothing in forge.try_all([None], tests=tests):
            if nothing.killed:
                print(f"mutate: red without any change: {nothing.stage}: {nothing.how}", file=sys.stderr)
                return False
    return True


def run(forge: Forge, left: Sequence[Change], asked: argparse.Namespace) -> list[Tried]:
    """Try the changes in lock-step, what is left of them in the tests; results are kept as they come."""
    digests = {change.module: digest(change.module) for change in left}
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:

        def keep(change: Change, found: Tried) -> None:
            row = {**found._asdict(), "module": change.module, "digest": digests[change.module]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()

        tick = ticker(len(left))
        killed, suspects = list[Tried](), list[Change]()
        for change, found in forge.try_all(left, jobs=asked.jobs):
            if change is not None and found.killed:
                killed.append(found)
                keep(change, found)
            elif change is not None:
                suspects.append(change)
            tick(f"{len(killed) + len(suspects)} in lock-step, {len(suspects)} left")
        settled = list[Tried]()
        for change, found in forge.try_all(suspects, jobs=asked.jobs, tests=True):
            if change is not None:
                settled.append(found)
                keep(change, found)
                if not (found.killed or asked.json):
                    print(f"survived: {found.key}", flush=True)
            tick(f"all in lock-step, {len(settled)} of {len(suspects)} left over in the tests")
    return [*killed, *settled]


def ticker(changes: int) -> Callable[[str], None]:
    """Progress on stderr, at most every two seconds."""
    last = time.monotonic()

    def tick(done: str) -> None:
        nonlocal last
        if time.monotonic() - last > QUIET_S:
            last = time.monotonic()
            print(f"mutate: of {changes} changes {done}", file=sys.stderr, flush=True)

    return tick


def told(asked: argparse.Namespace, verdict: Verdict, chosen: int) -> int:
    """The report, and the exit code."""
    stages = Counter(one.stage.partition(":")[0] for one in verdict.killed)
    if asked.json:
        data: dict[str, Any] = {
            "changes": chosen,
            "killed": len(verdict.killed),
            "killed_by": dict(stages),
            "modules": {module: {"changes": all_, "killed": dead} for module, all_, dead in shares(verdict, modules())},
            "survivors": [one._asdict() for one in verdict.survived],
            "problems": verdict.problems,
            "verdict": verdict.sentence,
            "ok": verdict.good,
        }
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        print(f"{'killed by':<12} {'changes':>8}")
        for stage, count in stages.most_common():
            print(f"{stage:<12} {count:>8}")
        print(f"\n{'module':<16} {'changes':>8} {'killed':>8}")
        for module, tried, killed in shares(verdict, modules()):
            print(f"{module.removeprefix('telha_jobs.'):<16} {tried:>8} {killed:>8} {killed / tried:>7.1%}")
        for problem in verdict.problems:
            print(problem)
    print(f"mutate: {verdict.sentence}", file=sys.stderr if asked.json else sys.stdout)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
