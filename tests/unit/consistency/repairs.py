"""What the tests of repair share: repairing a disk in memory, and being killed meanwhile."""

from collections.abc import Callable, Sequence
from typing import Any

from telha_jobs import ManualClock
from telha_jobs.consistency import Repaired, repair
from telha_jobs.keys import ID_BYTES, parse_quarantine_key
from telha_jobs.store.memory import MemoryStore
from telha_jobs.store.port import NO_ADDS, Adds, Committed, Conflict, Family, Guard, Write
from tests.harness.damage import Disk, Pairs


class KilledError(Exception):
    """The process is gone."""


class MortalStore(MemoryStore):
    """A store whose process dies around the commit of the number `dies_at`: before it, or after it (`late`)."""

    dies_at = 0
    late = False
    sizes: list[int]

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
    ) -> Committed | Conflict:
        """Pass on, unless it is time to die."""
        self.sizes.append(len(writes))
        dying = len(self.sizes) == self.dies_at
        if dying and not self.late:
            raise KilledError
        answer = super().commit(checks, writes, token, adds)
        if dying:
            raise KilledError
        return answer


def opened(hurt: Disk, *, dies_at: int = 0, late: bool = False) -> MortalStore:
    """The store on a disk."""
    store = MortalStore.open(hurt.disk, clock=ManualClock(hurt.now_ms))
    store.dies_at, store.late, store.sizes = dies_at, late, []
    return store


def repaired(hurt: Disk, **options: Any) -> Repaired:
    """Repair a disk."""
    store = opened(hurt)
    try:
        return repair(store, **options)
    finally:
        store.close()


def killed(hurt: Disk, *, dies_at: int, late: bool) -> bool:
    """Begin to repair a disk; whether the process died of it."""
    try:
        repair(opened(hurt, dies_at=dies_at, late=late))
    except KilledError:
        hurt.disk.crash()
        return True
    hurt.disk.crash()
    return False


def listed(pairs: Pairs) -> set[bytes]:
    """The jobs that have a row somewhere, in `jobs` or in quarantine."""
    ids = {key[-ID_BYTES:] for key in pairs[Family.JOBS]}
    return ids | {parse_quarantine_key(key).job_id for key in pairs[Family.QUARANTINE]}


def differences(expected: Pairs, found: Pairs) -> list[str]:
    """Where two databases differ, in words."""
    return [
        f"{family.value} {key.hex()}: {expected[family].get(key)!r} expected, {found[family].get(key)!r} found"
        for family in expected
        for key in sorted(expected[family].keys() | found[family].keys())
        if expected[family].get(key) != found[family].get(key)
    ]


Spoil = Callable[[Disk], object]
