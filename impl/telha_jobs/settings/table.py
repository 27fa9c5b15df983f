"""Every setting, as data: its key, its type, where its value goes, and what it means.

The names are the seed's (§8): `jobs.lease_ttl`, `jobs.backoff.base`; a kind or family has a table of its own,
`jobs.kinds."ingest:*"`, with the settings of `KIND_SETTINGS`. `server` is what `telha serve` needs besides.
The meanings of `jobs` and their dangers stand with `QueueConfig`.
"""

import tomllib
from typing import Any, Final, NamedTuple

from telha_jobs.config import Backoff, QueueConfig
from telha_jobs.settings.values import (
    ADDRESS,
    DURATION,
    FLAG,
    NUMBER,
    PATH,
    SIZE,
    TCP_ADDRESS,
    Address,
    Type,
    one_of,
    or_word,
    within,
)

Key = tuple[str, ...]
"""A setting's key, part by part: `("jobs", "kinds", "ingest:*", "lease_ttl")`."""

KINDS: Final[Key] = ("jobs", "kinds")
PREFIX: Final = "TELHA_"


class Setting(NamedTuple):
    """One setting. `field` is the attribute that takes its value."""

    key: Key
    type: Type
    default: Any
    field: str
    meaning: str


_QUEUE = QueueConfig()
_BACKOFF = Backoff()
_FOREVER = or_word(DURATION, "forever")
_OFF = or_word(PATH, "off")


def _jobs(name: str, kind: Type, field: str, meaning: str) -> Setting:
    return Setting(("jobs", *name.split(".")), kind, getattr(_QUEUE, field), field, meaning)


def _backoff(name: str, kind: Type, field: str, meaning: str) -> Setting:
    return Setting(("jobs", "backoff", name), kind, getattr(_BACKOFF, field), field, meaning)


QUEUE_SETTINGS: Final = (
    _jobs("lease_ttl", DURATION, "lease_ttl_ms", "how long a lease lives without a heartbeat"),
    _jobs("reaper_interval", DURATION, "reaper_interval_ms", "pause between two sweeps"),
    _jobs("max_attempts", NUMBER, "max_attempts", "leases that may end in failure or expiry before a job is dead"),
    _jobs(
        "max_lease_age", or_word(DURATION, "none"), "max_lease_age_ms", "no deadline later than this after the grant"
    ),
    _jobs("retention_completed", _FOREVER, "retention_completed_ms", "how long a completed job is kept"),
    _jobs("retention_dead", _FOREVER, "retention_dead_ms", "how long a dead job is kept"),
    _jobs("durability", one_of("sync", "os"), "durability", "what an answer waits for"),
    _jobs("payload_bytes_max", SIZE, "payload_bytes_max", "largest encoded payload"),
    _jobs("result_bytes_max", SIZE, "result_bytes_max", "largest encoded result or progress"),
    _jobs("reason_chars_max", NUMBER, "reason_chars_max", "where failure reasons are cut"),
    _jobs("events_max", NUMBER, "events_max", "entries of a job's log, at least 4 * max_attempts + 4"),
    _jobs("lease_batch_max", NUMBER, "lease_batch_max", "most leases granted by one call"),
)
BACKOFF_SETTINGS: Final = (
    _backoff("base", DURATION, "base_ms", "delay after the first failed attempt"),
    _backoff("factor", NUMBER, "factor", "by what it grows with each attempt"),
    _backoff("cap", DURATION, "cap_ms", "no delay longer than this"),
)
KIND_SETTINGS: Final = (
    Setting(("lease_ttl",), DURATION, None, "lease_ttl_ms", "instead of jobs.lease_ttl"),
    Setting(("max_attempts",), NUMBER, None, "max_attempts", "instead of jobs.max_attempts"),
    Setting(("max_lease_age",), DURATION, None, "max_lease_age_ms", "instead of jobs.max_lease_age"),
    Setting(("backoff", "base"), DURATION, None, "backoff_base_ms", "both base and at-least-cap"),
    Setting(("backoff", "factor"), NUMBER, None, "backoff_factor", "instead of jobs.backoff.factor"),
    Setting(("backoff", "cap"), DURATION, None, "backoff_cap_ms", "instead of jobs.backoff.cap"),
)


def _server(name: str, kind: Type, meaning: str, *, default: Any = None) -> Setting:
    parts = name.split(".")
    durations = {"grace": "grace_ms"}
    field = "_".join(parts) if parts[0] == "tls" else durations.get(name, parts[-1])
    return Setting(("server", *parts), kind, default, field, meaning)


_COUNT = within(NUMBER, 1, 1_000_000)
SERVER_SETTINGS: Final = (
    _server("listen", ADDRESS, "where the server listens", default=Address("127.0.0.1", 7700)),
    _server("insecure", FLAG, "listen beyond this machine without TLS all the same", default=False),
    _server("metrics", or_word(TCP_ADDRESS, "off"), "where /metrics and /healthz are answered"),
    _server(
        "metrics_insecure", FLAG, "answer those beyond this machine: no TLS, no tokens, kinds are named", default=False
    ),
    _server("tokens", _OFF, "file of the tokens that may call, hashed"),
    _server("grace", within(DURATION, 0, 86_400_000), "how long a stopping server takes submits", default=30_000),
    _server("tls.certificate", _OFF, "PEM chain of the server; with its key: TLS"),
    _server("tls.key", _OFF, "the certificate's PEM key"),
    _server("tls.client_ca", _OFF, "PEM of who signs clients: mutual TLS"),
    _server("limits.message_bytes_max", within(SIZE, 1 << 10, 1 << 30), "largest message either way", default=16 << 20),
    _server("limits.calls_max", _COUNT, "calls in flight, polls apart", default=1_000),
    _server("limits.polls_max", _COUNT, "open polls", default=20_000),
    _server("limits.connections_max", _COUNT, "open connections", default=1_000),
)
SETTINGS: Final = {one.key: one for one in (*QUEUE_SETTINGS, *BACKOFF_SETTINGS, *SERVER_SETTINGS)}
KIND_FIELDS: Final = {one.key: one for one in KIND_SETTINGS}


def setting_of(key: Key) -> Setting | None:
    """The setting that a key names, that of a kind too; None: there is none."""
    if key[: len(KINDS)] == KINDS and len(key) > len(KINDS) + 1:
        return KIND_FIELDS.get(key[len(KINDS) + 1 :])
    return SETTINGS.get(key)


def children(key: Key) -> dict[str, bool] | None:
    """The names that may stand in a table, each with whether it is a table; None: any kind may."""
    if key == KINDS:
        return None
    inside, known = (key, list(SETTINGS)) if key[: len(KINDS)] != KINDS else (key[len(KINDS) + 1 :], list(KIND_FIELDS))
    depth = len(inside)
    found = {one[depth]: len(one) > depth + 1 for one in known if one[:depth] == inside and len(one) > depth}
    return {**found, KINDS[-1]: True} if key == KINDS[:-1] else found


def dotted(key: Key) -> str:
    """The key as TOML writes it: `jobs.kinds."ingest:*".lease_ttl`."""
    return ".".join(
        part if _is_bare(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in key
    )


def parsed_key(text: str) -> Key:
    """A key as TOML writes it, part by part. Raises `ValueError`."""
    if "\n" in text or "=" in text:
        raise ValueError("must be a key such as jobs.lease_ttl")
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        raise ValueError('must be a key such as jobs.lease_ttl or jobs.kinds."ingest:*".lease_ttl') from None
    parts = []
    while isinstance(found, dict):
        [(part, found)] = found.items()
        parts.append(part)
    return tuple(parts)


def variable(key: Key) -> str:
    """The environment variable of a setting: `TELHA_JOBS_LEASE_TTL`."""
    return PREFIX + "_".join(key).upper()


def _is_bare(part: str) -> bool:
    return part != "" and part.isascii() and part.replace("_", "a").replace("-", "a").isalnum()
