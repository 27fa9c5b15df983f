"""Carried values as JSON and back."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telha_jobs.json_form import NotJSONError, dumps, loads

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.text() | st.integers(-(2**63), 2**64 - 1) | st.sampled_from(["$bytes", "$map", "$float"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)


def typed(value: Any) -> Any:
    """The value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(VALUES)
def test_every_payload_survives_json_and_back(value: Any) -> None:
    """What a job can carry comes back type for type from its JSON form."""
    assert typed(loads(dumps(value))) == typed(value)


@given(VALUES)
def test_json_is_printable_ascii(value: Any) -> None:
    """No character of the JSON form can command a terminal."""
    text = dumps(value)
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x00\xff", '{"$bytes": "AP8="}'),
        (-math.inf, '{"$float": "-inf"}'),
        ({1: "a", "1": "b"}, '{"$map": [[1, "a"], ["1", "b"]]}'),
        ({"$bytes": 1}, '{"$map": [["$bytes", 1]]}'),
        ({"$ref": 1}, '{"$ref": 1}'),
    ],
)
def test_what_json_lacks_has_a_documented_form(value: Any, text: str) -> None:
    """Bytes, infinities and maps with other keys have the forms that the module describes."""
    assert dumps(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "1e999",
        '{"a": 1, "a": 2}',
        '{"$bytes": 5}',
        '{"$bytes": "*"}',
        '{"$float": "nan"}',
        '{"$map": {}}',
        '{"$map": [[1]]}',
        '{"$map": [[true, 1]]}',
        '{"$map": [[1, 1], [1, 2]]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    """Text that JSON does not have, keys given twice, and misused forms are refused with a reason."""
    with pytest.raises(NotJSONError, match=r".+"):
        loads(text)
