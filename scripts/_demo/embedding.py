"""A small embedding: feature hashing, so that the same text gives the same vector everywhere and for ever.

Each word adds or takes away one at a place that its CRC chooses; the vector is then given length one. Documents that
share words point the same way, which is all that an embedding has to do here.
"""

import math
import re
import zlib
from typing import Final

DIMENSIONS: Final = 64
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def embed(text: str) -> list[float]:
    """The text as `DIMENSIONS` numbers of length one together; all zero when it has no words."""
    sums = [0] * DIMENSIONS
    for word in _WORD.findall(text.lower()):
        code = zlib.crc32(word.encode())
        sums[code % DIMENSIONS] += 1 if code & 0x8000_0000 else -1
    length = math.sqrt(sum(value * value for value in sums))
    return [round(value / length, 6) if length else 0.0 for value in sums]
