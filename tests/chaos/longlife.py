"""A long life: very many jobs through one queue, and whatever it holds levels off.

The long run of scripts/bench, judged. Jobs go from end to end a hundred a call, retention keeps a fiftieth of them,
2,000 wait at any time. After each part of the run it is measured: disk, memory, the open of a copy as after a kill at
that moment, the cost of a single lease, and what is in the database, which has to be sound and no more than what waits
and what is kept. From 200,000 jobs on nothing may rise: the mean over the last quarter of the run against the second
one. Times are CPU times, divided by what a fixed piece of work took beside them, so that a busy machine says the same.

The picture of a whole run goes to out/longlife.svg.
"""

from collections.abc import Sequence
from typing import Any, Final

from scripts._bench.child import BACKLOG, BATCH, PARTS, POLL_RUNS, POLLS, SWEEP_MS
from scripts._bench.processes import TREND_JOBS, TREND_LIMIT, Series, child, trend
from tests.chaos.frame import ROOT, FoundError, Lane, Run
from tests.chaos.history import History

JOBS: Final = 200_000
PICTURE: Final = ROOT / "out" / "longlife.svg"
JOBS_A_SECOND: Final = 3_000
"""How many jobs a run of given minutes takes on: a slow machine's rate."""
LEVEL: Final = (
    Series("disk", "B", "disk"),
    Series("memory", "B", "rss"),
    Series("open after a kill", "s", "open_cpu_s", beside="open_work_us"),
    Series("a lease", "µs", "poll_us", beside="poll_work_us"),
    Series("jobs in the database", "", "kept"),
)
"""What has to level off."""


def body(run: Run) -> None:
    """200,000 jobs, or as many as the given minutes are likely to take."""
    jobs = JOBS
    if run.seconds is not None:
        jobs = max(JOBS, int(run.seconds * JOBS_A_SECOND) // (PARTS * BATCH) * PARTS * BATCH)
    parts = lived(run, jobs, PARTS)
    PICTURE.parent.mkdir(exist_ok=True)
    from scripts._bench import plots  # matplotlib takes a second, which no other test needs

    plots.run(PICTURE, parts)


def lived(run: Run, jobs: int, parts: int) -> list[dict[str, Any]]:
    """A run of so many jobs in so many parts, judged as it goes."""
    found: list[dict[str, Any]] = []
    # Retention keeps a fiftieth of the run, so what was polled after that many parts, and at both of its ends.
    most = BACKLOG + jobs // 50 + SWEEP_MS + BATCH + (parts // 50 + 2) * POLLS * POLL_RUNS
    with History(run.history, "longlife") as history:
        for part in child("long", str(run.root / "queue"), str(jobs), str(parts)):
            found.append(part)
            history.note("part", **part)
            run.tally.covered["jobs"] += part["jobs"]
            run.say(
                f"{run.tally.covered['jobs']:,} jobs, disk {part['disk'] / 1e6:.0f} MB, memory {part['rss'] / 1e6:.0f}"
                f" MB, open {part['open_cpu_s']:.2f} s, a lease {part['poll_us']:.0f} µs"
            )
            _sound(run, part, most)
    run.tally.covered["parts"] = len(found)
    if jobs >= TREND_JOBS:
        level(run, found)
    return found


def _sound(run: Run, part: dict[str, Any], most: int) -> None:
    where = f"after {run.tally.covered['jobs']:,} jobs"
    if part["problems"]:
        run.tally.unexpected += len(part["problems"])
        raise FoundError(f"{where}: the check says {part['problems'][:3]}")
    if part["kept"] > most:
        run.tally.unexpected += part["kept"] - most
        raise FoundError(f"{where}: {part['kept']:,} jobs are in the database, at most {most:,} can be")


def level(run: Run, parts: Sequence[dict[str, Any]]) -> None:
    """Raise `FoundError` for the first measure that rises; the others are noted in the tally, in hundredths."""
    for one in LEVEL:
        what = one.wall if one.beside is None else f"{one.wall} / {one.beside}"
        values = one.level(parts, one.wall)
        grown = trend(values)
        run.tally.covered[f"{one.name}, last quarter in % of the second"] = round(grown * 100)
        if grown > TREND_LIMIT.value:
            raise FoundError(
                f"{one.name} rises: {grown:.2f} times over the run, at most {TREND_LIMIT.value} is level "
                f"(from {values[len(values) // 4]:,.4g} to {values[-1]:,.4g} {what})"
            )


LANE: Final = Lane(
    name="longlife",
    proves="200,000 jobs with retention leave disk, memory, open time and the cost of a lease level",
    cannot="years; loads of another shape (docs/performance.md has more)",
    body=body,
    repeats=True,
    weight=2,
)
