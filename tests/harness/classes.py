"""Hit counts of transition classes, collected where a lane compares replies and kept where the gate looks for them.

A lane's block runs under `counted(lane)`; what it yields goes to the lock-step, which counts each step that agreed.
When `TELHA_CLASSES` names a folder, the counts of each block that came to its end are written there, one file a block,
so that processes need to know nothing of each other. When it does not, nothing is counted and nothing costs anything.
A queue that was broken on purpose never counts.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from telha_model.classes import TransitionClass, classes
from telha_model.ops import Op
from telha_model.reachable import Reachable
from telha_model.replies import Reply
from telha_model.state import Queue
from telha_model.types import Config

_REACHABLE: Final = "reachable"
FOLDER_VARIABLE: Final = "TELHA_CLASSES"
MUTANT_VARIABLE: Final = "TELHA_MUTANT"


class Hits:
    """How often the steps of a lane were of each class."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.steps = 0
        self.counts: Counter[TransitionClass] = Counter()

    def take(self, config: Config, before: Queue, op: Op, reply: Reply, after: Queue) -> None:
        """Count a step that model and subject agreed on."""
        self.steps += 1
        counts = self.counts
        for one in classes(config, before, op, reply, after):
            counts[one] += 1

    def add(self, other: "Hits") -> None:
        """Count what another block of the lane counted."""
        self.steps += other.steps
        self.counts.update(other.counts)


@contextmanager
def counted(lane: str) -> Iterator[Hits | None]:
    """Count the steps of a block of a lane; None when nobody asked. A block that raises leaves no counts."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or os.environ.get(MUTANT_VARIABLE):
        yield None
        return
    hits = Hits(lane)
    yield hits
    save(hits, Path(folder))


def save(hits: Hits, folder: Path) -> None:
    """Write the counts of a block as a file of its own, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[*one, number] for one, number in sorted(hits.counts.items())]
    part = _part({"lane": hits.lane, "steps": hits.steps, "classes": rows}, folder, f"{hits.lane}-")
    part.rename(part.with_suffix(".json"))


def load(folder: Path) -> dict[str, Hits]:
    """The counts that a run left in a folder, by lane."""
    found: dict[str, Hits] = {}
    for path in sorted(folder.glob("*.json")):
        hits = _read(json.loads(path.read_text("utf-8")))
        found.setdefault(hits.lane, Hits(hits.lane)).add(hits)
    return found


def keep_reachable(there: Reachable, folder: Path) -> None:
    """Leave what a run explored beside its counts, whole or not at all: the gate need not explore again."""
    _part([[[*one], where] for one, where in there.items()], folder, _REACHABLE).rename(folder / _REACHABLE)


def kept_reachable(folder: Path) -> Reachable | None:
    """What a run left of that; None: nothing."""
    try:
        rows = json.loads((folder / _REACHABLE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    return {TransitionClass(*words): where for words, where in rows}


def _part(data: Any, folder: Path, prefix: str) -> Path:
    """Data in a file of a name that nobody reads, to be renamed."""
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=prefix, suffix=".part", delete=False) as file:
        json.dump(data, file)
    return Path(file.name)


def _read(data: Any) -> Hits:
    hits = Hits(data["lane"])
    hits.steps = data["steps"]
    for *words, number in data["classes"]:
        hits.counts[TransitionClass(*words)] += number
    return hits
