"""What an open derives from disk: interned kinds, counters, the agenda. All of it follows from rows; `consistency`
proves that it does.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from telha_jobs.agenda import Agenda, GroupKey, Place
from telha_jobs.counters import Counters
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.keys import (
    COUNT_PREFIX,
    KIND_PREFIX,
    ReadyKey,
    after,
    group_prefix,
    parse_count_key,
    parse_ready_key,
    u64,
)
from telha_jobs.kinds import Kinds, read_kinds
from telha_jobs.store.port import Family, Store

Value = TypeVar("Value")

PAGE_ROWS = 1_000
LOADED_ROWS = 5
"""Rows of `ready` in one look of an open: so many of a long group are in memory from the start, and its first leases
need no look of their own."""

_log = logging.getLogger("telha_jobs")


def pages(store: Store, family: Family, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of a range, read a page at a time."""
    return _pages(partial(store.scan, family), start, end)


def _pages(
    scan: Callable[[bytes, bytes | None, int], list[tuple[bytes, Value]]], start: bytes, end: bytes | None
) -> Iterator[tuple[bytes, Value]]:
    while True:
        page = scan(start, end, PAGE_ROWS)
        yield from page
        if len(page) < PAGE_ROWS:
            return
        start = page[-1][0] + b"\0"


def load_kinds(store: Store) -> Kinds:
    """The interned kinds of `meta`.

    Raises `QueueUnavailableError` when one makes no sense: without it its number would be given out again, and jobs
    under that number would be taken for another kind.
    """
    names, wrong = read_kinds(pages(store, Family.META, KIND_PREFIX, after(KIND_PREFIX)))
    if wrong:
        raise QueueUnavailableError(
            f"a kind in meta makes no sense ({wrong[0][1]}): close the queue and let `telha jobs check --repair` find "
            "it again by its jobs, or restore a backup"
        )
    return Kinds(names)


def load_counters(store: Store) -> Counters:
    """The counters of `meta`, summed up; the store remembers them."""
    counters = Counters()
    for key, number in _pages(store.scan_counters, COUNT_PREFIX, after(COUNT_PREFIX)):
        try:
            parse_count_key(key)  # `Counters` takes well-formed keys only
            counters.add({key: number})
        except ValueError as error:
            _log.error("passed over a counter in meta: %s", error)
    return counters


def load_agenda(store: Store, *, now: int, last_served: bytes | None) -> Agenda:
    """The agenda of an open: the first rows of each group of `ready`, then the ring."""

    def refill(group: GroupKey, start: Place, limit: int) -> list[Place]:
        return _places(store, group, start, limit)

    agenda = Agenda(refill)
    seek: bytes | None = b""
    while seek is not None:
        seek = _load_groups(store, agenda, seek)
    agenda.start(now, last_served)
    return agenda


def _load_groups(store: Store, agenda: Agenda, seek: bytes) -> bytes | None:
    """Load what a look at the next few rows shows: short groups whole, or the beginning of one long group.

    Returns where the next look begins, so that none goes over the rest of a long group; None: that was the last one.
    """
    keys = [key for key, _ in store.scan(Family.READY, seek, None, LOADED_ROWS)]
    groups: dict[GroupKey, list[Place]] = {}
    for row in map(_ready, keys):
        if row is not None:
            groups.setdefault(row[:3], []).append(row[3:])
    next_look: bytes | None = None
    if len(keys) == LOADED_ROWS:  # there may be more, of the last group too
        if not groups:
            return keys[-1] + b"\0"
        last, window = groups.popitem()
        next_look = group_prefix(*last)
        if not groups:
            agenda.load(last, window, whole=False)
            next_look = after(next_look)
    for group, window in groups.items():
        agenda.load(group, window, whole=True)
    return next_look


def _places(store: Store, group: GroupKey, start: Place, limit: int) -> list[Place]:
    prefix = group_prefix(*group)
    seek, end = prefix + u64(start[0]) + start[1], after(prefix)
    found: list[Place] = []
    while len(found) < limit:
        asked = limit - len(found)
        keys = [key for key, _ in store.scan(Family.READY, seek, end, asked)]
        found += [(row.due, row.job_id) for row in map(_ready, keys) if row is not None]
        if len(keys) < asked:
            break
        seek = keys[-1] + b"\0"
    return found


def _ready(key: bytes) -> ReadyKey | None:
    """The key taken apart; None for one that is malformed, which stays where it is and stops nobody."""
    try:
        return parse_ready_key(key)
    except ValueError as error:
        _log.error("passed over an entry of ready that no row explains: %s", error)
        return None
