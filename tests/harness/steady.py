"""Random runs that depend on their seed and on nothing else.

Hypothesis draws one value in twenty from the constants that it finds in the source of whichever local modules happen to
be imported, and it has no setting against that. A seed then names one run in a process of its own, another one in a
process that imported more, and yet another after any edit of any constant. `make_steady` leaves it the constants that
it brings along.
"""

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SOURCE = "_get_local_constants"


def make_steady() -> None:
    """From now on no draw in this process depends on what is imported; an error if this Hypothesis differs."""
    if not callable(getattr(providers, SOURCE, None)):
        raise RuntimeError(f"this Hypothesis has no {SOURCE}: find out where it takes constants from")
    setattr(providers, SOURCE, Constants)
