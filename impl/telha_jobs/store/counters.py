"""Turns `Add` into plain writes, through a cache of counters.

Counts change with every commit and are read by almost none, so their values are kept in memory: an addition costs no
read. The cache is right because a counter is written by `Add` only, and it changes after the batch was written.
"""

import logging
import struct
from collections.abc import Callable, Sequence

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.store.layout import decode_counter, pack_counter
from telha_jobs.store.port import Add, Delete, Family, Put, Write, make_delete, make_put

_CACHED_MAX = 100_000
_log = logging.getLogger("telha_jobs")

Key = tuple[Family, bytes]


class CounterCache:
    """The values of the counters seen so far. Used under the store's lock."""

    def __init__(self, get: Callable[[Family, bytes], bytes | None]) -> None:
        self._get = get
        self._cached: dict[Key, int] = {}

    def settle(self, writes: Sequence[Write]) -> tuple[list[Put | Delete], dict[Key, int]]:
        """The same writes without any `Add`, and the sums to `keep` once they are written."""
        plain: list[Put | Delete] = []
        sums: dict[Key, int] = {}
        for write in writes:
            if not isinstance(write, Add):
                plain.append(write)
                continue
            family, name, delta = write
            key = (family, name)
            before = sums[key] if key in sums else self._cached.get(key)
            sums[key] = (self._value(key) if before is None else before) + delta
        try:
            for (family, name), total in sums.items():
                plain.append(make_put((family, name, pack_counter(total))) if total else make_delete((family, name)))
        except struct.error as error:
            raise InvalidArgumentError("writes", f"a counter holds a signed 64-bit integer: {error}") from error
        return plain, sums

    def keep(self, sums: dict[Key, int]) -> None:
        """The writes are in the database: remember what the counters are now."""
        if len(self._cached) > _CACHED_MAX:
            self._cached.clear()
        self._cached.update(sums)

    def _value(self, key: Key) -> int:
        return counted(key, self._get(*key))


def counted(key: Key, value: bytes | None) -> int:
    """What a counter says; one that makes no sense counts as 0."""
    if value is None:
        return 0
    try:
        return decode_counter(value)
    except ValueError as error:
        # Counts are derived data: a damaged one must not stop the queue, and the check finds that it is off.
        _log.error("counter %s in %s starts again from 0: %s", key[1].hex(), key[0].value, error)
        return 0
