"""The command scripts/demo: arguments, the run, the proof, and the verdict in the last line.

Exit codes: 0 every promise held, 1 one did not (or the run came to no end), 2 usage; 130 interrupted.
"""

import argparse
import json
import os
import random
import sys
import sysconfig
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from scripts._demo import history, inbox, lives, proof, screen
from scripts._demo.documents import Areas
from scripts._demo.settings import CONFIG, KILLS
from telha_jobs import JobQueue

DOCUMENTS_MIN = 20
"""With fewer there is no middle to be killed in."""
LIMIT_DEFAULT = 2_500
_KILL_AT = (1 / 3, 2 / 3)
_KILL_JITTER = 0.04
_EXAMPLES = """
examples:
  scripts/demo                                       some thousand files from .venv, killed twice
  scripts/demo --documents ~/notes --out /tmp/mine   your own documents; nothing is written beside them
  scripts/demo --limit 300 --seed 7                  a short run, with another choice of files and moments

The result stays in demo-output/: data/ (the queue), states.png, report.json, queue.log.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; ends with exit code 2 when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Read and embed real documents through a durable queue, kill its process twice in the middle, "
        "and prove from its rows that nothing was lost or done twice.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    installed = Path(sysconfig.get_paths()["purelib"])
    parser.add_argument(
        "--documents",
        type=Path,
        metavar="DIR",
        default=installed,
        help="where to look (default: the packages in .venv)",
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        default=LIMIT_DEFAULT,
        help="how many documents at most (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", default=0, help="choice of documents and of the kills' moments"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=lives.ROOT / "demo-output", help="result (default: demo-output)"
    )
    options = parser.parse_args(arguments)
    options.documents, options.out = options.documents.resolve(), options.out.resolve()
    if options.limit < DOCUMENTS_MIN:
        parser.error(f"--limit: at least {DOCUMENTS_MIN}, or there is no middle to be killed in")
    if not options.documents.is_dir():
        parser.error(f"--documents: {options.documents} is no directory")
    if options.documents.is_relative_to(options.out):
        parser.error(f"--documents: {options.documents} lies in the output directory, which is made anew")
    return options


def main(arguments: Sequence[str], console: Console) -> int:
    """One run; the exit code."""
    options = parse(arguments)
    warnings.simplefilter("ignore")  # what the parser thinks of other people's escapes
    started = time.monotonic()
    try:
        marker = inbox.prepare(options.out)
    except (inbox.NotOursError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    with marker:
        areas = Areas(
            documents=options.documents,
            inbox=options.out / "inbox",
            out=options.out,
            limit=options.limit,
            seed=options.seed,
        )
        try:
            broken = _demonstrate(areas, console)
        except lives.DemoFailedError as error:
            broken = [str(error)]
            _show_log(options.out / "queue.log", console)
        except _TooFewError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2
    seconds = time.monotonic() - started
    if broken:
        console.print(
            f"[bold red]demo: BROKEN[/] after {seconds:.0f} s: {'; '.join(broken)}", highlight=False, soft_wrap=True
        )
        return 1
    console.print(f"[bold green]demo: every promise held[/] ({seconds:.0f} s)", highlight=False)
    return 0


class _TooFewError(Exception):
    pass


def _demonstrate(areas: Areas, console: Console) -> list[str]:
    """Run, prove, show; the promises that did not hold."""
    out = areas.out
    documents = areas.walk()
    if len(documents) < DOCUMENTS_MIN:
        raise _TooFewError(
            f"{areas.documents} holds {len(documents) - 3} documents, at least {DOCUMENTS_MIN} are needed"
        )
    packages = len({document.scope for document in documents})
    console.print(f"{len(documents):,} documents of {packages} packages; three of them are poison", highlight=False)
    total = 2 * len(documents)
    chance = random.Random(areas.seed)
    kill_at = [round(total * (share + chance.uniform(-_KILL_JITTER, _KILL_JITTER))) for share in _KILL_AT]
    with screen.Screen(console, total) as watcher:
        run = lives.drive(out / "data", areas, out / "queue.log", kill_at[:KILLS], watcher)
    console.print("  all done; reading every document and every row once more")
    if areas.walk() != documents:
        return [f"{areas.documents} changed while the demo ran, so nothing can be proved: try a directory at rest"]
    readings = proof.read_again(areas, documents)
    with JobQueue.open(out / "data", config=CONFIG) as queue:
        evidence = proof.gather(queue, readings, run.kills)
    judged = proof.claims(evidence)
    screen.show_summary(console, evidence, run)
    screen.show_claims(console, judged)
    _write_report(out / "report.json", areas, evidence, run, judged)
    try:
        from scripts._demo import picture

        picture.draw(evidence.jobs, run.kills, evidence.met, out / "states.png")
    except ValueError as error:
        console.print(f"no picture: {error}", highlight=False)  # logs that cannot be: the proof says which
    _show_next(console, out, evidence)
    return [claim.promise for claim in judged if claim.problems]


def _write_report(
    path: Path, areas: Areas, evidence: proof.Evidence, run: lives.Run, judged: Sequence[proof.Claim]
) -> None:
    kinds = {
        kind: {state.value: count for state, count in counted.items()}
        for kind, counted in history.by_kind(evidence.jobs).items()
    }
    report = {
        "limit": areas.limit,
        "seed": areas.seed,
        "documents": len(evidence.readings),
        "unreadable": [
            {"area": reading.document.area, "path": reading.document.path, "reason": reading.reason}
            for reading in evidence.unreadable
        ],
        "jobs": kinds,
        "run": asdict(run),
        "figures": screen.figures(evidence, run),
        "claims": [asdict(claim) for claim in judged],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def _show_next(console: Console, out: Path, evidence: proof.Evidence) -> None:
    telha = _near(Path(sys.executable).parent / "telha")
    data = _near(out / "data")
    dead = next((job.job_id for job in evidence.jobs if job.dead_reason is not None), "ID")
    lines = (
        f"picture   {_near(out / 'states.png')}",
        f"try next  {telha} jobs counts --data {data}",
        f"          {telha} jobs ls --data {data} --state dead",
        f"          {telha} jobs show {dead} --data {data}",
    )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _near(path: Path) -> str:
    """The path as one would type it here."""
    here = Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)


def _show_log(log: Path, console: Console) -> None:
    if log.is_file():
        for line in log.read_text("utf-8", "replace").splitlines()[-20:]:
            console.print(f"  {line}", markup=False, highlight=False)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:], Console()))
    except KeyboardInterrupt:
        print(
            "\ndemo: interrupted; the queue's process is ended, what it did is in the output directory", file=sys.stderr
        )
        sys.exit(130)
