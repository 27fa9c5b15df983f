"""A command's use of a queue: looking, finding jobs by their ids, changing them; refusals become exit codes here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

import click

from telha_jobs.audit import Marks
from telha_jobs.cli.output import Refused, note, safe
from telha_jobs.cli.places import Connection, Place, token_of
from telha_jobs.cli.whereabouts import Served, server_of
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
from telha_jobs.protocol import Queue
from telha_jobs.queue import JobQueue
from telha_jobs.settings import find_file, load
from telha_jobs.types import CheckReport, Job, Page, State
from telha_jobs.view import View

if TYPE_CHECKING:
    from telha_jobs.client import Client

_CANDIDATES_SHOWN = 5
_PAGE_JOBS = 100
_TIMEOUT_S = 60.0
_FOUND_TIMEOUT_S = 5.0
"""A server that nobody named is not waited for: a reading command can do without."""
_EXTRA = frozenset({"google", "grpc"})


class Look(Protocol):
    """What a view of a directory and a client of a server have in common."""

    def get(self, job_id: UUID) -> Job: ...
    def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page: ...
    def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]: ...
    def check(self) -> CheckReport: ...
    def rows(self) -> Iterator[tuple[UUID, tuple[Job, Marks] | None]]: ...
    def now_ms(self) -> int: ...
    def ids_with_prefix(self, prefix: str, limit: int) -> list[UUID]: ...
    def quarantined(self) -> tuple[UUID, ...]: ...


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
def looking(place: Place, *, beside: bool = False) -> Iterator[Look]:
    """What a reading command looks at: a server, or a view of the directory; says when that may not be durable yet.

    `beside`: reads so much that it would keep a server from its work; the server of a directory is left alone then.
    """
    if place.server is None and not beside:
        with _found(place) as client:
            if client is not None:
                yield client
                return
    if place.server is not None:
        with refusals(), connected(place.server) as client:
            yield client
        return
    with refusals(), View.open(place.data) as view:
        if view.owned_elsewhere:
            note(f"{place.data} is open elsewhere ({view.owner}): this may show what is not durable yet")
        yield view


@contextmanager
def preparing(place: Place) -> Iterator[Look]:
    """What a writing command finds its jobs in: the server of `located`, or a view; refuses when there is neither."""
    if place.server is not None:
        with refusals(), connected(place.server) as client:
            yield client
        return
    with refusals(), View.open(place.data) as view:
        if view.owner is not None:
            raise QueueLockedError(place.data, detail=view.owner)
        yield view


def located(place: Place) -> Place:
    """The place for a writing command: a directory whose database a server has open is that server."""
    served = None if place.server is not None else server_of(place.data)
    if served is None:
        return place
    note(f"{place.data} is served at {served.address} by process {served.process}: asking there")
    return place._replace(server=_connection(place, served))


@contextmanager
def _found(place: Place) -> Iterator["Client | None"]:
    """A client of the server that has the directory's database open, if there is one and it answers."""
    served = server_of(place.data)
    if served is None:
        yield None
        return
    with ExitStack() as open_now:
        try:
            client = open_now.enter_context(connected(_connection(place, served), timeout_s=_FOUND_TIMEOUT_S))
            client.now_ms()
        except (Refused, QueueError) as error:
            note(f"the server at {served.address} was not asked: {error}")
            yield None
        else:
            with refusals():
                yield client


def _connection(place: Place, served: Served) -> Connection:
    if served.tls and place.to_server.tls_ca is None:
        raise Refused(f"the server at {served.address} wants TLS: give --tls-ca FILE")
    return place.to_server._replace(target=served.address)


@contextmanager
def connected(connection: Connection, *, timeout_s: float = _TIMEOUT_S) -> Iterator["Client"]:
    """A client of the server. A command does not wait for one that is not there."""
    try:
        from telha_jobs.client import TLS, connect
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise Refused(f"a server needs the extra [server] ({error.name} is missing): telha-jobs[server]") from None
    tls = None
    if connection.tls_ca is not None:
        tls = TLS(
            ca=connection.tls_ca,
            certificate=connection.tls_certificate,
            key=connection.tls_key,
            server_name=connection.tls_name,
        )
    token = token_of(connection)
    with connect(
        connection.target, token=token, tls=tls, timeout_s=timeout_s, wait=False, insecure=connection.insecure
    ) as client:
        yield client


def configured(place: Place) -> QueueConfig:
    """The configuration for a command that opens the queue itself."""
    return load(find_file(place.config)).queue


def jobs_of(view: Look, filters: Filters) -> Iterator[Job]:
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


def resolve(view: Look, given: Sequence[str]) -> list[UUID]:
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


def change(place: Place, job_ids: Sequence[UUID], action: Callable[[Queue, UUID], None]) -> Changes:
    """Open the queue and change the jobs one by one. A refused job is left as it is, and the others are changed."""
    changes = Changes([], [])
    try:
        with _opened(place) as queue:
            for job_id in job_ids:
                try:
                    action(queue, job_id)
                except (JobNotFoundError, JobUnreadableError, WrongStateError) as refusal:
                    changes.refused.append(refusal)
                else:
                    changes.done.append(job_id)
    except QueueUnavailableError:
        if changes.done:
            durably = "" if place.server is not None else ", perhaps not durably"
            note(f"{len(changes.done)} of {len(job_ids)} jobs were changed before this{durably}: look again")
        raise
    return changes


@contextmanager
def _opened(place: Place) -> Iterator[Queue]:
    """The queue of a place, for changes.

    Nothing is told before a directory's queue was closed, and a clean close makes everything durable in one go.
    """
    if place.server is not None:
        with connected(place.server) as client:
            yield client
        return
    with JobQueue.open(place.data, config=replace(configured(place), durability="os")) as queue:
        yield queue
