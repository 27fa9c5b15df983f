"""`audit` and `export`: every job's log against the rules, from the database or from lines of JSON. They only look."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from uuid import UUID

import click

from telha_jobs.audit import Across, Finding, LineError, Marks, job_of, replay, row_of
from telha_jobs.cli.access import Look, looking
from telha_jobs.cli.options import examples, json_option
from telha_jobs.cli.output import EXIT_REFUSED, Refused, line, many, note, safe
from telha_jobs.cli.places import Place, optional_place_options, place_options
from telha_jobs.json_form import dumps, to_json
from telha_jobs.types import Job

_PROGRESS_JOBS = 100_000


class _Told(NamedTuple):
    """One job to audit: `job` None where it cannot be read, and why in `problem`."""

    job_id: UUID | None
    job: Job | None
    marks: Marks | None
    problem: str = ""


@click.command(
    short_help="Replay every job's log, and hold jobs against each other.",
    epilog=examples(
        "telha jobs audit",
        "telha jobs audit --json | jq -r 'select(.rule) | .job_id'",
        "telha jobs export | ssh elsewhere telha jobs audit --log -",
    ),
)
@click.option(
    "--log",
    "log",
    metavar="FILE|-",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Lines of `telha jobs export`, or of `ls --json --limit 0`, instead of a database.",
)
@json_option("One object per finding, and one with the sums.")
@optional_place_options
@click.pass_context
def audit(ctx: click.Context, place: Place | None, log: str | None, *, as_json: bool) -> None:
    """Take every job's event log through the transition table, and hold the job against what it tells.

    Names the first rule that each job breaks, then those that jobs break in each other's company: ids, keys, commits,
    incarnations, the order of grants. Exit code 0 when no rule is broken, 1 otherwise. What depends on the
    configuration, such as the length of a back-off, is only held to be plausible.
    """
    if log is not None and any(ctx.params.get(name) is not None for name in ("data", "server")):
        raise click.UsageError("give a queue with --data or --server, or lines with --log, not both", ctx)
    with ExitStack() as open_now:
        if log is not None:
            jobs = _of_lines(open_now.enter_context(_text(log)))
        else:
            jobs = _of_rows(open_now.enter_context(looking(_given(ctx, place), beside=True)))
        found = _audited(jobs, as_json=as_json)
    if found:
        ctx.exit(EXIT_REFUSED)


@click.command(
    short_help="Print every job with its log, as lines of JSON.",
    epilog=examples("telha jobs export >jobs.ndjson && telha jobs audit --log jobs.ndjson"),
)
@place_options
def export(place: Place) -> None:
    """Print every job: the fields of Job, as `ls --json` does, and under `row` what its row says besides.

    `telha jobs audit --log` reads it, on any machine. Exit code 1 when jobs could not be read.
    """
    unreadable = 0
    with looking(place, beside=True) as view:
        for _, found in view.rows():
            if found is None:
                unreadable += 1
                continue
            job, marks = found
            line(json.dumps({**to_json(job), "row": row_of(marks)}, allow_nan=False))
    if unreadable:
        raise Refused(f"left out, because unreadable: {many(unreadable, 'job')}; see telha jobs check")


def _given(ctx: click.Context, place: Place | None) -> Place:
    if place is None:
        raise click.UsageError("what is to be audited? Give --data DIR, --server ADDRESS or --log FILE.", ctx)
    return place


@contextmanager
def _text(log: str) -> Iterator[Iterator[str]]:
    """The lines of a file or of stdin; bytes that are no UTF-8 make their line no JSON."""
    if log == "-":
        yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="surrogateescape")
        return
    with open(log, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  a path as it was given
        yield file


def _of_rows(view: Look) -> Iterator[_Told]:
    for job_id, found in view.rows():
        if found is None:
            yield _Told(job_id, None, None, "")
        else:
            yield _Told(job_id, *found)


def _of_lines(lines: Iterator[str]) -> Iterator[_Told]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            job, marks = job_of(text)
        except LineError as error:
            yield _Told(None, None, None, f"line {number} is no job: {error}")
        else:
            yield _Told(job.job_id, job, marks)


def _audited(jobs: Iterator[_Told], *, as_json: bool) -> int:
    """Audit one after another, then all together; how many findings there were."""
    audited = events = findings = unreadable = 0
    with Across() as across:
        for told in jobs:
            job = told.job
            if job is None:
                unreadable += told.job_id is not None
                if told.problem:
                    findings += 1
                    _show(Finding(None, "line", told.problem), as_json=as_json)
                continue
            audited += 1
            events += len(job.events)
            result = replay(job, told.marks)
            if isinstance(result, Finding):
                findings += 1
                _show(result, as_json=as_json)
            else:
                across.take(job, result, told.marks)
            if audited % _PROGRESS_JOBS == 0 and sys.stderr.isatty():
                note(f"{audited:,} jobs audited so far")
        for finding in across.findings():
            findings += 1
            _show(finding, as_json=as_json)
    for group in across.unjudged:
        note(f"{group}: too many jobs wait there for the order of grants to be judged")
    if unreadable:
        note(f"not audited, because unreadable: {many(unreadable, 'job')}; see telha jobs check")
    verdict = "every log tells the truth" if not findings else many(findings, "finding")
    if as_json:
        line(dumps({"jobs": audited, "events": events, "findings": findings, "unreadable": unreadable}))
    else:
        line(f"{many(audited, 'job')}, {many(events, 'event')} audited: {verdict}")
    return findings


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        line(dumps({"job_id": finding.job_id, "rule": finding.rule, "sentence": finding.sentence}))
    else:
        name = "log" if finding.job_id is None else f"job {finding.job_id}"
        line(f"{name}: {finding.rule}: {safe(finding.sentence)}")
