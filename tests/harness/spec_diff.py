"""The command `scripts/spec-diff`: see its --help."""

import argparse
import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_model import SPEC_VERSION
from telha_model.diff import (
    Declaration,
    Divergence,
    Explored,
    Pair,
    Progress,
    Signature,
    additive,
    compared,
    declared,
    distinct,
    program,
    undeclared,
)
from telha_model.universes import universes
from tests.harness.spec_corpus import Played, played
from tests.harness.spec_versions import CHANGES, RELEASED, ROOT, Place, VersionError, loaded, located, snapshot
from tests.harness.upgrade import OnState, Upgraded, golden_problems, upgraded

QUIET_S: Final = 2.0
MEMORY: Final = Path("/dev/shm")
SHOWN_MAX: Final = 20
STATES: Final = "100"
"""Databases of each universe in an upgrade run, unless told: a minute for all universes."""

EPILOG: Final = """versions: a git revision, a folder with model/telha_model or telha_model in it, a wheel, `installed`,
or `released` (model/changes/base.zip, the last released specification). HEAD is the working tree
unless given.

examples:
  scripts/spec-diff HEAD~1                  what did my last commit change?
  scripts/spec-diff v0.1.0 --upgrade        and do rows of v0.1.0's engine go on under this one?
  scripts/spec-diff --declared              what CI runs: found = declared in model/changes/*.json
  scripts/spec-diff --declare per-job-ttl   write the declaration of what was found; say why in it

exit: 0 equal (or as declared), 1 different (or not as declared), 2 usage"""


class Findings(NamedTuple):
    """Everything one comparison found."""

    pair: Pair
    runs: list[Explored]
    corpus: Played
    upgraded: Upgraded | None

    @property
    def divergences(self) -> list[Divergence]:
        return distinct(self.runs)

    @property
    def signatures(self) -> set[Signature]:
        """Those of the exploration; the corpus may add longer ways to the same ones, or new ones."""
        return {one.signature for one in self.divergences} | {one.signature for one in self.corpus.differences}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What the command was asked."""
    parser = argparse.ArgumentParser(
        prog="scripts/spec-diff",
        description="Compare what two versions of the specification answer, state by state, and show the shortest ways"
        " to where they differ.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", nargs="?", metavar="BASE", help="the older version (with --declare(d): released)")
    parser.add_argument("head", nargs="?", metavar="HEAD", default=str(ROOT), help="the newer one (the working tree)")
    parser.add_argument("--universe", action="append", metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--size", choices=["ci", "large"], default="ci", help="large: minutes each")
    parser.add_argument("--upgrade", action="store_true", help="also continue rows that BASE's engine wrote")
    states = "of each universe, continued by --upgrade: a number, or all (default: %(default)s)"
    parser.add_argument("--states", type=_states, default=STATES, metavar="N", help=states)
    parser.add_argument("--declared", action="store_true", help="compare what is found with model/changes/*.json")
    parser.add_argument("--declare", metavar="NAME", help="write model/changes/NNNN-NAME.json with what is found")
    parser.add_argument("--release", action="store_true", help="make the working tree the released specification")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    asked = parser.parse_args(given)
    if asked.base is None and not (asked.declared or asked.declare or asked.release):
        parser.error("which version is the older one? Give BASE, or --declared")
    if asked.upgrade and asked.head != str(ROOT):
        parser.error("--upgrade continues with the working tree's engine: HEAD cannot be another one")
    asked.base = asked.base or "released"
    return asked


def _states(text: str) -> int | None:
    if text == "all":
        return None
    number = int(text)  # argparse reports what is no number
    if number < 1:
        raise ValueError(text)
    return number


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


def _state_ticker(name: str) -> OnState:
    begun = last = time.monotonic()

    def tick(done: int, states: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - begun > QUIET_S and now - last > 2 * QUIET_S:
            last = now
            print(f"upgrade: {name}: {done} of {states} databases continued so far", file=sys.stderr)

    return tick


def compare(base: Place, head: Place, asked: argparse.Namespace, scratch: Path) -> Findings:
    """Explore in lock-step, play the corpus, and continue the older engine's rows if asked to."""
    newer, older = loaded(head, newer=True), loaded(base, newer=False)
    every = newer.modules["universes"].universes(asked.size)
    for name in asked.universe or ():
        if name not in every:
            raise VersionError(f"no universe is called {name!r}: there are {', '.join(every)}")
    pair = Pair(newer, older)
    runs = compared(newer, older, [every[name] for name in asked.universe or every], ticker)
    if not asked.upgrade:
        return Findings(pair, runs, played(pair), None)
    # In CI's size whatever was compared: larger universes are of the same kinds.
    names = asked.universe or [name for name in universes() if name in every]
    return Findings(pair, runs, played(pair), _upgraded(base, scratch, names, asked.states))


def _upgraded(base: Place, scratch: Path, names: Sequence[str], states: int | None) -> Upgraded:
    if base.engine is None:
        return Upgraded(0, 0, (f"{base.name} has no engine whose rows could be continued",))
    found = upgraded(base, scratch, names, states=states, on_state=_state_ticker)
    return found._replace(problems=(*found.problems, *golden_problems(scratch)))


# -- declarations


def declarations() -> list[Declaration]:
    """The declared changes since the released specification. Raises `VersionError`."""
    found = []
    for path in sorted(CHANGES.glob("[0-9][0-9][0-9][0-9]-*.json")):
        try:
            found.append(declared(path.name, json.loads(path.read_text("utf-8"))))
        except ValueError as error:
            raise VersionError(f"{path.relative_to(ROOT)}: {error}") from None
    return found


def declare(name: str, signatures: set[Signature]) -> Path:
    """Write the declaration of what is found and not declared yet; why is left to the author."""
    known = {signature for one in declarations() for signature in one.expected}
    numbers = [int(path.name[:4]) for path in CHANGES.rglob("[0-9][0-9][0-9][0-9]-*.json")]
    path = CHANGES / f"{max(numbers, default=0) + 1:04d}-{name}.json"
    data = {"why": "", "expected": [signature._asdict() for signature in sorted(signatures - known)]}
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    return path


def release() -> str:
    """Make the working tree's model the released one; its declarations go to a folder of their version."""
    archive = CHANGES / SPEC_VERSION
    snapshot(RELEASED)
    for path in sorted(CHANGES.glob("[0-9][0-9][0-9][0-9]-*.json")):
        archive.mkdir(exist_ok=True)
        shutil.move(path, archive / path.name)
    return f"spec-diff: {RELEASED.relative_to(ROOT)} is specification {SPEC_VERSION} as it stands; commit it"


# -- telling


def bounds(runs: list[Explored]) -> str:
    """What was compared, in one clause."""
    states, edges = sum(run.states for run in runs), sum(run.edges for run in runs)
    names = ", ".join(dict.fromkeys(run.universe for run in runs))
    return f"{states:,} pairs of states, {edges:,} steps in {names}"


def verdict(found: Findings) -> str:
    """One line: equal within bounds, or how many ways differ."""
    signatures = found.signatures
    if not signatures:
        return f"equal within these bounds: {bounds(found.runs)}; {found.corpus.steps} steps of the corpus"
    news = sorted({name for run in found.runs for name in run.news})
    if news and additive(found.runs):
        kind = f"additive: equal where {' and '.join(news)} {'is' if len(news) == 1 else 'are'} not used, "
    else:
        kind = ""
    return f"{kind}{len(signatures)} distinct divergences ({bounds(found.runs)})"


def show(found: Findings) -> None:
    """Everything for people, but the verdict."""
    print(f"head: {found.pair.head.name}\nbase: {found.pair.base.name}")
    for run in found.runs:
        how = ""
        if run.news:
            how = f"   {'without' if run.plain else 'with'} {', '.join(sorted(run.news))}"
        if run.unspoken:
            how += f"   not offered, unknown to base: {', '.join(sorted(run.unspoken))}"
        differs = "equal" if not run.divergences else f"{len(run.divergences)} divergences"
        print(f"  {run.universe:9} {run.states:>7,} states {run.edges:>9,} steps  {differs:15} {run.bounds}{how}")
    divergences = found.divergences
    for divergence in divergences[:SHOWN_MAX]:
        signature = divergence.signature
        about = f", {signature.situation}" if signature.situation else ""
        print(f"\n{signature.op}{about}: head {signature.head}, base {signature.base}")
        for sentence in divergence.values:
            print(f"  {sentence}")
        print(f"  {divergence.steps:,} steps; the shortest way, in universe {divergence.universe}:")
        print("\n".join(f"    {line}" for line in program(found.pair, divergence)))
    if len(divergences) > SHOWN_MAX:
        print(f"\nand {len(divergences) - SHOWN_MAX} more (--json has all)")
    corpus = found.corpus
    print(f"\ncorpus: {corpus.traces} traces, {corpus.steps} steps, {len(corpus.differences)} differ")
    for one in corpus.differences:
        print(f"  {one.trace}: step {one.step}: {one.op}: head {one.signature.head}, base {one.signature.base}")
    for name in corpus.unspoken:
        print(f"  {name}: no word for it")
    if found.upgraded is not None:
        states, steps, problems, of = found.upgraded
        print(f"upgrade: {states} databases opened and continued, {steps} steps, {len(problems)} problems")
        print("  " + ", ".join(f"{name} {chosen} of {all_}" for name, chosen, all_ in of))
        for problem in problems[:SHOWN_MAX]:
            print(f"  {problem}")


def as_data(found: Findings) -> dict[str, Any]:
    """Everything for programs."""
    return {
        "head": found.pair.head.name,
        "base": found.pair.base.name,
        "universes": [
            {
                **{name: getattr(run, name) for name in ("universe", "bounds", "states", "edges", "plain")},
                "news": sorted(run.news),
                "unspoken": sorted(run.unspoken),
                "divergences": len(run.divergences),
            }
            for run in found.runs
        ],
        "additive": additive(found.runs),
        "divergences": [
            {
                **divergence.signature._asdict(),
                "values": list(divergence.values),
                "steps": divergence.steps,
                "universe": divergence.universe,
                "trace": program(found.pair, divergence),
            }
            for divergence in found.divergences
        ],
        "corpus": {
            **found.corpus._asdict(),
            "differences": [
                {**one._asdict(), "signature": one.signature._asdict()} for one in found.corpus.differences
            ],
        },
        "upgrade": None if found.upgraded is None else found.upgraded._asdict(),
    }


def judged(found: Findings, asked: argparse.Namespace) -> tuple[str, bool, list[str]]:
    """The verdict, whether all is as it should be, and sentences about what is not as declared."""
    problems = list(found.upgraded.problems) if found.upgraded is not None else []
    wrong = [] if not problems else [f"{len(problems)} problems in the upgrade run"]
    said = verdict(found)
    if found.upgraded is not None and not problems:
        said += f"; {found.upgraded.states} databases of base go on"
    if not asked.declared:
        return "; ".join([said, *wrong]), not (found.signatures or wrong), []
    known = declarations()
    more, less = undeclared(found.signatures, known)
    sentences = [
        f"not declared: {one.op} ({one.situation}): head {one.head}, base {one.base} {' '.join(one.differs)}"
        for one in more
    ]
    if more or less:
        wrong += [f"{len(more)} not declared", f"{len(less)} declared and not found"]
    said += f"; {len(found.signatures) - len(more)} declared in {len(known)} changes"
    return "; ".join([said, *wrong]), not wrong, sentences + less


def main(given: Sequence[str] | None = None) -> int:
    """Compare, report, and say in one line how it went."""
    asked = arguments(given)
    scratch = Path(tempfile.mkdtemp(prefix="telha-spec-", dir=MEMORY if MEMORY.is_dir() else None))
    # States are tuples of tuples without cycles: the collector would walk them all and never find anything.
    gc.disable()
    try:
        if asked.release:
            print(release())
            return 0
        found = compare(located(asked.base, scratch), located(asked.head, scratch), asked, scratch)
        said, right, sentences = judged(found, asked)
        if asked.declare is not None:
            said += f"; declared in {declare(asked.declare, found.signatures).relative_to(ROOT)}: say why there"
            right = True
    except VersionError as error:
        print(f"spec-diff: {error}", file=sys.stderr)
        return 2
    finally:
        gc.enable()
        shutil.rmtree(scratch, ignore_errors=True)
    if asked.json:
        print(json.dumps({**as_data(found), "verdict": said, "ok": right, "problems": sentences}, indent=1))
    else:
        show(found)
        print("\n".join(["", *sentences, f"spec-diff: {said}"]))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
