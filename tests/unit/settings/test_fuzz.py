"""Whatever the sources hold, settings come of it or a `SettingsError`; and what is shown is read again."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telha_jobs.config import check_kind_or_family
from telha_jobs.rules import DURATION_MAX_MS
from telha_jobs.settings import Flag, Settings, SettingsError, load
from telha_jobs.settings.table import KIND_FIELDS, SETTINGS, dotted, parsed_key, variable
from telha_jobs.settings.values import duration_ms, shown_duration, shown_size, size_bytes

KINDS = st.from_regex(r"[A-Za-z0-9_.:/+\-]{1,20}(:\*)?", fullmatch=True)
VALUES = st.one_of(
    st.sampled_from(
        ['"300s"', '"forever"', '"off"', "true", "0", "-1", "1.5", "[]", "{}", '"x"', "1979-05-27", "9" * 40]
    ),
    st.integers().map(str),
)
LINES = st.one_of(
    st.builds("{} = {}".format, st.sampled_from([dotted(key) for key in SETTINGS]), VALUES),
    st.builds("jobs.kinds.'{}'.{} = {}".format, KINDS, st.sampled_from([dotted(key) for key in KIND_FIELDS]), VALUES),
    st.sampled_from(
        ["[jobs]", "[server]", "[jobs.backoff]", "[[jobs]]", "# comment", "x = 1", '"""', "a.b.c = {", "\r"]
    ),
    st.text(max_size=20),
)


def taken(text: str, environment: dict[str, str] | None = None, flags: tuple[Flag, ...] = ()) -> Settings | None:
    """The settings; None when they were refused as they should be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telha.toml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            return load(path, environment=environment or {}, flags=flags)
        except SettingsError:
            return None


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_any_file(text: str) -> None:
    """Lines that are settings, or nearly."""
    taken(text)


@given(st.dictionaries(st.sampled_from([*map(variable, SETTINGS), "TELHA_JOBS_KINDS"]), VALUES | st.text(), max_size=4))
def test_any_environment(environment: dict[str, str]) -> None:
    """Values that are right, or not."""
    taken("", {name: value for name, value in environment.items() if "\0" not in value})


@given(st.text(max_size=30), VALUES | st.text(max_size=10))
def test_any_flag(key: str, value: str) -> None:
    """Keys that are right, or not."""
    taken("", flags=(Flag(key, value, "--set"),))


@pytest.mark.parametrize("text", ["jobs.lease_ttl = " + "1" * 5_000, "a = " + "[" * 5_000, "a." * 5_000 + "a = 1"])
def test_what_exhausts_a_parser(text: str) -> None:
    """Too many digits, too deep nesting, too long a key."""
    assert taken(text) is None


@given(st.integers(min_value=0, max_value=DURATION_MAX_MS))
def test_durations_are_read_as_shown(duration: int) -> None:
    """Every duration."""
    assert duration_ms(shown_duration(duration)) == duration


@given(st.integers(min_value=0, max_value=1 << 40))
def test_sizes_are_read_as_shown(size: int) -> None:
    """Every size."""
    assert size_bytes(shown_size(size)) == size


@given(KINDS, st.sampled_from(list(KIND_FIELDS)))
def test_keys_are_read_as_shown(kind: str, field: Any) -> None:
    """The key of every kind's setting."""
    try:
        check_kind_or_family("kind", kind)
    except ValueError:
        return
    key = ("jobs", "kinds", kind, *field)
    assert parsed_key(dotted(key)) == key


@given(KINDS, st.integers(min_value=1, max_value=5))
def test_a_kind_s_line_is_found(kind: str, blank: int) -> None:
    """Whatever the kind is called."""
    try:
        check_kind_or_family("kind", kind)
    except ValueError:
        return
    key = dotted(("jobs", "kinds", kind))
    found = taken("\n" * blank + f"[{key}]\nmax_attempts = 3\n")
    assert found is not None
    assert found.origin(f"{key}.max_attempts").line == blank + 2
