"""The commands that change something: `retry`, `cancel`, `discard`, `enqueue`.

A queue that is open elsewhere is changed through its server, if it has one.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from telha_jobs import arguments
from telha_jobs.cli.access import (
    Filters,
    change,
    configured,
    connected,
    jobs_of,
    located,
    preparing,
    refusals,
    resolve,
    take,
)
from telha_jobs.cli.options import (
    DURATION,
    JOB_ID,
    SCOPE,
    TIME,
    examples,
    json_option,
    kind_filter,
    scope_filter,
)
from telha_jobs.cli.output import EXIT_REFUSED, confirm, line, many, note, safe
from telha_jobs.cli.places import Connection, Place, place_options
from telha_jobs.config import is_system_kind
from telha_jobs.json_form import NotJSONError, dumps, loads
from telha_jobs.protocol import Queue
from telha_jobs.queue import JobQueue
from telha_jobs.rules import PRIORITY_MAX
from telha_jobs.types import SYSTEM_SCOPE, NewJob, Receipt, State

_REASONS = ("attempts", "expired", "rejected", "cancelled")
_WITHOUT_CANCELLED = _REASONS[:-1]


@click.command(
    short_help="Make dead jobs pending again.",
    epilog=examples(
        "telha jobs retry 0199c2f1-7a3e",
        "telha jobs retry --all --kind 'ingest:*' --reason attempts --reason expired",
    ),
)
@click.argument("job_ids", metavar="[ID]...", type=JOB_ID, nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every dead job that the filters leave, after a confirmation.")
@scope_filter
@kind_filter
@click.option(
    "--reason",
    "reasons",
    type=click.Choice(_REASONS),
    multiple=True,
    help="With --all: only jobs dead for this reason; may be given several times.  [default: all but cancelled]",
)
@click.option("--limit", type=click.IntRange(min=1), help="With --all: at most so many, the oldest.")
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@place_options
def retry(
    place: Place,
    job_ids: tuple[str, ...],
    scope: UUID | None,
    kind: str | None,
    reasons: tuple[str, ...],
    limit: int | None,
    *,
    every: bool,
    yes: bool,
) -> None:
    """Make dead jobs pending again, with a fresh budget of attempts. Prints the ids of those it retried.

    Cancelled jobs are retried by their id, or by --all with --reason cancelled.
    """
    narrowed = any(one is not None for one in (scope, kind, limit)) or bool(reasons)
    if every == bool(job_ids):
        raise click.UsageError("give either ids or --all")
    if narrowed and not every:
        raise click.UsageError("--scope, --kind, --reason and --limit go with --all")
    if not every:
        _change_given(place, job_ids, "retried", lambda queue, job_id: queue.retry(job_id))
        return
    place = located(place)
    with preparing(place) as view:
        wanted = reasons or _WITHOUT_CANCELLED
        dead = jobs_of(view, Filters(State.DEAD, scope, kind))
        found = [job.job_id for job in take((job for job in dead if job.dead_reason in wanted), limit or 0)]
    if not found:
        note("no dead job matches: nothing to retry")
        return
    if not yes:
        confirm(f"Retry {many(len(found), 'job')} dead by {', '.join(dict.fromkeys(wanted))}?")
    _change(place, found, "retried", lambda queue, job_id: queue.retry(job_id))


@click.command(
    short_help="Stop jobs that have not ended.",
    epilog=examples("telha jobs cancel 0199c2f1-7a3e"),
)
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@place_options
def cancel(place: Place, job_ids: tuple[str, ...]) -> None:
    """Make pending, failed or leased jobs dead, as cancelled. Prints the ids of those it cancelled.

    A lease on such a job is no longer current: whatever its worker submits is refused.
    """
    _change_given(place, job_ids, "cancelled", lambda queue, job_id: queue.cancel(job_id))


@click.command(
    short_help="Remove ended jobs for good.",
    epilog=examples("telha jobs discard 0199c2f1-7a3e"),
)
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@place_options
def discard(place: Place, job_ids: tuple[str, ...]) -> None:
    """Remove completed or dead jobs for good, with their logs and keys. Prints the ids of those it removed."""
    _change_given(place, job_ids, "discarded", lambda queue, job_id: queue.discard(job_id))


@click.command(
    short_help="Add a job.",
    epilog=examples(
        "telha jobs enqueue embed '{\"document\": 7}' --scope 3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11 --key doc-7",
        "telha jobs enqueue ingest:pdf - --scope 3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11 --delay 5m <job.json",
        "telha jobs enqueue system:compact",
    ),
)
@click.argument("kind")
@click.argument("payload", metavar="[JSON|-]", default="null")
@click.option("--scope", type=SCOPE, help="The tenant ('nil': the system scope). Only system:* kinds do without.")
@click.option(
    "--priority", type=click.IntRange(0, PRIORITY_MAX), default=128, show_default=True, help="0 is the most urgent."
)
@click.option("--key", help="Idempotency key: one job per key and scope, however often this is run.")
@click.option("--run-at", "run_at_ms", type=TIME, help="Not before: 2030-01-31T08:00:00Z, or ms since the epoch.")
@click.option("--delay", "delay_ms", type=DURATION, help="Not before this has passed: 90s, 5m, 1h30m.")
@click.option("--max-attempts", type=int, help="This job's ceiling, instead of its kind's.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="May be given several times.")
@click.option("--payload-version", type=int, default=1, show_default=True, help="Your own schema number.")
@json_option("One object, named as the fields of Receipt, instead of the id.")
@place_options
def enqueue(
    place: Place,
    kind: str,
    payload: str,
    scope: UUID | None,
    key: str | None,
    headers: Sequence[str],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Add a job, and print its id. Makes the queue if DIR is missing or empty.

    The payload is JSON (by default null), or '-' to read it from stdin. Bytes are written {"$bytes": "base64"}, as
    --json shows them.
    """
    if scope is None and not is_system_kind(kind):
        raise click.UsageError("whose job? Give --scope UUID; only system:* kinds have the system scope by default")
    job = NewJob(
        scope=SYSTEM_SCOPE if scope is None else scope,
        kind=kind,
        payload=_payload(payload),
        idempotency_key=key,
        headers=_headers(headers),
        **options,
    )
    place = located(place)
    receipt = _added(place, job) if place.server is None else _sent(place.server, job)
    line(dumps(receipt) if as_json else str(receipt.job_id))
    if not receipt.created:
        note(f"the key names this job already ({receipt.state.value}): nothing was added")


def _added(place: Place, job: NewJob) -> Receipt:
    """Add the job to the queue of a directory, and make that if there is none."""
    with refusals():
        # Before a queue is made for it: a bad argument changes nothing.
        config = configured(place)
        arguments.draft_of(job, config)
    directory = Path(place.data)
    making = not directory.is_dir() or next(directory.iterdir(), None) is None
    if not making:
        # A directory that holds something else than a queue is a mistake, and no place to make one.
        with preparing(place):
            pass
    with refusals(), JobQueue.open(place.data, config=config) as queue:
        if making:
            note(f"there was no queue in {place.data}: made one")
        return _enqueue(queue, job)


def _sent(connection: Connection, job: NewJob) -> Receipt:
    with refusals(), connected(connection) as client:
        return _enqueue(client, job)


def _enqueue(queue: Queue, job: NewJob) -> Receipt:
    return queue.enqueue(**{one.name: getattr(job, one.name) for one in fields(job)})


def _payload(text: str) -> Any:
    try:
        return loads(sys.stdin.buffer.read().decode("utf-8") if text == "-" else text)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the payload on stdin is no UTF-8: byte {error.start} is wrong") from None
    except NotJSONError as error:
        raise click.UsageError(f"the payload is no JSON that can be taken: {safe(str(error))}") from None


def _headers(given: Sequence[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"a header is NAME=VALUE, not '{safe(text)}'")
        if name in found:
            raise click.UsageError(f"the header '{safe(name)}' is given twice")
        found[name] = value
    return found or None


def _change_given(place: Place, given: Sequence[str], done: str, action: Callable[[Queue, UUID], None]) -> None:
    place = located(place)
    with preparing(place) as view:
        job_ids = resolve(view, given)
    _change(place, job_ids, done, action)


def _change(place: Place, job_ids: Sequence[UUID], done: str, action: Callable[[Queue, UUID], None]) -> None:
    """Change the jobs; the ids of those that were changed on stdout, refusals and the sum on stderr."""
    with refusals():
        changes = change(place, job_ids, action)
    for job_id in changes.done:
        line(str(job_id))
    for refusal in changes.refused:
        note(str(refusal))
    if not changes.refused:
        note(f"{many(len(job_ids), 'job')} {done}")
        return
    if len(job_ids) > 1:
        note(f"{len(changes.done):,} of {many(len(job_ids), 'job')} {done}")
    click.get_current_context().exit(EXIT_REFUSED)
