"""What an engine tells whoever counts what happens to jobs. Without an observer it costs one comparison a call."""

from collections.abc import Sequence
from typing import Literal, Protocol

from telha_jobs.core.record import Record
from telha_jobs.errors import LeaseEnd
from telha_jobs.store.observer import StoreObserver

LeaseUse = Literal["complete", "fail", "extend", "release"]


Change = tuple[int, Record | None, Record | None]
"""The number of a job's kind, and the job before and after a commit (None: no such job)."""


class Observer(StoreObserver, Protocol):
    """Called under the engine's lock. An implementation is quick, never raises, and calls nobody."""

    def derived(self, quarantined: int) -> None:
        """It begins, or what is derived in memory was derived from the rows anew, and what happened before is not told.

        `quarantined`: rows that are in quarantine now.
        """
        ...

    def committed(self, changes: Sequence[Change], quarantined: int) -> None:
        """A commit is in, visible and not durable yet. `quarantined`: rows that it moved to quarantine."""
        ...

    def refused(self, use: LeaseUse, why: LeaseEnd) -> None:
        """A lease that is not current was used, and the use refused."""
        ...
