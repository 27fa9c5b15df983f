"""Another language: Node with @grpc/grpc-js, which is given the .proto and nothing else of the queue's.

The packages of `node/package-lock.json` are installed once, into a folder that git ignores, from whichever registry npm
is configured for. Without Node the test is red and says what to install: it is never skipped.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from telha_jobs import State
from tests.rpc.rig import START_MS, TTL_MS, A
from tests.rpc.threaded import served

pytestmark = pytest.mark.xdist_group("node")  # npm is asked once

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).with_name("node")
PROTO: Final = ROOT / "impl" / "telha_jobs" / "rpc" / "v1" / "jobs.proto"
MISSING: Final = "{} is not on PATH. Install Node 18 or newer with npm; on Debian: apt-get install nodejs npm"
ONCE: Final = "once: true"
INSTALL_BOUND_S: Final = 300
RUN_BOUND_S: Final = 60


def command(name: str) -> str:
    """Where a command is; red when it is nowhere."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(MISSING.format(name))
    return found


@pytest.fixture(scope="module")
def modules() -> Path:
    """The installed packages: a folder named by what the lock file says."""
    names = ("package.json", "package-lock.json", ".npmrc")
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in names)).hexdigest()[:12]
    folder = ROOT / "out" / "node" / digest
    if not (folder / "node_modules").is_dir():
        partial = folder.with_name(f"{digest}.{os.getpid()}")
        partial.mkdir(parents=True)
        try:
            for name in names:
                shutil.copy(HERE / name, partial)
            done = subprocess.run(
                [command("npm"), "ci"],
                cwd=partial,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_BOUND_S,
            )
            assert done.returncode == 0, f"npm ci in {HERE.relative_to(ROOT)}: {done.stdout}{done.stderr}"
            with suppress(OSError):  # another process was first: its folder may be in use by now
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder / "node_modules"


def ran(modules: Path, address: str) -> dict[str, Any]:
    """What the worker was answered."""
    words = [command("node"), str(HERE / "worker.js"), address, str(PROTO), str(A)]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=RUN_BOUND_S)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_node_works_from_the_proto_alone(modules: Path) -> None:
    """It enqueues, polls, extends, releases, is refused as stale with the details, submits, and may say so twice."""
    with served() as server:
        told = ran(modules, server.address)
        [job] = server.queue.list_jobs().jobs
    job_id = str(job.job_id)
    domain = {"type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "telha.jobs.v1"}
    stale = {"status": "ABORTED", "reason": "STALE_LEASE", **domain}
    assert told == {
        "enqueued": {"job_id": job_id, "created": True, "state": "STATE_PENDING", "commit": "1"},
        "again": {"job_id": job_id, "created": False, "state": "STATE_PENDING"},
        "leased": {"job_id": job_id, "generation": "1", "attempt": 1, "payload": {"path": "a.pdf"}},
        "heartbeat": [{"status": "STATUS_EXTENDED", "deadline_ms": str(START_MS + TTL_MS)}],
        "leasedAgain": {"job_id": job_id, "generation": "2", "attempt": 1, "progress": {"page": 1}},
        "stale": stale
        | {
            "metadata": {
                "job_id": job_id,
                "generation": "1",
                "current_generation": "2",
                "state": "leased",
                "why": "superseded",
            }
        },
        "submitted": "STATE_COMPLETED",
        "repeated": "STATE_COMPLETED",
        "late": stale
        | {
            "metadata": {
                "job_id": job_id,
                "generation": "2",
                "current_generation": "2",
                "state": "completed",
                "why": "completed",
            }
        },
        "wrong": {"status": "INVALID_ARGUMENT", "reason": "INVALID_ARGUMENT", **domain}
        | {"metadata": {"field": "kind", "rule": told["wrong"]["metadata"]["rule"]}},
    }
    assert (job.state, job.result, job.generation) == (State.COMPLETED, {"pages": 12}, 2)


def test_the_worker_of_the_readme_works(modules: Path) -> None:
    """What README.md shows is run as it stands, but for the address, and for a poll that ends."""
    [source] = re.findall(r"```js\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    with served() as server:
        receipt = server.queue.enqueue(A, "ingest:pdf", {"path": "b.pdf"})
        for shown, meant in (
            ("127.0.0.1:7700", server.address),
            ("jobs.proto", str(PROTO)),
            ("max_in_flight: 8", ONCE),
        ):
            assert source.count(shown) == 1
            source = source.replace(shown, meant)
        words, environment = [command("node"), "-e", source], {**os.environ, "NODE_PATH": str(modules)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=RUN_BOUND_S)
        job = server.queue.get(receipt.job_id)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (job.state, job.result) == (State.COMPLETED, {"path": "b.pdf", "pages": 3})


def test_the_lock_file_names_no_registry() -> None:
    """Packages are named by version and digest; where they come from is for whoever installs them to say."""
    lock = json.loads((HERE / "package-lock.json").read_text("utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert {name for name, one in packages.items() if "integrity" not in one or "resolved" in one} == set()


def test_without_node_the_test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Node gets a red test and a line to copy, not a skip."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(pytest.fail.Exception, match="apt-get install nodejs npm"):
        command("node")
