"""Where a command's queue is: in a directory, or behind a server. The options that say so, in the group or the command.

`--data` and `--server` exclude each other; a flag wins over both variables. A directory whose database is open
elsewhere leads to its server by the file that `telha serve` leaves there (`whereabouts`).
"""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from telha_jobs.cli.options import DATA_HELP
from telha_jobs.cli.output import safe
from telha_jobs.settings import address

Command = TypeVar("Command", bound=Callable[..., Any])

_CONNECTION: Final = (
    ("token_file", "--token-file", "FILE", "A file with the token to show the server.  [env: TELHA_TOKEN, the token]"),
    ("tls_ca", "--tls-ca", "FILE", "PEM of who signs the server's certificate: TLS.  [env: TELHA_TLS_CA]"),
    (
        "tls_certificate",
        "--tls-certificate",
        "FILE",
        "PEM certificate to show the server.  [env: TELHA_TLS_CERTIFICATE]",
    ),
    ("tls_key", "--tls-key", "FILE", "The certificate's PEM key.  [env: TELHA_TLS_KEY]"),
    ("tls_name", "--tls-name", "NAME", "The name in the server's certificate, if it is not that of its address."),
)
_SERVER_HELP: Final = "The address of a server, instead of --data.  [env: TELHA_SERVER]"
_INSECURE_HELP: Final = "Send the token in the clear, also beyond this machine."
_CONFIG_HELP: Final = "Settings for commands that open the queue to change it.  [env: TELHA_CONFIG]"


class Connection(NamedTuple):
    """How to reach a server and what to show it."""

    target: str
    token_file: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_name: str | None = None
    insecure: bool = False


class Place(NamedTuple):
    """A queue's place: `server` if it is set, else the directory `data`. `to_server` is for a server found there."""

    data: str
    server: Connection | None
    to_server: Connection
    config: str | None = None

    def __str__(self) -> str:
        return self.data if self.server is None else self.server.target


def group_place_options(command: Command) -> Command:
    """The options of the group, with the environment behind them; its function takes them as `given`."""

    @wraps(command)
    def gathered(*arguments: Any, **options: Any) -> Any:
        names = ("data", "server", "insecure", "config", *(name for name, *_ in _CONNECTION))
        return command(*arguments, given={name: options.pop(name) for name in names}, **options)

    wrapped: Any = gathered
    for name, flag, metavar, text in reversed(_CONNECTION):
        wrapped = click.option(flag, name, metavar=metavar, help=text, envvar=_variable(name))(wrapped)
    wrapped = click.option("--insecure", is_flag=True, default=None, help=_INSECURE_HELP)(wrapped)
    wrapped = click.option("--config", metavar="FILE", help=_CONFIG_HELP)(wrapped)
    wrapped = click.option("--server", metavar="ADDRESS", help=_SERVER_HELP)(wrapped)
    return click.option("--data", metavar="DIR", help=DATA_HELP)(wrapped)  # type: ignore[no-any-return]  # click's own


def place_options(command: Command) -> Command:
    """The same for a command, whose function takes a `place`: its own options, else the group's."""
    return _place_options(command, required=True)


def optional_place_options(command: Command) -> Command:
    """The same where a command can do without: `place` may be None."""
    return _place_options(command, required=False)


def _place_options(command: Command, *, required: bool) -> Command:
    @wraps(command)
    def placed(*arguments: Any, **options: Any) -> Any:
        ctx = click.get_current_context()
        names = ("data", "server", "insecure", *(name for name, *_ in _CONNECTION))
        own = {name: options.pop(name) for name in names}
        return command(*arguments, place=_place(ctx, own, required=required), **options)

    wrapped: Any = placed
    for name, flag, metavar, _ in reversed(_CONNECTION):
        wrapped = click.option(flag, name, metavar=metavar, hidden=True)(wrapped)
    wrapped = click.option("--insecure", is_flag=True, default=None, hidden=True)(wrapped)
    wrapped = click.option("--server", metavar="ADDRESS", help=_SERVER_HELP)(wrapped)
    return click.option("--data", metavar="DIR", help=DATA_HELP)(wrapped)  # type: ignore[no-any-return]  # click's own


def _place(ctx: click.Context, own: dict[str, Any], *, required: bool) -> Place | None:
    group: dict[str, Any] = ctx.obj or {}
    given = {name: group.get(name) if value is None else value for name, value in own.items()}
    # A flag of the command wins over the group's other one, and a flag over a variable.
    given["data"], given["server"] = _nearest(ctx, own, group)
    connection = Connection("", **{name: given[name] for name, *_ in _CONNECTION}, insecure=bool(given["insecure"]))
    if given["server"] is not None:
        return Place("", connection._replace(target=_target(ctx, given["server"])), connection, group.get("config"))
    if given["data"] is None:
        if not required:
            return None
        raise click.UsageError("which queue? Give --data DIR or --server ADDRESS, or set TELHA_DATA.", ctx)
    if not given["data"] or "\0" in given["data"]:
        raise click.BadParameter("must name a directory", ctx, param_hint="--data")
    return Place(str(given["data"]), None, connection, group.get("config"))


def _nearest(ctx: click.Context, own: dict[str, Any], group: dict[str, Any]) -> tuple[str | None, str | None]:
    environment = {"data": _from_environment("TELHA_DATA"), "server": _from_environment("TELHA_SERVER")}
    for source, names in ((own, ("--data", "--server")), (group, ("--data", "--server")), (environment, _VARIABLES)):
        data, server = source.get("data"), source.get("server")
        if data is not None and server is not None:
            raise click.UsageError(f"{names[0]} and {names[1]} exclude each other: give one", ctx)
        if data is not None or server is not None:
            return data, server
    return None, None


_VARIABLES: Final = ("TELHA_DATA", "TELHA_SERVER")


def _from_environment(name: str) -> str | None:
    return os.environ.get(name) or None  # an empty one is none


def _variable(name: str) -> str | None:
    return f"TELHA_{name.upper()}" if name in ("tls_ca", "tls_certificate", "tls_key") else None


def _target(ctx: click.Context, text: str) -> str:
    try:
        return str(address(text))
    except ValueError as error:
        raise click.BadParameter(safe(str(error)), ctx, param_hint="--server") from None


def token_of(connection: Connection) -> str | None:
    """The token to show: the file's, else that of TELHA_TOKEN. Raises `click.UsageError`."""
    if connection.token_file is None:
        return _from_environment("TELHA_TOKEN")
    try:
        return Path(connection.token_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the token in {safe(connection.token_file)} cannot be read: {error}") from None
