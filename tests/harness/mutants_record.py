"""The record of which lanes kill which mutant: `mutants.json`, a line for each, edited by `scripts/mutants --record`.

A run that finds something else fails until the record is edited too: what the lanes notice changes in a diff, or not
at all.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.harness.catalogue import Mutant

RECORD: Final = Path(__file__).with_name("mutants.json")


class Recorded(NamedTuple):
    """What is recorded of a mutant: what it breaks, what has to kill it, what does, and what cannot be told yet."""

    promise: str
    predicted: tuple[str, ...]
    killed_by: tuple[str, ...]
    pending: tuple[str, ...]

    @classmethod
    def of(cls, mutant: Mutant, killers: Collection[str], pending: Collection[str]) -> "Recorded":
        """As found by a run."""
        return cls(mutant.promise, mutant.lanes, tuple(sorted(killers)), tuple(sorted(pending)))


def recorded(path: Path = RECORD) -> dict[str, Recorded]:
    """The record, by the mutants' names."""
    data: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return {
        name: Recorded(one["promise"], *(tuple(one[key]) for key in ("predicted", "killed_by", "pending")))
        for name, one in data.items()
    }


def written(found: Mapping[str, Recorded], path: Path = RECORD) -> None:
    """Write the record, a mutant a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(entry._asdict())}" for name, entry in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def unlike(name: str, found: Recorded, known: Recorded | None, lanes: Collection[str]) -> list[str]:
    """How a run differs from the record, as sentences. `lanes`: the ones that were run."""
    if known is None:
        return [f"{name}: not in the record; --record adds it"]
    seen = Recorded(
        known.promise, known.predicted, tuple(lane for lane in known.killed_by if lane in lanes), known.pending
    )
    return [
        f"{name}: {field} {', '.join(now) if isinstance(now, tuple) else now}, recorded"
        f" {', '.join(was) if isinstance(was, tuple) else was}"
        for field, now, was in zip(Recorded._fields, found, seen, strict=True)
        if now != was
    ]
