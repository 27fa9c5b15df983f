"""Turns additions into plain writes, through a cache of counters.

Counts change with every commit and are read by almost none, so their values are kept in memory: an addition costs no
read. The cache is right because a counter is written by additions only, and it changes after the batch was written.
"""

import logging
import struct
from collections.abc import Callable

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.store.layout import decode_counter, pack_counter
from telha_jobs.store.port import META, Adds, Family, Write

_CACHED_MAX = 100_000
_log = logging.getLogger("telha_jobs")


class CounterCache:
    """The values of the counters seen so far. Used under the store's lock."""

    def __init__(self, get: Callable[[Family, bytes], bytes | None]) -> None:
        self._get = get
        self._cached: dict[bytes, int] = {}
        self._from = self._to = b""  # whatever is missing from here to before there is 0

    def settle(self, adds: Adds, writes: list[Write]) -> list[tuple[bytes, int]]:
        """Append what the additions come to; the sums to `keep` once that is written."""
        sums: list[tuple[bytes, int]] = []
        cached = self._cached
        try:
            for key, delta in adds.items():
                before = cached.get(key)
                if before is None:
                    before = 0 if self._from <= key < self._to else counted(key, self._get(META, key))
                total = before + delta
                sums.append((key, total))
                writes.append((META, key, pack_counter(total) if total else None))
        except struct.error as error:
            raise InvalidArgumentError("adds", f"a counter holds a signed 64-bit integer: {error}") from error
        return sums

    def learn(self, start: bytes, end: bytes, counters: list[tuple[bytes, int]]) -> None:
        """These are all counters from `start` to before `end`, as they are now. Half the room is left to others."""
        if len(self._cached) + len(counters) > _CACHED_MAX // 2:
            return
        self._cached.update(counters)
        if not self._to:
            self._from = self._to = start
        if start == self._to:
            self._to = end

    def forget(self) -> None:
        """Read each counter again before it is added to."""
        self._from = self._to = b""  # first: without what it says, an empty cache would be one of zeros
        self._cached.clear()

    def keep(self, sums: list[tuple[bytes, int]]) -> None:
        """The writes are in the database: remember what the counters are now."""
        cached = self._cached
        if len(cached) > _CACHED_MAX:
            self.forget()
        for key, total in sums:
            cached[key] = total


def counted(key: bytes, value: bytes | None) -> int:
    """What a counter says; one that makes no sense counts as 0."""
    if value is None:
        return 0
    try:
        return decode_counter(value)
    except ValueError as error:
        # Counts are derived data: a damaged one must not stop the queue, and the check finds that it is off.
        _log.error("counter %s starts again from 0: %s", key.hex(), error)
        return 0
