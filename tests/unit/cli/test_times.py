"""Times and durations as people write and read them."""

import pytest

from telha_jobs.cli.times import absolute, parse_duration, parse_time, relative
from telha_jobs.rules import TIME_MAX_MS

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("distance_ms", "text"),
    [
        (0, "now"),
        (-999, "now"),
        (20_000, "in 20 s"),
        (-59_999, "59 s ago"),
        (-180_000, "3 m ago"),
        (5 * 3_600_000, "in 5 h"),
        (-2 * 86_400_000, "2 d ago"),
        (400 * 86_400_000, "in 1 y"),
    ],
)
def test_a_relative_time_has_its_largest_unit(distance_ms: int, text: str) -> None:
    """A distance from now is told in its largest unit, rounded down."""
    assert relative(NOW_MS + distance_ms, NOW_MS) == text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (1_700_000_000_042, "2023-11-14 22:13:20.042"),
        (TIME_MAX_MS, "9999-12-31 23:59:59.999"),
    ],
)
def test_an_absolute_time_is_utc_to_the_millisecond(at_ms: int, text: str) -> None:
    """Every time a queue can hold is shown in UTC."""
    assert absolute(at_ms) == text


@pytest.mark.parametrize(
    ("text", "duration_ms"), [("250ms", 250), ("90s", 90_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("0s", 0)]
)
def test_a_duration_is_numbers_with_units(text: str, duration_ms: int) -> None:
    """Numbers with units add up."""
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "5 m", "-5m", "1.5h", "m", "5x", "٣s5"])
def test_a_duration_without_unit_is_refused(text: str) -> None:
    """Anything but whole numbers with units is refused."""
    with pytest.raises(ValueError, match="with its unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20.042+01:00", NOW_MS + 42),
        ("1700000000000", NOW_MS),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_a_time_has_a_zone_or_is_milliseconds(text: str, at_ms: int) -> None:
    """ISO 8601 with a zone and milliseconds since the epoch are taken."""
    assert parse_time(text) == at_ms


@pytest.mark.parametrize("text", ["", "2023-11-14T22:13:20", "2023-11-14", "tomorrow", "-5"])
def test_a_time_without_zone_is_refused(text: str) -> None:
    """A time that could mean several moments is refused."""
    with pytest.raises(ValueError, match="with its zone"):
        parse_time(text)
