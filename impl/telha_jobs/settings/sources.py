"""Where settings come from: a TOML file, the environment, flags. Each is read into `Given`s, checked one by one.

What is wrong raises `SettingsError`: it names the place (file and line, variable, flag), the key and the rule. A key
that does not exist is an error, and the message has the one that was probably meant.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from telha_jobs.config import check_kind_or_family
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.settings.table import (
    KINDS,
    PREFIX,
    SETTINGS,
    Key,
    children,
    dotted,
    parsed_key,
    setting_of,
    variable,
)

FILE_BYTES_MAX = 16 << 20
_KEY_PARTS_MAX = 8
"""More than any setting has: places of longer keys are nobody's question."""
_SECTIONS = tuple(sorted({key[0] for key in SETTINGS}))
_LINKED = re.compile(r"_SERVICE_(HOST|PORT(_.+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_.+)?)?$")
"""What container platforms set for a service called `telha-jobs` or `telha-server`: theirs, not settings."""


class Origin(NamedTuple):
    """Where a value comes from. `name` is the file, variable or flag; `line` counts from 1 (0: no file)."""

    source: Literal["default", "file", "environment", "flag"]
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        match self.source:
            case "default":
                return "default"
            case "file":
                return f"{self.name}:{self.line}"
            case "environment" | "flag":
                return self.name


DEFAULT = Origin("default")


class SettingsError(InvalidArgumentError):
    """A setting is wrong. `field` is its key as TOML writes it, `origin` the place, `rule` what it breaks."""

    origin: Origin

    def __init__(self, origin: Origin, field: str, rule: str) -> None:
        super().__init__(field, rule)
        self.origin = origin
        where = "" if origin is DEFAULT else f"{origin}: "
        self.message = f"{where}{field}: {rule}" if field else f"{where}{rule}"


class Given(NamedTuple):
    """One value that somebody gave."""

    key: Key
    value: Any
    origin: Origin


class Flag(NamedTuple):
    """A value given on a command line: the key, the text (or bool), and the flag as the user knows it (`--listen`)."""

    key: str
    value: str | bool
    name: str


def from_file(path: Path) -> list[Given]:
    """The settings in a TOML file. Raises `SettingsError` also when it cannot be read."""
    here = Origin("file", str(path), 1)
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(here, "", f"is no UTF-8: byte {error.start} is wrong") from None
    except OSError as error:
        raise SettingsError(here, "", f"cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise SettingsError(here, "", f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        found = tomllib.loads(text)
    except ValueError as error:  # also for integers of thousands of digits, which Python will not read
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line = int(match[1]) if match else 1 + text.count("\n")
        raise SettingsError(here._replace(line=line), "", f"is no TOML: {error}") from None
    except RecursionError:
        raise SettingsError(here, "", "nests too deep") from None
    lines = _lines(text)

    def origin(key: Key) -> Origin:
        return here._replace(line=next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), 1))

    return [_checked(key, value, origin(key), path.parent) for key, value in _leaves((), found, origin)]


def from_environment(environment: Mapping[str, str]) -> list[Given]:
    """The settings among environment variables, those of `TELHA_JOBS_KINDS` (an inline TOML table) first."""
    keys = {variable(key): key for key in SETTINGS}
    kinds = variable(KINDS)
    found: list[Given] = []
    for name in sorted(environment):
        origin = Origin("environment", name)
        if name == kinds:
            found = [*_inline(KINDS, environment[name], origin), *found]
        elif name in keys:
            found.append(_checked(keys[name], environment[name], origin, None))
        elif name.startswith(tuple(f"{PREFIX}{section.upper()}_" for section in _SECTIONS)) and not _LINKED.search(
            name
        ):
            raise SettingsError(origin, "", "no setting has this variable" + _meant(name, [*keys, kinds]))
    return found


def from_flags(flags: Iterable[Flag]) -> list[Given]:
    """The settings given as flags, in their order."""
    found = []
    for given in flags:
        origin = Origin("flag", given.name)
        try:
            key = parsed_key(given.key)
        except ValueError as error:
            raise SettingsError(origin, given.key, str(error)) from None
        _require_known(key, origin)
        found.append(_checked(key, given.value, origin, None))
    return found


def _inline(key: Key, text: str, origin: Origin) -> list[Given]:
    rule = 'must be an inline table: { "ingest:*" = { lease_ttl = "10m" } }'
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        raise SettingsError(origin, dotted(key), rule) from None
    if table.keys() != {"value"} or not isinstance(table["value"], dict):
        raise SettingsError(origin, dotted(key), rule)
    leaves = _leaves(key, table["value"], lambda _: origin)
    return [_checked(leaf, value, origin, None) for leaf, value in leaves]


def _checked(key: Key, value: Any, origin: Origin, base: Path | None) -> Given:
    setting = setting_of(key)
    if setting is None:
        raise SettingsError(origin, dotted(key), "must be a table")
    try:
        return Given(key, setting.type.parse(value, base), origin)
    except ValueError as error:
        raise SettingsError(origin, dotted(key), str(error)) from None


def _leaves(key: Key, table: dict[str, Any], origin: Any) -> Iterator[tuple[Key, Any]]:
    """Every value of a table and those within, with its key; every name on the way is known."""
    for name, value in table.items():
        inner = (*key, name)
        is_table = _require_known(inner, origin(inner))
        if is_table and not isinstance(value, dict):
            raise SettingsError(origin(inner), dotted(inner), f"must be a table, not {type(value).__name__}")
        if isinstance(value, dict) and is_table:
            yield from _leaves(inner, value, origin)
        else:
            yield inner, value


def _require_known(key: Key, origin: Origin) -> bool:
    """Whether the key is that of a table. Raises `SettingsError` for one that does not exist."""
    is_table = True
    for depth, part in enumerate(key):
        within = key[:depth]
        names = children(within)
        if names is None:
            try:
                check_kind_or_family("", part)
            except InvalidArgumentError as error:
                raise SettingsError(origin, dotted(key[: depth + 1]), f"as a kind {error.rule}") from None
            continue
        if part not in names:
            known = [dotted((*within, name)) for name in names] + [dotted(one) for one in SETTINGS]
            raise SettingsError(origin, dotted(key), "there is no such setting" + _meant(dotted(key), known))
        is_table = names[part]
    return is_table


def _meant(given: str, known: list[str]) -> str:
    """What to do about a name that does not exist: the one that was meant, as far as one can tell."""
    last = [one for one in known if one.rpartition(".")[2] == given.rpartition(".")[2]]
    close = last[:1] or get_close_matches(given, known, n=1, cutoff=0.7)
    return f"; is {close[0]} meant?" if close else "; telha config shows all of them"


def _lines(text: str) -> dict[Key, int]:
    """The line on which each key of a valid TOML document is given first: its statements, parsed one by one."""
    found: dict[Key, int] = {}
    section: Key = ()
    begun, statement = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            begun = number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except ValueError:
            continue  # it goes on
        is_header = statement.lstrip().startswith("[")
        keys = list(_keys((), parsed))
        if is_header and keys:
            section = keys[-1]
            found.setdefault(section, begun)
        else:
            for key in keys:
                found.setdefault((*section, *key), begun)
        statement = ""
    return found


def _keys(key: Key, table: dict[str, Any]) -> Iterator[Key]:
    for name, value in table.items():
        yield (*key, name)
        if isinstance(value, list) and len(value) == 1 and value[0] == {}:
            continue  # the header of an array of tables
        if isinstance(value, dict) and len(key) < _KEY_PARTS_MAX:
            yield from _keys((*key, name), value)
