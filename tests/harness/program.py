"""A run as a short program for people and as plain data for machines.

`as_code` is Python over `telha_model.ops` and `telha_model.types`: pasted, it gives the operation back. `as_data` is
JSON and `from_data` reads it: the one place that knows how an operation is written down.
"""

from collections.abc import Iterable
from typing import Any, Final

from telha_model import ops, types
from telha_model.ops import Op
from telha_model.types import OVERSIZE

_TYPES: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        ops.Enqueue,
        ops.EnqueueMany,
        ops.Lease,
        ops.Extend,
        ops.Complete,
        ops.CompleteMany,
        ops.Fail,
        ops.Release,
        ops.Reap,
        ops.Retry,
        ops.Cancel,
        ops.Discard,
        ops.Advance,
        ops.Reopen,
        types.NewJob,
        types.Ref,
        types.Config,
        types.Backoff,
        types.KindPolicy,
    )
}


def as_code(value: Any) -> str:
    """A value, operation or configuration as Python, defaults left out."""
    if value is OVERSIZE:
        return "OVERSIZE"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(_arguments(value))})"
    if isinstance(value, tuple):
        inner = ", ".join(map(as_code, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _arguments(value: Any) -> Iterable[str]:
    defaults = value._field_defaults
    by_name = False
    for name, part in zip(value._fields, value, strict=True):
        if name in defaults and defaults[name] == part and type(defaults[name]) is type(part):
            by_name = True
        else:
            yield f"{name}={as_code(part)}" if by_name or isinstance(part, bool) else as_code(part)


def as_data(value: Any) -> Any:
    """The same as JSON-able data: a named tuple becomes an object whose `type` is its name, defaults left out."""
    if value is OVERSIZE:
        return {"type": "OVERSIZE"}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        defaults: dict[str, Any] = getattr(value, "_field_defaults", {})
        parts = {
            name: as_data(part)
            for name, part in zip(value._fields, value, strict=True)
            if name not in defaults or defaults[name] != part or type(defaults[name]) is not type(part)
        }
        return {"type": type(value).__name__, **parts}
    if isinstance(value, tuple):
        return [as_data(part) for part in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{value!r} has no place in a program")


def from_data(data: Any) -> Any:
    """What `as_data` wrote; `KeyError` for a type it does not know, `TypeError` for fields that do not fit."""
    if isinstance(data, list):
        return tuple(map(from_data, data))
    if not isinstance(data, dict):
        return data
    parts = dict(data)
    name = parts.pop("type")
    if name == "OVERSIZE":
        return OVERSIZE
    return _TYPES[name](**{field: from_data(part) for field, part in parts.items()})


def program(steps: Iterable[Op]) -> str:
    """One operation a line."""
    return "\n".join(f"    {as_code(op)}," for op in steps)
