"""One scope with a huge backlog against many small ones, over the wire, and a judgement of every grant (promise 9).

The backlog is there first. Pollers with mixed filters lease and complete its jobs by clients of a server; then the
tenants come, all in one commit, a few jobs each. It ends when every job of theirs was granted. The server numbers each
commit and each call's place in it, so the order of arrivals and grants is known exactly, whatever the threads did, and
is followed:

- a grant serves the first scope of the ring that has something for it;
- a scope that waits is served within T grants for which it was eligible, T the ring's length when it joined.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from telha_jobs import JobQueue, Lease, NewJob, QueueConfig
from telha_jobs.client import Client, connect
from telha_jobs.rpc.status import COMMIT_KEY, INDEX_KEY
from telha_model.types import matches
from tests.harness.served import Host

KINDS: Final = ("ingest:pdf", "embed", "ingest:html")
BIG: Final = 0
"""The number of the scope with the backlog; tenants count from 1."""
FIRST: Final = 100
"""So many grants the backlog has for itself before the tenants come, or half of it."""
BATCH: Final = 10_000
WAIT_MS: Final = 500
STALLED_S: Final = 60.0
TTL_MS: Final = 24 * 3_600_000


class Filters(NamedTuple):
    """What a poller asks for; None: everything. `scopes` are numbers."""

    kinds: tuple[str, ...] | None = None
    scopes: frozenset[int] | None = None

    def take(self, scope: int, waiting: Counter[str]) -> bool:
        """Whether a scope has something for it."""
        if self.scopes is not None and scope not in self.scopes:
            return False
        if self.kinds is None:
            return waiting.total() > 0
        return any(number and any(matches(one, kind) for one in self.kinds) for kind, number in waiting.items())

    def __str__(self) -> str:
        kinds = "every kind" if self.kinds is None else ", ".join(self.kinds)
        return kinds if self.scopes is None else f"{kinds} of {len(self.scopes)} scopes"


class Arrived(NamedTuple):
    """Jobs of a scope that came in one commit."""

    commit: tuple[int, int]
    scope: int
    kinds: tuple[str, ...]
    at_s: float


class Granted(NamedTuple):
    """One grant, and what was asked for."""

    commit: tuple[int, int]
    scope: int
    kind: str
    filters: Filters
    at_s: float


Event = Arrived | Granted


@dataclass(slots=True)
class Waiter:
    """How a scope fared. Gaps and waits are in grants."""

    waiting: Counter[str] = field(default_factory=Counter)
    bound: int = 0
    passed: int = 0
    since: int = 0
    granted: int = 0
    gap: int = 0
    """The worst number of grants for which it was eligible, up to and with its own."""
    gap_of_all: int = 0
    """The same over all grants, also those whose filters left it out."""
    slack: int | None = None
    """How near it came to its bound."""
    arrived: int = 0
    arrived_s: float = 0.0
    waits: list[int] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


class Judge:
    """Follows arrivals and grants in their order; what is wrong goes to `problems`."""

    def __init__(self) -> None:
        self.scopes: dict[int, Waiter] = {}
        self.ring: list[int] = []
        self.grants = 0
        self.problems: list[str] = []

    def take(self, event: Event) -> None:
        """The next event."""
        match event:
            case Arrived():
                self._arrived(event)
            case Granted():
                self._granted(event)

    def _arrived(self, event: Arrived) -> None:
        one = self.scopes.setdefault(event.scope, Waiter())
        one.arrived, one.arrived_s = self.grants, event.at_s
        one.waiting.update(event.kinds)
        if event.scope not in self.ring:
            self._join(event.scope)

    def _granted(self, event: Granted) -> None:
        self.grants += 1
        scope, served = event.scope, self.scopes.get(event.scope)
        if served is None or served.waiting[event.kind] < 1 or scope not in self.ring:
            self.problems.append(f"grant {self.grants}: scope {scope} has no job of kind {event.kind} that waits")
            return
        eligible = [other for other in self.ring if event.filters.take(other, self.scopes[other].waiting)]
        if eligible[:1] != [scope]:
            self.problems.append(
                f"grant {self.grants} ({event.filters}) went to scope {scope}, but scope {eligible[0]} stood before it"
            )
        for other in eligible:
            one = self.scopes[other]
            one.passed += 1
            if one.passed > one.bound:
                self.problems.append(
                    f"grant {self.grants}: scope {other} was eligible for {one.passed} grants, its bound is {one.bound}"
                )
        self._serve(served, event)
        self.ring.remove(scope)
        if served.waiting.total():
            self._join(scope)

    def _serve(self, served: Waiter, event: Granted) -> None:
        served.gap = max(served.gap, served.passed)
        served.gap_of_all = max(served.gap_of_all, self.grants - served.since)
        slack = served.bound - served.passed
        served.slack = slack if served.slack is None else min(served.slack, slack)
        served.waiting[event.kind] -= 1
        served.granted += 1
        served.waits.append(self.grants - served.arrived)
        served.waits_s.append(event.at_s - served.arrived_s)

    def _join(self, scope: int) -> None:
        self.ring.append(scope)
        one = self.scopes[scope]
        one.bound, one.passed, one.since = len(self.ring), 0, self.grants


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 when all have the same, 1/n when one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def competing(events: Sequence[Event]) -> Counter[int]:
    """Grants by scope while all scopes compete: from the last arrival until the first scope has nothing left."""
    waiting: Counter[int] = Counter()
    last = max(number for number, event in enumerate(events) if isinstance(event, Arrived))
    found: Counter[int] = Counter()
    for number, event in enumerate(events):
        if isinstance(event, Arrived):
            waiting[event.scope] += len(event.kinds)
            found[event.scope] = 0
            continue
        waiting[event.scope] -= 1
        if number > last:
            found[event.scope] += 1
            if not waiting[event.scope]:
                break
    return found


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run: its events in their order, how each scope fared, and what is wrong."""

    jobs: int
    tenants: int
    each: int
    filters: tuple[Filters, ...]
    loaded_s: float
    seconds: float
    events: tuple[Event, ...]
    judge: Judge

    @property
    def problems(self) -> list[str]:
        """What does not hold."""
        left = [number for number, one in self.judge.scopes.items() if number != BIG and one.granted < self.each]
        return self.judge.problems + [f"scope {number} was not served to the end" for number in left]

    @property
    def jain(self) -> float:
        """Jain's index of the grants while every scope competes."""
        return jain(list(competing(self.events).values()))


class Run:
    """Pollers on one server until every tenant's job was granted."""

    def __init__(self, address: str, filters: Sequence[Filters], *, first: int, tenants: int, each: int) -> None:
        self.address = address
        self.first = first
        self.filters = filters
        self.tenants = tenants
        self.each = each
        self.events: list[list[Granted]] = [[] for _ in filters]
        self.arrivals: list[Arrived] = []
        self.errors: list[BaseException] = []
        self.stop = threading.Event()

    @property
    def granted(self) -> int:
        """Grants so far."""
        return sum(map(len, self.events))

    @property
    def granted_to_tenants(self) -> int:
        """Those of them that tenants got."""
        return sum(event.scope != BIG for events in self.events for event in list(events))

    def to_the_end(self, progress: Callable[[int], None]) -> None:
        """Let the tenants come, and return when they have all been served. RuntimeError when nothing moves."""
        threads = [threading.Thread(target=self._poll, args=(number,)) for number in range(len(self.filters))]
        for thread in threads:
            thread.start()
        try:
            self._until(lambda: self.granted >= self.first, progress)
            self._come()
            self._until(lambda: self.granted_to_tenants >= self.tenants * self.each, progress)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(STALLED_S)
        if self.errors:
            raise self.errors[0]

    def _until(self, done: Callable[[], bool], progress: Callable[[int], None]) -> None:
        seen, since = -1, time.monotonic()
        while not done() and not self.errors:
            now = self.granted
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > STALLED_S:
                raise RuntimeError(f"nothing was granted for {STALLED_S:.0f} s, after {now} grants")
            progress(self.granted_to_tenants)
            self.stop.wait(0.02)

    def _come(self) -> None:
        """All at once, in one commit: they join the ring in the order of their scopes."""
        coming = {
            tenant: tuple(islice(cycle(KINDS), tenant, tenant + self.each)) for tenant in range(1, self.tenants + 1)
        }
        jobs = [NewJob(scope=scope_of(one), kind=kind, payload=None) for one, kinds in coming.items() for kind in kinds]
        with _Told(self.address) as told:
            at_s = time.monotonic()
            told.client.enqueue_many(jobs)
            self.arrivals = [Arrived(told.commit, tenant, kinds, at_s) for tenant, kinds in coming.items()]

    def _poll(self, number: int) -> None:
        filters = self.filters[number]
        scopes = None if filters.scopes is None else [scope_of(scope) for scope in filters.scopes]
        try:
            with _Told(self.address) as told:
                while not self.stop.is_set():
                    lease = told.client.lease_next(f"p{number}", scopes=scopes, kinds=filters.kinds, wait_ms=WAIT_MS)
                    if lease is not None:
                        self.events[number].append(_granted(lease, told.commit, filters))
                        told.client.complete(lease)
        except BaseException as error:  # noqa: BLE001  whatever ends a poller ends the run, and is raised there
            self.errors.append(error)


class _Told:
    """A client that knows the commit of its last answer."""

    def __init__(self, address: str) -> None:
        self.commit = (-1, -1)
        self.client: Client = connect(address, told=self._told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _told(self, _method: str, trailers: Iterable[tuple[str, Any]]) -> None:
        found = dict(trailers)
        if COMMIT_KEY in found:
            self.commit = (int(found[COMMIT_KEY]), int(found[INDEX_KEY]))


def _granted(lease: Lease, commit: tuple[int, int], filters: Filters) -> Granted:
    return Granted(commit, lease.scope.int - 1, lease.kind, filters, time.monotonic())


def scope_of(number: int) -> UUID:
    """The real scope of a number."""
    return UUID(int=number + 1)


def mixed(pollers: int, tenants: int) -> tuple[Filters, ...]:
    """Filters of pollers: half of them take everything; the others a family, a kind, or some of the scopes."""
    half = frozenset([BIG, *range(2, tenants + 1, 2)])
    narrow = cycle((Filters(("ingest:*",)), Filters(("embed",)), Filters(None, half), Filters(("ingest:pdf",), half)))
    return tuple([Filters() if number % 2 == 0 else next(narrow) for number in range(pollers)])


def measure(
    path: Path,
    *,
    jobs: int,
    tenants: int,
    each: int,
    pollers: int,
    loaded: Callable[[int], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Load the backlog, serve the queue, let the tenants come, and judge."""
    filters = mixed(pollers, tenants)
    config = QueueConfig(lease_ttl_ms=TTL_MS, durability="os")
    with JobQueue.open(path, config=config) as queue:
        began = time.monotonic()
        for at in range(0, jobs, BATCH):
            queue.enqueue_many([_of_backlog(number) for number in range(at, min(at + BATCH, jobs))])
            loaded(at)
        loaded_s = time.monotonic() - began
        host = Host()
        try:
            host.serve(queue)
            run = Run(host.address, filters, first=min(FIRST, jobs // 2), tenants=tenants, each=each)
            began = time.monotonic()
            run.to_the_end(progress)
            seconds = time.monotonic() - began
        finally:
            host.close()
    backlog = Arrived((-1, -1), BIG, tuple([KINDS[number % len(KINDS)] for number in range(jobs)]), began)
    granted = [event for events in run.events for event in events]
    every: list[Event] = [backlog, *run.arrivals, *granted]
    events = tuple(sorted(every, key=lambda event: event.commit))
    judge = Judge()
    for event in events:
        judge.take(event)
    return Report(
        jobs=jobs,
        tenants=tenants,
        each=each,
        filters=filters,
        loaded_s=loaded_s,
        seconds=seconds,
        events=events,
        judge=judge,
    )


def _of_backlog(number: int) -> NewJob:
    return NewJob(scope=scope_of(BIG), kind=KINDS[number % len(KINDS)], payload=None)
