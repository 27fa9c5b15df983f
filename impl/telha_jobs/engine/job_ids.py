"""Job ids: UUID version 7 that rise strictly in commit order, also within a millisecond and across reopening.

48 bits  milliseconds          4 bits  version 7
12 bits  counter, high part    2 bits  variant
10 bits  counter, low part    16 bits  SHA-256 of the scope (routes an id alone)     36 bits  random
"""

import hashlib
import random
import struct
from functools import lru_cache

_HALVES = struct.Struct(">QQ")
_COUNTER_BITS = 22
_COUNTER_MAX = (1 << _COUNTER_BITS) - 1


class JobIds:
    """Makes ids above the last one that was committed. Not thread-safe: the engine's lock guards it."""

    def __init__(self, last: bytes | None) -> None:
        self.last = last
        self._random_bits = random.Random().getrandbits
        self._ms, self._counter = (-1, 0) if last is None else _parse(last)

    def make(self, now_ms: int, scope: bytes) -> bytes:
        """The next id. When a millisecond's counter is used up the id borrows from the next one."""
        if now_ms > self._ms:
            self._ms, self._counter = now_ms, 0
        elif self._counter < _COUNTER_MAX:
            self._counter += 1
        else:
            self._ms, self._counter = self._ms + 1, 0
        counter = self._counter
        high = (self._ms & (1 << 48) - 1) << 16 | 7 << 12 | counter >> 10
        low = _fixed_bits(scope) | (counter & 0x3FF) << 52 | self._random_bits(36)
        self.last = made = _HALVES.pack(high, low)
        return made


@lru_cache(maxsize=4_096)
def _fixed_bits(scope: bytes) -> int:
    """What the low half holds whatever the counter: the variant, and where the scope routes to."""
    return 0b10 << 62 | int.from_bytes(hashlib.sha256(scope).digest()[:2], "big") << 36


def _parse(job_id: bytes) -> tuple[int, int]:
    number = int.from_bytes(job_id, "big")
    return number >> 80, (number >> 64 & 0xFFF) << 10 | number >> 52 & 0x3FF
