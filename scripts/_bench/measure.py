"""The values of a measurement: spans of time, figures with one value a round, and the limits they are held to."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, NamedTuple

Side = Literal["at most", "at least"]


class Span(NamedTuple):
    """What something took: wall time, and CPU time of the calling thread (of the process, where many threads work)."""

    wall_s: float
    cpu_s: float


def timed(action: Callable[[], object]) -> Span:
    """Run it once."""
    wall, cpu = time.perf_counter(), time.thread_time()
    action()
    return Span(time.perf_counter() - wall, time.thread_time() - cpu)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a figure must keep to."""

    side: Side
    value: float

    def holds(self, value: float) -> bool:
        """Whether the value keeps to it."""
        return value <= self.value if self.side == "at most" else value >= self.value


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of a report: one value a round by the wall, and where it makes sense one by CPU time."""

    case: str
    name: str
    unit: str
    wall: Sequence[float]
    cpu: Sequence[float] = ()
    limit: Limit | None = None

    @property
    def median(self) -> float:
        """The median over the rounds, by the wall."""
        return median(self.wall)

    @property
    def cpu_median(self) -> float | None:
        """The same by CPU time; None when that says nothing here."""
        return median(self.cpu) if self.cpu else None

    def holds(self, *, by_cpu: bool) -> bool | None:
        """Whether the median keeps to the limit; None: it has none."""
        if self.limit is None:
            return None
        cpu = self.cpu_median
        return self.limit.holds(cpu if by_cpu and cpu is not None else self.median)

    def as_json(self) -> dict[str, Any]:
        """Everything, medians included."""
        return asdict(self) | {"median": self.median, "low": min(self.wall), "high": max(self.wall)}


def single(case: str, name: str, value: float, unit: str, *, limit: Limit | None = None) -> Figure:
    """A figure with one value: counted, or measured once."""
    return Figure(case=case, name=name, unit=unit, wall=(value,), limit=limit)


def microseconds(case: str, name: str, spans: Sequence[Span], operations: int, *, limit: Limit | None = None) -> Figure:
    """What one of `operations` took, in microseconds."""
    return Figure(
        case=case,
        name=name,
        unit="µs",
        wall=[span.wall_s / operations * 1e6 for span in spans],
        cpu=[span.cpu_s / operations * 1e6 for span in spans],
        limit=limit,
    )


def ratio(case: str, name: str, over: Sequence[Span], under: Sequence[Span], *, limit: Limit) -> Figure:
    """`over` / `under`, round by round: both were measured one after the other."""
    pairs = list(zip(over, under, strict=True))
    return Figure(
        case=case,
        name=name,
        unit="x",
        wall=[one.wall_s / two.wall_s for one, two in pairs],
        cpu=[one.cpu_s / two.cpu_s for one, two in pairs],
        limit=limit,
    )
