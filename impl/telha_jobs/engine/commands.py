"""Checked arguments: what the facade hands to the operations. Scopes and ids are 16 bytes, values are encoded."""

from typing import Any, NamedTuple

from telha_jobs.types import State


class Draft(NamedTuple):
    """A job to create. `payload_value` is the payload as given, for the digest of a submit that carries it."""

    scope: bytes
    kind: str
    payload: bytes
    payload_value: Any
    priority: int
    run_at: int | None
    delay: int | None
    max_attempts: int | None
    key: str | None
    headers: dict[str, str]
    payload_version: int

    def as_given(self) -> tuple[Any, ...]:
        """The arguments, for a digest."""
        return (*self[:2], self.payload_value, *self[4:])


class Ref(NamedTuple):
    """A lease as presented."""

    job_id: bytes
    generation: int


class Filters(NamedTuple):
    """Which jobs a lease may take; None: all of them."""

    kinds: tuple[str, ...] | None
    scopes: frozenset[bytes] | None


CreatedJob = tuple[bytes, bool, State]
"""The answer to an enqueue: the job's id, whether this call created it, and its state."""
