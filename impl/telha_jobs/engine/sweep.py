"""The sweep: expired leases, finished back-offs, purges; oldest due first over all of them (seed §3, the reaper)."""

from dataclasses import dataclass, field

from telha_jobs.core import decide
from telha_jobs.core.record import Record, timer_of
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.keys import ID_BYTES, TIMER_KEY_BYTES, parse_timer_key, u64
from telha_jobs.store.port import Family
from telha_jobs.types import ReapReport, State

CHUNK = 500
"""Jobs handled by one commit: bounds the batch and how long other calls wait."""


@dataclass(slots=True)
class Sweep:
    """One call of `reap`: what it has done, and where it goes on. Work that it makes itself is left to the next one."""

    now: int
    remaining: int | None
    requeued: int = 0
    died: int = 0
    promoted: int = 0
    purged: int = 0
    quarantined: int = 0
    finished: bool = False
    _start: bytes = b""
    _made: set[bytes] = field(default_factory=set)

    def chunk(self, unit: Unit) -> None:
        """Handle the next timers, at most one commit's worth."""
        limit = CHUNK if self.remaining is None else min(CHUNK, self.remaining)
        timers = unit.shared.store.scan(Family.TIMERS, self._start, self._end(), limit + len(self._made))
        keys = [key for key, _ in timers if key not in self._made][:limit]
        for key in keys:
            self._handle(unit, key)
        if keys:
            self._start = keys[-1] + b"\0"
        if self.remaining is not None:
            self.remaining -= len(keys)
        self.finished = len(keys) < limit or self.remaining == 0

    def report(self, unit: Unit) -> ReapReport:
        """What the sweep did, and whether work whose time had come is waiting."""
        more = bool(unit.shared.store.scan(Family.TIMERS, b"", self._end(), 1))
        return ReapReport(self.requeued, self.died, self.promoted, self.purged, self.quarantined, more)

    def _end(self) -> bytes:
        return u64(self.now + 1)

    def _handle(self, unit: Unit, key: bytes) -> None:
        if len(key) != TIMER_KEY_BYTES:
            self._drop(unit, key)
            return
        time, job_id = parse_timer_key(key)
        record = unit.find(job_id)
        if isinstance(record, Unreadable) and unit.quarantine(record, time=time):
            self.quarantined += 1
        elif isinstance(record, Record) and timer_of(record) == time:
            self._act(unit, record)
        else:
            self._drop(unit, key)

    def _drop(self, unit: Unit, key: bytes) -> None:
        unit.drop_timer(key)
        unit.shared.count_orphan(Family.TIMERS, key)

    def _act(self, unit: Unit, record: Record) -> None:
        terms = unit.terms(record.kind)
        after: Record | None = None
        match record.state:
            case State.LEASED:
                after = decide.reaped(record, terms)
                self.died += after.state is State.DEAD
                self.requeued += after.state is State.PENDING
            case State.FAILED:
                after = decide.promoted(record, terms)
                self.promoted += 1
            case State.COMPLETED | State.DEAD:
                self.purged += 1
            case State.PENDING:
                return  # has no timer
        unit.move(record.job_id, after)
        time = None if after is None else timer_of(after)
        if time is not None and time <= self.now:
            self._made.add(u64(time) + record.job_id[-ID_BYTES:])
