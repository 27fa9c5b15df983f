"""The reply rule, seen from outside: no answer leaves before what it tells is durable, whoever wrote it.

One thread pays exactly one sync for each call that commits and none for any other. And an answer to another thread that
tells what is written but not yet synced (a look, a refusal, an empty poll) leaves after that sync, not before.
"""

import sys
from pathlib import Path

from tests.harness.syncs import Call, replies, trace

ALONE = """
import os, sys
from uuid import UUID
from telha_jobs import JobQueue, LeaseRef, NewJob, QueueError

A = UUID(int=1)
queue = JobQueue.open(sys.argv[1])

def new(payload):
    return NewJob(scope=A, kind="embed", payload=payload)

def told(expected, call):
    try:
        answer = call()
    except QueueError as refusal:
        answer = refusal
    os.write(1, b"reply %d %s\\n" % (expected, type(answer).__name__.encode()))
    return answer

os.write(1, b"opened\\n")
first = told(1, lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"))
told(0, lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"))
told(0, lambda: queue.enqueue(A, "embed", 2, idempotency_key="k"))
told(0, lambda: queue.enqueue(A, "", 2))
told(1, lambda: queue.enqueue_many([new(n) for n in range(9)]))
told(0, lambda: queue.get(first.job_id))
told(0, lambda: queue.get(UUID(int=7)))
told(0, queue.counts)
told(0, queue.list_jobs)
held = told(1, lambda: queue.lease_batch("w", 8))
told(0, lambda: queue.lease_next("w", kinds=["nobody"]))
told(1, lambda: queue.extend("w", held[:3], progress={held[0].job_id: 1}))
told(0, lambda: queue.extend("w", [LeaseRef(held[0].job_id, 9)]))
told(1, lambda: queue.complete(held[0], "done", enqueue=[new("next")]))
told(0, lambda: queue.complete(held[0], "done", enqueue=[new("next")]))
told(0, lambda: queue.complete(held[0], "other"))
told(1, lambda: queue.complete_many([(held[1], 1), (held[2], 2), (held[0], 3)]))
told(1, lambda: queue.fail(held[3], "x"))
told(1, lambda: queue.fail(held[4], "x", retryable=False))
told(0, lambda: queue.fail(held[4], "x", retryable=False))
told(1, lambda: queue.release(held[5]))
told(0, lambda: queue.release(held[5]))
told(1, lambda: queue.cancel(held[6].job_id))
told(0, lambda: queue.cancel(held[6].job_id))
told(1, lambda: queue.retry(held[6].job_id))
told(1, lambda: queue.discard(held[4].job_id))
told(0, lambda: queue.discard(held[4].job_id))
told(0, queue.reap)
told(0, queue.check)
told(0, queue.now_ms)
told(1, lambda: queue.lease_next("w"))
for _ in range(20):
    told(0, lambda: queue.lease_next("w", kinds=["nobody"], wait_ms=1))
os.write(1, b"closing\\n")
queue.close()
"""

BESIDE = """
import os, sys, threading
from uuid import UUID
from telha_jobs import JobQueue, QueueError

A, B = UUID(int=1), UUID(int=2)
queue = JobQueue.open(sys.argv[1])
store = queue._store
syncing, looked = threading.Event(), threading.Event()
flush, wait = store._database.flush, store.wait
looker = None

def slow_flush():
    # The writer's sync is under way until the other thread waits for it, or has answered without.
    if looker is not None:
        syncing.set()
        looked.wait(20)
    flush()

def seen_wait(sequence):
    if threading.current_thread() is looker:
        looked.set()
    wait(sequence)

def seen_join(call):
    # A call that may write waits in line already, behind the sync.
    if threading.current_thread() is looker:
        looked.set()
    join(call)

turns = queue._engine._turns
join = turns.join
store._database.flush, store.wait, turns.join = slow_flush, seen_wait, seen_join

def leased(scope=A):
    queue.enqueue(scope, "embed", None)
    return queue.lease_next("w", scopes=[scope])

def race(tag, write, look):
    global looker
    def look_and_tell():
        syncing.wait(20)
        try:
            look()
        except QueueError:
            pass
        os.write(1, b"reply %s\\n" % tag.encode())
        looked.set()
    looker = threading.Thread(target=look_and_tell)
    looker.start()
    write(tag)
    looker.join()
    looker = None
    syncing.clear()
    looked.clear()

os.write(1, b"opened\\n")
one = leased()
race("<get>", lambda tag: queue.extend("w", [one], progress={one.job_id: tag}), lambda: queue.get(one.job_id))
race("<list>", lambda tag: queue.enqueue(A, "embed", tag), queue.list_jobs)
race("<counts>", lambda tag: queue.enqueue(A, "embed", tag), queue.counts)
race("<check>", lambda tag: queue.enqueue(A, "embed", tag), queue.check)
race("<hit>", lambda tag: queue.enqueue(A, "embed", tag, idempotency_key="h"),
     lambda: queue.enqueue(A, "embed", "<" + "hit>", idempotency_key="h"))
race("<conflict>", lambda tag: queue.enqueue(A, "embed", tag, idempotency_key="c"),
     lambda: queue.enqueue(A, "embed", 1, idempotency_key="c"))
two = leased(B)
race("<stale>", lambda tag: queue.complete(two, tag), lambda: queue.fail(two, "late"))
three = leased(B)
race("<repeat>", lambda tag: queue.complete(three, tag), lambda: queue.complete(three, "<repeat>"))
four = leased(B)
race("<wrong state>", lambda tag: queue.fail(four, tag, retryable=False), lambda: queue.cancel(four.job_id))
five = leased(B)
race("<outcome>", lambda tag: queue.complete(five, tag), lambda: queue.extend("w", [five]))
queue.enqueue(B, "embed", None)
race("<empty poll>", lambda tag: queue.lease_next(tag, scopes=[B]), lambda: queue.lease_next("w", scopes=[B]))
race("<nothing to reap>", lambda tag: queue.enqueue(B, "embed", tag), queue.reap)
os.write(1, b"closing\\n")
queue.close()
"""

TAGS = (
    "<get>",
    "<list>",
    "<counts>",
    "<check>",
    "<hit>",
    "<conflict>",
    "<stale>",
    "<repeat>",
    "<wrong state>",
    "<outcome>",
    "<empty poll>",
    "<nothing to reap>",
)


def traced(directory: Path, program: str) -> list[Call]:
    """Run a program under the tracer; its calls between open and close."""
    calls = trace([sys.executable, "-c", program, str(directory / "queue")], directory / "trace")
    begin = next(call.ended for call in calls if '"opened\\n"' in call.arguments)
    end = next(call.began for call in calls if '"closing\\n"' in call.arguments)
    return [call for call in calls if begin < call.began < end]


def test_a_call_that_commits_costs_one_sync_and_any_other_none(directory: Path) -> None:
    """One thread: before each reply to a commit one write and then one sync of the log; before any other, neither."""
    between: list[list[str]] = [[]]
    told: list[str] = []
    for call in traced(directory, ALONE):
        if '"reply ' in call.arguments:
            told.append(call.arguments.split('"reply ')[1].split("\\n")[0])
            between.append([])
        elif call.path.endswith(".log"):
            between[-1].append("sync" if call.is_sync else call.name)
    wanted = [["write", "sync"] * int(line[0]) for line in told]
    assert len(told) == 51
    found = list(zip(told, between, strict=False))
    assert list(zip(told, wanted, strict=True)) == found
    assert between[-1] == []


def test_an_answer_waits_for_the_sync_of_what_it_tells(directory: Path) -> None:
    """Two threads: what one wrote and is still syncing, the other sees at once, and is answered after the sync only."""
    found = replies(traced(directory, BESIDE), TAGS)
    assert [reply.tag for reply in found if reply.sync is None] == []
