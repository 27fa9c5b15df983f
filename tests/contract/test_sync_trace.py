"""Acknowledged is durable: between a commit's write and its reply lies a sync, seen from outside the process."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.harness.syncs import Call, Reply, TracerMissingError, parse, replies, trace

PROGRAM = """
import sys, threading
from telha_jobs.clock import SystemClock
from telha_jobs.store.port import Family, Put
from telha_jobs.store.rocks import RocksStore

path, durability, threads, commits = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = RocksStore.open(path, clock=SystemClock(), durability=durability)

def work(thread):
    for number in range(commits):
        tag = f"<{thread}-{number}>"
        store.wait(store.commit([], [Put(Family.JOBS, tag.encode(), b"")], b"").sequence)
        sys.stdout.write(f"reply {tag}\\n")
        sys.stdout.flush()

sys.stdout.write("opened\\n")
sys.stdout.flush()
if threads == 1:
    work(0)
else:
    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
sys.stdout.write("closing\\n")
sys.stdout.flush()
store.close()
"""


def traced(directory: Path, durability: str, *, threads: int, commits: int) -> tuple[list[Call], list[Reply]]:
    """Run the program under the tracer; returns the calls between open and close, and every commit with its reply."""
    arguments = [str(directory / "queue"), durability, str(threads), str(commits)]
    # One write per line: several threads print, and a line must stay whole in the trace.
    calls = trace([sys.executable, "-c", PROGRAM, *arguments], directory / "trace")
    tags = [f"<{thread}-{number}>" for thread in range(threads) for number in range(commits)]
    begin = next(call.ended for call in calls if '"opened\\n"' in call.arguments)
    end = next(call.began for call in calls if '"closing\\n"' in call.arguments)
    return [call for call in calls if begin < call.began < end], replies(calls, tags)


def test_every_reply_of_one_thread_waits_for_its_own_sync(directory: Path) -> None:
    """At "sync", each commit of one thread has a sync between its write and its reply, and there is no sync more."""
    calls, found = traced(directory, "sync", threads=1, commits=20)
    assert [reply.tag for reply in found if reply.sync is None] == []
    assert len([call for call in calls if call.is_sync and call.path.endswith(".log")]) == 20


def test_every_reply_of_many_threads_is_covered_by_a_sync(directory: Path) -> None:
    """At "sync", each reply to many threads has a sync between its write and itself, though they share syncs."""
    calls, found = traced(directory, "sync", threads=8, commits=10)
    assert [reply.tag for reply in found if reply.sync is None] == []
    assert len([call for call in calls if call.is_sync and call.path.endswith(".log")]) <= 80


def test_at_os_durability_no_reply_waits_for_a_sync(directory: Path) -> None:
    """At "os" nothing is synced between open and close."""
    calls, found = traced(directory, "os", threads=1, commits=20)
    assert [reply.tag for reply in found if reply.sync is not None] == []
    assert [call for call in calls if call.is_sync] == []


def test_a_missing_tracer_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without strace the proof fails and says what to install; it is never skipped."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(TracerMissingError, match="install it"):
        trace(["true"], directory / "trace")


WRITE = '7 write(5</q/000004.log>, "<a>", 3) = 3'
REPLY = '7 write(1<pipe:[1]>, "reply <a>\\n", 10) = 10'
SYNC = "7 fdatasync(5</q/000004.log>) = 0"


@pytest.mark.parametrize(
    ("lines", "covered"),
    [
        ([WRITE, SYNC, REPLY], True),
        ([SYNC, WRITE, REPLY], False),
        ([WRITE, REPLY, SYNC], False),
        ([WRITE, "7 fdatasync(6</q/other.log>) = 0", REPLY], False),
        ([WRITE, "7 fdatasync(5</q/000004.log>) = -1 EIO (Input/output error)", REPLY], False),
        (
            [
                "8 fdatasync(5</q/000004.log> <unfinished ...>",
                WRITE,
                "8 <... fdatasync resumed>) = 0",
                REPLY,
            ],
            False,
        ),
        (
            [
                WRITE,
                "8 fdatasync(5</q/000004.log> <unfinished ...>",
                REPLY,
                "8 <... fdatasync resumed>) = 0",
            ],
            False,
        ),
        (
            [
                '7 write(5</q/000004.log>, "<a>", 3 <unfinished ...>',
                "8 fdatasync(5</q/000004.log> <unfinished ...>",
                "7 <... write resumed>) = 3",
                "8 <... fdatasync resumed>) = 0",
                REPLY,
            ],
            False,
        ),
        (
            [
                '7 write(5</q/000004.log>, "<a>", 3 <unfinished ...>',
                "7 <... write resumed>) = 3",
                "8 fdatasync(5</q/000004.log> <unfinished ...>",
                "7 +++ exited with 0 +++",
                "8 <... fdatasync resumed>) = 0",
                REPLY,
            ],
            True,
        ),
    ],
    ids=[
        "between",
        "before the write",
        "after the reply",
        "another file",
        "failed",
        "began before the write",
        "ended after the reply",
        "began during the write",
        "began after the write",
    ],
)
def test_only_a_sync_between_write_and_reply_counts(lines: list[str], covered: bool) -> None:
    """A sync counts if it is of that file, succeeded, began after the write ended and ended before the reply began."""
    (reply,) = replies(parse(lines), ["<a>"])
    assert (reply.sync is not None) == covered


@pytest.mark.parametrize("lines", [[REPLY], [WRITE], [WRITE, WRITE, REPLY]], ids=["no write", "no reply", "two writes"])
def test_a_trace_that_proves_nothing_is_an_error(lines: list[str]) -> None:
    """A tag that was not written once and answered once cannot pass for covered."""
    with pytest.raises(LookupError):
        replies(parse(lines), ["<a>"])


def test_an_unreadable_trace_is_an_error() -> None:
    """A line that cannot be read may be the sync, or the write, that matters."""
    with pytest.raises(ValueError, match="no call could be read"):
        parse(["7 fdatasync(5</q/000004.log>"])
