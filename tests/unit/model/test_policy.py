"""Facts about settings: every one that breaks a rule is named."""

import pytest

from telha_model.policy import config_problem
from telha_model.types import Backoff, Config, KindPolicy


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (Config(lease_ttl_ms=0), "lease_ttl_ms"),
        (Config(max_attempts=0), "max_attempts"),
        (Config(backoff=Backoff(base_ms=0)), "backoff.base_ms"),
        (Config(backoff=Backoff(factor=0)), "backoff.factor"),
        (Config(backoff=Backoff(cap_ms=0)), "backoff.cap_ms"),
        (Config(max_lease_age_ms=0), "max_lease_age_ms"),
        (Config(lease_batch_max=0), "lease_batch_max"),
        (Config(reason_chars_max=0), "reason_chars_max"),
        (Config(retention_completed_ms=-1), "retention_completed_ms"),
        (Config(retention_dead_ms=-1), "retention_dead_ms"),
        (Config(max_attempts=2, events_max=11), "events_max"),
        (Config(lease_ttl_ms=5, max_lease_age_ms=4), "lease_ttl_ms"),
        (Config(kinds=(("a", KindPolicy(backoff_base_ms=0)),)), "kinds[a].backoff_base_ms"),
        (Config(kinds=(("a:*", KindPolicy(max_attempts=64)),)), "kinds[a:*].max_attempts"),
        (Config(kinds=(("a", KindPolicy(lease_ttl_ms=9, max_lease_age_ms=8)),)), "kinds[a].lease_ttl_ms"),
        (Config(lease_ttl_ms=9, kinds=(("a", KindPolicy(max_lease_age_ms=8)),)), "kinds[a].lease_ttl_ms"),
    ],
    ids=range(16),
)
def test_a_setting_that_breaks_a_rule_is_named(config: Config, field: str) -> None:
    """Ranges, room for the log, time to live within the greatest age; what a kind leaves open is the queue's."""
    assert config_problem(config) == field


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(retention_completed_ms=0, retention_dead_ms=0),
        Config(max_attempts=2, events_max=12),
        Config(lease_ttl_ms=5, max_lease_age_ms=5),
        Config(kinds=(("a", KindPolicy(max_attempts=63, lease_ttl_ms=8, max_lease_age_ms=8)),)),
    ],
    ids=range(5),
)
def test_settings_at_their_limits_pass(config: Config) -> None:
    """Each rule holds up to its very limit."""
    assert config_problem(config) is None
