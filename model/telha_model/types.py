"""Values and settings of the model: plain immutable data, nothing else.

Times are integer milliseconds since the Unix epoch. A scope is a small integer whose order stands for the byte order of
the real scope identifier; scope 0 is the nil scope of system jobs. Payloads, results and progress are opaque hashable
values: the model only asks whether two of them are equal, so whoever feeds it makes values of different types unequal.
"""

from collections.abc import Hashable
from enum import Enum
from typing import Final, NamedTuple

TIME_MS_MAX: Final = 253_402_300_799_999
DURATION_MS_MAX: Final = 315_576_000_000  # ten years of 365.25 days
NIL_SCOPE: Final = 0
KIND_CHARS_MAX: Final = 128
WORKER_CHARS_MAX: Final = 256
KEY_BYTES_MAX: Final = 1_024
HEADERS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 16_384
ENQUEUE_MANY_MAX: Final = 10_000
FOLLOW_UPS_MAX: Final = 1_000
PRIORITY_MAX: Final = 255
EVENTS_PER_ATTEMPT: Final = 4


class Oversize(Enum):
    """The one value that stands for a payload, result or progress beyond its limit; it is refused as an argument."""

    OVERSIZE = "oversize"


OVERSIZE: Final = Oversize.OVERSIZE

Value = Hashable

make: Final = tuple.__new__
"""Builds a named tuple from its fields, in order, at a third of the cost of calling the class. Steps are taken by the
million.
"""


class Ref(NamedTuple):
    """A token: the job it names (which may be unknown) and the generation it was granted under."""

    job_id: int
    generation: int


class NewJob(NamedTuple):
    """What a caller asks to be created; `headers` are pairs of strings."""

    scope: int
    kind: str
    payload: Value = None
    priority: int = 128
    run_at_ms: int | None = None
    delay_ms: int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    payload_version: int = 1


class Backoff(NamedTuple):
    """The queue-wide back-off schedule."""

    base_ms: int = 10_000
    factor: int = 4
    cap_ms: int = 3_600_000


class KindPolicy(NamedTuple):
    """Overrides for a kind or a family of kinds; None means the queue-wide value."""

    lease_ttl_ms: int | None = None
    max_attempts: int | None = None
    backoff_base_ms: int | None = None
    backoff_factor: int | None = None
    backoff_cap_ms: int | None = None
    max_lease_age_ms: int | None = None


class Config(NamedTuple):
    """The settings that decide what the queue does; `kinds` pairs a kind or a family (`ingest:*`) with its policy."""

    lease_ttl_ms: int = 300_000
    max_attempts: int = 5
    backoff: Backoff = Backoff()
    kinds: tuple[tuple[str, KindPolicy], ...] = ()
    max_lease_age_ms: int | None = None
    retention_completed_ms: int | None = 604_800_000
    retention_dead_ms: int | None = None
    reason_chars_max: int = 8_192
    events_max: int = 256
    lease_batch_max: int = 10_000


def add_ms(now_ms: int, duration_ms: int) -> int:
    """The instant `duration_ms` after `now_ms`, never beyond the last representable one."""
    total = now_ms + duration_ms
    return total if total < TIME_MS_MAX else TIME_MS_MAX


def matches(pattern: str, kind: str) -> bool:
    """Whether an exact kind or a family (`ingest:*`) covers `kind`."""
    return kind == pattern or (pattern.endswith(":*") and kind.startswith(pattern[:-1]))
