"""`telha jobs` over a server: every command, and the way from a locked directory to the server that has it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from telha_jobs import JobQueue, NewJob, State
from telha_jobs.cli import whereabouts
from telha_jobs.cli.commands import telha
from tests.rpc.rig import BOUND_S, A, directory
from tests.rpc.threaded import Served, served

MAIN = "from telha_jobs.cli import main; main()"


@pytest.fixture
def server() -> Iterator[Served]:
    """A served queue."""
    with served() as found:
        yield found


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run `telha jobs ARGUMENTS` in this process, with no variables but these."""
    cleared = {name: None for name in os.environ if name.startswith("TELHA_")}
    return CliRunner().invoke(telha, ["jobs", *arguments], env={**cleared, **(environment or {})})


def bury(queue: JobQueue, number: int) -> list[UUID]:
    """Dead jobs."""
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=n) for n in range(number)])
    leases = queue.lease_batch("w", number)
    for lease in leases:
        queue.fail(lease, "no", retryable=False)
    return [lease.job_id for lease in leases]


def test_looking(server: Served) -> None:
    """`ls`, `show`, `counts`, `check`, `audit` and `export` tell what the queue has, and nothing on stderr."""
    [first, second] = bury(server.queue, 2)
    where = ("--server", server.address)
    listed = [json.loads(line) for line in run("ls", *where, "--json").stdout.splitlines()]
    assert [(job["job_id"], job["state"]) for job in listed] == [(str(first), "dead"), (str(second), "dead")]
    shown = run("show", str(second)[:30], *where, "--json")
    assert json.loads(shown.stdout)["events"][-1]["transition"] == "dead"
    assert json.loads(run("counts", *where, "--json").stdout)["dead"] == 2
    assert run("check", *where).stdout == "2 rows checked, 0 in quarantine: nothing is wrong\n"
    assert run("audit", *where).stdout == "2 jobs, 6 events audited: every log tells the truth\n"
    exported = [json.loads(line) for line in run("export", *where).stdout.splitlines()]
    assert [one["row"]["sequence"] for one in exported] == [3, 4]
    assert "dead (rejected)" in run("ls", *where).stdout
    assert shown.stderr == ""


def test_acting(server: Served) -> None:
    """`enqueue`, `cancel`, `retry`, `retry --all` and `discard` change the queue, and refuse what it refuses."""
    where = ("--server", server.address)
    added = run("enqueue", "embed", '{"a": 1}', "--scope", str(A), "--key", "k", *where)
    again = run("enqueue", "embed", '{"a": 1}', "--scope", str(A), "--key", "k", *where)
    job_id = added.stdout.strip()
    assert (added.exit_code, again.stdout.strip()) == (0, job_id)
    assert "the key names this job already" in again.stderr
    assert run("cancel", job_id, *where).stdout.strip() == job_id
    refused = run("cancel", job_id, *where)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "is dead, this needs" in refused.stderr
    assert run("retry", job_id, *where).stdout.strip() == job_id
    dead = bury(server.queue, 3)
    assert run("retry", "--all", "--yes", *where).stdout.split() == [str(one) for one in dead]
    assert run("cancel", job_id, *where).exit_code == 0
    assert run("discard", job_id, *where).stdout.strip() == job_id
    assert server.queue.counts()[State.PENDING] == 3


def test_where_the_options_may_stand(server: Served) -> None:
    """Before the command, behind it, or in the environment; a flag wins over variables, and two places exclude."""
    for result in (
        run("--server", server.address, "counts"),
        run("counts", "--server", server.address),
        run("counts", environment={"TELHA_SERVER": server.address}),
        run("counts", "--server", server.address, environment={"TELHA_DATA": "absent"}),
    ):
        assert (result.exit_code, result.stdout.split()[:2]) == (0, ["pending", "0"])
    none = run("counts", environment={"TELHA_DATA": "", "TELHA_SERVER": ""})
    assert (none.exit_code, "which queue?" in none.stderr) == (2, True)
    variables = run("counts", environment={"TELHA_DATA": "x", "TELHA_SERVER": server.address})
    assert (variables.exit_code, "TELHA_DATA and TELHA_SERVER exclude each other" in variables.stderr) == (2, True)
    both = run("counts", "--server", server.address, "--data", "x")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    wrong = run("counts", "--server", "7700")
    assert (wrong.exit_code, "must be an address" in wrong.stderr) == (2, True)


def test_a_server_that_is_not_there_is_a_refusal() -> None:
    """At once, with what to do."""
    result = run("counts", "--server", "unix:/nowhere/socket")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is the server running?" in result.stderr


def test_tokens_and_tls(tmp_path: Path, certificates: Path) -> None:
    """A token from a file or TELHA_TOKEN, over TLS with an authority."""
    from telha_jobs.rpc.tokens import hash_of

    tokens, secret = tmp_path / "tokens.toml", tmp_path / "token"
    entry = f'[[tokens]]\nname = "o"\nsha256 = "{hash_of("right").hex()}"\nroles = ["operator"]\nscopes = "*"\n'
    tokens.write_text(entry, "utf-8")
    secret.write_text("right\n", "utf-8")
    tls: dict[str, Any] = {
        "tls__certificate": str(certificates / "server.pem"),
        "tls__key": str(certificates / "server.key"),
    }
    with served(tokens=str(tokens), **tls) as server:
        where = ("counts", "--server", server.address, "--tls-ca", str(certificates / "ca.pem"))
        assert run(*where, "--token-file", str(secret)).exit_code == 0
        assert run(*where, environment={"TELHA_TOKEN": "right"}).exit_code == 0
        refused = run(*where)
        assert (refused.exit_code, "token" in refused.stderr) == (1, True)


def test_without_the_extra_a_server_is_a_refusal() -> None:
    """It says what to install."""
    script = "import sys; sys.modules['grpc'] = None\n" + MAIN
    command = [sys.executable, "-c", script, "jobs", "counts", "--server", "127.0.0.1:7700"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""}, timeout=BOUND_S)
    assert (result.returncode, result.stdout) == (1, "")
    assert "[server]" in result.stderr


class Serving(subprocess.Popen[str]):
    """A server's process, and the line that said it was ready."""

    ready = ""


@contextmanager
def serving_process(data: Path, *options: str) -> Iterator[Serving]:
    """`telha serve` in a process of its own, ready."""
    command = [sys.executable, "-c", MAIN, "serve", "--data", str(data), "--listen", f"unix:{data}.sock", *options]
    environment = {"PATH": "", "TELHA_SERVER_GRACE": "0s"}
    with Serving(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=data.parent
    ) as process:
        try:
            assert process.stdout is not None
            process.ready = process.stdout.readline().strip()
            if not process.ready.startswith("telha serves "):
                pytest.fail(f"the server did not start: {process.communicate()}")
            yield process
        finally:
            process.kill()


@pytest.fixture
def data() -> Iterator[Path]:
    """A directory for a queue, in memory, with a short name."""
    with directory() as found:
        yield found / "queue"


def test_a_locked_directory_finds_its_server(data: Path) -> None:
    """Commands on the directory reach the queue that the server has open; after its stop they open it themselves."""
    local = ("--data", str(data))
    with serving_process(data) as process:
        added = run("enqueue", "embed", "--scope", "nil", *local)
        assert (added.exit_code, f"is served at unix:{data}.sock by process {process.pid}" in added.stderr) == (0, True)
        listed = run("ls", *local, "--json")
        assert json.loads(listed.stdout)["job_id"] == added.stdout.strip()
        assert listed.stderr == "", "what the server tells is durable"
        beside = run("check", *local)
        assert "may show what is not durable yet" in beside.stderr
        assert run("cancel", added.stdout.strip(), *local).exit_code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 0
    assert not (data / whereabouts.NAME).exists()
    assert run("discard", added.stdout.strip(), *local).exit_code == 0


def test_what_a_killed_server_left_is_not_believed(data: Path) -> None:
    """After a kill the file stays; nobody follows it, whoever opens the queue next, and the next server replaces it."""
    local = ("--data", str(data))
    with serving_process(data) as process:
        process.kill()
        process.wait(BOUND_S)
    assert (data / whereabouts.NAME).exists()
    assert run("enqueue", "embed", "--scope", "nil", *local).exit_code == 0
    with JobQueue.open(data):
        refused = run("enqueue", "embed", "--scope", "nil", *local)
        assert (refused.exit_code, "is open elsewhere" in refused.stderr) == (1, True)
        assert "may show what is not durable yet" in run("counts", *local).stderr
    with serving_process(data) as process:
        found = whereabouts.server_of(str(data))
        assert found is not None
        assert found.process == process.pid


@pytest.mark.parametrize("change", [{"process": 1}, {"started": 0}, {"address": 7}, {"tls": "no"}, None])
def test_a_file_that_does_not_fit_is_not_believed(data: Path, change: dict[str, object] | None) -> None:
    """Another process, another start, or no such file at all: the directory is only locked."""
    with JobQueue.open(data), whereabouts.told(str(data), "127.0.0.1:7700", tls=False):
        path = data / whereabouts.NAME
        assert whereabouts.server_of(str(data)) == ("127.0.0.1:7700", False, os.getpid())
        written = json.loads(path.read_text("utf-8"))
        path.write_text("[" if change is None else json.dumps({**written, **change}), "utf-8")
        assert whereabouts.server_of(str(data)) is None
    assert whereabouts.server_of(str(data)) is None


def test_a_server_that_refuses_leaves_the_view(data: Path, tmp_path: Path) -> None:
    """When the server of a locked directory wants a token that is not there, a reading command looks beside it."""
    from telha_jobs.rpc.tokens import hash_of

    tokens = tmp_path / "tokens.toml"
    entry = f'[[tokens]]\nname = "o"\nsha256 = "{hash_of("right").hex()}"\nroles = ["operator"]\nscopes = "*"\n'
    tokens.write_text(entry, "utf-8")
    with served(path=data, tokens=str(tokens)) as server, whereabouts.told(str(data), server.address, tls=False):
        server.queue.enqueue(A, "embed", None)
        counted = run("counts", "--data", str(data), "--json")
        assert json.loads(counted.stdout)["pending"] == 1
        assert "was not asked" in counted.stderr
        assert "may show what is not durable yet" in counted.stderr
        refused = run("enqueue", "embed", "--scope", "nil", "--data", str(data))
        assert (refused.exit_code, refused.stdout) == (1, "")


def test_changes_use_the_settings_in_force(data: Path) -> None:
    """A job that ends by a command is kept as long as the settings say."""
    environment = {"TELHA_DATA": str(data), "TELHA_JOBS_RETENTION_DEAD": "0s"}
    added = run("enqueue", "system:x", environment=environment).stdout.strip()
    assert run("cancel", added, environment=environment).exit_code == 0
    with JobQueue.open(data) as queue:
        assert queue.reap().purged == 1
    wrong = run("cancel", added, environment={**environment, "TELHA_JOBS_RETENTION_DEAD": "never"})
    assert wrong.exit_code in (1, 2)


def get(address: str, path: str) -> tuple[int, str]:
    """An answer over HTTP."""
    connection = HTTPConnection(address, timeout=BOUND_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8")
    finally:
        connection.close()


def test_a_server_answers_metrics_and_health(data: Path) -> None:
    """`telha serve --metrics` counts what callers do, and is healthy until it is told to stop."""
    with serving_process(data, "--metrics", "127.0.0.1:0") as process:
        [line] = re.findall(r"metrics on (\S+)$", process.ready)
        added = run("enqueue", "embed", "--scope", "nil", "--data", str(data)).stdout.strip()
        assert run("cancel", added, "--data", str(data)).exit_code == 0
        assert get(line, "/healthz") == (200, "ok\n")
        status, body = get(line, "/metrics")
        assert status == 200
        told = dict(one.rsplit(" ", 1) for one in body.splitlines() if not one.startswith("#"))
        assert told['telha_jobs_enqueued_total{kind="embed"}'] == "1.0"
        assert told['telha_jobs_cancelled_total{kind="embed"}'] == "1.0"
        assert told["telha_accepting_writes"] == "1.0"
