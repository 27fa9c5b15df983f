"""An operator's desk for tests: a queue to look at, and the command run against it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from click.testing import CliRunner, Result

from telha_jobs import ManualClock, QueueConfig
from telha_jobs.cli.commands import telha
from telha_jobs.queue import JobQueue
from telha_jobs.store.port import Family, Put
from telha_jobs.store.rocks import RocksStore

SCOPE = UUID("3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11")
OTHER_SCOPE = UUID("8d2b6b1e-3c35-4b7e-8a1c-0c9be2a4a402")
START_MS = 1_700_000_000_000

# Says READY, then holds the queue open until its stdin is closed. Its job was never synced by a clean close.
HOLDER = """
import sys
from uuid import UUID
from telha_jobs.queue import JobQueue
with JobQueue.open(sys.argv[1]) as queue:
    queue.enqueue(UUID(int=1), "held", None)
    print("READY", flush=True)
    sys.stdin.read()
"""


class Desk:
    """A queue's directory, and `telha jobs` run on it in this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(START_MS)

    def run(self, *arguments: str, given: str | bytes | None = None, columns: int | None = None) -> Result:
        """Run `telha jobs ARGUMENTS`, as if in a pipe or in a terminal of so many columns."""
        environment = {"TELHA_DATA": str(self.directory), "COLUMNS": None if columns is None else str(columns)}
        return CliRunner().invoke(telha, ["jobs", *arguments], input=given, env=environment)

    @contextmanager
    def queue(self, config: QueueConfig | None = None) -> Iterator[JobQueue]:
        """The queue, open for writing."""
        with JobQueue.open(self.directory, config=config or QueueConfig(), clock=self.clock) as queue:
            yield queue

    def add(self, *kinds: str, scope: UUID = SCOPE, payload: Any = None) -> list[UUID]:
        """Enqueue a job of each kind, a second apart."""
        ids = []
        with self.queue() as queue:
            for kind in kinds:
                ids.append(queue.enqueue(scope, kind, payload).job_id)
                self.clock.advance(1_000)
        return ids

    def bury(self, *reasons: str, kind: str = "embed", scope: UUID = SCOPE) -> list[UUID]:
        """Make a job that is dead for each of the reasons."""
        ids = []
        with self.queue(QueueConfig(max_attempts=1)) as queue:
            for reason in reasons:
                job_id = queue.enqueue(scope, kind, None).job_id
                ids.append(job_id)
                if reason == "cancelled":
                    queue.cancel(job_id)
                    continue
                lease = queue.lease_next("worker", kinds=[kind])
                assert lease is not None
                if reason == "expired":
                    self.clock.advance(300_000)
                    queue.reap()
                else:
                    queue.fail(lease, "no", retryable=reason != "rejected")
        return ids

    def crash(self) -> None:
        """Leave the queue as a killed owner leaves it."""
        left = self.directory.with_name("left")
        with self.queue() as queue:
            queue.enqueue(SCOPE, "last", None)
            # Opening LOCK here would drop the lock that this process holds on it.
            shutil.copytree(self.directory, left, ignore=shutil.ignore_patterns("LOCK"))
        shutil.rmtree(self.directory)
        left.rename(self.directory)

    def spoil(self, job_id: UUID) -> None:
        """Damage the row of a job."""
        store = RocksStore.open(self.directory, clock=self.clock)
        [key] = [key for key, _ in store.scan(Family.JOBS, b"", None, 1_000) if key[-16:] == job_id.bytes]
        store.commit([], [Put(Family.JOBS, key, b"no row")], b"token")
        store.close()

    def quarantine(self, job_id: UUID) -> None:
        """Damage the row of a pending job and let a writer meet it."""
        self.spoil(job_id)
        with self.queue() as queue:
            queue.lease_batch("worker", 1, kinds=["spoiled"])
        assert str(job_id) in self.run("check").stdout

    def states(self) -> list[str]:
        """The states of all jobs, in the order of their ids."""
        with self.queue() as queue:
            return [job.state.value for job in queue.list_jobs().jobs]


@contextmanager
def held_elsewhere(directory: Path) -> Iterator[int]:
    """Another process has the queue open, with one job of kind `held`; its process id."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        yield process.pid
        process.communicate()
    assert process.returncode == 0


def telha_process(
    directory: Path, *arguments: str, given: str | None = None, environment: Sequence[tuple[str, str]] = ()
) -> subprocess.CompletedProcess[str]:
    """`telha jobs ARGUMENTS` as a process of its own."""
    script = "from telha_jobs.cli import main; main()"
    command = [sys.executable, "-c", script, "jobs", *arguments]
    return subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={"TELHA_DATA": str(directory), "PATH": "", **dict(environment)},
    )


def words(line: str) -> list[str]:
    """The cells of a table's line."""
    return re.split(r" {2,}", line.strip())
