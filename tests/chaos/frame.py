"""What the lanes of `tests/chaos` have in common: a run, what it covered, and the verdict.

A lane's body drives a queue through something terrible and raises `FoundError` for a promise that did not hold. `play`
gives it an empty directory in memory and says what became of it: a verdict. When the body raised, the directory (with
the databases, the history and whatever else the body put there) is moved to `out/chaos`, and the verdict tells where it
is and which command repeats the run. Anything but `FoundError` is the lane's own failure and passes, with that note.
"""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
MEMORY: Final = Path("/dev/shm")
KEPT_VARIABLE: Final = "TELHA_CHAOS"
"""Where what a failed run leaves is kept; out/chaos unless set."""
HISTORY: Final = "history.ndjson"
"""The name of a run's history in its directory."""

Say = Callable[[str], None]
"""Takes one line about how far a lane has come."""


class FoundError(Exception):
    """A promise did not hold; the text says which and where. The counts are added to the tally before it is raised."""


@dataclass(slots=True)
class Tally:
    """What a run did and met. `covered` counts in the lane's own words; the other four are every lane's.

    - `lost`: acknowledged, and not there any more
    - `unexpected`: there, although nobody asked for it, or in a state that no order of the calls explains
    - `duplicated`: granted, run to its end or created twice
    - `recovered`: calls without an answer that turned out to have happened
    """

    covered: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    recovered: int = 0


class Run:
    """One run of a lane, in the hands of its body.

    `seed` decides everything that the lane decides. `seconds` is how long a long run goes on; None asks for CI's size,
    which is fixed. `root` is the run's own empty directory, on tmpfs where there is one.
    """

    def __init__(self, lane: "Lane", *, seed: int, seconds: float | None, root: Path, say: Say) -> None:
        self.lane = lane
        self.seed = seed
        self.seconds = seconds
        self.root = root
        self.say = say
        self.tally = Tally()
        self._began = time.monotonic()

    @property
    def history(self) -> Path:
        """Where the run's history goes."""
        return self.root / HISTORY

    @property
    def elapsed_s(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    def goes_on(self, rounds: int, *, ci: int) -> bool:
        """Whether there is another round after so many: `ci` of them in CI, else for as long as there is time."""
        return rounds < ci if self.seconds is None else self.elapsed_s < self.seconds

    def room(self, name: str) -> Path:
        """A new directory of that name under the run's own."""
        path = self.root / name
        path.mkdir(parents=True)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One way to hurt a queue. `repeats`: the same seed gives the same run, call by call.

    `judge` takes the directory of a run that was kept, judges its history again and raises `FoundError`, or returns
    what was judged, in one line.
    """

    name: str
    proves: str
    cannot: str
    body: Callable[[Run], None]
    repeats: bool
    weight: int = 1
    judge: Callable[[Path], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a run. `finding` is None when every promise held; `kept` and `repeat` tell where to look then."""

    lane: str
    seed: int
    seconds: float
    covered: Mapping[str, int]
    lost: int
    unexpected: int
    duplicated: int
    recovered: int
    finding: str | None
    repeat: str
    kept: Path | None

    def row(self) -> dict[str, Any]:
        """The verdict as JSON-able data."""
        return {
            "lane": self.lane,
            "seed": self.seed,
            "seconds": self.seconds,
            "covered": dict(self.covered),
            "lost": self.lost,
            "unexpected": self.unexpected,
            "duplicated": self.duplicated,
            "recovered": self.recovered,
            "finding": self.finding,
            "repeat": self.repeat,
            "kept": None if self.kept is None else shown(self.kept),
        }

    def told(self) -> str:
        """The finding, where the run's directory is, and how to repeat it."""
        if self.finding is None:
            return f"{self.lane}: every promise held"
        return f"{self.lane}: {self.finding}\n{_where(self.kept, self.repeat)}"


def play(lane: Lane, *, seed: int, seconds: float | None = None, say: Say = lambda _: None) -> Verdict:
    """Run a lane to its end. Raises what the lane raises, other than `FoundError`; the directory is kept then too."""
    root = Path(tempfile.mkdtemp(prefix=f"telha-chaos-{lane.name}-", dir=MEMORY if MEMORY.is_dir() else None))
    run = Run(lane, seed=seed, seconds=seconds, root=root, say=say)
    repeat, finding, kept = command(lane.name, seed, seconds), None, None
    try:
        lane.body(run)
    except FoundError as error:
        finding, kept = str(error), keep(root, lane, seed)
    except BaseException as error:
        error.add_note(_where(keep(root, lane, seed), repeat))
        raise
    else:
        shutil.rmtree(root)
    tally = run.tally
    return Verdict(
        lane=lane.name,
        seed=seed,
        seconds=round(run.elapsed_s, 1),
        covered=tally.covered,
        lost=tally.lost,
        unexpected=tally.unexpected,
        duplicated=tally.duplicated,
        recovered=tally.recovered,
        finding=finding,
        repeat=repeat,
        kept=kept,
    )


def command(lane: str, seed: int, seconds: float | None) -> str:
    """The command that runs the lane again."""
    long = "" if seconds is None else f" --minutes {round(seconds / 60, 2):g}"
    return f"scripts/chaos --lane {lane} --seed {seed}{long}"


def keep(root: Path, lane: Lane, seed: int) -> Path:
    """Move a run's directory to where it stays; its new place."""
    folder = kept_folder()
    folder.mkdir(parents=True, exist_ok=True)
    target = Path(tempfile.mkdtemp(prefix=f"{lane.name}-{seed}-", dir=folder))
    shutil.move(root, target / "run")
    return target / "run"


def kept_folder() -> Path:
    """Where failed runs are kept."""
    told = os.environ.get(KEPT_VARIABLE)
    return ROOT / "out" / "chaos" if told is None else Path(told)


def shown(path: Path) -> str:
    """A path as a command from the root takes it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _where(kept: Path | None, repeat: str) -> str:
    place = "none" if kept is None else shown(kept)
    return f"kept: {place}\nrepeat: {repeat}"
