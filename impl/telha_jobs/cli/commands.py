"""The command line: `telha`, its group `jobs`, and what they are told about themselves."""

from typing import Any

import click

from telha_jobs.cli import auditing, checking, configuring, reading, serving, writing
from telha_jobs.cli.options import examples
from telha_jobs.cli.places import group_place_options

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(package_name="telha-jobs", prog_name="telha")
def telha() -> None:
    """Telha: a durable job queue with fenced leases."""


@telha.group(
    epilog=examples(
        "export TELHA_DATA=/var/lib/engine/jobs",
        "telha jobs counts",
        "telha jobs ls --state dead --kind 'ingest:*'",
        "telha jobs show 0199c2f1-7a3e",
        "telha jobs retry --all --reason expired",
        "telha jobs ls --json --limit 0 | jq -r 'select(.attempts > 2) | .job_id'",
        'echo \'{"path": "a.pdf"}\' | telha jobs enqueue ingest:pdf - --scope 3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11',
    )
    + "\n\n\b\n"
    "Exit codes:\n"
    "  0  done\n"
    "  1  refused, the reason is on stderr; what was refused changed nothing\n"
    "  2  usage: a bad argument, an ambiguous id, no --data\n"
)
@group_place_options
@click.pass_context
def jobs(ctx: click.Context, given: dict[str, Any]) -> None:
    """Look at the jobs of a queue, and act on them.

    A queue is a directory (--data DIR, or TELHA_DATA) or a server (--server ADDRESS, or TELHA_SERVER); options may
    stand before or after the command. While a server has the directory open, commands find it by themselves. While
    another process has, ls, show, counts, check, audit and export still work and say that they may show what is not
    durable yet; the others refuse.

    Job ids may be cut short as long as one job is meant, with or without dashes. Data goes to stdout, everything else
    to stderr.
    """
    ctx.obj = given


for command in (
    reading.ls,
    reading.show,
    reading.counts,
    checking.check,
    auditing.audit,
    auditing.export,
    writing.retry,
    writing.cancel,
    writing.discard,
    writing.enqueue,
):
    jobs.add_command(command)
for command in (configuring.config, serving.serve, serving.token):
    telha.add_command(command)
