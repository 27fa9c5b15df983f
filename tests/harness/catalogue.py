"""What an entry of the catalogue of mutants is."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A deliberate bug: in `module`, `old` (which stands there once) becomes `new`.

    `promise` is what it breaks, `lane` what must kill it, `also` further lanes that must. Named before it is run.
    """

    name: str
    promise: str
    lane: str
    module: str
    old: str
    new: str
    also: tuple[str, ...] = ()

    @property
    def lanes(self) -> tuple[str, ...]:
        """All the lanes that must kill it."""
        return (self.lane, *self.also)

    @property
    def of_model(self) -> bool:
        """Whether it breaks the model, which only the promises can show."""
        return self.module.startswith("telha_model.")
