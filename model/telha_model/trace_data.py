"""Traces as plain data (what JSON can say).

The data follows from the types of operations, replies and settings, field by field, so that no word of the model can be
forgotten here. Reading is strict: an unknown word, version or field, a missing field, a value of the wrong type and a
trace without steps are a `TraceError` that says where.

- Whatever is one of several types carries its word in `is`: `{"is": "complete", "ref": "$t0"}`.
- Fields that have a default may be left out, and are when they have it; of settings every field is written, so that a
  trace keeps its meaning when a default moves.
- A token is `"$t3"`, `"$t3+1"` or `"$t3-1"`, or `{"job": 4, "generation": 1}` where no grant names it.
- A value (payload, result, progress) is null, a whole number, or `"oversize"` for one beyond its limit.
"""

import re
from collections.abc import Hashable, Mapping
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from telha_model.trace import FORMAT, SPEC_VERSIONS, Origin, Step, Token, Trace, TraceError, Verdict
from telha_model.types import OVERSIZE, Backoff, Config, KindPolicy, Ref

Data = Any
"""What `json` reads and writes."""

OVERSIZE_WORD: Final = "oversize"
TOKEN: Final = r"\$t(0|[1-9][0-9]*)([+-][1-9][0-9]*)?"
WORD: Final = "is"
_WHOLE: Final = (Config, Backoff, KindPolicy, Origin)
"""Written with every field."""


class Shape(Enum):
    """The kinds of types that have a form in a trace."""

    SCALAR = "a string, whole number or boolean"
    VALUE = "what the model calls a value"
    TOKEN = "a lease token"
    WORDS = "one of some words"
    FIELDS = "named fields"
    SEVERAL = "any number of parts of one type"
    FIXED = "parts of given types"
    SET = "a set"
    OPTIONAL = "something or null"
    ONE_OF = "one of several types with fields, or null"


# -- the whole


def to_data(trace: Trace) -> dict[str, Data]:
    """The trace as data; `TraceError` when a value in it has no place in a trace."""
    return {
        "format": FORMAT,
        "spec": trace.spec,
        "title": trace.title,
        "origin": write(Origin, trace.origin),
        "verdict": write(Verdict, trace.verdict),
        "config": write(Config, trace.config),
        "start_ms": trace.start_ms,
        "steps": [write(Step, step) for step in trace.steps],
    }


def from_data(data: Data) -> Trace:
    """The trace that data stands for; `TraceError` when it stands for none."""
    check_versions(data)
    fields = dict(data)
    _names(fields, {"format", "spec", "title", "origin", "verdict", "config", "start_ms", "steps"}, set(), "trace")
    steps = read(tuple[Step, ...], fields["steps"], "steps")
    if not steps:
        raise TraceError("steps: a trace without steps proves nothing")
    return Trace(
        title=read(str, fields["title"], "title"),
        origin=read(Origin, fields["origin"], "origin"),
        verdict=read(Verdict, fields["verdict"], "verdict"),
        config=read(Config, fields["config"], "config"),
        start_ms=read(int, fields["start_ms"], "start_ms"),
        steps=steps,
        spec=fields["spec"],
    )


def check_versions(data: Data) -> None:
    """Refuse a format or a specification that this reader does not know, before anything else is read."""
    fields = _object(data, "trace")
    form, spec = fields.get("format"), fields.get("spec")
    if type(form) is not int or form != FORMAT:
        raise TraceError(f"format: {form!r} is unknown, this reader knows {FORMAT}")
    if spec not in SPEC_VERSIONS:
        raise TraceError(f"spec: {spec!r} is unknown, this reader knows {', '.join(SPEC_VERSIONS)}")


# -- types


@cache
def shape(hint: Any) -> Shape:
    """The kind of a type; TypeError for one that has no form in a trace."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in (str, int, bool):
        return Shape.SCALAR
    if hint is Hashable:
        return Shape.VALUE
    if hint is Ref:
        return Shape.TOKEN
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return Shape.WORDS
    if hasattr(hint, "_fields"):
        return Shape.FIELDS
    if origin is tuple:
        return Shape.SEVERAL if parts[-1] is Ellipsis else Shape.FIXED
    if origin is frozenset:
        return Shape.SET
    if origin in (Union, UnionType):
        members = [part for part in parts if part is not NoneType]
        if all(shape(member) is Shape.FIELDS for member in members):
            return Shape.ONE_OF
        if len(members) == 1:
            return Shape.OPTIONAL
    raise TypeError(f"{hint!r} has no form in a trace")


@cache
def fields_of(kind: Any) -> Mapping[str, Any]:
    """The types of the fields, by name."""
    return get_type_hints(kind)


@cache
def defaults_of(kind: Any) -> Mapping[str, Any]:
    """The fields that may be left out, with what they then are."""
    return {} if kind in _WHOLE else dict(kind._field_defaults)


@cache
def members(hint: Any) -> Mapping[str, Any]:
    """The types of a union, by their words: `EnqueueMany` is `enqueue_many`."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in kinds}


@cache
def words(hint: Any) -> tuple[str, ...]:
    """The words of an enumeration or a literal."""
    return tuple(map(str, hint)) if isinstance(hint, type) else get_args(hint)  # type: ignore[call-overload]


def may_be_null(hint: Any) -> bool:
    """Whether a union has null among its types."""
    return NoneType in get_args(hint)


def inner(hint: Any) -> Any:
    """The type of the parts, or of what is not null."""
    return next(part for part in get_args(hint) if part is not NoneType)


# -- writing


def write(hint: Any, value: Any) -> Data:
    """A value of a type as data; `TraceError` for one that a trace cannot tell."""
    match shape(hint):
        case Shape.SCALAR:
            return value
        case Shape.VALUE:
            return _written_value(value)
        case Shape.TOKEN:
            return _written_token(value)
        case Shape.WORDS:
            return str(value)
        case Shape.FIELDS:
            return _written_fields(hint, value)
        case Shape.SEVERAL:
            return [write(inner(hint), part) for part in value]
        case Shape.FIXED:
            return [write(part, one) for part, one in zip(get_args(hint), value, strict=True)]
        case Shape.SET:
            return sorted(write(inner(hint), part) for part in value)
        case Shape.OPTIONAL:
            return None if value is None else write(inner(hint), value)
        case Shape.ONE_OF:
            if value is None:
                return None
            [said] = [name for name, kind in members(hint).items() if type(value) is kind]
            return {WORD: said, **_written_fields(type(value), value)}


def _written_value(value: Any) -> Data:
    if value is OVERSIZE:
        return OVERSIZE_WORD
    if value is None or type(value) is int:
        return value
    raise TraceError(f"{value!r} has no place in a trace: a value is None, a whole number or OVERSIZE")


def _written_fields(kind: Any, value: Any) -> dict[str, Data]:
    defaults = defaults_of(kind)
    return {
        name: write(part, one)
        for (name, part), one in zip(fields_of(kind).items(), value, strict=True)
        if name not in defaults or defaults[name] != one or type(defaults[name]) is not type(one)
    }


def _written_token(ref: Ref | Token) -> Data:
    if isinstance(ref, Token):
        return f"$t{ref.grant}{ref.ahead:+d}" if ref.ahead else f"$t{ref.grant}"
    return {"job": ref.job_id, "generation": ref.generation}


# -- reading


def read(hint: Any, data: Data, where: str) -> Any:
    """The value of a type that data stands for; `TraceError` naming `where` when it stands for none."""
    match shape(hint):
        case Shape.SCALAR:
            return _typed(data, where, hint)
        case Shape.VALUE:
            return OVERSIZE if data == OVERSIZE_WORD else _typed(data, where, int, NoneType)
        case Shape.TOKEN:
            return _read_token(data, where)
        case Shape.WORDS:
            said = _known(data, words(hint), where)
            return hint(said) if isinstance(hint, type) else said
        case Shape.FIELDS:
            return _read_fields(hint, data, where)
        case Shape.SEVERAL:
            return tuple(_read_parts(inner(hint), data, where))
        case Shape.FIXED:
            return _read_fixed(get_args(hint), data, where)
        case Shape.SET:
            return frozenset(_read_parts(inner(hint), data, where))
        case Shape.OPTIONAL:
            return None if data is None else read(inner(hint), data, where)
        case Shape.ONE_OF:
            if data is None and may_be_null(hint):
                return None
            fields = _object(data, where)
            said = _known(fields.pop(WORD, None), tuple(members(hint)), f"{where}.{WORD}")
            return _read_fields(members(hint)[said], fields, where)


def _read_parts(hint: Any, data: Data, where: str) -> list[Any]:
    return [read(hint, part, f"{where}[{place}]") for place, part in enumerate(_typed(data, where, list))]


def _read_fixed(hints: tuple[Any, ...], data: Data, where: str) -> Any:
    parts = _typed(data, where, list)
    if len(parts) != len(hints):
        raise TraceError(f"{where}: has {len(parts)} parts, not {len(hints)}")
    return tuple([read(hint, parts[place], f"{where}[{place}]") for place, hint in enumerate(hints)])


def _read_fields(kind: Any, data: Data, where: str) -> Any:
    data, hints, defaults = _object(data, where), fields_of(kind), defaults_of(kind)
    _names(data, hints.keys() - defaults.keys(), set(defaults), where)
    return kind(**{name: read(hints[name], part, f"{where}.{name}") for name, part in data.items()})


def _read_token(data: Data, where: str) -> Ref | Token:
    if isinstance(data, str):
        found = re.fullmatch(TOKEN, data)
        if found is None:
            raise TraceError(f"{where}: {data!r} is no token: write $t0, $t0+1, $t0-1, or a job and its generation")
        return Token(int(found[1]), int(found[2] or 0))
    fields = _object(data, where)
    _names(fields, {"job", "generation"}, set(), where)
    return Ref(read(int, fields["job"], f"{where}.job"), read(int, fields["generation"], f"{where}.generation"))


def _names(data: dict[str, Data], needed: set[str], allowed: set[str], where: str) -> None:
    for name in data:
        if name not in needed and name not in allowed:
            raise TraceError(f"{where}: no field is called {name!r}")
    for name in sorted(needed - data.keys()):
        raise TraceError(f"{where}: the field {name!r} is missing")


def _known(data: Data, known: tuple[str, ...], where: str) -> str:
    if not isinstance(data, str) or data not in known:
        raise TraceError(f"{where}: {data!r} is unknown, known are {', '.join(known)}")
    return data


def _object(data: Data, where: str) -> dict[str, Data]:
    return dict(_typed(data, where, dict))


def _typed(data: Data, where: str, *kinds: type) -> Any:
    # By the very type: a boolean is no whole number here.
    if type(data) not in kinds:
        wanted = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
        raise TraceError(f"{where}: {data!r} is no {wanted}")
    return data
