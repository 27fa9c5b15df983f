"""How the demo's queue is set up: as anybody's, but in a hurry, so that what a kill leaves is back in seconds."""

from typing import Final

from telha_jobs import Backoff, QueueConfig, State

CONFIG: Final = QueueConfig(
    lease_ttl_ms=2_000,
    reaper_interval_ms=200,
    max_attempts=4,
    backoff=Backoff(base_ms=200, factor=3, cap_ms=10_000),
    retention_completed_ms=None,  # the result stays, to be looked at
    durability="sync",
)
LIVE: Final = (State.PENDING, State.LEASED, State.FAILED)
"""The states of jobs that are not done."""
ENDED: Final = (State.COMPLETED, State.DEAD)
KILLS: Final = 2
