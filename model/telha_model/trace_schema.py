"""The JSON schema of traces, written from the types that `trace_data` reads and writes by."""

from types import NoneType
from typing import Any, Final, get_args

from telha_model.trace import FORMAT, SPEC_VERSIONS, Origin, Step, Verdict
from telha_model.trace_data import (
    OVERSIZE_WORD,
    TOKEN,
    WORD,
    Data,
    Shape,
    defaults_of,
    fields_of,
    inner,
    may_be_null,
    members,
    shape,
    words,
    write,
)
from telha_model.types import Config

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAMES: Final = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}
_NUMBERED: Final = {
    "type": "object",
    "properties": {"job": {"type": "integer"}, "generation": {"type": "integer"}},
    "required": ["job", "generation"],
    "additionalProperties": False,
}


def schema() -> dict[str, Data]:
    """The schema of `trace_data.to_data`."""
    known: dict[str, Data] = {}
    whole = {
        "format": {"const": FORMAT},
        "spec": {"enum": list(SPEC_VERSIONS)},
        "title": {"type": "string"},
        "origin": _described(Origin, known),
        "verdict": _described(Verdict, known),
        "config": _described(Config, known),
        "start_ms": {"type": "integer"},
        "steps": {"type": "array", "items": _described(Step, known), "minItems": 1},
    }
    return {
        "$schema": DIALECT,
        "title": "A trace of a run of the queue. docs/traces.md tells what it means.",
        "type": "object",
        "properties": whole,
        "required": list(whole),
        "additionalProperties": False,
        "$defs": dict(sorted(known.items())),
    }


def _described(hint: Any, known: dict[str, Data]) -> Data:
    match shape(hint):
        case Shape.SCALAR:
            return {"type": _NAMES[hint]}
        case Shape.VALUE:
            return {"anyOf": [{"type": ["integer", "null"]}, {"const": OVERSIZE_WORD}]}
        case Shape.TOKEN:
            return {"anyOf": [{"type": "string", "pattern": f"^{TOKEN}$"}, _NUMBERED]}
        case Shape.WORDS:
            return {"enum": list(words(hint))}
        case Shape.FIELDS:
            return _named(hint, known)
        case Shape.SEVERAL | Shape.SET:
            return {"type": "array", "items": _described(inner(hint), known)}
        case Shape.FIXED:
            parts = [_described(part, known) for part in get_args(hint)]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
        case Shape.OPTIONAL:
            return {"anyOf": [{"type": "null"}, _described(inner(hint), known)]}
        case Shape.ONE_OF:
            return _one_of(hint, known)


def _one_of(hint: Any, known: dict[str, Data]) -> Data:
    """By the word, so that a validator can tell what is wrong with the type that was meant."""
    for said, kind in members(hint).items():
        _named(kind, known, said=said)
    cases = [
        {"if": {"properties": {WORD: {"const": said}}}, "then": {"$ref": f"#/$defs/{kind.__name__}"}}
        for said, kind in members(hint).items()
    ]
    tagged = {
        "type": "object",
        "properties": {WORD: {"enum": list(members(hint))}},
        "required": [WORD],
        "allOf": cases,
    }
    return {"anyOf": [{"type": "null"}, tagged]} if may_be_null(hint) else tagged


def _named(kind: Any, known: dict[str, Data], *, said: str | None = None) -> Data:
    name = kind.__name__
    if name not in known:
        known[name] = {}  # a type may hold itself
        known[name] = _object_of(kind, said, known)
    return {"$ref": f"#/$defs/{name}"}


def _object_of(kind: Any, said: str | None, known: dict[str, Data]) -> Data:
    defaults, fields = defaults_of(kind), fields_of(kind)
    properties = {} if said is None else {WORD: {"const": said}}
    for name, hint in fields.items():
        described = _described(hint, known)
        if name in defaults:
            described = {**described, "default": write(hint, defaults[name])}
        properties[name] = described
    needed = [name for name in properties if name not in defaults]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
