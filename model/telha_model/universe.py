"""A universe: a bounded model of one concern, small enough to visit every state."""

from typing import Literal, NamedTuple

from telha_model.alphabet import Alphabet
from telha_model.quotient import Quotient
from telha_model.types import Config

Size = Literal["ci", "large"]


class Universe(NamedTuple):
    """What is explored: the settings, the operations offered, when two states count as one, what a run must reach.

    `start_ms` is the time at the first open; `sometimes` names situations of `situations.SOMETIMES`.
    """

    name: str
    concern: str
    bounds: str
    config: Config
    alphabet: Alphabet
    quotient: Quotient
    sometimes: tuple[str, ...]
    start_ms: int = 1_000
