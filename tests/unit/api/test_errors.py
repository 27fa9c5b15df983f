"""Errors carry their fields, say what to do next, and survive being sent between processes."""

import copy
import pickle

import pytest

from telha_jobs import (
    FormatVersionError,
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    JobUnreadableError,
    QueueError,
    QueueLockedError,
    QueueUnavailableError,
    StaleLeaseError,
    State,
    WrongStateError,
)
from tests.unit.api.support import MISSING

ERRORS: list[QueueError] = [
    InvalidArgumentError("jobs[3].kind", "must be a str"),
    JobNotFoundError(MISSING),
    WrongStateError(MISSING, State.LEASED, frozenset({State.DEAD})),
    StaleLeaseError(MISSING, generation=1, current_generation=2, state=State.PENDING, why="reaped"),
    IdempotencyConflictError(MISSING, "key", index=3),
    JobUnreadableError(MISSING),
    QueueUnavailableError("closed", outcome="unknown"),
    QueueLockedError("/somewhere", detail="by process 1"),
    FormatVersionError(found=2, supported=1),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: QueueError) -> None:
    """Type, fields and text are the same afterwards."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(error), vars(error), str(error)) == (type(again), vars(again), str(again))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_prints_as_its_message(error: QueueError) -> None:
    """Also the one that is a KeyError, whose text Python would put in quotes."""
    assert str(error) == error.message
    assert not str(error).startswith(("'", '"'))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ERRORS[1], "check the id"),
        (ERRORS[2], "look at it first"),
        (ERRORS[3], "drop this attempt's result"),
        (ERRORS[4], "use another key"),
        (ERRORS[5], "check"),
        (ERRORS[7], "close that queue first"),
        (ERRORS[8], "install a newer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_says_what_to_do(error: QueueError, advice: str) -> None:
    """The text ends in something the reader can act on."""
    assert advice in str(error)


def test_wrong_state_names_the_states_it_needs() -> None:
    """In the text, and sorted so that it is always the same text."""
    error = WrongStateError(MISSING, State.LEASED, frozenset({State.DEAD, State.COMPLETED}))
    assert "is leased, this needs completed or dead" in str(error)


def test_a_key_conflict_names_its_position_in_a_bulk_call() -> None:
    """And no position in a single one."""
    assert str(IdempotencyConflictError(MISSING, "key", index=3)).startswith("item 3: ")
    assert str(IdempotencyConflictError(MISSING, "key")).startswith("idempotency key")
