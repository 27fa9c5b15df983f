"""`scripts/bench --guard`: the counts of a fixed workload beside the recorded ones. No times, so fit for CI.

A count may fall, and may grow by a twentieth; beyond that the guard fails until somebody finds the cause, or decides
that it is worth it and records the new counts: `scripts/bench --record`, in the same commit as the change.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts._bench.workload import Counts, measure

RECORDED = Path(__file__).with_name("counts.json")
GROWTH_MAX = 1.05

Numbers = dict[str, dict[str, int]]
"""By operation: `times`, and every count summed over all of them."""


def numbers(counts: Counts) -> Numbers:
    """As they are recorded."""
    return {
        name: {"times": counts.times[name]} | {what: value for what, value in amounts.as_dict().items() if value}
        for name, amounts in counts.amounts.items()
    }


def measured(scratch: Path | None = None) -> Numbers:
    """The workload, in a directory that is gone afterwards; made in `scratch`, or where temporary files go."""
    with tempfile.TemporaryDirectory(prefix="telha-guard-", dir=scratch) as root:
        return numbers(measure(Path(root)))


def recorded() -> Numbers:
    """The counts the tree was last recorded with."""
    found: Numbers = json.loads(RECORDED.read_text("utf-8"))
    return found


def record(found: Numbers) -> None:
    """Keep these from now on."""
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def grown(before: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """One sentence for each count that grew by more than 5 %, and for each operation that is in one of the two only."""
    for name in before.keys() - now.keys():
        yield f"{name}: recorded, but no longer measured"
    for name, counts in now.items():
        old = before.get(name)
        if old is None:
            yield f"{name}: measured, but not recorded"
            continue
        if old["times"] != counts["times"]:
            yield f"{name}: measured over {counts['times']} operations, recorded over {old['times']}"
            continue
        for what, value in counts.items():
            was = old.get(what, 0)
            if value > was * GROWTH_MAX:
                times = counts["times"]
                yield f"{name}: {what} grew from {was / times:g} to {value / times:g} an operation"
