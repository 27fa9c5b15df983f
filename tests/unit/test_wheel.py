"""The built wheel is the product: a program that knows only the public interface runs on it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import telha_jobs
from uuid import uuid4
from telha_jobs import JobQueue, LeaseRef, ManualClock, NewJob, QueueConfig, StaleLeaseError, State

assert telha_jobs.__file__.startswith(sys.argv[1]), telha_jobs.__file__
scope, clock = uuid4(), ManualClock(1_800_000_000_000)
with JobQueue.open(sys.argv[2], config=QueueConfig(lease_ttl_ms=1_000), clock=clock) as queue:
    receipt = queue.enqueue(scope, "ingest:pdf", {"path": "a.pdf"}, idempotency_key="a")
    lease = queue.lease_next("w1", kinds=["ingest:*"])
    clock.advance(1_000)
    assert queue.reap().requeued == 1
    clock.advance(10_000)
    second = queue.lease_next("w2")
    try:
        queue.complete(LeaseRef(lease.job_id, lease.generation), "late")
    except StaleLeaseError as error:
        assert error.why == "superseded"
    else:
        raise SystemExit("a stale submit was accepted")
    [follow_up] = queue.complete(second, "done", enqueue=[NewJob(scope=scope, kind="embed", payload=1)])
    assert follow_up.created
    assert queue.get(receipt.job_id).state is State.COMPLETED
    assert queue.counts()[State.PENDING] == 1
    assert queue.check()
print("ok")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release would build it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [built] = out.glob("*.whl")
    return built


def test_a_program_against_the_public_interface_runs_on_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Enqueue, lease, expire, lease again, refuse the late submit, complete with a follow-up: from the wheel alone."""
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    command = [sys.executable, "-c", PROGRAM, str(unpacked), str(tmp_path / "jobs.db")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ok\n", "")


def test_the_wheel_ships_both_towers_typed(wheel: Path) -> None:
    """Both packages are in the wheel with their marker for type checkers, and no test or script is."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"telha_jobs", "telha_model"}
    assert {"telha_jobs/py.typed", "telha_model/py.typed"} <= set(names)
