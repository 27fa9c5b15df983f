"""The executable specification of the queue: what it must do, as a pure function over plain data.

Start at `step.step`; the vocabulary is in `types`, `ops`, `replies`, `states` and `state`, the promises are in
`invariants`.
"""

from typing import Final

from .step import step

SPEC_VERSION: Final = "0.2"
"""The version of the specification. A change of what any operation answers or leaves behind is a new one."""

__all__ = ["SPEC_VERSION", "step"]
