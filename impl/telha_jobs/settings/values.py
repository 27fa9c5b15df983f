"""The types of settings: each takes what a file, the environment or a flag holds, and shows a value as it is written.

A `parse` raises `ValueError` with the rule. From a file come integers, booleans and text; from the environment and from
flags only text, which every type reads as well.
"""

import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from telha_jobs.rules import DURATION_MAX_MS, is_int, shown

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:ms|[smhd]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhd])")
_SECONDS = re.compile(r"[0-9]{1,15}")
_UNITS_BYTES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_SIZE = re.compile(r"([0-9]{1,15})(GiB|MiB|KiB|)")
_INTEGER = re.compile(r"-?[0-9]{1,30}")
_PORT_MAX = 65_535


class Type(NamedTuple):
    """A type of setting. `rule` says what may be written, `base` is the folder that a path in a file is relative to."""

    name: str
    rule: str
    parse: Callable[[Any, Path | None], Any]
    show: Callable[[Any], str]


def duration_ms(value: Any, base: Path | None = None) -> int:
    """Milliseconds of `300s`, `5m`, `1h30m`, `250ms`; a bare whole number is seconds, the unit of the seed's §8."""
    del base
    if is_int(value):
        value = str(value)
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        found = int(value) * 1_000
    elif isinstance(value, str) and _DURATION.fullmatch(value):
        found = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(value))
    else:
        raise ValueError(f"must be {DURATION.rule}, not {shown(value)}")
    if found > DURATION_MAX_MS:
        raise ValueError(f"must be at most {shown_duration(DURATION_MAX_MS)}, not {shown(value)}")
    return found


def shown_duration(duration: int) -> str:
    """A duration in ms as `duration_ms` reads it, in the largest units that lose nothing: `5m`, `1h30m`, `250ms`."""
    parts = []
    rest = duration
    for unit, size in _UNITS_MS.items():
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def size_bytes(value: Any, base: Path | None = None) -> int:
    """Bytes of `4MiB`, or of a bare whole number."""
    del base
    match = _SIZE.fullmatch(str(value)) if is_int(value) or isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {SIZE.rule}, not {shown(value)}")
    return int(match[1]) * _UNITS_BYTES.get(match[2], 1)


def shown_size(size: int) -> str:
    """A number of bytes as `size_bytes` reads it: `4MiB`."""
    unit = next((unit for unit, factor in _UNITS_BYTES.items() if size and size % factor == 0), "")
    return f"{size // _UNITS_BYTES.get(unit, 1)}{unit}"


def whole_number(value: Any, base: Path | None = None) -> int:
    """A whole number, or text that is one."""
    del base
    if is_int(value):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise ValueError(f"must be {NUMBER.rule}, not {shown(value)}")


def flag(value: Any, base: Path | None = None) -> bool:
    """`true` or `false`."""
    del base
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise ValueError(f"must be {FLAG.rule}, not {shown(value)}")


def file_path(value: Any, base: Path | None = None) -> Path:
    """A path. One from a file is relative to the file's folder, any other to the working directory."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"must be {PATH.rule}, not {shown(value)}")
    return Path(value) if base is None else base / value


class Address(NamedTuple):
    """Where to listen: a host and a port, or (host empty) the path of a unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it: a unix socket, the loopback addresses, `localhost`."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def address(value: Any, base: Path | None = None) -> Address:
    """`127.0.0.1:7700`, `[::1]:7700`, `name:7700`, `unix:/run/telha.sock`. Port 0: one that is free."""
    del base
    if not isinstance(value, str):
        raise ValueError(f"must be {ADDRESS.rule}, not {shown(value)}")
    if value.startswith("unix:"):
        path = value.removeprefix("unix:").removeprefix("//")
        if path and "\0" not in path:
            return Address("", 0, path)
        raise ValueError(f"must be {ADDRESS.rule}, not {shown(value)}")
    host, colon, port = value.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    known = colon and bare and bare.isprintable() and not set(bare) & set(" /[]")
    if not known or (":" in bare) != bracketed or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ValueError(f"must be {ADDRESS.rule}, not {shown(value)}")
    return Address(bare, int(port))


def one_of(*names: str) -> Type:
    """One of some words."""
    rule = " or ".join(f'"{name}"' for name in names)

    def parse(value: Any, base: Path | None) -> str:
        del base
        if value not in names:
            raise ValueError(f"must be {rule}, not {shown(value)}")
        return str(value)

    return Type("word", rule, parse, str)


def within(kind: Type, low: int, high: int) -> Type:
    """A type with bounds."""
    bounds = f"from {kind.show(low)} to {kind.show(high)}"

    def parse(value: Any, base: Path | None) -> Any:
        found = kind.parse(value, base)
        if not low <= found <= high:
            raise ValueError(f"must be {bounds}, not {kind.show(found)}")
        return found

    return Type(kind.name, f"{kind.rule}, {bounds}", parse, kind.show)


def or_word(kind: Type, word: str) -> Type:
    """A type that also has a word for "there is none"; the value is None then."""

    def parse(value: Any, base: Path | None) -> Any:
        if value == word:
            return None
        try:
            return kind.parse(value, base)
        except ValueError as error:
            raise ValueError(str(error).replace("must be ", f'must be "{word}", or ', 1)) from None

    def show(value: Any) -> str:
        return word if value is None else kind.show(value)

    return Type(kind.name, f'{kind.rule}, or "{word}"', parse, show)


DURATION = Type(
    "duration",
    'a duration such as "300s", "5m", "1h30m", "250ms", or a whole number of seconds',
    duration_ms,
    shown_duration,
)
SIZE = Type("size", 'a size such as "4MiB", "64KiB", or a whole number of bytes', size_bytes, shown_size)
NUMBER = Type("number", "a whole number", whole_number, str)
FLAG = Type("flag", "true or false", flag, lambda value: "true" if value else "false")
PATH = Type("path", "the path of a file", file_path, str)
_TCP_RULE = 'an address: "HOST:PORT" or "[IPV6]:PORT"'


def _tcp_address(value: Any, base: Path | None = None) -> Address:
    """An address that is no unix socket."""
    found = None if isinstance(value, str) and value.startswith("unix:") else address(value, base)
    if found is None:
        raise ValueError(f"must be {_TCP_RULE}, not {shown(value)}")
    return found


TCP_ADDRESS = Type("address", _TCP_RULE, _tcp_address, str)
ADDRESS = Type("address", 'an address: "HOST:PORT", "[IPV6]:PORT" or "unix:PATH"', address, str)
