"""A run as a short program for people: Python over `telha_model.ops` and `telha_model.types`, that gives the operations
back when it is pasted. As plain data runs are written as traces (`telha_model.trace`).
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from telha_model.ops import Op
from telha_model.types import OVERSIZE


def as_code(value: Any) -> str:
    """A value, operation or configuration as Python, defaults left out."""
    if value is OVERSIZE:
        return "OVERSIZE"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(as_code, value)))}}}"
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


def program(steps: Iterable[Op]) -> str:
    """One operation a line."""
    return "\n".join(f"    {as_code(op)}," for op in steps)
