"""Times and durations as people write and read them. All is UTC and whole milliseconds; no clock is read here."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_YEAR_MS = 365 * _UNITS_MS["d"] + _UNITS_MS["d"] // 4
_DURATION = re.compile(r"(?:\d{1,15}(?:ms|[smhd]))+")
_PART = re.compile(r"(\d+)(ms|[smhd])")


def absolute(at_ms: int, *, precise: bool = True) -> str:
    """`2025-10-09 08:07:06.543`, or without the milliseconds."""
    moment = _EPOCH + timedelta(milliseconds=at_ms)
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")  # the C library does not pad small years
    return f"{text}.{at_ms % 1_000:03d}" if precise else text


def relative(at_ms: int, now_ms: int) -> str:
    """`3 m ago`, `in 20 s`, `now`: rounded down to its largest unit."""
    distance = at_ms - now_ms
    if abs(distance) < 1_000:
        return "now"
    return f"in {brief(distance)}" if distance > 0 else f"{brief(-distance)} ago"


def brief(duration_ms: int) -> str:
    """A duration of 0 or more in its largest unit: `250 ms`, `20 s`, `3 m`, `5 h`, `2 d`, `4 y`."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms >= _YEAR_MS:
        return f"{duration_ms // _YEAR_MS} y"
    unit = next(unit for unit in _UNITS_MS if duration_ms >= _UNITS_MS[unit])
    return f"{duration_ms // _UNITS_MS[unit]} {unit}"


def parse_duration(text: str) -> int:
    """Milliseconds of `90s`, `1h30m`, `250ms`. Raises `ValueError` with the rule."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError("must be a number with its unit: 250ms, 90s, 5m, 1h30m, 2d")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def parse_time(text: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 time with its zone, or of such a number. Raises `ValueError`."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    rule = "must be a time with its zone, such as 2030-01-31T08:00:00Z, or milliseconds since the epoch"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(rule) from None
    if moment.tzinfo is None:
        raise ValueError(rule)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
