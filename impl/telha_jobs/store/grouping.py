"""Group commit: many waiters, one sync.

Writes are unsynced and visible at once. Whoever must wait for durability and finds no sync under way leads one: it
syncs everything written up to that moment, outside every lock, and wakes the others. While it runs, new waiters gather;
one of them leads the next. A single thread so pays exactly one sync per commit, and none when an earlier sync covers it
already (ADR 0003).
"""

import threading
from collections.abc import Callable

from telha_jobs.errors import QueueUnavailableError


class SyncGroup:
    """Turns `flush()` into `wait(sequence)`. `written()` is the newest sequence whose write has returned."""

    def __init__(self, *, flush: Callable[[], None], written: Callable[[], int], synced: int) -> None:
        self._flush = flush
        self._written = written
        self._changed = threading.Condition()
        self._synced = synced
        self._syncing = False
        self._failure: str | None = None
        self._flushes = 0

    @property
    def synced(self) -> int:
        """The newest sequence known to be durable."""
        return self._synced

    @property
    def flushes(self) -> int:
        """How many syncs were led."""
        return self._flushes

    def wait(self, sequence: int) -> None:
        """Return once everything up to `sequence`, which was written before the call, is durable.

        Raises `QueueUnavailableError(outcome="unknown")` when a sync failed: what was written may or may not be there
        after reopening.
        """
        if self._synced >= sequence:
            return  # it only ever rises
        with self._changed:
            while self._synced < sequence:
                if self._failure is not None:
                    raise QueueUnavailableError(self._failure, outcome="unknown")
                if not self._syncing:
                    self._syncing = True
                    break
                self._changed.wait()
            else:
                return
        self._lead()

    def fail(self, reason: str) -> None:
        """The storage failed: waiters that are not covered yet are refused, and no sync is led any more."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def drain(self) -> None:
        """Return once no sync is under way."""
        with self._changed:
            while self._syncing:
                self._changed.wait()

    def _lead(self) -> None:
        # Read before the sync: only what had been written when it began is known to be in it.
        target = self._written()
        try:
            self._flush()
        except Exception as error:
            # Any storage error. The same data must not be synced again: the kernel reports a lost page once, then says
            # all is well.
            failure = f"the sync failed ({error}): close the queue, see to the disk and open it again"
            self._settle(synced=None, failure=failure)
            raise QueueUnavailableError(failure, outcome="unknown") from error
        except BaseException:
            # An interrupt of this thread says nothing about the sync: somebody else leads the next.
            self._settle(synced=None, failure=None)
            raise
        self._settle(synced=target, failure=None)

    def _settle(self, *, synced: int | None, failure: str | None) -> None:
        with self._changed:
            self._syncing = False
            self._flushes += 1
            if synced is not None:
                self._synced = max(self._synced, synced)
            self._failure = self._failure or failure
            self._changed.notify_all()
