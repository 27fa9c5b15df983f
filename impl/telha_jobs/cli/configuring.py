"""`telha config`, and the options by which a command takes settings: `--config FILE`, `--set KEY=VALUE`."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from telha_jobs.cli.access import refusals
from telha_jobs.cli.options import examples, json_option
from telha_jobs.cli.output import line, safe
from telha_jobs.settings import Flag, Origin, Settings, find_file, load

Command = TypeVar("Command", bound=Callable[..., Any])

_FILE_HELP = "Settings in TOML.  [env: TELHA_CONFIG; default: telha.toml, if there is one here]"
_SET_HELP = "A setting, over file and environment: jobs.lease_ttl=10m. May be given several times."


def settings_options(command: Command) -> Command:
    """`--config` and `--set`, for a function that takes `config` and `assignments`."""
    command = click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help=_SET_HELP)(command)
    return click.option("--config", metavar="FILE", help=_FILE_HELP)(command)


def settings_of(config: str | None, assignments: Sequence[str] = (), flags: Sequence[Flag] = ()) -> Settings:
    """The settings in force; `flags` are those that a command gives names of their own. A wrong one is exit code 2."""
    assigned = []
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, such as jobs.lease_ttl=10m, not '{safe(text)}'")
        assigned.append(Flag(key.strip(), value, "--set"))
    with refusals():
        return load(find_file(config), environment=os.environ, flags=[*assigned, *flags])


@click.command(
    short_help="Show every setting in force, and where it comes from.",
    epilog=examples(
        "telha config",
        "TELHA_JOBS_LEASE_TTL=10m telha config --config /etc/telha.toml",
        "telha config --json | jq -r 'select(.source != \"default\") | .key'",
    ),
)
@settings_options
@json_option("One object per line: key, value, source, and the file with its line, the variable or the flag.")
def config(config: str | None, assignments: tuple[str, ...], *, as_json: bool) -> None:
    """Show every setting in force, its value, and where that comes from.

    A file in TOML, the environment and flags rise in force. Durations are written 300s, 5m, 1h30m or 250ms; a bare
    whole number is seconds. What is wrong is exit code 2: the message names the place, the key and the rule.
    """
    found = settings_of(config, assignments)
    if as_json:
        for one in found.effective:
            line(json.dumps({"key": one.key, "value": one.plain, "source": one.origin.source, **_place(one.origin)}))
        return
    rows = [(one.key, one.text, str(one.origin)) for one in found.effective]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, text, origin in rows:
        line(safe(f"{key:{widths[0]}}  {text:{widths[1]}}  {origin}"))


def _place(origin: Origin) -> dict[str, str | int]:
    match origin.source:
        case "default":
            return {}
        case "file":
            return {"file": origin.name, "line": origin.line}
        case "environment":
            return {"variable": origin.name}
        case "flag":
            return {"flag": origin.name}
