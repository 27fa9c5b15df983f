"""Configuration: wrong values are refused by the field's name, and relations between fields are checked."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from telha_jobs import Backoff, InvalidArgumentError, KindPolicy, QueueConfig
from tests.unit.api.support import each

TEN_YEARS = 315_576_000_000
_A_TTL = "kinds['a'].lease_ttl_ms"

FAULTS: list[tuple[type, dict[str, Any], str]] = [
    *(
        (Backoff, {field: value}, field)
        for field in ("base_ms", "factor", "cap_ms")
        for value in (0, -1, 1.0, True, "1")
    ),
    (Backoff, {"base_ms": None}, "base_ms"),
    (Backoff, {"base_ms": TEN_YEARS + 1}, "base_ms"),
    *(
        (KindPolicy, {field: value}, field)
        for field in (
            "lease_ttl_ms",
            "max_attempts",
            "backoff_base_ms",
            "backoff_factor",
            "backoff_cap_ms",
            "max_lease_age_ms",
        )
        for value in (0, -1, 1.0, True, "1")
    ),
    *(
        (QueueConfig, {field: value}, field)
        for field in (
            "lease_ttl_ms",
            "reaper_interval_ms",
            "max_attempts",
            "payload_bytes_max",
            "result_bytes_max",
            "reason_chars_max",
            "events_max",
            "lease_batch_max",
        )
        for value in (0, -1, 1.0, True, "1", None)
    ),
    *(
        (QueueConfig, {field: value}, field)
        for field in ("retention_completed_ms", "retention_dead_ms")
        for value in (-1, 1.0, True, "1", TEN_YEARS + 1)
    ),
    (QueueConfig, {"max_lease_age_ms": 0}, "max_lease_age_ms"),
    (QueueConfig, {"lease_ttl_ms": TEN_YEARS + 1}, "lease_ttl_ms"),
    *((QueueConfig, {"durability": value}, "durability") for value in ("fsync", "", None, True, b"os")),
    (QueueConfig, {"backoff": None}, "backoff"),
    (QueueConfig, {"backoff": {"base_ms": 1}}, "backoff"),
    (QueueConfig, {"kinds": None}, "kinds"),
    (QueueConfig, {"kinds": [("a", KindPolicy())]}, "kinds"),
    (QueueConfig, {"kinds": {"*": KindPolicy()}}, "kinds['*']"),
    (QueueConfig, {"kinds": {"a*": KindPolicy()}}, "kinds['a*']"),
    (QueueConfig, {"kinds": {"": KindPolicy()}}, "kinds['']"),
    (QueueConfig, {"kinds": {1: KindPolicy()}}, "kinds[1]"),
    (QueueConfig, {"kinds": {"a": {}}}, "kinds['a']"),
    (QueueConfig, {"kinds": {"a": None}}, "kinds['a']"),
]


@each("cls, arguments, field", FAULTS)
def test_a_wrong_setting_is_refused(cls: type, arguments: dict[str, Any], field: str) -> None:
    """By name, with the rule."""
    with pytest.raises(InvalidArgumentError) as caught:
        cls(**arguments)
    assert field == caught.value.field


@each(
    "arguments",
    [
        {"retention_completed_ms": None, "retention_dead_ms": None},
        {"retention_completed_ms": 0, "retention_dead_ms": TEN_YEARS},
        {"max_lease_age_ms": 300_000},
        {"lease_ttl_ms": 1},
        {"lease_ttl_ms": TEN_YEARS},
        {"durability": "os"},
        {"max_attempts": 63},
        {"max_attempts": 1, "events_max": 8},
        {"kinds": {"ingest:*": KindPolicy(), "ingest:pdf": KindPolicy(), "a:b:*": KindPolicy()}},
    ],
)
def test_the_last_allowed_settings(arguments: dict[str, Any]) -> None:
    """Each is accepted and kept."""
    config = QueueConfig(**arguments)
    assert arguments == {field: getattr(config, field) for field in arguments}


@each(
    "arguments, field",
    [
        ({"max_attempts": 64}, "max_attempts"),
        ({"max_attempts": 2, "events_max": 11}, "max_attempts"),
        ({"events_max": 7, "max_attempts": 1}, "events_max"),
        ({"kinds": {"a": KindPolicy(max_attempts=64)}}, "kinds['a'].max_attempts"),
        ({"max_lease_age_ms": 299_999}, "lease_ttl_ms"),
        ({"kinds": {"a:*": KindPolicy(max_lease_age_ms=299_999)}}, "kinds['a:*'].lease_ttl_ms"),
        (
            {"kinds": {"a": KindPolicy(lease_ttl_ms=9)}, "max_lease_age_ms": 8, "lease_ttl_ms": 8},
            "kinds['a'].lease_ttl_ms",
        ),
    ],
)
def test_settings_that_do_not_fit_together(arguments: dict[str, Any], field: str) -> None:
    """The log must hold 4 · attempts + 4 events, a ttl must fit in the lease's age: each entry as it is in force."""
    with pytest.raises(InvalidArgumentError) as caught:
        QueueConfig(**arguments)
    assert field == caught.value.field


@pytest.mark.parametrize("cls", [Backoff, KindPolicy, QueueConfig])
def test_settings_are_keyword_only_and_frozen(cls: type) -> None:
    """No position, no change."""
    with pytest.raises(TypeError):
        cls(1)
    config = cls()
    field = next(iter(config.__dataclass_fields__))
    with pytest.raises(AttributeError):
        setattr(config, field, 1)


def test_the_kinds_of_a_config_are_its_own() -> None:
    """Changing the mapping afterwards changes nothing."""
    kinds = {"a": KindPolicy(max_attempts=1)}
    config = QueueConfig(kinds=kinds)
    kinds["b"] = KindPolicy()
    assert config.kinds == {"a": KindPolicy(max_attempts=1)}


def test_settings_survive_pickling() -> None:
    """They can be sent to another process."""
    config = QueueConfig(kinds={"a:*": KindPolicy(max_attempts=1)}, backoff=Backoff(base_ms=1))
    assert config == pickle.loads(pickle.dumps(config))


def test_equal_settings_are_equal() -> None:
    """By value."""
    assert QueueConfig(kinds={"a": KindPolicy()}) == QueueConfig(kinds={"a": KindPolicy()})


def test_kinds_are_a_copy_that_nobody_changes() -> None:
    """What was given may change later; what a queue works by may not, and it survives copies and pickles."""
    given = {"embed": KindPolicy(max_attempts=2)}
    config = QueueConfig(kinds=given)
    given["index"] = KindPolicy(max_attempts=3)
    assert dict(config.kinds) == {"embed": KindPolicy(max_attempts=2)}
    with pytest.raises(TypeError):
        config.kinds["index"] = KindPolicy()  # type: ignore[index]  # a mapping has no assignment
    for copied in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config), replace(config)):
        assert copied == config
        with pytest.raises(TypeError):
            copied.kinds["index"] = KindPolicy()  # type: ignore[index]  # as above
