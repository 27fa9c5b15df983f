"""scripts/replay --selftest: a long failing run of every mutant of the catalogue, minimised in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.harness.longruns import BIG_BY_NATURE, PROGRAM_MAX, Shortened, has_runs, shortened
from tests.harness.mutants import MUTANTS, Mutant, mutant
from tests.harness.mutation import ROOT, environment
from tests.harness.traces import BUDGET_S


def selftest(only: Sequence[str] | None, *, as_objects: bool) -> int:
    """Print a line for each mutant; 1 when one has no long failing run, or stays too long, or takes too long."""
    chosen = [one for one in MUTANTS if has_runs(one) and (only is None or one.name in only)]
    bad = 0
    if not as_objects:
        print(f"{'mutant':<52} {'steps':>6} {'left':>5} {'seconds':>8}")
    for one in chosen:
        found = run(one)
        bad += found is None or not found.fits
        if as_objects:
            print(json.dumps(None if found is None else {**found._asdict(), "fits": found.fits}), flush=True)
        elif found is None:
            print(f"{one.name:<52} NO LONG RUN OF ITS FAILS", flush=True)
        else:
            mark = "" if found.fits else "  TOO LONG"
            print(f"{one.name:<52} {found.steps:>6} {found.program:>5} {found.seconds:>8}{mark}", flush=True)
    excepted = [one.name for one in MUTANTS if not has_runs(one)]
    if only is None and not as_objects:
        print(f"excepted, no run of operations shows them: {', '.join(excepted)}")
        for name, why in BIG_BY_NATURE.items():
            print(f"excepted from {PROGRAM_MAX} steps: {name}: {why}")
    word = (
        f"every one at most {PROGRAM_MAX} steps in {BUDGET_S:.0f} s, but those excepted" if not bad else f"{bad} NOT SO"
    )
    print(f"replay: {len(chosen)} long runs minimised, {word}", file=sys.stderr if as_objects else sys.stdout)
    return 1 if bad or not chosen else 0


def run(one: Mutant) -> Shortened | None:
    """Minimise a long run in a child that is broken by the mutant."""
    command = [sys.executable, "-m", "scripts._lib.replay_selftest", one.name]
    done = subprocess.run(command, cwd=ROOT, env=environment(one), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{one.name} could not be run ({done.returncode}):\n{done.stdout}{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    return None if told is None else Shortened(*told)


if __name__ == "__main__":
    print(json.dumps(shortened(mutant(sys.argv[1]))))
