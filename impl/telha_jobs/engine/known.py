"""Records as the newest commits left them, decoded, so that the lease or submit that follows soon reads nothing.

A hint that is checked. All that is known was true at one sequence of the store: a unit of work that begins at another
one, because somebody else committed, forgets it; and a unit that uses a record lets its commit check that the row did
not change since. Jobs that ended are not kept.
"""

from collections.abc import Mapping

from telha_jobs.core.record import LIVE
from telha_jobs.engine.rows import Slot

BYTES_MAX = 2 * 1024 * 1024
"""Of encoded rows in one generation; decoded they take some four times that, and there are two generations."""


class Known:
    """The slots by job id, in two generations: when the young one is full it takes the old one's place.

    Not thread-safe: the engine's lock guards it.
    """

    __slots__ = ("_bytes", "_old", "_young", "sequence")

    def __init__(self) -> None:
        self.sequence = 0
        self._young: dict[bytes, Slot] = {}
        self._old: dict[bytes, Slot] = {}
        self._bytes = 0

    def forget(self, sequence: int) -> None:
        """Nothing is known as of this sequence."""
        self.sequence = sequence
        self._young, self._old, self._bytes = {}, {}, 0

    def take(self, job_id: bytes) -> Slot | None:
        """The slot, which is the taker's from now on."""
        slot = self._young.pop(job_id, None)
        if slot is None:
            return self._old.pop(job_id, None)
        self._bytes -= slot.size
        return slot

    def keep(self, written: Mapping[bytes, Slot]) -> None:
        """What these slots hold now is what the rows say now."""
        for job_id, slot in written.items():
            record = slot.now
            if slot.before is record or record is None or record.state not in LIVE:
                continue
            slot.before = record
            self._young[job_id] = slot
            self._bytes += slot.size
            if self._bytes > BYTES_MAX:
                self._young, self._old, self._bytes = {}, self._young, 0
