"""The commands that only look: `ls`, `show`, `counts`. They use a view and never change the database."""

from itertools import islice
from uuid import UUID

import click

from telha_jobs.cli.access import Filters, Look, jobs_of, looking, resolve, take
from telha_jobs.cli.options import JOB_ID, examples, json_option, kind_filter, scope_filter
from telha_jobs.cli.output import line, many, note
from telha_jobs.cli.places import Place, place_options
from telha_jobs.json_form import dumps
from telha_jobs.types import State

_STATES = click.Choice([state.value for state in State])


@click.command(
    short_help="List jobs.",
    epilog=examples(
        "telha jobs ls --state dead",
        "telha jobs ls --kind 'ingest:*' --json --limit 0",
    ),
)
@click.option("--state", "state_name", type=_STATES, help="Only jobs in this state.")
@scope_filter
@kind_filter
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many; 0: all.")
@json_option("One object per line, named as the fields of Job.")
@place_options
def ls(
    place: Place, state_name: str | None, scope: UUID | None, kind: str | None, limit: int, *, as_json: bool
) -> None:
    """List jobs in the order of their ids, which is the order they were added in."""
    filters = Filters(None if state_name is None else State(state_name), scope, kind)
    with looking(place) as view:
        jobs = jobs_of(view, filters)
        shown = 0
        if as_json:
            for job in take(jobs, limit):
                line(dumps(job))
                shown += 1
        else:
            from telha_jobs.cli import tables

            listing = tables.Listing(view)
            while chunk := list(islice(take(jobs, limit - shown if limit else 0), tables.LISTING_ROWS)):
                listing.print(chunk)
                shown += len(chunk)
                if shown == limit:
                    break
        _note_the_rest(view, filters, shown, more=next(jobs, None) is not None)


def _note_the_rest(view: Look, filters: Filters, shown: int, *, more: bool) -> None:
    """Say what a listing leaves out: jobs past the limit, and jobs that cannot be read."""
    counted = view.counts(scope=filters.scope, kind=filters.kind)
    total = sum(counted.values()) if filters.state is None else counted[filters.state]
    if more:
        note(f"{shown:,} of {many(total, 'job')} shown: --limit 0 shows all")
    elif shown < total:
        note(f"{total - shown:,} more cannot be read: see telha jobs check")
    elif not shown:
        note("no jobs")
    quarantined = len(view.quarantined())
    if quarantined:
        note(f"{quarantined:,} in quarantine, in no list: see telha jobs check")


@click.command(
    short_help="Show one job and its log.",
    epilog=examples(
        "telha jobs show 0199c2f1-7a3e-7000-805c-1d5b3c2a9f10",
        "telha jobs show 0199c2f17a3e --json",
    ),
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option("One object, named as the fields of Job.")
@place_options
def show(place: Place, job_id: str, *, as_json: bool) -> None:
    """Show a job and the log of what happened to it, oldest event first. Times are UTC."""
    with looking(place) as view:
        [found] = resolve(view, [job_id])
        job = view.get(found)
        if as_json:
            line(dumps(job))
        else:
            from telha_jobs.cli import tables

            tables.print_job(job, view.now_ms())


@click.command(
    short_help="Count jobs by state.",
    epilog=examples("telha jobs counts --kind 'ingest:*'"),
)
@scope_filter
@kind_filter
@json_option("One object with the five states.")
@place_options
def counts(place: Place, scope: UUID | None, kind: str | None, *, as_json: bool) -> None:
    """Count jobs by state. Quarantined jobs are not counted."""
    with looking(place) as view:
        found = view.counts(scope=scope, kind=kind)
        if as_json:
            line(dumps({state.value: number for state, number in found.items()}))
        else:
            from telha_jobs.cli import tables

            tables.print_counts(found)
