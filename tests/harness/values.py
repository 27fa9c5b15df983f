"""Names and values on both sides: what the model calls 1, 2, 3 and what the queue is given for it.

- A scope's number becomes sixteen bytes of that number, so that the order of numbers is the order of bytes; 0 is the
  nil scope.
- Job numbers rise in creation order, as job ids do; a job gets its number when its id is first seen in a receipt.
- A payload, result or progress is a small number in the model. `REAL_VALUES` holds what it stands for: values that are
  easily taken for one another (1, True, 1.0 and "1"), a map whose order varies, one too large for its row.
"""

from typing import Any, Final
from uuid import UUID

import msgpack

from telha_model.types import OVERSIZE, Value

LARGE: Final = 8
"""The model's number for a value that is not kept in its row."""
MAP: Final = 11
"""The model's number for a map that is given in one order of keys, then in the other."""
VALUE_BYTES_MAX: Final = 1_024
_TOO_LARGE: Final = "z" * (VALUE_BYTES_MAX + 1)

REAL_VALUES: Final[dict[Value, Any]] = {
    None: None,
    0: False,
    1: 1,
    2: True,
    3: 1.0,
    4: "1",
    5: {"done": 5, 2: [None, b"\x01"]},
    6: [1],
    7: {"step": {"of": 7}},
    LARGE: "y" * 600,
    9: {1: "a", "1": "b"},
    10: 0,
    MAP: {"a": 1, "b": 2},
    12: b"1",
}
_OTHER_ORDER: Final = {"b": 2, "a": 1}


def packed(value: Any) -> bytes:
    """A value as msgpack."""
    return bytes(msgpack.packb(value, use_bin_type=True))


_BY_BYTES: Final[dict[bytes, Value]] = {packed(real): value for value, real in REAL_VALUES.items()} | {
    packed(_OTHER_ORDER): MAP
}


class Foreign(tuple[bytes, ...]):
    """Bytes that stand for no value the model knows; equal to nothing of the model's."""

    __slots__ = ()


def value_of(encoded: bytes) -> Value:
    """The model's name of a value as msgpack."""
    return _BY_BYTES[encoded] if encoded in _BY_BYTES else Foreign((encoded,))


def scope_uuid(scope: int) -> UUID:
    """The real scope of a number from 0 to 255."""
    return UUID(bytes=bytes([scope]) * 16)


def scope_number(scope: bytes) -> int:
    """The model's number of a scope; -1 for a scope nobody was given."""
    return scope[0] if scope == scope[:1] * 16 else -1


class Names:
    """Job numbers and job ids of one run, and the turn of the map's order."""

    def __init__(self) -> None:
        self._ids: dict[int, UUID] = {}
        self._numbers: dict[bytes, int] = {}
        self._strangers: dict[bytes, int] = {}
        self._maps = 0

    @property
    def newest(self) -> int:
        """The highest number given."""
        return len(self._ids)

    def job_id(self, number: int) -> UUID:
        """The id of a number; one of its own for a job that never existed."""
        known = self._ids.get(number)
        if known is None:
            known = UUID(int=(1 << 127) + number)
            self._strangers[known.bytes] = number
        return known

    def created(self, job_id: UUID) -> int:
        """The number of a job that a receipt calls created; a new one unless this is the receipt of a repeat."""
        number = self._numbers.get(job_id.bytes)
        if number is None:
            number = len(self._ids) + 1
            self._ids[number] = job_id
            self._numbers[job_id.bytes] = number
        return number

    def number(self, job_id: bytes) -> int:
        """The number of an id; -1 for an id that no receipt ever named."""
        return self._numbers.get(job_id, self._strangers.get(job_id, -1))

    def value(self, value: Value) -> Any:
        """What the queue is given for a value of the model."""
        if value is OVERSIZE:
            return _TOO_LARGE
        if value == MAP:
            self._maps += 1
            return dict(_OTHER_ORDER if self._maps % 2 else REAL_VALUES[MAP])
        return REAL_VALUES[value]
