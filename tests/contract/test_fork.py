"""A forked child of the database's owner: refused, and unable to do harm, whichever way it ends.

RocksDB's destructors, run in a child, wait for threads that are not there, or cut the log back to the length the child
knows. The child here ends only after its parent wrote more, so that a cut would lose acknowledged commits.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PARENT = """
import gc, os, sys, threading
from telha_jobs.clock import SystemClock
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.store.port import Family, Put
from telha_jobs.store.rocks import RocksStore

def child(store, path, ending):
    calls = [
        lambda: store.read([(Family.JOBS, b"a")]),
        lambda: store.scan(Family.JOBS, b"", None, 1),
        lambda: store.commit([], [Put(Family.JOBS, b"child", b"")], b""),
        lambda: store.wait(0),
        lambda: store.sequence,
        store.now,
        lambda: store.resolve(b"", [], []),
        lambda: RocksStore.open(path, clock=SystemClock()),
        lambda: RocksStore.open(path + "-other", clock=SystemClock()),
        lambda: RocksStore.open_read_only(path),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except QueueUnavailableError as error:
            print(number, error.outcome, flush=True)
        except Exception as error:
            print(number, type(error).__name__, flush=True)
    store.close()
    del store, calls
    gc.collect()
    if ending == "raise":
        raise SystemExit(3)
    if ending == "os._exit":
        os._exit(3)

path, ending = sys.argv[1:]
store = RocksStore.open(path, clock=SystemClock())
store.wait(store.commit([], [Put(Family.JOBS, b"a", b"1")], b"").sequence)
reading, writing = os.pipe()
# Some other thread is alive at the fork, as the reaper is, or a worker.
threading.Thread(target=threading.Event().wait, daemon=True).start()
# Another thread holds the store's lock while the process forks, as may happen at any moment.
store._lock.acquire()
process = os.fork()
if process == 0:
    os.close(writing)
    os.read(reading, 1)
    child(store, path, ending)
    del store
else:
    store._lock.release()
    for number in range(1000):
        sequence = store.commit([], [Put(Family.JOBS, b"%04d" % number, b"v" * 100)], b"").sequence
    store.wait(sequence)
    os.write(writing, b".")
    print("child", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    print("commit", store.commit([], [Put(Family.JOBS, b"z", b"")], b"").sequence)
    store.close()
    again = RocksStore.open(path, clock=SystemClock())
    print("rows", len(again.scan(Family.JOBS, b"", None, 2000)), "incarnation", again.incarnation)
    again.close()
"""


def run_with_children(command: list[str]) -> tuple[str, str, int]:
    """Run to the end; on a hang, end the child too, which otherwise outlives its parent."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return output, errors, process.returncode


@pytest.mark.parametrize("ending", ["return", "raise", "os._exit"])
def test_a_forked_child_is_refused_and_harmless(directory: Path, ending: str) -> None:
    """Every call in a child is refused as not applied, its exit code is its own, and its parent loses nothing."""
    command = [sys.executable, "-c", PARENT, str(directory / "queue"), ending]
    output, errors, code = run_with_children(command)
    refused = [f"{number} not_applied" for number in range(10)]
    expected = [*refused, f"child {0 if ending == 'return' else 3}", "commit 1002", "rows 1002 incarnation 0"]
    # The owner's lock is found before anything else is.
    expected[7] = "7 QueueLockedError"
    assert (output.splitlines(), errors, code) == (expected, "", 0)
