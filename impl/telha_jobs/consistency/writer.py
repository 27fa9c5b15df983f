"""How a repair writes: groups of changes that belong together, several groups a commit.

What is read is guarded: a commit in which another writer changed any of it is refused, and the repair ends, to be begun
again; what it committed until then is whole. Under the lock of an open queue there is no other writer.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from telha_jobs.errors import QueueUnavailableError
from telha_jobs.keys import u64
from telha_jobs.store.port import CommitUnknownError, Conflict, Family, Guard, Store, Write

BATCH_WRITES = 2_000
BATCH_BYTES = 4 * 1024 * 1024
"""A commit is made when it holds as much; the last group in it may exceed this, by one row."""
_BATCH_CHECKS = 20_000
TOLD_MAX = 1_000
"""Sentences that are kept of what was done; all are counted."""

_log = logging.getLogger("telha_jobs")


class Add(NamedTuple):
    """An addition to a counter."""

    key: bytes
    delta: int


Change = Write | Add


class Writer:
    """Reads and writes of one repair.

    `proceed` is asked before each commit, and raises to end the repair there; `tell` gets the sentences that are kept.
    """

    def __init__(self, store: Store, proceed: Callable[[], None], tell: Callable[[str], None]) -> None:
        self.told: list[str] = []
        self.done = 0
        self.commits = 0
        self._store = store
        self._proceed = proceed
        self._tell = tell
        self._nonce = secrets.token_bytes(8)
        self._checks: list[Guard] = []
        self._writes: list[Write] = []
        self._adds: dict[bytes, int] = {}
        self._sentences: list[str] = []
        self._bytes = 0
        self._pending: dict[tuple[Family, bytes], bytes | None] = {}

    def begin(self) -> None:
        """The next row: a commit that is full is made now, so that no row is torn between two."""
        if not self._sentences:
            self._checks.clear()  # nothing was made of what was read
            return
        noted = len(self._writes) + len(self._adds)
        if noted >= BATCH_WRITES or self._bytes >= BATCH_BYTES or len(self._checks) >= _BATCH_CHECKS:
            self.commit()

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A value as it will be once what is noted is committed."""
        place = (family, key)
        if place in self._pending:
            return self._pending[place]
        [found] = self._store.read((place,))
        self._checks.append((family, key, found.version))
        return found.value

    def change(self, changes: Sequence[Change], sentence: str) -> None:
        """Note changes that belong together, and what they put right."""
        for change in changes:
            if isinstance(change, Add):
                self._adds[change.key] = self._adds.get(change.key, 0) + change.delta
                self._bytes += 16
            else:
                family, key, value = change
                self._pending[family, key] = value
                self._bytes += len(key) + len(value or b"")
                self._writes.append(change)
        self._sentences.append(sentence)

    def commit(self) -> None:
        """Write what is noted, if anything is."""
        if not self._sentences:
            return
        self._proceed()
        answer = self._committed(self._nonce + u64(self.commits))
        if isinstance(answer, Conflict):
            raise QueueUnavailableError(
                "another writer changed the rows during the repair: repair again when nobody else writes",
                outcome="unknown" if self.commits else "not_applied",
            )
        self.commits += 1
        for sentence in self._sentences:
            self.done += 1
            if self.done <= TOLD_MAX:
                self.told.append(sentence)
                self._tell(sentence)
        self._checks, self._writes, self._adds, self._sentences, self._bytes = [], [], {}, [], 0
        self._pending.clear()

    def _committed(self, token: bytes) -> Any:
        try:
            return self._store.commit(self._checks, self._writes, token, self._adds)
        except CommitUnknownError as error:
            _log.error("the outcome of a commit is unknown: %s", error)
            return self._store.resolve(token, self._checks, self._writes)
