"""`lease_next` where a scan would be slow, beside its cost on a fresh queue of 1,000 jobs.

Every situation is made ready once and stays open; each round takes some leases from each of them in turn, the fresh
queue among them. The first lease from a situation just opened is timed apart: it pays for what the open left to it.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from scripts._bench.measure import Figure, Limit, Span, microseconds, ratio, timed
from scripts._bench.place import (
    DAY_MS,
    FRESH_JOBS,
    KIND,
    MANY_SCOPES,
    PAYLOAD,
    SCOPE,
    Place,
    build_later,
    build_others,
    fill,
    jobs,
    opened,
    run_through,
    scopes,
    spread,
)
from telha_jobs import JobQueue, Lease

LIMIT = Limit(side="at most", value=2.0)


@dataclass(kw_only=True)
class Situation(ABC):
    """A queue in some state, and a way to take `calls` leases from it that leaves it in that state."""

    name: str
    calls: int = 200
    queue: JobQueue | None = None
    first: Span | None = None
    spans: list[Span] = field(default_factory=list)

    @abstractmethod
    def ready(self, place: Place) -> Path:
        """Build the queue, closed; where it is."""

    @abstractmethod
    def settle(self) -> None:
        """Bring what was taken back, untimed."""

    def take(self) -> Span:
        """The leases, timed."""
        return timed(lambda: [self.opened.lease_next("worker-1") for _ in range(self.calls)])

    @property
    def opened(self) -> JobQueue:
        """The queue, while it is open."""
        if self.queue is None:
            raise RuntimeError(f"the situation {self.name!r} is not open: prepare the case first")
        return self.queue


@dataclass(kw_only=True)
class Fresh(Situation):
    """The yardstick: a queue with 1,000 jobs and no past."""

    def ready(self, place: Place) -> Path:
        path = place.fresh("fresh")
        with opened(path) as queue:
            fill(queue, jobs(FRESH_JOBS))
        return path

    def settle(self) -> None:
        self.opened.enqueue_many(jobs(self.calls))


@dataclass(kw_only=True)
class Completed(Fresh):
    """100,000 jobs of the same group came and went."""

    def ready(self, place: Place) -> Path:
        path = place.fresh("completed")
        with opened(path) as queue:
            number = place.size(100_000, 10_000)
            fill(queue, jobs(number))
            run_through(queue, number)
            fill(queue, jobs(FRESH_JOBS))
        return path


@dataclass(kw_only=True)
class Ahead(Situation):
    """50,000 rows of the group were leased; then one comes back, or an urgent one comes, ahead of where they were.

    Two leases are timed: the one of that job, and the next one, which is behind the deleted rows.
    """

    urgent: bool
    _held: deque[Lease] = field(default_factory=deque)

    def ready(self, place: Place) -> Path:
        path = place.fresh("ahead")
        with opened(path) as queue:
            number = place.size(50_000, 5_000)
            fill(queue, jobs(number))
            self._held.extend(queue.lease_batch("filler", 1_000))
            run_through(queue, number - 1_000, complete=False)
            fill(queue, jobs(FRESH_JOBS))
        return path

    def take(self) -> Span:
        wall = cpu = 0.0
        for _ in range(self.calls // 2):
            if self.urgent:
                self.opened.enqueue(SCOPE, KIND, PAYLOAD, priority=0)
            else:
                self.opened.release(self._held.popleft())
            span = timed(self._pair)
            wall, cpu = wall + span.wall_s, cpu + span.cpu_s
        return Span(wall, cpu)

    def settle(self) -> None:
        self.opened.enqueue_many(jobs(self.calls // 2))

    def _pair(self) -> None:
        back, _ = self.opened.lease_next("worker-1"), self.opened.lease_next("worker-1")
        if back is not None and not self.urgent:
            self._held.append(back)


@dataclass(kw_only=True)
class Others(Fresh):
    """1,000,000 jobs of another kind wait, more urgent ones, over 10,000 scopes."""

    def ready(self, place: Place) -> Path:
        return build_others(place)

    def take(self) -> Span:
        return timed(lambda: [self.opened.lease_next("worker-1", kinds=(KIND,)) for _ in range(self.calls)])


@dataclass(kw_only=True)
class Later(Fresh):
    """1,000,000 jobs wait for tomorrow, as urgent ones and as equals, over 100 scopes, the leased one among them."""

    def ready(self, place: Place) -> Path:
        return build_later(place)


@dataclass(kw_only=True)
class Ring(Situation):
    """10,000 scopes have ready jobs: each lease is another scope's turn."""

    def ready(self, place: Place) -> Path:
        path = place.fresh("ring")
        with opened(path) as queue:
            fill(queue, spread(4 * MANY_SCOPES, scopes(MANY_SCOPES), kind=KIND))
        return path

    def settle(self) -> None:
        """Each scope has four jobs: more than a run takes."""


@dataclass(kw_only=True)
class Waiting(Situation):
    """10,000 scopes have jobs, none of them due: each poll comes back empty."""

    def ready(self, place: Place) -> Path:
        path = place.fresh("waiting")
        with opened(path) as queue:
            fill(queue, spread(2 * MANY_SCOPES, scopes(MANY_SCOPES), kind=KIND, delay_ms=DAY_MS))
        return path

    def settle(self) -> None:
        """Nothing is taken."""


def situations() -> list[Situation]:
    """The yardstick first."""
    return [
        Fresh(name="a fresh queue of 1,000 jobs"),
        Completed(name="after 100,000 completions"),
        Ahead(name="a release ahead of 50,000 leased rows, and the lease after it", urgent=False),
        Ahead(name="an urgent job ahead of 50,000 leased rows, and the lease after it", urgent=True),
        Others(name="1,000,000 pending of another kind"),
        Later(name="1,000,000 waiting for later"),
        Ring(name="10,000 scopes ready"),
        Waiting(name="an empty poll over 10,000 scopes that wait"),
    ]


@dataclass(kw_only=True)
class Grants:
    """All situations, in turn."""

    name: str = "grant"
    about: str = "lease_next, one at a time, where much else lies in the queue"
    rounds: int | None = None
    _all: list[Situation] = field(default_factory=situations)

    def prepare(self, place: Place) -> None:
        paths = [one.ready(place) for one in self._all]
        for one, path in zip(self._all, paths, strict=True):
            place.say(f"{self.name}: open: {one.name}")
            one.queue = opened(path)
            one.first = timed(partial(one.opened.lease_next, "worker-1"))
            # What the open left to the first calls is done with: from here on it is a steady state.
            one.take()
            one.settle()

    def round(self, _place: Place) -> None:
        for one in self._all:
            one.spans.append(one.take())
        for one in self._all:
            one.settle()

    def figures(self) -> list[Figure]:
        fresh, *others = self._all
        found = [microseconds(self.name, fresh.name, fresh.spans, fresh.calls)]
        for one in others:
            found.append(microseconds(self.name, one.name, one.spans, one.calls))
            found.append(ratio(self.name, f"{one.name} / fresh", one.spans, fresh.spans, limit=LIMIT))
        found += [
            microseconds(self.name, f"the first call after the open: {one.name}", [one.first], 1)
            for one in self._all
            if one.first is not None
        ]
        return found

    def close(self) -> None:
        for one in self._all:
            if one.queue is not None:
                one.queue.close()
                one.queue = None
