"""The limits of the public interface, and the checks for single values that arguments and configuration share.

A check raises `InvalidArgumentError` with the field's name and the rule; `bool` is never an integer here.
"""

from typing import Any, TypeGuard

from telha_jobs.errors import InvalidArgumentError

TIME_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: no time is later; computed times stop there."""
DURATION_MAX_MS = 315_576_000_000
"""Ten years."""
PRIORITY_MAX = 255
KIND_CHARS_MAX = 128
KINDS_MAX = 65_536
WORKER_CHARS_MAX = 256
KEY_BYTES_MAX = 1_024
HEADERS_MAX = 64
HEADERS_BYTES_MAX = 16_384
NESTING_MAX = 100
ENQUEUE_MANY_MAX = 10_000
FOLLOW_UPS_MAX = 1_000
PAGE_MAX = 10_000
GENERATION_MAX = 2**63 - 1
VERSION_MAX = 2**31 - 1
EVENTS_PER_ATTEMPT = 4
EVENTS_BESIDES = 4
"""A log must hold `EVENTS_PER_ATTEMPT · max_attempts + EVENTS_BESIDES` events, so that every attempt is told."""


def is_int(value: Any) -> TypeGuard[int]:
    """Whether the value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A refused value for a message: the beginning of its `repr`, or its type where Python will not print it."""
    try:
        return repr(value)[:140]
    except Exception:  # noqa: BLE001  ints of thousands of digits and foreign classes raise; the refusal matters more
        return f"a value of type {type(value).__name__}"


def check_int(field: str, value: Any, low: int, high: int) -> int:
    """The value, if it is an int from `low` to `high`."""
    if type(value) is not int and not is_int(value):
        raise InvalidArgumentError(field, f"must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidArgumentError(field, f"must be from {low} to {high}, not {shown(int(value))}")
    return int(value)


def check_optional_int(field: str, value: Any, low: int, high: int) -> int | None:
    """The value, if it is None or an int from `low` to `high`."""
    return None if value is None else check_int(field, value, low, high)


def check_text(field: str, value: Any, *, chars_max: int) -> str:
    """The value, if it is a str of 1 to `chars_max` characters that UTF-8 can carry."""
    if not isinstance(value, str):
        raise InvalidArgumentError(field, f"must be a str, not {type(value).__name__}")
    text = plain(value)
    if not 1 <= len(text) <= chars_max:
        raise InvalidArgumentError(field, f"must have 1 to {chars_max} characters, not {len(text)}")
    check_unicode(field, text)
    return text


def plain(value: str) -> str:
    """The characters alone: `str()` of a str enum would give the member's name instead."""
    return value if type(value) is str else str.__str__(value)


def check_unicode(field: str, value: str) -> None:
    """Refuse lone surrogates: they have no UTF-8."""
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            field, f"must be Unicode text; character {error.start} is a lone surrogate"
        ) from None


def later(now_ms: int, duration_ms: int) -> int:
    """`now_ms + duration_ms`, but never after `TIME_MAX_MS`."""
    moment = now_ms + duration_ms
    if moment > TIME_MAX_MS:  # no call of min: every move asks
        return TIME_MAX_MS
    return moment
