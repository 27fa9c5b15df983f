"""What `scripts/explore --liveness` prints: one line for each trial, and of what it found the shortest as a program."""

import json
import time
from collections.abc import Callable

from telha_model.describe import program
from telha_model.explore import Progress
from telha_model.liveness import Lasso
from telha_model.trials import TRIALS, Outcome, tried


def told(outcome: Outcome, seconds: float) -> dict[str, object]:
    """An outcome as plain data; the lasso is the shortest."""
    lasso = outcome.found[0] if outcome.found else None
    prefix, loop = ([], []) if lasso is None else programs(outcome, lasso)
    return {
        "trial": outcome.trial.name,
        "sentence": outcome.trial.sentence,
        "workers": [promise.sentence for promise in outcome.trial.promises],
        "jobs": outcome.jobs,
        "states": len(outcome.net.states),
        "edges": len(outcome.net.sources),
        "seconds": round(seconds, 3),
        "fair_cycles": len(outcome.found),
        "as_expected": outcome.as_expected,
        "lasso": None
        if lasso is None
        else {"job": lasso.job, "only_ever": list(lasso.among), "prefix": prefix, "loop": loop},
    }


def programs(outcome: Outcome, lasso: Lasso) -> tuple[list[str], list[str]]:
    """Prefix and loop, line by line, as the model of the trial answers."""
    universe = outcome.net.universe
    lines = program(universe.config, universe.start_ms, [*lasso.prefix, *lasso.loop], take=outcome.trial.take)
    return lines[: len(lasso.prefix)], lines[len(lasso.prefix) :]


def wanted(outcome: Outcome) -> str:
    """What was expected of a trial."""
    if outcome.trial.broken:
        return "a broken model must show a fair cycle"
    return "none" if outcome.trial.is_known is None else "only such cycles"


def printed(outcome: Outcome, found: dict[str, object]) -> None:
    """An outcome for people."""
    cycles = f"{found['fair_cycles']} fair cycles" if outcome.found else "no fair cycle"
    print(
        f"{'ok' if outcome.as_expected else 'FINDING':7} {outcome.trial.name:22} {outcome.jobs} jobs"
        f" {found['states']:>7,} states {found['edges']:>9,} edges {found['seconds']:>7} s   {cycles}"
    )
    print(f"        {outcome.trial.sentence}; workers promise: {', '.join(p.sentence for p in outcome.trial.promises)}")
    if not outcome.found:
        return
    lasso = outcome.found[0]
    prefix, loop = programs(outcome, lasso)
    print(
        f"        the shortest, on which job {lasso.job} is only ever {' or '.join(lasso.among)} ({wanted(outcome)}):"
    )
    for line in prefix:
        print(f"          {line}")
    print("        and then for ever:")
    for line in loop:
        print(f"          {line}")


def run(jobs: int, *, as_json: bool, ticker: Callable[[str], Progress]) -> int:
    """Run every trial; 0 when each found what it must."""
    all_found: list[dict[str, object]] = []
    begun = last = time.perf_counter()
    surprises: list[str] = []
    for outcome in tried(TRIALS, jobs, on_progress=ticker("liveness")):
        now = time.perf_counter()
        found = told(outcome, now - last)
        all_found.append(found)
        if not outcome.as_expected:
            surprises.append(outcome.trial.name)
        if not as_json:
            printed(outcome, found)
        last = time.perf_counter()
    broken = sum(trial.broken for trial in TRIALS)
    verdict = f"{jobs} jobs, {len(TRIALS)} trials in {time.perf_counter() - begun:.1f} s: " + (
        f"not as expected: {', '.join(surprises)}"
        if surprises
        else "every job ends, but for heartbeats for ever, which max_lease_age ends;"
        f" {broken} of {broken} broken models caught"
    )
    if as_json:
        print(json.dumps({"trials": all_found, "verdict": verdict, "ok": not surprises}, indent=1))
    else:
        print(f"liveness: {verdict}")
    return 1 if surprises else 0
