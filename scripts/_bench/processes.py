"""Cases that need processes of their own: opening, memory, and the long run."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from scripts._bench.measure import Figure, Limit, single
from scripts._bench.place import MANY_SCOPES, Place, build_later, build_others, fill, jobs, opened

ROOT = Path(__file__).parents[2]
OPEN_LIMIT = Limit(side="at most", value=2.0)
MEMORY_LIMIT = Limit(side="at most", value=50.0)
TREND_LIMIT = Limit(side="at most", value=1.25)
TREND_JOBS = 200_000
"""A shorter run ends before RocksDB's memory and log have filled once: it has no trend to speak of."""
MANY_JOBS = 1_000_000
DYING_JOBS = 50_000


def child(*words: str) -> Iterator[dict[str, Any]]:
    """What a child process prints, line by line; raises when it fails."""
    command = [sys.executable, "-m", "scripts._bench.child", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is not None:
            yield from map(json.loads, process.stdout)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words[:1])} ended with {process.returncode}; its words are above")


def kill(path: Path, number: int) -> None:
    """A child that was busy at `path` and got killed."""
    command = [sys.executable, "-m", "scripts._bench.child", "die", str(path), str(number)]
    ended = subprocess.run(command, cwd=ROOT, check=False).returncode
    if ended != -9:
        raise RuntimeError(f"the child that was to be killed ended with {ended}; its words are above")


@dataclass(kw_only=True)
class Opening:
    """A million jobs: how long an open takes, after a clean end and after a kill; and the memory it holds then."""

    name: str = "open"
    about: str = "opening a queue of 1,000,000 pending jobs, and the memory it then takes beside RocksDB's own"
    rounds: int | None = 3
    _paths: dict[str, Path] = field(default_factory=dict)
    _small: Path = Path()
    _clean: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _killed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _nearly_empty: list[dict[str, Any]] = field(default_factory=list)
    _filled: dict[str, dict[str, Any]] = field(default_factory=dict)

    def prepare(self, place: Place) -> None:
        number = place.size(MANY_JOBS, MANY_JOBS // 20)
        for over in (100, MANY_SCOPES):
            place.say(f"{self.name}: enqueue {number:,} jobs over {over:,} scopes")
            [self._filled[f"{over:,} scopes"]] = child("fill", str(place.fresh("filled")), str(number), str(over))
        self._paths = {"100 scopes": build_later(place), "10,000 scopes": build_others(place)}
        self._small = place.fresh("small")
        with opened(self._small) as queue:
            fill(queue, jobs(1))
        # The first open writes what is left in the log to tables; from the second on, the memory is that of an open.
        for path in (*self._paths.values(), self._small):
            list(child("look", str(path)))

    def round(self, place: Place) -> None:
        self._nearly_empty += child("look", str(self._small))
        for name, path in self._paths.items():
            self._clean.setdefault(name, []).extend(child("look", str(path)))
            kill(path, place.size(DYING_JOBS, DYING_JOBS // 10))
            self._killed.setdefault(name, []).extend(child("look", str(path)))
            # And once more, so that the next round finds a clean end and an empty log.
            list(child("look", str(path)))

    def figures(self) -> list[Figure]:
        found: list[Figure] = []
        least = median(one["rss"] - one["rocksdb"] for one in self._nearly_empty)
        for name in self._paths:
            for end, looks in (("a clean end", self._clean[name]), ("a kill", self._killed[name])):
                found.append(
                    Figure(
                        case=self.name,
                        name=f"open after {end}, {name}",
                        unit="s",
                        wall=[one["open_s"] for one in looks],
                        cpu=[one["open_cpu_s"] for one in looks],
                        limit=OPEN_LIMIT,
                    )
                )
            looks = self._clean[name]
            found.append(
                Figure(
                    case=self.name,
                    name=f"memory a pending job, {name}",
                    unit="B",
                    wall=[(one["rss"] - one["rocksdb"] - least) / one["jobs"] for one in looks],
                    limit=MEMORY_LIMIT,
                )
            )
            filled = self._filled[name]
            found.append(
                single(
                    self.name,
                    f"memory a pending job, where they were enqueued, {name}",
                    (filled["after"] - filled["before"]) / filled["jobs"],
                    "B",
                    limit=MEMORY_LIMIT if filled["jobs"] >= MANY_JOBS else None,
                )
            )
            found.append(
                Figure(
                    case=self.name,
                    name=f"RocksDB's memory after the open, {name}",
                    unit="MB",
                    wall=[one["rocksdb"] / 1e6 for one in looks],
                )
            )
        return found

    def close(self) -> None:
        """Nothing is open in this process."""


def trend(values: Sequence[float]) -> float:
    """The mean of the last quarter over the mean of the second one: 1 where nothing changes.

    Means, because disk and memory are saws: they rise until RocksDB writes its log to tables, then fall.
    """
    quarter = max(1, len(values) // 4)
    return fmean(values[-quarter:]) / fmean(values[quarter : 2 * quarter])


class Series(NamedTuple):
    """One measure of a long run: what its parts call it, by the wall and by CPU, and the work that was timed beside it.

    That work is not the queue's and always the same: where it takes longer the machine got slower, which is no trend.
    """

    name: str
    unit: str
    wall: str
    cpu: str | None = None
    beside: str | None = None
    per: str | None = None
    factor: float = 1.0

    def of(self, parts: Sequence[dict[str, Any]], key: str | None) -> list[float]:
        """One value a part."""
        if key is None:
            return []
        return [part[key] / (1 if self.per is None else part[self.per]) * self.factor for part in parts]

    def level(self, parts: Sequence[dict[str, Any]], key: str | None) -> list[float]:
        """The same, divided by the work beside it where there is some: what must not rise."""
        values = self.of(parts, key)
        if self.beside is None or key is None:
            return values
        return [value / part[self.beside] for value, part in zip(values, parts, strict=True)]


@dataclass(kw_only=True)
class Endurance:
    """Very many jobs from end to end, at "os", a hundred a call, with retention and sweeps."""

    number: int
    name: str = "long"
    about: str = "jobs enqueued, leased, completed and purged; no figure may rise over the run"
    rounds: int | None = 1
    parts: list[dict[str, Any]] = field(default_factory=list)

    def prepare(self, place: Place) -> None:
        """Nothing: the child makes its own queue."""

    def round(self, place: Place) -> None:
        for part in child("long", str(place.fresh("long")), str(self.number)):
            self.parts.append(part)
            done = sum(one["jobs"] for one in self.parts)
            place.say(
                f"{self.name}: {done:,} jobs, {part['jobs'] / part['seconds']:,.0f} a second, "
                f"disk {part['disk'] / 1e6:.0f} MB, memory {part['rss'] / 1e6:.0f} MB, open {part['open_s']:.2f} s"
            )

    def figures(self) -> list[Figure]:
        parts = self.parts
        total = sum(one["jobs"] for one in parts)
        found = [
            single(self.name, "jobs, end to end", total, ""),
            single(self.name, "rate", total / sum(one["seconds"] for one in parts), "jobs/s"),
        ]
        limit = TREND_LIMIT if self.number >= TREND_JOBS else None
        series = [
            Series("time a job", "µs", "seconds", "cpu_seconds", "work_us", "jobs", 1e6),
            Series("disk", "MB", "disk", factor=1e-6),
            Series("memory", "MB", "rss", factor=1e-6),
            Series("open after a kill", "s", "open_s", "open_cpu_s", "open_work_us"),
            Series("a poll", "µs", "poll_us", beside="poll_work_us"),
        ]
        for one in series:
            walls, cpus = one.of(parts, one.wall), one.of(parts, one.cpu)
            found.append(Figure(case=self.name, name=f"{one.name}, over the run", unit=one.unit, wall=walls, cpu=cpus))
            name = one.name if one.beside is None else f"{one.name} beside a fixed piece of work"
            found.append(
                Figure(
                    case=self.name,
                    name=f"{name}: last quarter / second",
                    unit="x",
                    wall=(trend(one.level(parts, one.wall)),),
                    cpu=(trend(one.level(parts, one.cpu)),) if cpus else (),
                    limit=limit,
                )
            )
        return found

    def close(self) -> None:
        """The child is gone."""
