"""Settings: `telha.toml`, the environment and flags, rising in force, become a `QueueConfig` and a `ServerSettings`.

    from telha_jobs import settings

    found = settings.load(settings.find_file())
    with JobQueue.open("jobs.db", config=found.queue) as queue: ...

Nothing here needs more than the standard library, so that `telha config` and an embedded queue have it without the
extra `[server]`. docs/configuration.md lists every setting.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telha_jobs.config import Backoff, KindPolicy, QueueConfig
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.settings.sources import (
    DEFAULT,
    Flag,
    Given,
    Origin,
    SettingsError,
    from_environment,
    from_file,
    from_flags,
)
from telha_jobs.settings.table import (
    BACKOFF_SETTINGS,
    KIND_SETTINGS,
    KINDS,
    QUEUE_SETTINGS,
    SERVER_SETTINGS,
    SETTINGS,
    Key,
    Setting,
    dotted,
    setting_of,
)
from telha_jobs.settings.values import DURATION, Address, address, shown_duration

__all__ = ["Address", "Flag", "Origin", "ServerSettings", "Settings", "SettingsError", "address", "find_file", "load"]

FILE_NAME = "telha.toml"
FILE_VARIABLE = "TELHA_CONFIG"
_KIND_FIELD = re.compile(r"kinds\[(?P<kind>.+)\](?:\.(?P<field>\w+))?")
_PARTNERS = {"max_attempts": "events_max", "lease_ttl": "max_lease_age"}
"""Settings that a relation ties: when the first is at its default, the second is the one that was given."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What `telha serve` needs besides the queue's configuration; docs/configuration.md has the meanings."""

    listen: Address
    insecure: bool
    metrics: Address | None
    metrics_insecure: bool
    tokens: Path | None
    grace_ms: int
    tls_certificate: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    message_bytes_max: int
    calls_max: int
    polls_max: int
    connections_max: int


@dataclass(frozen=True)
class Effective:
    """One setting in force: its key and value as TOML writes them (`text`), the value, and where it comes from."""

    key: str
    text: str
    value: Any
    origin: Origin

    @property
    def plain(self) -> str | int:
        """The value as TOML has it: a number or a boolean where it is one, else text."""
        is_number = isinstance(self.value, int) and self.text == str(self.value)
        return self.value if is_number or isinstance(self.value, bool) else self.text


@dataclass(frozen=True)
class Settings:
    """Everything in force."""

    queue: QueueConfig
    server: ServerSettings
    effective: tuple[Effective, ...]

    def origin(self, key: str) -> Origin:
        """Where the value of a key comes from."""
        return next((one.origin for one in self.effective if one.key == key), DEFAULT)


def find_file(given: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read: the one given, else that of `TELHA_CONFIG`, else `telha.toml` here if there is one."""
    if given is not None:
        return Path(given)
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    return Path(FILE_NAME) if Path(FILE_NAME).exists() else None


def load(
    file: Path | None = None, *, environment: Mapping[str, str] = os.environ, flags: Iterable[Flag] = ()
) -> Settings:
    """Read the sources, each over the one before. Raises `SettingsError` for the first thing that is wrong."""
    given: dict[Key, Given] = {}
    for source in ([] if file is None else from_file(file), from_environment(environment), from_flags(flags)):
        given.update((one.key, one) for one in source)
    queue = _queue(given)
    return Settings(queue, _server(given), tuple(_effective(given)))


def _taken(settings: Iterable[Setting], given: Mapping[Key, Given], within: Key = ()) -> dict[str, Any]:
    """The values of some settings by the field that takes each."""
    found = {}
    for one in settings:
        key = within + one.key
        found[one.field] = given[key].value if key in given else one.default
    return found


def _queue(given: Mapping[Key, Given]) -> QueueConfig:
    try:
        backoff = Backoff(**_taken(BACKOFF_SETTINGS, given))
    except InvalidArgumentError as error:
        raise _refused(_key_of(error.field, BACKOFF_SETTINGS), error.rule, given) from None
    kinds = {}
    for name in dict.fromkeys(key[len(KINDS)] for key in given if key[: len(KINDS)] == KINDS):
        within = (*KINDS, name)
        try:
            kinds[name] = KindPolicy(**_taken(KIND_SETTINGS, given, within))
        except InvalidArgumentError as error:
            raise _refused(within + _key_of(error.field, KIND_SETTINGS), error.rule, given) from None
    try:
        return QueueConfig(**_taken(QUEUE_SETTINGS, given), backoff=backoff, kinds=kinds)
    except InvalidArgumentError as error:
        match = _KIND_FIELD.fullmatch(error.field)
        if match is None:
            key = _key_of(error.field, QUEUE_SETTINGS)
        else:
            name = next(one for one in kinds if repr(one)[:140] == match["kind"])
            key = (*KINDS, name, *(_key_of(match["field"], KIND_SETTINGS) if match["field"] else ()))
        raise _refused(key, error.rule, given) from None


def _server(given: Mapping[Key, Given]) -> ServerSettings:
    server = ServerSettings(**_taken(SERVER_SETTINGS, given))
    tls = ("server", "tls")
    if (server.tls_certificate is None) != (server.tls_key is None):
        key = (*tls, "certificate" if server.tls_key is None else "key")
        missing = "server.tls.key" if server.tls_key is None else "server.tls.certificate"
        raise _refused(key, f"goes with {missing}, which is not given", given)
    if server.tls_client_ca is not None and server.tls_key is None:
        raise _refused((*tls, "client_ca"), "goes with server.tls.certificate and server.tls.key", given)
    if not server.listen.local and server.tls_key is None and not server.insecure:
        rule = "is reached from other machines: give server.tls.certificate and server.tls.key, or server.insecure"
        raise _refused(("server", "listen"), f"{server.listen} {rule}", given)
    if server.metrics is not None and not server.metrics.local and not server.metrics_insecure:
        rule = "is reached from other machines: that needs server.metrics_insecure"
        raise _refused(("server", "metrics"), f"{server.metrics} {rule}", given)
    return server


def _effective(given: Mapping[Key, Given]) -> Iterable[Effective]:
    kinds = sorted(key for key in given if key[: len(KINDS)] == KINDS)
    server = [key for key in SETTINGS if key[0] == "server"]
    for key in (*(key for key in SETTINGS if key[0] != "server"), *kinds, *server):
        setting = setting_of(key)
        if setting is not None:
            value = given[key].value if key in given else setting.default
            yield Effective(dotted(key), setting.type.show(value), value, _origin(key, given))


def _key_of(field: str, settings: Iterable[Setting]) -> Key:
    return next(one.key for one in settings if one.field == field)


def _origin(key: Key, given: Mapping[Key, Given]) -> Origin:
    return given[key].origin if key in given else DEFAULT


def _refused(key: Key, rule: str, given: Mapping[Key, Given]) -> SettingsError:
    """The refusal in terms of settings: durations as they are written, keys instead of fields, the place to look at."""
    setting = setting_of(key)
    if setting is not None and setting.type.name == DURATION.name:
        rule = re.sub(r"\d+", lambda number: shown_duration(int(number[0])), rule)
    rule = re.sub(r"\bmax_lease_age_ms\b", "max_lease_age", rule)
    origin = _origin(key, given)
    partner = _PARTNERS.get(key[-1])
    if origin is DEFAULT and partner is not None:
        places = [(*key[:-1], partner), (KINDS[0], partner), (KINDS[0], key[-1])]
        origin = next((given[one].origin for one in places if one in given), DEFAULT)
    return SettingsError(origin, dotted(key), rule)
