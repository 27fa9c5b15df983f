"""`telha config`: every setting in force and where it comes from; what is wrong is exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from telha_jobs.cli.commands import telha

WITHOUT_THE_EXTRA = """
import sys
for name in ("grpc", "google.protobuf", "prometheus_client", "pydantic_settings"):
    sys.modules[name] = None
from telha_jobs.cli import main
main()
"""


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run `telha config ARGUMENTS` in this process."""
    return CliRunner().invoke(telha, ["config", *arguments], env=environment or {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two settings."""
    path = tmp_path / "telha.toml"
    path.write_text('[jobs]\nlease_ttl = "10m"\n\n[server]\nmetrics = "127.0.0.1:7701"\n', "utf-8")
    return path


def test_it_prints_key_value_and_place(file: Path) -> None:
    """A line for each setting, in columns: the key, the value in force, and its place."""
    result = run(
        "--config", str(file), "--set", 'jobs.kinds."a:*".lease_ttl=90', environment={"TELHA_JOBS_EVENTS_MAX": "99"}
    )
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [line for line in lines if line[2] != "default"] == [
        ["jobs.lease_ttl", "10m", f"{file}:2"],
        ["jobs.events_max", "99", "TELHA_JOBS_EVENTS_MAX"],
        ['jobs.kinds."a:*".lease_ttl', "1m30s", "--set"],
        ["server.metrics", "127.0.0.1:7701", f"{file}:5"],
    ]


def test_json_has_an_object_per_setting(file: Path) -> None:
    """With --json numbers and booleans are numbers and booleans, and the place is taken apart."""
    result = run(
        "--json",
        "--config",
        str(file),
        "--set",
        "server.insecure=true",
        environment={"TELHA_JOBS_MAX_ATTEMPTS": "6"},
    )
    found = {one["key"]: one for one in map(json.loads, result.stdout.splitlines())}
    assert found["jobs.lease_ttl"] == {
        "key": "jobs.lease_ttl",
        "value": "10m",
        "source": "file",
        "file": str(file),
        "line": 2,
    }
    assert found["jobs.max_attempts"] == {
        "key": "jobs.max_attempts",
        "value": 6,
        "source": "environment",
        "variable": "TELHA_JOBS_MAX_ATTEMPTS",
    }
    assert found["server.insecure"] == {"key": "server.insecure", "value": True, "source": "flag", "flag": "--set"}
    assert found["jobs.durability"] == {"key": "jobs.durability", "value": "sync", "source": "default"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "jobs.lease_tll=1s"], "--set: jobs.lease_tll: there is no such setting; is jobs.lease_ttl meant?"),
        (["--set", "jobs.lease_ttl"], "--set takes KEY=VALUE"),
        (["--config", "absent.toml"], "absent.toml:1: cannot be read"),
    ],
)
def test_what_is_wrong_is_a_usage_error(arguments: list[str], told: str) -> None:
    """Exit code 2, the reason on stderr, nothing on stdout."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_it_needs_no_extra(file: Path) -> None:
    """Without the packages of the extra [server] it works all the same."""
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, "config", "--config", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("jobs.lease_ttl")
