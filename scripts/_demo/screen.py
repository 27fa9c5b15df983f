"""What people see: a progress bar on a terminal, plain lines elsewhere; then the tables and what to try next."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts._demo import history
from scripts._demo.lives import Kill, Run
from scripts._demo.proof import Claim, Evidence, shortened
from telha_jobs import State

_LINE_EVERY_S = 1.0
STYLES: Mapping[State, str] = {
    State.PENDING: "default",
    State.LEASED: "yellow",
    State.FAILED: "magenta",
    State.COMPLETED: "green",
    State.DEAD: "red",
}


class Screen(AbstractContextManager["Screen"]):
    """A `lives.Watcher` that shows what it is told. `total`: about how many jobs there will be."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._last_line = time.monotonic()
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[states]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._progress.add_task("jobs", total=total, states="")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def status(self, done: int, counts: Mapping[str, int]) -> None:
        states = "  ".join(f"{name} {counts[name]}" for name in ("pending", "leased", "failed") if counts.get(name))
        if self._progress is not None:
            self._progress.update(self._task, completed=min(done, self._total), states=states)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(f"  {done:>6,} of about {self._total:,} jobs done   {states}", highlight=False)

    def killed(self, number: int, done: int) -> None:
        self._console.print(
            f"  [bold red]kill {number}[/]: SIGKILL with {done:,} jobs done and work in hand",
            highlight=False,
        )

    def reopened(self, number: int, kill: Kill) -> None:
        self._console.print(
            f"  start {number + 1}: the queue is open again, with {kill.found} leases of a dead process in it",
            highlight=False,
        )


def show_summary(console: Console, evidence: Evidence, run: Run) -> None:
    """Jobs by kind and state, and the figures of the run."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("jobs by kind")
    for state in State:
        table.add_column(state.value, justify="right", style=STYLES[state])
    kinds = history.by_kind(evidence.jobs)
    for kind, counted in kinds.items():
        table.add_row(kind, *(_figure(counted[state]) for state in State))
    table.add_section()
    together: Counter[State] = sum(kinds.values(), Counter())
    table.add_row("all", *(_figure(together[state]) for state in State))
    console.print(table)
    for name, value in figures(evidence, run).items():
        console.print(f"  {name:<24} {value}", highlight=False)


def figures(evidence: Evidence, run: Run) -> dict[str, str]:
    """The run in figures, ready to be shown."""
    jobs = len(evidence.jobs)
    scopes = len({job.scope for job in evidence.jobs})
    lapsed, again = expired(evidence)
    own = sum(reading.document.area == "inbox" for reading in evidence.unreadable)
    return {
        "scopes (packages)": f"{scopes:,}",
        "kills": f"{len(evidence.kills)}, of processes that held {' and '.join(map(str, evidence.met)) or 'no'} leases",
        "leases that expired": f"{lapsed:,}, of which {again:,} were granted again",
        "answers too late": f"{run.late:,}",
        "unreadable documents": f"{own} made so by the demo, {len(evidence.unreadable) - own} found",
        "throughput": f"{jobs / run.seconds:,.0f} jobs per second over {run.seconds:.1f} s, restarts included",
        "syncs": f"{run.syncs / max(jobs, 1):.2f} per job, {run.commits / max(run.syncs, 1):.1f} commits in each",
    }


def expired(evidence: Evidence) -> tuple[int, int]:
    """How many leases ended because nobody answered in time, and after how many of them the job was leased again."""
    logs = [history.grants(job) for job in evidence.jobs]
    return sum(grant.expired for log in logs for grant in log), sum(grant.expired for log in logs for grant in log[:-1])


def show_claims(console: Console, judged: Sequence[Claim]) -> None:
    """Each claim with what was looked at, and what contradicts it."""
    console.print("proof, from the rows and the directory:")
    for claim in judged:
        mark = "[red]BROKEN[/]" if claim.problems else "[green]ok[/]    "
        console.print(f"  {mark} {claim.promise} ({claim.seen})", highlight=False, soft_wrap=True)
        for problem in shortened(claim.problems):
            console.print(f"           {problem}", style="red", markup=False, highlight=False, soft_wrap=True)


def _figure(count: int) -> str:
    return f"{count:,}" if count else "-"
