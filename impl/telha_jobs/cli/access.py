"""A command's use of a queue: looking, finding jobs by their ids, changing them; refusals become exit codes here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import click

from telha_jobs.cli.output import Refused, note, safe
from telha_jobs.config import QueueConfig
from telha_jobs.errors import (
    InvalidArgumentError,
    JobNotFoundError,
    JobUnreadableError,
    QueueError,
    QueueLockedError,
    QueueUnavailableError,
    WrongStateError,
)
from telha_jobs.queue import JobQueue
from telha_jobs.types import Job, State
from telha_jobs.view import View

_CANDIDATES_SHOWN = 5
_PAGE_JOBS = 100
_CHANGE_CONFIG = QueueConfig(durability="os")
"""Nothing is told before the queue was closed, and a clean close makes everything durable in one go."""


class Filters(NamedTuple):
    """Which jobs a command is about; None: no filter."""

    state: State | None
    scope: UUID | None
    kind: str | None


@contextmanager
def refusals() -> Iterator[None]:
    """What the library refuses: a bad argument is a usage error, anything else a refusal."""
    try:
        yield
    except InvalidArgumentError as error:
        raise click.UsageError(safe(str(error)), click.get_current_context(silent=True)) from error
    except QueueError as error:
        raise Refused(str(error)) from error


@contextmanager
def looking(data: str) -> Iterator[View]:
    """A view for a reading command; says when it may show what is not durable yet."""
    with refusals(), View.open(data) as view:
        if view.owned_elsewhere:
            note(f"{data} is open elsewhere ({view.owner}): this may show what is not durable yet")
        yield view


@contextmanager
def preparing(data: str) -> Iterator[View]:
    """A view for a writing command to find its jobs in; refuses when the queue is open elsewhere."""
    with refusals(), View.open(data) as view:
        if view.owner is not None:
            raise QueueLockedError(data, detail=view.owner)
        yield view


def jobs_of(view: View, filters: Filters) -> Iterator[Job]:
    """Every job under the filters, in id order, a page at a time."""
    after = None
    while True:
        page = view.list_jobs(**filters._asdict(), limit=_PAGE_JOBS, after=after)
        yield from page.jobs
        if page.after is None:
            return
        after = page.after


def take(jobs: Iterator[Job], limit: int) -> Iterator[Job]:
    """At most `limit` jobs; 0: all."""
    return islice(jobs, limit) if limit else jobs


def resolve(view: View, given: Sequence[str]) -> list[UUID]:
    """The jobs whose ids, or beginnings of ids, are given; each once.

    An ambiguous one is a usage error that names candidates; an unknown one is refused. All are looked at first.
    """
    found: dict[UUID, None] = {}
    unknown = []
    for digits in given:
        candidates = view.ids_with_prefix(digits, _CANDIDATES_SHOWN + 1)
        if len(candidates) > 1:
            shown = "".join(f"\n  {job_id}" for job_id in candidates[:_CANDIDATES_SHOWN])
            more = "\n  and more" if len(candidates) > _CANDIDATES_SHOWN else ""
            raise click.UsageError(
                f"'{digits}' is the beginning of more than one id; give more of it:{shown}{more}",
                click.get_current_context(silent=True),
            )
        if not candidates:
            unknown.append(digits)
        found.update(dict.fromkeys(candidates))
    if unknown:
        raise Refused("; ".join(f"no job has an id that begins with {digits}" for digits in unknown))
    return list(found)


class Changes(NamedTuple):
    """What became of the jobs a command was to change."""

    done: list[UUID]
    refused: list[QueueError]


def change(data: str, job_ids: Sequence[UUID], action: Callable[[JobQueue, UUID], None]) -> Changes:
    """Open the queue and change the jobs one by one. A refused job is left as it is, and the others are changed."""
    changes = Changes([], [])
    try:
        with JobQueue.open(data, config=_CHANGE_CONFIG) as queue:
            for job_id in job_ids:
                try:
                    action(queue, job_id)
                except (JobNotFoundError, JobUnreadableError, WrongStateError) as refusal:
                    changes.refused.append(refusal)
                else:
                    changes.done.append(job_id)
    except QueueUnavailableError:
        if changes.done:
            note(
                f"{len(changes.done)} of {len(job_ids)} jobs were changed before this, perhaps not durably: look again"
            )
        raise
    return changes
