"""The process that owns the queue: it walks, enqueues, works and reaps, until all is done or somebody kills it.

It is told nothing about kills and keeps nothing outside the queue. After each start it walks and enqueues everything
again: the keys find what is there. It says what it does on standard output, one JSON object per line, for whoever
watches; it ends when its standard input does, so that it never outlives its parent.
"""

import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from scripts._demo.documents import Areas, Document, UnreadableDocumentError, text_of
from scripts._demo.embedding import embed
from scripts._demo.settings import CONFIG, LIVE
from telha_jobs import JobQueue, Lease, NewJob, StaleLeaseError, State
from telha_jobs.clock import SystemClock
from telha_jobs.store.rocks import RocksStore

THREADS: Final = 6
ENQUEUE_BATCH: Final = 100
EMBED_PRIORITY: Final = 64
"""More urgent than documents: what is begun is finished first."""
_POLL_MS: Final = 250
_STATUS_S: Final = 0.1


class Child:
    """One life of the queue's process."""

    def __init__(self, data: Path, areas: Areas) -> None:
        self._areas = areas
        # By its parts and not by `JobQueue.open`, to be able to tell how many syncs the store needed.
        clock = SystemClock()
        self._store = RocksStore.open(data, clock=clock, durability=CONFIG.durability)
        self._queue = JobQueue(self._store, CONFIG, clock)
        self._late: list[str] = []
        self._enqueued = threading.Event()
        self._finished = threading.Event()

    def run(self) -> None:
        """Until every job has ended."""
        queue = self._queue
        # What the process before left behind: nobody works yet, so whatever is leased was in its hands.
        tell({"say": "open", "counts": _named(queue.counts()), "now_ms": queue.now_ms()})
        queue.start_reaper()
        threads = [_thread("enqueue", self._enqueue)]
        threads += [_thread(f"work-{number}", self._work) for number in range(THREADS)]
        while not self._finished.wait(_STATUS_S):
            self._status()
        for thread in threads:
            thread.join()
        self._status()
        queue.close()
        tell({"say": "end"})

    def _status(self) -> None:
        counts = self._queue.counts()
        counters = self._store.counters
        tell(
            {
                "say": "status",
                "counts": _named(counts),
                "syncs": counters.syncs,
                "commits": counters.commits,
                "late": len(self._late),
            }
        )
        if self._enqueued.is_set() and not any(counts[state] for state in LIVE):
            self._finished.set()

    def _enqueue(self) -> None:
        """Keep the queue filled, but not more than a quarter of everything ahead of the workers."""
        documents = self._areas.walk()
        ahead = max(ENQUEUE_BATCH, len(documents) // 4)
        for start in range(0, len(documents), ENQUEUE_BATCH):
            while self._unfinished() > ahead:
                self._finished.wait(0.02)
            self._queue.enqueue_many([ingest_job(document) for document in documents[start : start + ENQUEUE_BATCH]])
        self._enqueued.set()

    def _unfinished(self) -> int:
        counts = self._queue.counts()
        return sum(counts[state] for state in LIVE)

    def _work(self) -> None:
        name = f"{os.getpid()}/{threading.current_thread().name}"
        while not self._finished.is_set():
            lease = self._queue.lease_next(name, wait_ms=_POLL_MS)
            if lease is None:
                continue
            tell({"say": "leased"})
            answer = answer_to(lease, self._areas)
            tell({"say": "answering"})
            try:
                match answer:
                    case UnreadableDocumentError():
                        self._queue.fail(lease, str(answer))
                    case result, follow_ups:
                        self._queue.complete(lease, result, enqueue=follow_ups)
            except StaleLeaseError:
                # The machine was too busy to keep the deadline: somebody else has the job, and this answer is dropped.
                self._late.append(str(lease.job_id))


def ingest_job(document: Document) -> NewJob:
    """The job that reads a document."""
    return NewJob(scope=document.scope, kind=document.kind, payload=document.payload(), idempotency_key=document.key)


def answer_to(lease: Lease, areas: Areas) -> tuple[dict[str, Any], list[NewJob]] | UnreadableDocumentError:
    """Do the work of a job: its result and follow-up jobs, or why the document cannot be read."""
    payload = lease.payload
    if lease.kind == "embed":
        return {"vector": embed(payload["text"])}, []
    document = Document(
        area=payload["area"],
        path=payload["path"],
        format=lease.kind.partition(":")[2],
        size_bytes=payload["bytes"],
        sha256=payload["sha256"],
    )
    try:
        text = text_of(document, areas.locate(document.area, document.path))
    except UnreadableDocumentError as error:
        return error
    follow_up = NewJob(
        scope=lease.scope,
        kind="embed",
        payload={"document": document.payload(), "text": text},
        priority=EMBED_PRIORITY,
        idempotency_key=f"embed:{document.key}",
    )
    return {"characters": len(text)}, [follow_up]


def _named(counts: Mapping[State, int]) -> dict[str, int]:
    return {state.value: count for state, count in counts.items()}


def tell(message: dict[str, Any]) -> None:
    """One line to the parent. Written at once and whole: a pipe takes lines of this size in one piece."""
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _thread(name: str, body: Callable[[], None]) -> threading.Thread:
    """A thread whose failure ends the process: a worker that is silently gone would look like a slow queue."""

    def run() -> None:
        try:
            body()
        except BaseException:  # noqa: BLE001 - nothing is handled: whatever it is, it is shown and ends the process
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(4)


def main(arguments: list[str]) -> None:
    """The command line holds one JSON object; see `lives.start`."""
    told = json.loads(arguments[0])
    # Parsing holds the interpreter for long; the threads that only read or sync should not queue behind it each time.
    sys.setswitchinterval(0.001)
    warnings.simplefilter("ignore")  # what the parser thinks of other people's escapes is none of our business
    areas = Areas(
        documents=Path(told["documents"]),
        inbox=Path(told["inbox"]),
        out=Path(told["out"]),
        limit=told["limit"],
        seed=told["seed"],
    )
    _thread("end-with-parent", _end_with_parent)
    Child(Path(told["data"]), areas).run()


if __name__ == "__main__":
    main(sys.argv[1:])
