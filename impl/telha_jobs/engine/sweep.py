"""The sweep: expired leases, finished back-offs, purges; oldest due first over all of them (seed §3, the reaper).

A sweep runs a chunk at a time, each one commit. It handles what was due when it began; work that it makes itself (a
retention of 0) is left to the next one. It starts at `Shared.timers_floor`, below which there is no live timer, so that
it never goes back over what earlier sweeps removed.
"""

from collections import Counter
from typing import NamedTuple

from telha_jobs.core import decide
from telha_jobs.core.record import Record, timer_of
from telha_jobs.engine.shared import Shared
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.invariant import InvariantError
from telha_jobs.keys import TIMER_KEY_BYTES, parse_timer_key, timer_key, u64
from telha_jobs.store.port import Family
from telha_jobs.types import ReapReport, State

CHUNK = 500
"""Jobs handled by one commit: bounds the batch and how long other calls wait."""
CHUNK_BYTES = 64 * 1024 * 1024
"""Of rows that it may have found: a row holds a result, progress and reasons of whatever size is configured."""


class Chunk(NamedTuple):
    """What one commit of a sweep did. `made`: timers it wrote that are due already; `last`: the last key it handled."""

    tally: Counter[str]
    made: frozenset[bytes]
    last: bytes | None
    handled: int
    ended: bool


class Sweep:
    """One call of `reap`: what it has done, and where it goes on."""

    def __init__(self, now: int, limit: int | None, floor: int) -> None:
        self.finished = False
        self.begun = False  # something was committed
        self._now = now
        self._end = u64(now + 1)
        self._remaining = limit
        self._start = u64(floor) if floor else b""  # at first also what is too short for a time
        self._made: frozenset[bytes] = frozenset()
        self._tally: Counter[str] = Counter()
        self._ended = False

    def look(self, shared: Shared) -> None:
        """One bounded look, without a unit of work: when there is nothing to do the sweep is finished."""
        self._ended = self.finished = not self._has_work(shared)

    def chunk(self, unit: Unit) -> Chunk:
        """Handle the next timers, at most one commit's worth. Changes nothing here: a conflict may run it again."""
        limit = CHUNK if self._remaining is None else min(CHUNK, self._remaining)
        timers = unit.shared.store.scan(Family.TIMERS, self._start, self._end, limit + len(self._made))
        keys = [key for key, _ in timers if key not in self._made][:limit]
        tally: Counter[str] = Counter()
        made: list[bytes | None] = []
        for key in keys:
            made.append(self._handle(unit, key, tally))
            if unit.bytes_found >= CHUNK_BYTES:
                break  # the others are for the next commit: none may become larger than a store takes
        handled = len(made)
        due_again = frozenset(key for key in made if key is not None and key < self._end)
        ended = handled == len(keys) < limit
        return Chunk(tally, due_again, keys[handled - 1] if keys else None, handled, ended=ended)

    def add(self, chunk: Chunk) -> None:
        """The chunk is committed."""
        self.begun |= chunk.handled > 0
        self._tally += chunk.tally
        self._made |= chunk.made
        if chunk.last is not None:
            self._start = chunk.last + b"\0"
        if self._remaining is not None:
            self._remaining -= chunk.handled
        self._ended = chunk.ended
        self.finished = chunk.ended or self._remaining == 0

    def report(self, shared: Shared) -> ReapReport:
        """What the sweep did, and whether work whose time had come is waiting."""
        left = not self._ended and self._has_work(shared)
        if not left:
            # Whatever is written from now on is due no earlier than this sweep's time.
            shared.timers_floor = self._now
        tally = self._tally
        return ReapReport(
            requeued=tally["requeued"],
            died=tally["died"],
            promoted=tally["promoted"],
            purged=tally["purged"],
            quarantined=tally["quarantined"],
            more=left or bool(self._made),
        )

    def _has_work(self, shared: Shared) -> bool:
        return bool(shared.store.scan(Family.TIMERS, self._start, self._end, 1))

    def _handle(self, unit: Unit, key: bytes, tally: Counter[str]) -> bytes | None:
        """Do the work of one timer; the timer that the job has afterwards."""
        if len(key) != TIMER_KEY_BYTES:
            self._drop(unit, key)
            return None
        time, job_id = parse_timer_key(key)
        record = unit.find(job_id)
        if isinstance(record, Unreadable) and unit.quarantine(record, time=time):
            tally["quarantined"] += 1
            return None
        if not isinstance(record, Record) or timer_of(record) != time:
            self._drop(unit, key)
            return None
        after, what = _after(unit, record)
        tally[what] += 1
        unit.move(job_id, after)
        next_time = None if after is None else timer_of(after)
        return None if next_time is None else timer_key(next_time, job_id)

    def _drop(self, unit: Unit, key: bytes) -> None:
        unit.drop_timer(key)
        unit.shared.count_orphan(Family.TIMERS, key)


def _after(unit: Unit, record: Record) -> tuple[Record | None, str]:
    """What becomes of a job whose time has come (None: it goes), and the field of the report that counts it."""
    match record.state:
        case State.LEASED:
            reaped = decide.reaped(record, unit.now, unit.policy(record.kind))
            return reaped, "died" if reaped.state is State.DEAD else "requeued"
        case State.FAILED:
            return decide.promoted(record, unit.now, unit.policy(record.kind)), "promoted"
        case State.COMPLETED | State.DEAD:
            return None, "purged"
        case State.PENDING:
            raise InvariantError("a pending job has no timer")
