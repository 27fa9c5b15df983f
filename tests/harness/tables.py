"""The transition tables of both towers as plain words, to be compared edge for edge."""

from telha_jobs.core.log import MOVES
from telha_jobs.core.record import ELIDED, STATE_AFTER, TRANSITION_NAMES
from telha_model.states import TABLE, Transition

Words = tuple[str | None, str, str]
"""State before (None: no job yet), transition, state after."""

_ROWLESS = (Transition.PURGED, Transition.DISCARDED)


def model_edges() -> set[Words]:
    """The edges of the model's table that a log can tell: purging and discarding take the log away."""
    return {
        (None if edge.source is None else edge.source.value, edge.transition.value, str(edge.target))
        for edge in TABLE
        if edge.transition not in _ROWLESS
    }


def engine_edges() -> set[Words]:
    """The edges that the queue's own table has; its audit and its check replay logs through it."""
    return {
        (None if source is None else source.value, TRANSITION_NAMES[code], STATE_AFTER[code].value)
        for code, sources in MOVES.items()
        for source in sources
    }


def transition_names() -> tuple[set[str], set[str]]:
    """The names that an event can have: the model's and the queue's."""
    return {name.value for name in Transition if name not in _ROWLESS}, set(TRANSITION_NAMES)


def codes_without_moves() -> set[int]:
    """Transitions of the queue that are no moves; only the elision is none."""
    return set(range(len(TRANSITION_NAMES))) - set(MOVES) - {ELIDED}
