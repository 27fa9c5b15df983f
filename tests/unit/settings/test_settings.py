"""Settings: three sources rising in force, every value's origin, and errors that name place, key and rule."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from telha_jobs import Backoff, InvalidArgumentError, KindPolicy, QueueConfig
from telha_jobs.settings import Flag, Settings, SettingsError, find_file, load
from telha_jobs.settings.sources import Origin
from telha_jobs.settings.table import KIND_SETTINGS, SETTINGS, variable

ROOT = Path(__file__).parents[3]

Load = Callable[..., Settings]
WHOLE = """
[jobs]
lease_ttl = "10m"
reaper_interval = 20
max_attempts = 6
max_lease_age = "1d"
retention_completed = "forever"
retention_dead = "2d"
durability = "os"
payload_bytes_max = "1MiB"
result_bytes_max = 1024
reason_chars_max = 100
events_max = 64
lease_batch_max = 50
backoff = { base = "250ms", factor = 2 }

[jobs.kinds."ingest:*"]
lease_ttl = "1h30m"
max_attempts = 3
max_lease_age = "2h"
backoff.base = "5s"
backoff.factor = 3
backoff.cap = "1m"
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """`load` with a file's text instead of its path, and no environment but the one given."""

    def load_text(
        text: str | None = None, environment: Mapping[str, str] | None = None, flags: Sequence[Flag] = ()
    ) -> Settings:
        path = tmp_path / "telha.toml"
        path.write_text(text or "", "utf-8")
        return load(path, environment=environment or {}, flags=flags)

    return load_text


def test_nothing_given_is_the_default_of_the_library(loaded: Load) -> None:
    """Without any source the queue's configuration is `QueueConfig()`, and every origin says so."""
    found = loaded()
    assert found.queue == QueueConfig()
    assert {str(one.origin) for one in found.effective} == {"default"}
    assert [one.key for one in found.effective] == [*found_keys("jobs"), *found_keys("server")]


def found_keys(section: str) -> list[str]:
    """The keys of a section in the table's order."""
    return [".".join(key) for key in SETTINGS if key[0] == section]


def test_a_file_gives_every_setting_of_the_queue(loaded: Load) -> None:
    """Each field of `QueueConfig` and `KindPolicy` has a key, and arrives in its unit."""
    policy = KindPolicy(
        lease_ttl_ms=5_400_000,
        max_attempts=3,
        max_lease_age_ms=7_200_000,
        backoff_base_ms=5_000,
        backoff_factor=3,
        backoff_cap_ms=60_000,
    )
    assert loaded(WHOLE).queue == QueueConfig(
        lease_ttl_ms=600_000,
        reaper_interval_ms=20_000,
        max_attempts=6,
        backoff=Backoff(base_ms=250, factor=2, cap_ms=3_600_000),
        kinds={"ingest:*": policy},
        max_lease_age_ms=86_400_000,
        retention_completed_ms=None,
        retention_dead_ms=172_800_000,
        durability="os",
        payload_bytes_max=1_048_576,
        result_bytes_max=1_024,
        reason_chars_max=100,
        events_max=64,
        lease_batch_max=50,
    )


def test_every_field_has_a_setting() -> None:
    """A new field of the configuration needs a key before this passes."""
    fields = {one.field for key, one in SETTINGS.items() if key[0] == "jobs" and len(key) == 2}
    assert fields | {"backoff", "kinds"} == set(QueueConfig.__dataclass_fields__)
    assert {one.field for one in KIND_SETTINGS} == set(KindPolicy.__dataclass_fields__)
    assert {one.field for key, one in SETTINGS.items() if len(key) == 3 and key[0] == "jobs"} == set(
        Backoff.__dataclass_fields__
    )


def test_file_environment_and_flags_rise_in_force(loaded: Load) -> None:
    """The environment wins over the file, a flag over both, key by key, and each origin is told."""
    found = loaded(
        '[jobs]\nlease_ttl = "1s"\nmax_attempts = 2\nevents_max = 99\n',
        {"TELHA_JOBS_LEASE_TTL": "300s", "TELHA_JOBS_MAX_ATTEMPTS": "3"},
        [Flag("jobs.max_attempts", "4", "--set")],
    )
    assert (found.queue.lease_ttl_ms, found.queue.max_attempts, found.queue.events_max) == (300_000, 4, 99)
    told = {key: str(found.origin(f"jobs.{key}")) for key in ("lease_ttl", "max_attempts", "events_max", "durability")}
    assert {key: Path(text).name for key, text in told.items()} == {
        "lease_ttl": "TELHA_JOBS_LEASE_TTL",
        "max_attempts": "--set",
        "events_max": "telha.toml:4",
        "durability": "default",
    }


def test_kinds_merge_setting_by_setting(loaded: Load) -> None:
    """A kind's settings may come from several sources: a table in the file, an inline table, a flag."""
    found = loaded(
        '[jobs.kinds."ingest:*"]\nlease_ttl = "1s"\nmax_attempts = 2\n',
        {"TELHA_JOBS_KINDS": '{ "ingest:*" = { max_attempts = 3, backoff.base = "9s" }, embed = { lease_ttl = 4 } }'},
        [Flag('jobs.kinds."ingest:*".backoff.factor', "7", "--set")],
    )
    assert dict(found.queue.kinds) == {
        "ingest:*": KindPolicy(lease_ttl_ms=1_000, max_attempts=3, backoff_base_ms=9_000, backoff_factor=7),
        "embed": KindPolicy(lease_ttl_ms=4_000),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("300s", 300_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("300", 300_000),
    ],
)
def test_durations(loaded: Load, text: str, expected: int) -> None:
    """Numbers with units; a bare whole number is seconds, in the environment as in a file."""
    assert loaded(environment={"TELHA_JOBS_LEASE_TTL": text}).queue.lease_ttl_ms == expected
    written = text if text.isdigit() else f'"{text}"'
    assert loaded(f"jobs.lease_ttl = {written}").queue.lease_ttl_ms == expected


@pytest.mark.parametrize("key", [".".join(key) for key in SETTINGS])
def test_what_is_shown_can_be_given_again(loaded: Load, key: str) -> None:
    """The text of every default, given by its variable, is the default."""
    shown = {one.key: one.text for one in loaded().effective}
    again = loaded(environment={variable(tuple(key.split("."))): shown[key]})
    assert {one.key: one.value for one in again.effective}[key] == SETTINGS[tuple(key.split("."))].default
    assert str(again.origin(key)) == variable(tuple(key.split(".")))


DURATION_RULE = 'must be a duration such as "300s", "5m", "1h30m", "250ms", or a whole number of seconds, not'
FILE_FAULTS = [
    ("jobs.lease_ttl = '0s'", 1, "jobs.lease_ttl", "must be from 1ms to 3652d12h, not 0s"),
    ("jobs.lease_ttl = '9999d'", 1, "jobs.lease_ttl", "must be at most 3652d12h, not '9999d'"),
    ("[jobs]\n\nlease_ttl = 1.5", 3, "jobs.lease_ttl", f"{DURATION_RULE} 1.5"),
    ("[jobs]\nlease_ttl = true", 2, "jobs.lease_ttl", f"{DURATION_RULE} True"),
    ("[jobs]\nlease_tll = '1s'", 2, "jobs.lease_tll", "there is no such setting; is jobs.lease_ttl meant?"),
    ("lease_ttl = '1s'", 1, "lease_ttl", "there is no such setting; is jobs.lease_ttl meant?"),
    ("[worker]", 1, "worker", "there is no such setting; telha config shows all of them"),
    ("jobs = 3", 1, "jobs", "must be a table, not int"),
    ("[[jobs]]\nmax_attempts = 1", 1, "jobs", "must be a table, not list"),
    ("jobs.backoff = '1s'", 1, "jobs.backoff", "must be a table, not str"),
    ("jobs.backoff.base = 0", 1, "jobs.backoff.base", "must be from 1ms to 3652d12h, not 0s"),
    ("jobs.max_attempts = 0", 1, "jobs.max_attempts", "must be from 1 to 1000000, not 0"),
    ("[jobs]\nevents_max = 10", 2, "jobs.max_attempts", "5 attempts need events_max >= 24, it is 10"),
    ("[jobs]\nmax_lease_age = '1s'", 2, "jobs.lease_ttl", "5m must fit in max_lease_age (1s)"),
    ("jobs.durability = 'fsync'", 1, "jobs.durability", 'must be "sync" or "os", not \'fsync\''),
    ("jobs.payload_bytes_max = '4MB'", 1, "jobs.payload_bytes_max", None),
    (
        "[jobs.kinds.'a*']\nlease_ttl = 1",
        1,
        'jobs.kinds."a*"',
        "as a kind a family is a prefix through a colon and a star (ingest:*), not 'a*'",
    ),
    ("[jobs.kinds]\nembed = 1", 2, "jobs.kinds.embed", "must be a table, not int"),
    ("[jobs.kinds.embed]\nmax_attempts = 0", 2, "jobs.kinds.embed.max_attempts", "must be from 1 to 1000000, not 0"),
    (
        "[jobs]\nmax_lease_age = '1h'\n[jobs.kinds.'a:*']\nlease_ttl = '2h'",
        4,
        'jobs.kinds."a:*".lease_ttl',
        "2h must fit in max_lease_age (1h)",
    ),
    (
        "[jobs.kinds.embed]\nretention_dead = 1",
        2,
        "jobs.kinds.embed.retention_dead",
        "there is no such setting; is jobs.retention_dead meant?",
    ),
    ("[server]\nlisten = '7700'", 2, "server.listen", None),
    (
        "[server]\nlisten = '0.0.0.0:7700'",
        2,
        "server.listen",
        (
            "0.0.0.0:7700 is reached from other machines: give server.tls.certificate and server.tls.key, "
            "or server.insecure"
        ),
    ),
    (
        "[server]\nmetrics = '[::]:7701'",
        2,
        "server.metrics",
        "[::]:7701 is reached from other machines: that needs server.metrics_insecure",
    ),
    ("server.metrics = 'unix:/run/m'", 1, "server.metrics", None),
    ("server.tls.key = 'k'", 1, "server.tls.key", "goes with server.tls.certificate, which is not given"),
    ("server.tls.certificate = 'c'", 1, "server.tls.certificate", "goes with server.tls.key, which is not given"),
    (
        "server.tls.client_ca = 'c'",
        1,
        "server.tls.client_ca",
        "goes with server.tls.certificate and server.tls.key",
    ),
    ("server.grace = '2d'", 1, "server.grace", "must be from 0s to 1d, not 2d"),
    ("server.insecure = 'yes'", 1, "server.insecure", "must be true or false, not 'yes'"),
    ("[jobs\n", 1, "", None),
]


@pytest.mark.parametrize(("text", "line", "key", "rule"), FILE_FAULTS)
def test_a_wrong_file_is_refused(loaded: Load, text: str, line: int, key: str, rule: str | None) -> None:
    """The error has the file and line, the key and the rule, and its text begins with the place."""
    with pytest.raises(SettingsError) as caught:
        loaded(text)
    error = caught.value
    assert (error.origin.source, error.origin.line, error.field) == ("file", line, key)
    assert rule is None or error.rule == rule
    assert re.match(rf".*telha\.toml:{line}: {re.escape(key)}", str(error))
    assert isinstance(error, InvalidArgumentError)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "TELHA_JOBS_LEASE_TTL",
            "5 minutes",
            f"TELHA_JOBS_LEASE_TTL: jobs.lease_ttl: {DURATION_RULE} '5 minutes'",
        ),
        (
            "TELHA_JOBS_LEASE_TIL",
            "5m",
            "TELHA_JOBS_LEASE_TIL: no setting has this variable; is TELHA_JOBS_LEASE_TTL meant?",
        ),
        (
            "TELHA_JOBS_KINDS",
            "embed",
            'TELHA_JOBS_KINDS: jobs.kinds: must be an inline table: { "ingest:*" = { lease_ttl = "10m" } }',
        ),
        (
            "TELHA_JOBS_KINDS",
            "{ embed = { lease_ttl = 0 } }",
            "TELHA_JOBS_KINDS: jobs.kinds.embed.lease_ttl: must be from 1ms to 3652d12h, not 0s",
        ),
    ],
)
def test_a_wrong_variable_is_refused(loaded: Load, name: str, value: str, message: str) -> None:
    """The error names the variable; one that no setting has is an error too."""
    with pytest.raises(SettingsError) as caught:
        loaded(environment={name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "name",
    ["TELHA_JOBS_SERVICE_HOST", "TELHA_JOBS_SERVICE_PORT_GRPC", "TELHA_SERVER_PORT", "TELHA_JOBS_PORT_7700_TCP_ADDR"],
)
def test_variables_of_a_platform_are_not_settings(loaded: Load, name: str) -> None:
    """What a container platform sets for a service of our name is passed over."""
    assert loaded(environment={name: "tcp://10.0.0.1:7700", "TELHA_DATA": "x"}).queue == QueueConfig()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("jobs.lease", "1s", "--set: jobs.lease: there is no such setting; is jobs.lease_ttl meant?"),
        ("jobs.kinds", "1s", "--set: jobs.kinds: must be a table"),
        ("jobs lease", "1s", ('--set: jobs lease: must be a key such as jobs.lease_ttl or '
         'jobs.kinds."ingest:*".lease_ttl')),
        ("jobs.max_attempts", "x", "--set: jobs.max_attempts: must be a whole number, not 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_refused(loaded: Load, key: str, value: str, message: str) -> None:
    """The error names the flag as the user knows it."""
    with pytest.raises(SettingsError) as caught:
        loaded(flags=[Flag(key, value, "--set")])
    assert str(caught.value) == message


def test_lines_are_those_of_the_statements(loaded: Load) -> None:
    """Text over several lines, inline tables, comments and headers do not put the count out."""
    found = loaded(
        '# a comment\n[server]\ntokens = """\na\nlease_ttl = 3\n"""  # more\n\n'
        '[jobs.kinds."a:*"] # a header\n backoff = { base = "1s", cap = "2s" }\n'
        "[jobs]\nbackoff.base = 1\n\n[jobs.kinds.b]\nlease_ttl=1"
    )
    lines = {one.key: one.origin.line for one in found.effective if one.origin.source == "file"}
    assert lines == {
        "server.tokens": 3,
        'jobs.kinds."a:*".backoff.base': 9,
        'jobs.kinds."a:*".backoff.cap': 9,
        "jobs.backoff.base": 11,
        "jobs.kinds.b.lease_ttl": 14,
    }


def test_paths_in_a_file_are_relative_to_it(loaded: Load, tmp_path: Path) -> None:
    """And those of flags and variables to the working directory."""
    found = loaded("server.tokens = 'tokens'", {"TELHA_SERVER_TLS_KEY": "k", "TELHA_SERVER_TLS_CERTIFICATE": "/c"})
    assert (found.server.tokens, found.server.tls_key, found.server.tls_certificate) == (
        tmp_path / "tokens",
        Path("k"),
        Path("/c"),
    )


@pytest.mark.parametrize(
    ("text", "shown", "local"),
    [
        ("127.0.0.1:0", "127.0.0.1:0", True),
        ("127.9.9.9:1", "127.9.9.9:1", True),
        ("localhost:7700", "localhost:7700", True),
        ("[::1]:7700", "[::1]:7700", True),
        ("unix:/run/telha.sock", "unix:/run/telha.sock", True),
        ("[::]:7700", "[::]:7700", False),
        ("jobs.internal:65535", "jobs.internal:65535", False),
    ],
)
def test_addresses(loaded: Load, text: str, shown: str, local: bool) -> None:
    """Hosts, bracketed IPv6 and unix sockets; which of them only this machine reaches."""
    found = loaded(environment={"TELHA_SERVER_LISTEN": text, "TELHA_SERVER_INSECURE": "true"}).server.listen
    assert (str(found), found.local) == (shown, local)


@pytest.mark.parametrize("text", ["", ":7700", "::1:7700", "[::1]", "host", "host:70000", "host:-1", "a b:1", "unix:"])
def test_wrong_addresses(loaded: Load, text: str) -> None:
    """An address is refused when host or port are missing or wrong, or an IPv6 address has no brackets."""
    with pytest.raises(SettingsError, match="must be an address"):
        loaded(environment={"TELHA_SERVER_LISTEN": text})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there, or no UTF-8, is an error that names it."""
    with pytest.raises(SettingsError, match=r"absent\.toml:1: cannot be read: No such file"):
        load(tmp_path / "absent.toml", environment={})
    (tmp_path / "bad.toml").write_bytes(b"# \xff")
    with pytest.raises(SettingsError, match=r"bad\.toml:1: is no UTF-8"):
        load(tmp_path / "bad.toml", environment={})


def test_which_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one given, else that of TELHA_CONFIG, else telha.toml in the working directory, else none."""
    monkeypatch.chdir(tmp_path)
    assert find_file(None, {}) is None
    (tmp_path / "telha.toml").touch()
    assert find_file(None, {}) == Path("telha.toml")
    assert find_file(None, {"TELHA_CONFIG": "a"}) == Path("a")
    assert find_file("b", {"TELHA_CONFIG": "a"}) == Path("b")


def test_origins_read_as_places() -> None:
    """A file with its line, a variable, a flag, or `default`."""
    origins = [
        Origin("default"),
        Origin("file", "a.toml", 3),
        Origin("environment", "TELHA_JOBS_LEASE_TTL"),
        Origin("flag", "--listen"),
    ]
    assert [str(one) for one in origins] == ["default", "a.toml:3", "TELHA_JOBS_LEASE_TTL", "--listen"]


PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")


def test_the_page_lists_every_setting_and_its_default() -> None:
    """docs/configuration.md has a row for each setting: key, default, type, meaning."""
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
    ours = [(".".join(one.key), one.type.show(one.default), one.type.name, one.meaning) for one in SETTINGS.values()]
    kinds = [(".".join(one.key), "", one.type.name, one.meaning) for one in KIND_SETTINGS]
    assert sorted(rows) == sorted([*ours, *kinds])


def test_the_page_s_file_is_taken(loaded: Load) -> None:
    """The file that docs/configuration.md shows has the effect that it shows."""
    block = PAGE.partition("$ cat telha.toml\n")[2].partition("\n    $")[0]
    found = loaded(block.replace("    ", ""), {"TELHA_JOBS_MAX_ATTEMPTS": "7"}, [Flag("server.grace", "1m", "--set")])
    shown = re.findall(r"^    ([js]\S+) +(\S+) +(\S+)$", PAGE, re.MULTILINE)
    told = [(one.key, one.text, Path(str(one.origin)).name) for one in found.effective if str(one.origin) != "default"]
    assert told == shown
