"""Configuration: every field with its meaning, its danger and its default. Wrong values raise `InvalidArgumentError`.

The names follow the seed's §8 (`jobs.lease_ttl` is `lease_ttl_ms`, and so on).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rules import (
    DURATION_MAX_MS,
    EVENTS_BESIDES,
    EVENTS_PER_ATTEMPT,
    KIND_CHARS_MAX,
    KINDS_MAX,
    check_int,
    check_optional_int,
    plain,
    shown,
)

_KIND = re.compile(r"[A-Za-z0-9_.:/+\-]+\Z")
_FAMILY = re.compile(r"[A-Za-z0-9_.:/+\-]*:\*\Z")
_BYTES_MAX = 1_073_741_824
_COUNT_MAX = 1_000_000
_SYSTEM_KINDS = "system:"


@lru_cache(maxsize=4_096)
def is_common_kind(kind: str) -> bool:
    """Whether a str of at most 128 characters is a valid exact name that every scope may use (seed §5)."""
    return is_kind(kind) and not is_system_kind(kind)


@lru_cache(maxsize=4_096)
def is_kind(kind: str) -> bool:
    """Whether a str of at most 128 characters is a valid exact name (seed §5)."""
    return _KIND.match(kind) is not None


def is_system_kind(kind: str) -> bool:
    """Whether a kind belongs to the nil scope only (seed §5)."""
    return kind.startswith(_SYSTEM_KINDS)


def check_kind(where: str, kind: Any) -> str:
    """The kind, if it is a valid exact name (seed §5)."""
    if not isinstance(kind, str):
        raise InvalidArgumentError(where, f"must be a str, not {type(kind).__name__}")
    name = plain(kind)
    if len(name) > KIND_CHARS_MAX or not is_kind(name):
        raise InvalidArgumentError(
            where, f"must be 1 to {KIND_CHARS_MAX} of A-Z a-z 0-9 _ . : / + -, not {name[:140]!r}"
        )
    return name


def check_kind_or_family(where: str, kind: Any) -> str:
    """The kind, if it is an exact name or a family: a prefix through a colon and a star, such as `ingest:*`."""
    name = plain(kind) if isinstance(kind, str) else ""
    if len(name) <= KIND_CHARS_MAX and _FAMILY.match(name) is not None:
        return name
    if name.endswith("*"):
        raise InvalidArgumentError(
            where, f"a family is a prefix through a colon and a star (ingest:*), not {name[:140]!r}"
        )
    return check_kind(where, kind)


def kind_matches(pattern: str, kind: str) -> bool:
    """Whether an exact name or family accepts the kind."""
    return kind.startswith(pattern[:-1]) if pattern.endswith("*") else kind == pattern


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delay before the next attempt: `min(cap_ms, base_ms * factor ** (attempts - 1))` (seed §3).

    Too small a base hammers whatever just failed; too large a cap hides a job for that long.
    """

    base_ms: int = 10_000
    factor: int = 4
    cap_ms: int = 3_600_000

    def __post_init__(self) -> None:
        check_int("base_ms", self.base_ms, 1, DURATION_MAX_MS)
        check_int("factor", self.factor, 1, _COUNT_MAX)
        check_int("cap_ms", self.cap_ms, 1, DURATION_MAX_MS)


@dataclass(frozen=True, kw_only=True)
class KindPolicy:
    """What differs for a kind. None: the queue-wide value.

    A `backoff_base_ms` is base and at-least-cap: `min(max(cap, base), base * factor ** (attempts - 1))` (seed §14,
    v0.2).
    """

    lease_ttl_ms: int | None = None
    max_attempts: int | None = None
    backoff_base_ms: int | None = None
    backoff_factor: int | None = None
    backoff_cap_ms: int | None = None
    max_lease_age_ms: int | None = None

    def __post_init__(self) -> None:
        check_optional_int("lease_ttl_ms", self.lease_ttl_ms, 1, DURATION_MAX_MS)
        check_optional_int("max_attempts", self.max_attempts, 1, _COUNT_MAX)
        check_optional_int("backoff_base_ms", self.backoff_base_ms, 1, DURATION_MAX_MS)
        check_optional_int("backoff_factor", self.backoff_factor, 1, _COUNT_MAX)
        check_optional_int("backoff_cap_ms", self.backoff_cap_ms, 1, DURATION_MAX_MS)
        check_optional_int("max_lease_age_ms", self.max_lease_age_ms, 1, DURATION_MAX_MS)


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """How a queue behaves. It is not stored: each open may use another one.

    - `lease_ttl_ms` (5 min): how long a lease lives without a heartbeat. Too short: slow jobs run twice; too long: a
      dead worker's jobs wait.
    - `reaper_interval_ms` (30 s): pause between the sweeps of `start_reaper`.
    - `max_attempts` (5): leases that may end in failure or expiry before a job is dead. A job's own value wins, then
      its kind's.
    - `backoff`: delay between attempts.
    - `kinds` (none): policies by exact kind or family (`ingest:*`); exact wins, then the longest family. Only one
      policy applies. Kept as a read-only copy.
    - `max_lease_age_ms` (none): no deadline later than this after the grant, whatever is extended. None lets a
      heartbeat keep a job for ever.
    - `retention_completed_ms` (7 days), `retention_dead_ms` (for ever): how long an ended job is kept; fixed when it
      ends. 0: until the next sweep.
    - `durability` ("sync"): an answer waits until what it tells is on stable storage; "os" survives the death of the
      process, not of the machine.
    - `payload_bytes_max` (4 MiB), `result_bytes_max` (1 MiB; progress too): encoded sizes; larger ones are refused.
    - `reason_chars_max` (8,192): failure reasons are cut there, never refused.
    - `events_max` (256): entries of a job's log; the middle of a longer one collapses. At least `4 * max_attempts + 4`.
    - `lease_batch_max` (10,000): most leases granted by one call.
    """

    lease_ttl_ms: int = 300_000
    reaper_interval_ms: int = 30_000
    max_attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    kinds: Mapping[str, KindPolicy] = field(default_factory=dict)
    max_lease_age_ms: int | None = None
    retention_completed_ms: int | None = 604_800_000
    retention_dead_ms: int | None = None
    durability: Literal["sync", "os"] = "sync"
    payload_bytes_max: int = 4_194_304
    result_bytes_max: int = 1_048_576
    reason_chars_max: int = 8_192
    events_max: int = 256
    lease_batch_max: int = 10_000

    def __post_init__(self) -> None:
        check_int("lease_ttl_ms", self.lease_ttl_ms, 1, DURATION_MAX_MS)
        check_int("reaper_interval_ms", self.reaper_interval_ms, 1, DURATION_MAX_MS)
        check_int("max_attempts", self.max_attempts, 1, _COUNT_MAX)
        if not isinstance(self.backoff, Backoff):
            raise InvalidArgumentError("backoff", f"must be a Backoff, not {type(self.backoff).__name__}")
        check_optional_int("max_lease_age_ms", self.max_lease_age_ms, 1, DURATION_MAX_MS)
        check_optional_int("retention_completed_ms", self.retention_completed_ms, 0, DURATION_MAX_MS)
        check_optional_int("retention_dead_ms", self.retention_dead_ms, 0, DURATION_MAX_MS)
        if self.durability not in ("sync", "os"):
            raise InvalidArgumentError("durability", f'must be "sync" or "os", not {shown(self.durability)}')
        check_int("payload_bytes_max", self.payload_bytes_max, 1, _BYTES_MAX)
        check_int("result_bytes_max", self.result_bytes_max, 1, _BYTES_MAX)
        check_int("reason_chars_max", self.reason_chars_max, 1, _COUNT_MAX)
        check_int("events_max", self.events_max, EVENTS_PER_ATTEMPT + EVENTS_BESIDES, _COUNT_MAX)
        check_int("lease_batch_max", self.lease_batch_max, 1, _COUNT_MAX)
        object.__setattr__(self, "kinds", _checked_kinds(self.kinds))
        self._check_relations("", self.policy_in_force(None))
        for name, policy in self.kinds.items():
            self._check_relations(f"kinds[{name!r}].", self.policy_in_force(policy))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"kinds": dict(self.kinds)}  # a read-only mapping cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, kinds=MappingProxyType(state["kinds"]))

    def events_needed(self, max_attempts: int) -> int:
        """How many events a log must hold so that `max_attempts` attempts are told in full."""
        return EVENTS_PER_ATTEMPT * max_attempts + EVENTS_BESIDES

    def policy_in_force(self, policy: KindPolicy | None) -> "Policy":
        """A kind's policy with the queue-wide values filled in."""
        own = KindPolicy() if policy is None else policy
        cap = self.backoff.cap_ms if own.backoff_cap_ms is None else own.backoff_cap_ms
        base = self.backoff.base_ms
        if own.backoff_base_ms is not None:
            base = own.backoff_base_ms
            cap = max(cap, base)
        return Policy(
            lease_ttl_ms=self.lease_ttl_ms if own.lease_ttl_ms is None else own.lease_ttl_ms,
            max_attempts=self.max_attempts if own.max_attempts is None else own.max_attempts,
            backoff=Backoff(
                base_ms=base,
                factor=self.backoff.factor if own.backoff_factor is None else own.backoff_factor,
                cap_ms=cap,
            ),
            max_lease_age_ms=self.max_lease_age_ms if own.max_lease_age_ms is None else own.max_lease_age_ms,
            events_max=self.events_max,
            retention_completed_ms=self.retention_completed_ms,
            retention_dead_ms=self.retention_dead_ms,
        )

    def policy_for(self, kind: str) -> "Policy":
        """The policy of a kind: its exact entry, else the longest family that matches, else the queue-wide values."""
        if kind in self.kinds:
            return self.policy_in_force(self.kinds[kind])
        families = [name for name in self.kinds if name.endswith("*") and kind_matches(name, kind)]
        return self.policy_in_force(self.kinds[max(families, key=len)] if families else None)

    def _check_relations(self, where: str, policy: "Policy") -> None:
        needed = self.events_needed(policy.max_attempts)
        if needed > self.events_max:
            raise InvalidArgumentError(
                f"{where}max_attempts",
                f"{policy.max_attempts} attempts need events_max >= {needed}, it is {self.events_max}",
            )
        if policy.max_lease_age_ms is not None and policy.lease_ttl_ms > policy.max_lease_age_ms:
            raise InvalidArgumentError(
                f"{where}lease_ttl_ms",
                f"{policy.lease_ttl_ms} must fit in max_lease_age_ms ({policy.max_lease_age_ms})",
            )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The values in force for one kind, nothing left open."""

    lease_ttl_ms: int
    max_attempts: int
    backoff: Backoff
    max_lease_age_ms: int | None
    events_max: int
    retention_completed_ms: int | None
    retention_dead_ms: int | None


def _checked_kinds(kinds: Any) -> Mapping[str, KindPolicy]:
    if not isinstance(kinds, Mapping):
        raise InvalidArgumentError("kinds", f"must be a mapping of kind to KindPolicy, not {type(kinds).__name__}")
    if len(kinds) > KINDS_MAX:
        raise InvalidArgumentError("kinds", f"must have at most {KINDS_MAX} entries")
    for name, policy in kinds.items():
        where = f"kinds[{shown(name)}]"
        check_kind_or_family(where, name)
        if not isinstance(policy, KindPolicy):
            raise InvalidArgumentError(where, f"must be a KindPolicy, not {type(policy).__name__}")
    return MappingProxyType(dict(kinds))
