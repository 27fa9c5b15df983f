"""Counts of what happened since the queue was opened, kept as it happens so that a scrape never scans.

Labels are bounded: the first `kinds_max` kinds of the queue, by their numbers, have labels of their own, and the
others share one. A kind keeps its number for ever, so series do not change hands. Scopes are no labels.

Everything here is read and written under the engine's lock, but for the store's measures, which are under the store's.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from telha_jobs.core.record import Record
from telha_jobs.engine.observer import Change, LeaseUse
from telha_jobs.engine.rows import row_key
from telha_jobs.errors import LeaseEnd
from telha_jobs.store.observer import StoreOperation
from telha_jobs.types import State

OTHER: Final = "other"
"""The label of every kind past the first ones; a kind of that very name is counted here too."""

COMMIT_BYTES: Final = (256, 512, 1_024, 2_048, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)
SYNC_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """Observations by the first bound that is not below them."""

    __slots__ = ("bounds", "numbers", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.numbers = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one observation."""
        self.numbers[bisect_left(self.bounds, value)] += 1
        self.total += value


class Died(NamedTuple):
    """How many jobs died of a reason, by the number of their kind."""

    kind: int
    reason: str


class Stale(NamedTuple):
    """A use of a lease that was not current."""

    use: LeaseUse
    why: LeaseEnd


EVENTS: Final = (
    "enqueued",
    "granted",
    "extended",
    "completed",
    "failed",
    "expired",
    "released",
    "promoted",
    "retried",
    "cancelled",
    "removed",
)


class DeadLetters:
    """How many jobs are dead, by kind: of failure or expiry, and (apart) cancelled.

    The jobs that were dead before this began are counted later, in the order of their rows' keys. Until then, `counted`
    is the last key that was: a change behind it is left to that count, which will see the row as it is then.
    """

    def __init__(self) -> None:
        self.counted: bytes | None = b""  # None: all of them are
        self.dead: Counter[int] = Counter()
        self.cancelled: Counter[int] = Counter()

    def add(self, record: Record, kind: int, number: int) -> None:
        """A dead row came (1) or went (-1)."""
        if self.counted is None or row_key(record) <= self.counted:
            self.count(record, kind, number)

    def count(self, record: Record, kind: int, number: int = 1) -> None:
        """The same, wherever the row stands."""
        which = self.cancelled if record.dead_reason == "cancelled" else self.dead
        which[kind] += number


class Tally:
    """The engine's observer: every count since it was attached. `dead` is also of what was there before."""

    def __init__(self, *, kinds_max: int) -> None:
        self.kinds_max = kinds_max
        self.quarantined = 0
        self.dead = DeadLetters()
        self.recount = threading.Event()
        self.events: dict[str, Counter[int]] = {event: Counter() for event in EVENTS}
        self.died: Counter[Died] = Counter()
        self.stale: Counter[Stale] = Counter()
        self.commit_bytes = Histogram(COMMIT_BYTES)
        self.sync_seconds = Histogram(SYNC_SECONDS)
        self.store_errors: Counter[StoreOperation] = Counter({"read": 0, "write": 0, "sync": 0})

    def bounded(self, kind: int) -> int:
        """The number to count a kind under: its own, or 0 for all those past the first."""
        return kind if kind <= self.kinds_max else 0

    # -- told by the engine

    def derived(self, quarantined: int) -> None:
        """Begin to count the dead anew."""
        self.quarantined = quarantined
        self.dead = DeadLetters()
        self.recount.set()

    def committed(self, changes: Sequence[Change], quarantined: int) -> None:
        """Count what became of each job."""
        self.quarantined += quarantined
        for number, before, after in changes:
            kind = self.bounded(number)
            for event in _events(before, after):
                self.events[event][kind] += 1
            if before is not None and before.state is State.DEAD:
                self.dead.add(before, kind, -1)
            if after is not None and after.state is State.DEAD:
                self.dead.add(after, kind, 1)
                if after.dead_reason != "cancelled" and (before is None or before.state is not State.DEAD):
                    self.died[Died(kind, after.dead_reason or "")] += 1

    def refused(self, use: LeaseUse, why: LeaseEnd) -> None:
        """Count a stale use."""
        self.stale[Stale(use, why)] += 1

    # -- told by the store

    def wrote(self, size_bytes: int) -> None:
        """Count a commit."""
        self.commit_bytes.add(size_bytes)

    def synced(self, seconds: float) -> None:
        """Count a sync."""
        self.sync_seconds.add(seconds)

    def failed(self, operation: StoreOperation) -> None:
        """Count an error of the storage."""
        self.store_errors[operation] += 1


def _events(before: Record | None, after: Record | None) -> Sequence[str]:
    """What happened to a job between two rows of it; each commit does one thing to a job."""
    if before is None:
        return ("enqueued",)
    if after is None:
        return ("removed",)
    match before.state, after.state:
        case State.PENDING, State.LEASED:
            return ("granted",)
        case State.FAILED, State.LEASED:
            return ("promoted", "granted")
        case State.LEASED, State.LEASED:
            return ("extended",)
        case State.LEASED, State.COMPLETED:
            return ("completed",)
        case State.LEASED, State.FAILED:
            return ("failed",)
        case State.LEASED, State.PENDING:
            return ("expired",) if after.lease_end == "reaped" else ("released",)
        case State.FAILED, State.PENDING:
            return ("promoted",)
        case State.DEAD, State.PENDING:
            return ("retried",)
        case _, State.DEAD if after.dead_reason == "cancelled":
            return ("cancelled",)
        case _, State.DEAD if after.dead_reason == "expired":
            return ("expired",)
        case _, State.DEAD:
            return ("failed",)
        case _:
            return ()
