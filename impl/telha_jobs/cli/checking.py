"""`check`: whether everything derived follows from the rows; with `--repair` it is made to."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from telha_jobs.cli.access import connected, located, looking, refusals
from telha_jobs.cli.options import examples, json_option
from telha_jobs.cli.output import EXIT_REFUSED, confirm, line, many, note, safe
from telha_jobs.cli.places import Connection, Place, place_options
from telha_jobs.consistency import Repaired, check_directory, repair_directory
from telha_jobs.errors import QueueLockedError
from telha_jobs.json_form import dumps, to_json
from telha_jobs.store.opening import lock_owner
from telha_jobs.types import CheckReport

_FOUND_SHOWN = 20


@click.command(
    short_help="Prove that the database is consistent, and repair it.",
    epilog=examples(
        "telha jobs check && echo all is well",
        "telha jobs check --repair",
    ),
)
@click.option("--repair", is_flag=True, help="Put right what is wrong, after a confirmation.")
@click.option("--yes", is_flag=True, help="With --repair: do not ask.")
@json_option("One object, named as the fields of CheckReport; with --repair also what was done.")
@place_options
def check(place: Place, *, repair: bool, yes: bool, as_json: bool) -> None:
    """Read the whole database and prove that every derived entry follows from the rows.

    Lists what is wrong, and the jobs in quarantine: their rows cannot be decoded, and they never run. Exit code 0 when
    nothing is wrong, 1 otherwise; a job in quarantine is out of harm's way and wrong no more.

    With --repair everything derived is rebuilt from the rows, rows that cannot be read go to quarantine, and those that
    can be read again come back. Prints what was done and what is wrong still. Nothing is written where nothing is
    wrong. No other process may have the directory open; a server repairs its own, and its callers wait meanwhile.
    """
    if yes and not repair:
        raise click.UsageError("--yes goes with --repair")
    if not repair:
        with looking(place, beside=True) as view:
            _show(view.check(), None, as_json=as_json)
        return
    place = located(place)
    with refusals():
        done = _of_directory(place.data, yes=yes) if place.server is None else _of_server(place.server, yes=yes)
    _show(done.report, done.done, as_json=as_json)


def _of_directory(data: str, *, yes: bool) -> Repaired:
    owner = lock_owner(Path(os.path.realpath(data)))
    if owner is not None:
        raise QueueLockedError(data, detail=owner)
    report = check_directory(data)
    if report:
        return Repaired(report, (), 0)
    _agree(report, yes=yes)
    return repair_directory(data)


def _of_server(server: Connection, *, yes: bool) -> Repaired:
    with connected(server) as client:
        report = client.check()
        if report:
            return Repaired(report, (), 0)
        _agree(report, yes=yes)
        report = client.check(repair=True)
    note("what was done is in the server's log")
    return Repaired(report, (), 1)


def _agree(report: CheckReport, *, yes: bool) -> None:
    """Say what is wrong, and ask."""
    if yes:
        return
    for problem in report.problems[:_FOUND_SHOWN]:
        note(problem)
    if len(report.problems) > _FOUND_SHOWN:
        note(f"and {len(report.problems) - _FOUND_SHOWN:,} more")
    confirm(f"Repair {many(len(report.problems), 'problem')}?")


def _show(report: CheckReport, done: Sequence[str] | None, *, as_json: bool) -> None:
    """The report on stdout; exit code 1 when something is wrong. `done`: None when nothing was to be done."""
    if as_json:
        line(_as_json(report, done))
    else:
        for sentence in done or ():
            line(f"repaired: {safe(sentence)}")
        if report.repaired > len(done or ()):
            line(f"repaired: {report.repaired - len(done or ()):,} more")
        for problem in report.problems:
            line(f"problem: {safe(problem)}")
        for job_id in report.quarantined:
            line(f"quarantined: {job_id}")
        found = many(len(report.problems), "problem") if report.problems else "nothing is wrong"
        repaired = "" if done is None else f"{report.repaired:,} repaired, "
        line(f"{many(report.rows, 'row')} checked, {repaired}{len(report.quarantined):,} in quarantine: {found}")
    if not report:
        click.get_current_context().exit(EXIT_REFUSED)


def _as_json(report: CheckReport, done: Sequence[str] | None) -> str:
    if done is None:
        return dumps(report)
    return dumps({**to_json(report), "done": list(done)})
