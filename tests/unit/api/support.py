"""What tests of the public interface share: a queue on a manual clock, its raw rows, and checks of refusals."""

import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import InvalidArgumentError, JobQueue, Lease, ManualClock, QueueConfig, QueueError
from telha_jobs.store.database import Database
from telha_jobs.store.port import Delete, Family, Put

START_MS = 1_700_000_000_000
A, B, C = UUID(int=0xA), UUID(int=0xB), UUID(int=0xC)
MISSING = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
"""A job id that nobody ever got."""

Rows = dict[Family, dict[bytes, bytes]]


def rows(queue: JobQueue) -> Rows:
    """Every row of every family, byte for byte, but the store's own record of the newest commit."""
    found = {family: dict(queue._store.scan(family, b"", None, 10_000_000)) for family in Family}
    found[Family.META].pop(b"store/commit", None)
    return found


def row_of(queue: JobQueue, job_id: UUID) -> tuple[bytes, bytes]:
    """Key and value of one job in `jobs`."""
    [found] = [pair for pair in rows(queue)[Family.JOBS].items() if pair[0][-16:] == job_id.bytes]
    return found


@contextmanager
def unchanged(queue: JobQueue) -> Iterator[None]:
    """Nothing is written in here: every row of every family stays, and there is no commit."""
    before, commits = rows(queue), queue._store.counters.commits
    yield
    assert before == rows(queue)
    assert commits == queue._store.counters.commits


@contextmanager
def refused(queue: JobQueue, field: str) -> Iterator[pytest.ExceptionInfo[InvalidArgumentError]]:
    """The call in here is refused for this field, says so, and changes nothing."""
    with unchanged(queue), pytest.raises(InvalidArgumentError) as caught:
        yield caught
    assert field == caught.value.field
    assert str(caught.value).startswith(f"{field}: ")


def refusal(error: type[QueueError], call: Callable[[], object]) -> Any:
    """The error that the call raises."""
    with pytest.raises(error) as caught:
        call()
    assert error is type(caught.value)
    return caught.value


def open_queue(path: Path, clock: ManualClock, **config: Any) -> JobQueue:
    """The queue in `path` on a manual clock, with a few settings other than the defaults."""
    return JobQueue.open(path, clock=clock, config=QueueConfig(**config))


def lease(queue: JobQueue, **filters: Any) -> Lease:
    """The next lease; there has to be one."""
    granted = queue.lease_next("w", **filters)
    assert granted is not None
    return granted


def leased(queue: JobQueue, scope: UUID = A, kind: str = "embed", payload: Any = None, **options: Any) -> Lease:
    """A new job of its own, leased."""
    made = queue.enqueue(scope, kind, payload, **options)
    granted = lease(queue, scopes=[scope])
    assert made.job_id == granted.job_id
    return granted


def transitions(queue: JobQueue, job_id: UUID) -> list[str]:
    """The names of the events in a job's log."""
    return [event.transition for event in queue.get(job_id).events]


def tamper(path: Path, *changes: Put | Delete) -> None:
    """Change rows of a closed queue behind its back."""
    database = Database.open(path)
    try:
        database.write(database.batch(list(changes)))
        database.flush()
    finally:
        database.close()


def healthy(queue: JobQueue) -> None:
    """Every derived family follows from the rows."""
    assert queue.check().problems == ()


def each(names: str, values: Sequence[Any]) -> pytest.MarkDecorator:
    """`parametrize` with ids that are short, printable and distinct whatever the values are."""
    # Addresses differ from process to process, and pytest's workers must agree on the ids.
    shown = [re.sub("0x[0-9a-f]+|x[0-9a-f]{6,}", "", reprlib.repr(value)) for value in values]
    ids = [f"{number}-{re.sub('[^A-Za-z0-9_.:-]+', '_', text)[:40]}" for number, text in enumerate(shown)]
    return pytest.mark.parametrize(names, values, ids=ids)
