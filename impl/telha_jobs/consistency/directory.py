"""Check and repair of a directory, without a queue on it: also of one that no queue opens, because its kinds in `meta`
cannot be read.
"""

from os import PathLike

from telha_jobs.clock import Clock, SystemClock
from telha_jobs.consistency.check import check
from telha_jobs.consistency.repair import Repaired, repair
from telha_jobs.store.rocks import RocksStore
from telha_jobs.types import CheckReport


def check_directory(path: str | PathLike[str], *, clock: Clock | None = None) -> CheckReport:
    """Check the database in a directory; takes no lock and writes nothing.

    Raises `QueueUnavailableError` when there is none, or when it is foreign or damaged; `FormatVersionError`.
    """
    store = RocksStore.open_read_only(path, clock=clock)
    try:
        return check(store)
    finally:
        store.close()


def repair_directory(path: str | PathLike[str], *, clock: Clock | None = None) -> Repaired:
    """Repair the database in a directory that nobody has open; durable when it returns.

    Raises `QueueLockedError`, `FormatVersionError`, `QueueUnavailableError`; after the last one repair again.
    """
    store = RocksStore.open(path, clock=SystemClock() if clock is None else clock, durability="os")
    try:
        return repair(store)
    finally:
        store.close()
