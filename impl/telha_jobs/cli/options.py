"""Options and argument types that the commands share. What is wrong with one is a usage error: exit code 2."""

import re
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import click

from telha_jobs.cli.output import safe
from telha_jobs.cli.times import parse_duration, parse_time
from telha_jobs.config import check_kind_or_family
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.types import SYSTEM_SCOPE

Command = TypeVar("Command", bound=Callable[..., Any])

_DIGITS = re.compile(r"[0-9a-f]{1,32}")
DATA_HELP = "The queue's directory.  [env: TELHA_DATA]"


class ScopeType(click.ParamType[UUID]):
    """A scope: a UUID, or `nil` for the scope of system jobs."""

    name = "uuid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        if isinstance(value, UUID):
            return value
        if value == "nil":
            return SYSTEM_SCOPE
        try:
            return UUID(value)
        except ValueError:
            self.fail(f"a scope is a UUID, or nil for the system scope, not '{safe(value)}'", param, ctx)


class IdType(click.ParamType[str]):
    """A job id or its beginning; the value is its hexadecimal digits."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        digits = str(value).replace("-", "").lower()
        if _DIGITS.fullmatch(digits) is None:
            self.fail(f"a job id is 1 to 32 hexadecimal digits, dashes or not, not '{safe(str(value))}'", param, ctx)
        return digits


class KindFilterType(click.ParamType[str]):
    """An exact kind or a family."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_kind_or_family("kind", value)
        except InvalidArgumentError as error:
            self.fail(error.rule, param, ctx)


class MillisecondsType(click.ParamType[int]):
    """A time or a duration, as milliseconds."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"'{safe(value)}' {error}", param, ctx)


SCOPE, JOB_ID, KIND_FILTER = ScopeType(), IdType(), KindFilterType()
DURATION, TIME = MillisecondsType("duration", parse_duration), MillisecondsType("time", parse_time)


def scope_filter(command: Command) -> Command:
    """`--scope` as a filter."""
    return click.option("--scope", type=SCOPE, help="Only this scope ('nil': the system scope).")(command)


def kind_filter(command: Command) -> Command:
    """`--kind` as a filter."""
    return click.option("--kind", type=KIND_FILTER, help="Only this kind, or family such as 'ingest:*'.")(command)


def json_option(what: str) -> Callable[[Command], Command]:
    """`--json`, saying what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def examples(*commands: str) -> str:
    """The end of a command's help; a backspace tells click to keep the lines as they are."""
    return "\n".join(("\b", "Examples:" if len(commands) > 1 else "Example:", *(f"  {one}" for one in commands)))
