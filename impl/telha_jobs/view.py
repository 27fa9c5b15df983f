"""`View`: a look at a queue's directory as it is at one moment, also while another process owns it.

Names and results are those of `JobQueue`, and the same functions give them. A view takes no lock, writes nothing at the
path and never learns of later commits. It cannot know what is durable: beside a running owner it may show a commit
whose caller has no answer yet and which a power loss would take back (`owned_elsewhere`).
"""

import os
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from telha_jobs import arguments
from telha_jobs.audit import Marks
from telha_jobs.clock import Clock
from telha_jobs.codec import kind_name
from telha_jobs.consistency import check
from telha_jobs.core.record import Record
from telha_jobs.engine import reader
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.keys import ID_BYTES, quarantined_id
from telha_jobs.recovery import load_counters, load_kinds, pages
from telha_jobs.rules import PAGE_MAX, check_int
from telha_jobs.store.opening import lock_owner
from telha_jobs.store.port import Family
from telha_jobs.store.rocks import RocksStore
from telha_jobs.types import CheckReport, Job, Page, State

_ID_DIGITS = ID_BYTES * 2
_PREFIX = re.compile(rf"[0-9a-f]{{1,{_ID_DIGITS}}}\Z")


class View:
    """A read-only look at a queue; open it with `View.open`, use it as a context manager, in one thread.

    Every method raises `QueueUnavailableError` once the view is closed, and `InvalidArgumentError` as `JobQueue` does.
    """

    def __init__(self, store: RocksStore, path: Path) -> None:
        self._store = store
        self._source = reader.Source(store, load_kinds(store), load_counters(store))
        # Asked after the files were read: whoever was writing when they were is still there, or closed and synced.
        self._owner = lock_owner(path)

    @classmethod
    def open(cls, path: str | PathLike[str], *, clock: Clock | None = None) -> Self:
        """Look at the queue in directory `path` as it is now.

        Raises `QueueUnavailableError` when there is no queue, when the database is foreign or cannot be read, and
        `FormatVersionError` when a newer version wrote it. Nothing is created or changed. `clock` is for tests.
        """
        where = arguments.path(path)
        store = RocksStore.open_read_only(where, clock=clock)
        try:
            return cls(store, Path(os.path.realpath(where)))
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Let go of the files. Does nothing the second time."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def owned_elsewhere(self) -> bool:
        """Whether a queue, as a rule in another process, had the database open when this view was made."""
        return self._owner is not None

    @property
    def owner(self) -> str | None:
        """Who that was, to be put behind "open elsewhere": `by process 4711`. None: nobody is known to."""
        return self._owner

    def get(self, job_id: UUID) -> Job:
        """The job. Raises `JobNotFoundError`, `JobUnreadableError`."""
        return reader.get(self._source, arguments.id_bytes("job_id", job_id))

    def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """A page of jobs in job-id order. `after`: from the page before."""
        wanted = arguments.job_filter(state, scope, kind)
        most = check_int("limit", limit, 1, PAGE_MAX)
        return reader.page(lambda question: question(self._source), wanted, arguments.cursor(after), most)

    def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]:
        """How many jobs are in each of the five states, without a scan. Quarantined jobs are not counted."""
        return reader.counts(self._source, arguments.job_filter(None, scope, kind))

    def check(self) -> CheckReport:
        """Prove that everything derived follows from the rows; reads the whole database."""
        return check(self._store)

    def rows(self) -> Iterator[tuple[UUID, tuple[Job, Marks] | None]]:
        """Every job in id order, with the marks of its row for an audit; None instead for a job that cannot be read."""
        for job_id, found in reader.rows(self._source):
            yield UUID(bytes=job_id), None if found is None else (found[0], marks_of(found[1]))

    def now_ms(self) -> int:
        """The time in ms since the epoch, never before the newest time in the database."""
        return self._store.now()

    def ids_with_prefix(self, prefix: str, limit: int) -> list[UUID]:
        """The first `limit` job ids that begin with `prefix`, in order; quarantined jobs have one too.

        `prefix`: 1-32 hexadecimal digits in either case, dashes anywhere.
        """
        low, high = id_range(prefix)
        most = check_int("limit", limit, 1, PAGE_MAX)
        return [UUID(bytes=job_id) for job_id in reader.ids_between(self._source, low, high, most)]

    def quarantined(self) -> tuple[UUID, ...]:
        """The jobs whose rows are in quarantine, in id order."""
        ids = {quarantined_id(key): None for key, _ in pages(self._store, Family.QUARANTINE, b"", None)}
        return tuple(UUID(bytes=job_id) for job_id in ids)


def id_range(prefix: str) -> tuple[bytes, bytes]:
    """The lowest and the highest job id that begin with some digits."""
    if not isinstance(prefix, str):
        raise InvalidArgumentError("prefix", f"must be a str, not {kind_name(prefix)}")
    digits = prefix.replace("-", "").lower()
    if _PREFIX.match(digits) is None:
        raise InvalidArgumentError(
            "prefix",
            f"must be 1 to {_ID_DIGITS} hexadecimal digits (dashes may stand between), not {prefix[:80]!r}",
        )
    low, high = (bytes.fromhex(digits.ljust(_ID_DIGITS, filler)) for filler in "0f")
    return low, high


def marks_of(record: Record) -> Marks:
    """What a row says besides the fields of `Job`."""
    return Marks(record.sequence, record.token, record.leased_at, record.purge_at, record.lease_end)
