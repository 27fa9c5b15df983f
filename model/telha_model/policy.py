"""What the settings say about one kind: time to live, attempts, back-off, greatest age of a lease.

An exact entry wins over every family, a longer family over a shorter one. A field that the chosen entry leaves open
takes the queue-wide value, never that of another entry.
"""

from typing import Final

from telha_model.types import EVENTS_PER_ATTEMPT, Config, KindPolicy, add_ms, matches

NO_POLICY: Final = KindPolicy()


def policy(config: Config, kind: str) -> KindPolicy:
    """The entry that governs `kind`, or one that leaves everything open."""
    chosen, chosen_length = NO_POLICY, -1
    for pattern, entry in config.kinds:
        if pattern == kind:
            return entry
        if len(pattern) > chosen_length and matches(pattern, kind):
            chosen, chosen_length = entry, len(pattern)
    return chosen


def lease_ttl_ms(config: Config, kind: str) -> int:
    """How long a lease of this kind lasts unless it is extended."""
    own = policy(config, kind).lease_ttl_ms if config.kinds else None
    return config.lease_ttl_ms if own is None else own


def max_lease_age_ms(config: Config, kind: str) -> int | None:
    """The age that no lease of this kind outlives, or None."""
    own = policy(config, kind).max_lease_age_ms if config.kinds else None
    return config.max_lease_age_ms if own is None else own


def max_attempts(config: Config, kind: str, own: int | None) -> int:
    """How many leases may end in failure or expiry: the job's number, else the kind's, else the queue's."""
    if own is not None:
        return own
    of_kind = policy(config, kind).max_attempts if config.kinds else None
    return config.max_attempts if of_kind is None else of_kind


def backoff_ms(config: Config, kind: str, attempts: int) -> int:
    """The pause after the failure or expiry that made the count `attempts` (1 or more).

    A base of the kind's own is also the least cap (seed, changelog v0.2), so that a slow kind never paces faster than
    its base.
    """
    general = config.backoff
    own = policy(config, kind) if config.kinds else NO_POLICY
    factor = general.factor if own.backoff_factor is None else own.backoff_factor
    cap = general.cap_ms if own.backoff_cap_ms is None else own.backoff_cap_ms
    if own.backoff_base_ms is None:
        return min(cap, general.base_ms * int(factor ** (attempts - 1)))
    return min(max(cap, own.backoff_base_ms), own.backoff_base_ms * int(factor ** (attempts - 1)))


def config_problem(config: Config) -> str | None:
    """The name of the first setting that breaks a rule, or None.

    Besides the ranges there are two relations: a lease's time to live fits into its greatest age, and the event log has
    room for every attempt.
    """
    general = config.backoff
    positive = (
        ("lease_ttl_ms", config.lease_ttl_ms),
        ("max_attempts", config.max_attempts),
        ("backoff.base_ms", general.base_ms),
        ("backoff.factor", general.factor),
        ("backoff.cap_ms", general.cap_ms),
        ("max_lease_age_ms", config.max_lease_age_ms),
        ("lease_batch_max", config.lease_batch_max),
        ("reason_chars_max", config.reason_chars_max),
    )
    for name, value in positive:
        if value is not None and value < 1:
            return name
    for name, value in (
        ("retention_completed_ms", config.retention_completed_ms),
        ("retention_dead_ms", config.retention_dead_ms),
    ):
        if value is not None and value < 0:
            return name
    if EVENTS_PER_ATTEMPT * config.max_attempts + EVENTS_PER_ATTEMPT > config.events_max:
        return "events_max"
    if config.max_lease_age_ms is not None and config.lease_ttl_ms > config.max_lease_age_ms:
        return "lease_ttl_ms"
    return _kinds_problem(config)


def _kinds_problem(config: Config) -> str | None:
    for pattern, entry in config.kinds:
        where = f"kinds[{pattern}]"
        for name, value in zip(KindPolicy._fields, entry, strict=True):
            if value is not None and value < 1:
                return f"{where}.{name}"
        attempts = config.max_attempts if entry.max_attempts is None else entry.max_attempts
        if EVENTS_PER_ATTEMPT * attempts + EVENTS_PER_ATTEMPT > config.events_max:
            return f"{where}.max_attempts"
        ttl = config.lease_ttl_ms if entry.lease_ttl_ms is None else entry.lease_ttl_ms
        age = config.max_lease_age_ms if entry.max_lease_age_ms is None else entry.max_lease_age_ms
        if age is not None and ttl > age:
            return f"{where}.lease_ttl_ms"
    return None


def latest_deadline_ms(config: Config, kind: str, leased_at_ms: int) -> int | None:
    """The instant no deadline of a lease granted at `leased_at_ms` goes beyond, or None."""
    age = max_lease_age_ms(config, kind)
    return None if age is None else add_ms(leased_at_ms, age)
