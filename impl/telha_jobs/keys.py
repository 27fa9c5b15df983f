"""Every key on disk, byte-exact (docs/format.md). Integers are unsigned and big-endian, so that byte order is number
order.

jobs        [scope 16][state 1][priority 1][created_at 8][job id 16]              the seed's key, 42 bytes
ready       [scope 16][kind 8][priority 1][due 8][job id 16]                      pending and failed rows, 49 bytes
timers      [time 8][job id 16]                                                   what the sweep has to do, 24 bytes
ids         [job id 16]
idem        [scope 16][SHA-256 of the key, first 16 bytes]
payloads    [job id 16]
quarantine  [job id 16][the row's key in jobs 42]
meta        "kind/"[kind 8] · "count/"[scope 16][kind 8][state 1] · "last_id" · "last_served" · the store's own under
"store/"
"""

import hashlib
import struct
from functools import lru_cache
from typing import NamedTuple

from telha_jobs.types import State

STATE_BYTES: dict[State, bytes] = {
    State.PENDING: b"\x01",
    State.LEASED: b"\x02",
    State.FAILED: b"\x03",
    State.COMPLETED: b"\x04",
    State.DEAD: b"\x05",
}
_STATES: dict[int, State] = {byte[0]: state for state, byte in STATE_BYTES.items()}

JOB_KEY_BYTES = 42
ID_BYTES = 16
READY_KEY_BYTES = 49
TIMER_KEY_BYTES = 24
KIND_PREFIX = b"kind/"
COUNT_PREFIX = b"count/"
LAST_ID = b"last_id"
LAST_SERVED = b"last_served"
_SUPERSEDED = b"\x01"

_U64 = struct.Struct(">Q")
_JOB = struct.Struct(">16scBQ16s")
_READY = struct.Struct(">16sQBQ16s")
_TIMER = struct.Struct(">Q16s")
_GROUP = struct.Struct(">16sQB")
_COUNT = struct.Struct(">16sQc")

u64 = _U64.pack
group_prefix = _GROUP.pack
"""`group_prefix(scope, kind, priority)`: where the ready rows of one group begin."""
ready_key = _READY.pack
"""`ready_key(scope, kind, priority, due, job_id)`"""
timer_key = _TIMER.pack
"""`timer_key(time, job_id)`"""


class JobKey(NamedTuple):
    """A `jobs` key taken apart."""

    scope: bytes
    state: State
    priority: int
    created_at: int
    job_id: bytes


class ReadyKey(NamedTuple):
    """A `ready` key taken apart."""

    scope: bytes
    kind: int
    priority: int
    due: int
    job_id: bytes


class TimerKey(NamedTuple):
    """A `timers` key taken apart."""

    time: int
    job_id: bytes


class QuarantineKey(NamedTuple):
    """A `quarantine` key taken apart. A superseded row is never restored: its job has, or had, another row."""

    job_id: bytes
    row_key: bytes
    superseded: bool


class CountKey(NamedTuple):
    """A counter's key taken apart."""

    scope: bytes
    kind: int
    state: State


def job_key(scope: bytes, state: State, priority: int, created_at: int, job_id: bytes) -> bytes:
    """The key of a row in `jobs`."""
    return _JOB.pack(scope, STATE_BYTES[state], priority, created_at, job_id)


def parse_job_key(key: bytes) -> JobKey:
    """Take a `jobs` key apart; ValueError when it is none."""
    if len(key) != JOB_KEY_BYTES or key[16] not in _STATES:
        raise ValueError(f"not a jobs key: {key.hex()}")
    scope, state, priority, created_at, job_id = _JOB.unpack(key)
    return JobKey(scope, _STATES[state[0]], priority, created_at, job_id)


def parse_ready_key(key: bytes) -> ReadyKey:
    """Take a `ready` key apart; ValueError when it is none."""
    if len(key) != READY_KEY_BYTES:
        raise ValueError(f"not a ready key: {key.hex()}")
    return ReadyKey(*_READY.unpack(key))


def parse_timer_key(key: bytes) -> TimerKey:
    """Take a `timers` key apart; ValueError when it is none."""
    if len(key) != TIMER_KEY_BYTES:
        raise ValueError(f"not a timers key: {key.hex()}")
    return TimerKey(*_TIMER.unpack(key))


def idem_key(scope: bytes, key: str) -> bytes:
    """Where an idempotency key of a scope points to its job."""
    return scope + hashlib.sha256(key.encode("utf-8")).digest()[:16]


def quarantine_key(row_key: bytes, *, superseded: bool = False) -> bytes:
    """Where a row of `jobs` is kept that must not run: one that cannot be read, or (`superseded`) one whose job has
    another row.
    """
    return quarantined_id(row_key[-ID_BYTES:]) + row_key + (_SUPERSEDED if superseded else b"")


def quarantined_id(key: bytes) -> bytes:
    """The job id that a key of `quarantine` begins with; a damaged one is filled up, so that it can be listed."""
    return key[:ID_BYTES].rjust(ID_BYTES, b"\0")


def parse_quarantine_key(key: bytes) -> QuarantineKey:
    """Take a `quarantine` key apart. There is no malformed one: what is kept there may be anything."""
    row_key = key[ID_BYTES:]
    superseded = len(row_key) == JOB_KEY_BYTES + 1 and row_key.endswith(_SUPERSEDED)
    return QuarantineKey(quarantined_id(key), row_key[:JOB_KEY_BYTES] if superseded else row_key, superseded)


def kind_key(number: int) -> bytes:
    """Where the name of an interned kind stands."""
    return KIND_PREFIX + u64(number)


@lru_cache(maxsize=65_536)
def count_key(scope: bytes, kind: int, state: State) -> bytes:
    """The counter of the jobs of one scope, kind and state."""
    return COUNT_PREFIX + _COUNT.pack(scope, kind, STATE_BYTES[state])


def parse_count_key(key: bytes) -> CountKey:
    """Take a counter's key apart; ValueError when it is none."""
    body = key[len(COUNT_PREFIX) :]
    if len(body) != _COUNT.size or body[-1] not in _STATES:
        raise ValueError(f"not a counter key: {key.hex()}")
    scope, kind, state = _COUNT.unpack(body)
    return CountKey(scope, kind, _STATES[state[0]])


def parse_place(value: bytes, job_id: bytes) -> tuple[bytes, int]:
    """A value of `ids`: the row's key in `jobs`, and its kind; ValueError when it is none, or of another job."""
    if len(value) != JOB_KEY_BYTES + _U64.size or value[16] not in _STATES or value[26:JOB_KEY_BYTES] != job_id:
        raise ValueError(f"not a value of ids: {value.hex()}")
    return value[:JOB_KEY_BYTES], parse_u64(value[JOB_KEY_BYTES:])


def parse_u64(value: bytes) -> int:
    """An 8-byte big-endian number; ValueError when it is none."""
    if len(value) != _U64.size:
        raise ValueError(f"not an 8-byte number: {value.hex()}")
    number: int = _U64.unpack(value)[0]
    return number


def after(prefix: bytes) -> bytes | None:
    """The first key behind every key that starts with `prefix`; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
