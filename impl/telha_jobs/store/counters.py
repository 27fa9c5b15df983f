"""Turns `Add` into plain writes, through a cache of counters.

Counts change with every commit and are read by almost none, so their values are kept in memory: an addition costs no
read. The cache is right because it changes only after the batch it belongs to was written, and forgets a key that is
written in any other way.
"""

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.store.layout import decode_counter, encode_counter
from telha_jobs.store.port import Add, Delete, Family, Put, Write

_CACHED_MAX = 100_000
_log = logging.getLogger("telha_jobs")

Key = tuple[Family, bytes]


class CounterCache:
    """The values of the counters seen so far. Used under the store's lock."""

    def __init__(self, get: Callable[[Family, bytes], bytes | None]) -> None:
        self._get = get
        self._cached: dict[Key, int] = {}
        self._families: set[Family] = set()

    def settle(self, writes: Sequence[Write]) -> tuple[list[Put | Delete], dict[Key, int | None]]:
        """The same writes without any `Add`, and what to `keep` once they are written (None: forget the key).

        Writes act in their order: an `Add` adds to what a `Put` or `Delete` of the same key before it left.
        """
        sums: dict[Key, int | None] = {}
        plain: list[Put | Delete] = []
        families = {write.family for write in writes if isinstance(write, Add)}
        written: dict[Key, bytes | None] = {}
        for write in writes:
            match write:
                case Add(family, key, delta):
                    sums[family, key] = self._base((family, key), sums, written) + delta
                case Put(family, key, value):
                    plain.append(write)
                    if family in families:
                        written[family, key] = value
                        sums[family, key] = None
                case Delete(family, key):
                    plain.append(write)
                    if family in families:
                        written[family, key] = None
                        sums[family, key] = None
                case _:
                    assert_never(write)
        self._forget(plain, families, sums)
        for (family, key), total in sums.items():
            if total is not None:
                plain.append(Delete(family, key) if total == 0 else Put(family, key, _encoded(total)))
        return plain, sums

    def _forget(self, plain: Sequence[Put | Delete], seen: set[Family], sums: dict[Key, int | None]) -> None:
        """Cached keys that the writes set in a family without any `Add` (the others are in `sums` already)."""
        unseen = self._families - seen
        if unseen:
            for change in plain:
                if change.family in unseen:
                    sums.setdefault((change.family, change.key), None)

    def keep(self, sums: dict[Key, int | None]) -> None:
        """The writes are in the database: remember what the counters are now."""
        if len(self._cached) > _CACHED_MAX:
            self._cached.clear()
        for key, total in sums.items():
            if total is None:
                self._cached.pop(key, None)
            else:
                self._cached[key] = total
                self._families.add(key[0])

    def _base(self, key: Key, sums: dict[Key, int | None], written: dict[Key, bytes | None]) -> int:
        total = sums.get(key)
        if total is not None:
            return total
        if key in written:
            return _decoded(key, written[key])
        cached = self._cached.get(key)
        return _decoded(key, self._get(*key)) if cached is None else cached


def _decoded(key: Key, value: bytes | None) -> int:
    if value is None:
        return 0
    try:
        return decode_counter(value)
    except ValueError as error:
        # Counts are derived data: a damaged one must not stop the queue, and the check finds that it is off.
        _log.error("counter %s in %s starts again from 0: %s", key[1].hex(), key[0].value, error)
        return 0


def _encoded(total: int) -> bytes:
    try:
        return encode_counter(total)
    except ValueError as error:
        raise InvalidArgumentError("writes", str(error)) from error
