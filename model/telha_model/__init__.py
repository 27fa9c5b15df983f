"""The executable specification of the queue: what it must do, as a pure function over plain data.

Start at `step.step`; the vocabulary is in `types`, `ops`, `replies`, `states` and `state`, the promises are in
`invariants`.
"""

from .step import step

__all__ = ["step"]
