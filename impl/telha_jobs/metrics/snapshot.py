"""What a scrape sees: copied under the engine's lock in bounded time, without a scan of the database.

The reply rule holds for a scrape too: it is answered when what it tells is durable.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from telha_jobs.codec import UnreadableError, decode_record
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.shared import Shared
from telha_jobs.keys import STATE_BYTES, parse_job_key
from telha_jobs.metrics.tally import OTHER, Stale, Tally
from telha_jobs.store.port import Family
from telha_jobs.types import State

_SCOPES_A_LOOK = 1_000
"""Scopes of the agenda looked at under one hold of the lock: about a millisecond."""
_STEPS_A_LOOK = 32
_ROWS_A_STEP = 128
_DEAD = STATE_BYTES[State.DEAD]
_BEHIND_DEAD = bytes([_DEAD[0] + 1])


class Snapshot(NamedTuple):
    """The counts at one moment, kinds by their labels.

    `dead` and `cancelled` are None as long as the dead of before the start are being counted. `oldest_due_ms` is the
    due time of the job that has been ready for longest (None: none is).
    """

    now_ms: int
    jobs: Mapping[str, Mapping[State, int]]
    dead: Mapping[str, int] | None
    cancelled: Mapping[str, int] | None
    events: Mapping[str, Mapping[str, int]]
    died: Mapping[tuple[str, str], int]
    stale: Mapping[Stale, int]
    quarantined: int
    oldest_due_ms: int | None


def take(engine: Engine, tally: Tally) -> Snapshot:
    """A snapshot. Raises `QueueUnavailableError` when the queue is closed or failed."""
    snapshot, scopes = engine.read(lambda shared: (_copied(shared, tally), shared.agenda.ready_scopes()))
    slices = (scopes[start : start + _SCOPES_A_LOOK] for start in range(0, len(scopes), _SCOPES_A_LOOK))
    dues = [snapshot.oldest_due_ms, *(engine.read(partial(_oldest_due, scopes=some)) for some in slices)]
    return snapshot._replace(oldest_due_ms=min((due for due in dues if due is not None), default=None))


def count_dead(shared: Shared, tally: Tally) -> bool:
    """Count some more of the dead jobs that no commit told of; True when all are counted."""
    for _ in range(_STEPS_A_LOOK):
        if tally.dead.counted is None:
            return True
        tally.dead.counted = _counted_to(shared, tally, tally.dead.counted)
    return tally.dead.counted is None


def _copied(shared: Shared, tally: Tally) -> Snapshot:
    named = [number for number in shared.kinds.names if number <= tally.kinds_max]
    names = {**{number: shared.kinds.names[number] for number in named}, 0: OTHER}

    def labelled(numbers: Mapping[int, int]) -> dict[str, int]:
        found = dict.fromkeys(names.values(), 0)
        for kind, number in numbers.items():
            found[names[kind]] += number
        return found

    counted = tally.dead.counted is None
    next_due = shared.agenda.next_due()
    now = shared.store.now()
    died = {(label, reason): 0 for label in names.values() for reason in ("attempts", "expired", "rejected")}
    for (kind, reason), number in tally.died.items():
        died[names[kind], reason] = died.get((names[kind], reason), 0) + number
    return Snapshot(
        now_ms=now,
        jobs=_jobs(shared, named, names),
        dead=labelled(tally.dead.dead) if counted else None,
        cancelled=labelled(tally.dead.cancelled) if counted else None,
        events={event: labelled(numbers) for event, numbers in tally.events.items()},
        died=died,
        stale=dict(tally.stale),
        quarantined=tally.quarantined,
        oldest_due_ms=next_due if next_due is not None and next_due <= now else None,
    )


def _jobs(shared: Shared, named: Sequence[int], names: Mapping[int, str]) -> dict[str, dict[State, int]]:
    """The jobs of each label by state; those of the kinds past the first are what is left of the sum."""
    found: dict[str, dict[State, int]] = {OTHER: dict(shared.counters.totals(None, None))}
    rest = found[OTHER]
    for number in named:
        totals = shared.counters.totals(None, frozenset((number,)))
        if names[number] == OTHER:
            continue  # a kind of that name is counted there
        found[names[number]] = totals
        for state, jobs in totals.items():
            rest[state] -= jobs
    return found


def _oldest_due(shared: Shared, scopes: Sequence[bytes]) -> int | None:
    return shared.agenda.oldest_due(scopes)


def _counted_to(shared: Shared, tally: Tally, counted: bytes) -> bytes | None:
    """Look at the next rows behind the key `counted`; the last key that is counted then, None when that is the end."""
    first = shared.store.scan(Family.JOBS, counted + b"\0" if counted else b"", None, 1)
    if not first:
        return None
    [(key, _)] = first
    try:
        place = parse_job_key(key)
    except ValueError:
        return key
    if place.state is not State.DEAD:
        return place.scope + _DEAD  # in the order of keys the dead come last in each scope
    end = place.scope + _BEHIND_DEAD
    rows = shared.store.scan(Family.JOBS, key, end, _ROWS_A_STEP)
    for row_key, value in rows:
        try:
            record = decode_record(row_key, value)
        except UnreadableError:
            continue
        number = shared.kinds.numbers.get(record.kind)
        if number is not None:
            tally.dead.count(record, tally.bounded(number))
    return rows[-1][0] if len(rows) == _ROWS_A_STEP else end
