r"""Carried values as JSON and back, without loss: what JSON lacks is an object with one key that begins with `$`.

    b"\x00"           {"$bytes": "AA=="}          base64
    inf              {"$float": "inf"}           or "-inf"
    {1: "a"}         {"$map": [[1, "a"]]}        a map with a key that is no str
    {"$map": []}     {"$map": [["$map", []]]}    a map that would read as one of these

JSON text made here is ASCII: nothing in it can command a terminal. Recursion is bounded, because a payload is at most
100 containers deep.
"""

import base64
import json
import math
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any
from uuid import UUID

_BYTES, _FLOAT, _MAP = "$bytes", "$float", "$map"
_MARKS = frozenset({_BYTES, _FLOAT, _MAP})


class NotJSONError(ValueError):
    """The text is no JSON, or no JSON that this program takes; `str()` says why."""


def dumps(value: Any) -> str:
    """One line of JSON for a value, or for a frozen dataclass of the public interface: its fields, by name."""
    return json.dumps(to_json(value), allow_nan=False)


def loads(text: str) -> Any:
    """The value that a JSON text stands for. Raises `NotJSONError`; what a payload may not hold, the queue refuses."""
    try:
        return json.loads(text, object_pairs_hook=_from_pairs, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise NotJSONError("it nests too deep") from None
    except ValueError as error:
        raise NotJSONError(str(error)) from None


def to_json(value: Any) -> Any:
    """The value in terms of what JSON has."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_FLOAT: str(value)}
        case bytes():
            return {_BYTES: base64.b64encode(value).decode("ascii")}
        case list() | tuple():
            return [to_json(item) for item in value]
        case dict():
            return _to_object(value)
        case UUID():
            return str(value)
        case Enum():
            return to_json(value.value)
        case _:
            return {one.name: to_json(getattr(value, one.name)) for one in fields(value)}


def _to_object(value: dict[Any, Any]) -> dict[str, Any]:
    plain = all(isinstance(key, str) for key in value)
    if plain and not (len(value) == 1 and _MARKS.intersection(value)):
        return {key: to_json(item) for key, item in value.items()}
    return {_MAP: [[key, to_json(item)] for key, item in value.items()]}


def _from_pairs(pairs: list[tuple[str, Any]]) -> Any:
    if len(pairs) == 1:
        [(mark, given)] = pairs
        if mark == _BYTES:
            return _bytes(given)
        if mark == _FLOAT:
            return _infinity(given)
        if mark == _MAP:
            return _unique(_map_pairs(given))
    return _unique(pairs)


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, item in pairs:
        if key in found:
            raise NotJSONError(f"the key {key!r} stands twice in one object")
        found[key] = item
    return found


def _map_pairs(given: Any) -> list[tuple[Any, Any]]:
    if not isinstance(given, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        raise NotJSONError(f'"{_MAP}" holds a list of pairs [key, value]')
    if not all(type(key) in (str, int) for key, _ in given):
        raise NotJSONError(f'the keys of a "{_MAP}" are text or whole numbers')
    return [(key, item) for key, item in given]


def _bytes(given: Any) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (ValueError, TypeError):
        raise NotJSONError(f'"{_BYTES}" holds bytes as base64 text') from None


def _infinity(given: Any) -> float:
    if given not in ("inf", "-inf"):
        raise NotJSONError(f'"{_FLOAT}" holds "inf" or "-inf"')
    return float(given)


def _no_constant(name: str) -> Any:
    raise NotJSONError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJSONError(f"the number {text[:40]} is too large for a float")
    return number
