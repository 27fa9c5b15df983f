"""Job ids: UUID version 7 that rise strictly in commit order, also within a millisecond and across reopening.

48 bits  milliseconds          4 bits  version 7
12 bits  counter, high part    2 bits  variant
10 bits  counter, low part    16 bits  SHA-256 of the scope (routes an id alone)     36 bits  random
"""

import hashlib
import random
import struct

_HALVES = struct.Struct(">QQ")
_COUNTER_BITS = 22
_COUNTER_MAX = (1 << _COUNTER_BITS) - 1
_SCOPES_MAX = 4_096


class JobIds:
    """Makes ids above the last one that was committed. Not thread-safe: the engine's lock guards it."""

    def __init__(self, last: bytes | None) -> None:
        self.last = last
        self._random_bits = random.Random().getrandbits
        self._ms, self._counter = (-1, 0) if last is None else _parse(last)
        self._time_bits = _time_bits(self._ms)
        self._scope_bits: dict[bytes, int] = {}  # of scopes seen lately

    def make(self, now_ms: int, scope: bytes) -> bytes:
        """The next id. When a millisecond's counter is used up the id borrows from the next one."""
        if now_ms > self._ms:
            self._begin(now_ms)
        elif self._counter < _COUNTER_MAX:
            self._counter += 1
        else:
            self._begin(self._ms + 1)
        counter = self._counter
        low = self._scope_bits.get(scope) or self._see(scope)
        low |= (counter & 0x3FF) << 52 | self._random_bits(36)
        self.last = made = _HALVES.pack(self._time_bits | counter >> 10, low)
        return made

    def _begin(self, ms: int) -> None:
        self._ms, self._counter, self._time_bits = ms, 0, _time_bits(ms)

    def _see(self, scope: bytes) -> int:
        if len(self._scope_bits) == _SCOPES_MAX:
            self._scope_bits.clear()
        bits = self._scope_bits[scope] = _scope_bits(scope)
        return bits


def _time_bits(ms: int) -> int:
    """What the high half holds whatever the counter: the time, and the version."""
    return (ms & (1 << 48) - 1) << 16 | 7 << 12


def _scope_bits(scope: bytes) -> int:
    """What the low half holds whatever the counter: the variant, and where the scope routes to."""
    return 0b10 << 62 | int.from_bytes(hashlib.sha256(scope).digest()[:2], "big") << 36


def _parse(job_id: bytes) -> tuple[int, int]:
    number = int.from_bytes(job_id, "big")
    return number >> 80, (number >> 64 & 0xFFF) << 10 | number >> 52 & 0x3FF
