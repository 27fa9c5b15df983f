"""The process that owns the queue, for lanes that kill it: calls come in over a local socket, one JSON object a line.

    python -m tests.chaos.server '{"data": ..., "address": ..., "config": {...}}'

The address is a name in Linux's abstract namespace: it leaves no file and goes with the process. Once the queue is open
and somebody could connect, one line goes to standard output: `{"incarnation": 3, "now_ms": ..., "problems": []}` with
what `check` says. Each connection is served by a thread of its own. The process ends with its standard input, so that
it never outlives its parent, and by itself only when something is wrong. A scope is a number here, its sixteen bytes
all the same.

A call is answered by `{"told": ...}`; a refusal is told too: `{"refused": "StaleLeaseError", ...}`.
"""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from telha_jobs import (
    Backoff,
    JobQueue,
    Lease,
    LeaseRef,
    NewJob,
    QueueConfig,
    QueueError,
    Receipt,
    StaleLeaseError,
    WrongStateError,
)
from telha_jobs.protocol import Queue

Data = dict[str, Any]
BROKEN: Final = 3


def config_of(told: Data) -> QueueConfig:
    """The settings that came as JSON; durable at every answer."""
    return QueueConfig(**{**told, "backoff": Backoff(**told["backoff"])}, durability="sync")


class Served:
    """The calls, by name: from JSON to the queue and back."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def answer(self, asked: Data) -> Any:
        """What the queue says to one call, refusals included."""
        call: Callable[[Data], Any] = getattr(self, f"do_{asked['call']}")
        try:
            return call(asked)
        except QueueError as error:
            return self.refused(error)

    def refused(self, error: QueueError) -> Any:
        """What a refusal says."""
        return refusal(error)

    def do_enqueue(self, asked: Data) -> Any:
        return [receipt(one) for one in self._queue.enqueue_many([new_job(one) for one in asked["jobs"]])]

    def do_lease(self, asked: Data) -> Any:
        held = self._queue.lease_batch(asked["worker"], asked["limit"], wait_ms=asked.get("wait_ms", 0))
        return [grant(lease) for lease in held]

    def do_extend(self, asked: Data) -> Any:
        outcomes = self._queue.extend(asked["worker"], [ref(one) for one in asked["leases"]])
        return [
            {
                "job": outcome.job_id.hex,
                "status": outcome.status,
                "deadline_ms": outcome.deadline_ms,
                "error": None if outcome.error is None else refusal(outcome.error),
            }
            for outcome in outcomes
        ]

    def do_complete(self, asked: Data) -> Any:
        follow_ups = [new_job(one) for one in asked.get("jobs", ())]
        return [receipt(one) for one in self._queue.complete(ref(asked), asked["result"], enqueue=follow_ups)]

    def do_fail(self, asked: Data) -> Any:
        return self._queue.fail(ref(asked), asked["reason"]).value

    def do_release(self, asked: Data) -> Any:
        self._queue.release(ref(asked))
        return None

    def do_counts(self, _asked: Data) -> Any:
        return {state.value: number for state, number in self._queue.counts().items()}

    def do_get(self, asked: Data) -> Any:
        job = self._queue.get(UUID(asked["job"]))
        events = [[event.at_ms, event.transition, dict(event.detail)] for event in job.events]
        return {
            "state": job.state.value,
            "attempts": job.attempts,
            "generation": job.generation,
            "worker": job.worker,
            "dead_reason": job.dead_reason,
            "result": job.result,
            "events": events,
        }


def new_job(told: Data) -> NewJob:
    """A job to be made."""
    return NewJob(
        scope=UUID(bytes=bytes([told["scope"]]) * 16),
        kind=told["kind"],
        payload=told["payload"],
        idempotency_key=told.get("key"),
    )


def ref(told: Data) -> LeaseRef:
    """A token."""
    return LeaseRef(UUID(told["job"]), told["generation"])


def receipt(made: Receipt) -> Data:
    """A receipt."""
    return {"job": made.job_id.hex, "created": made.created, "state": made.state.value}


def grant(lease: Lease) -> Data:
    """A lease, as far as whoever holds it needs it."""
    return {
        "job": lease.job_id.hex,
        "generation": lease.generation,
        "attempt": lease.attempt,
        "deadline_ms": lease.deadline_ms,
        "payload": lease.payload,
    }


def refusal(error: QueueError) -> Data:
    """A refusal, its fields by name."""
    told: Data = {"refused": type(error).__name__}
    match error:
        case StaleLeaseError():
            told |= {"why": error.why, "state": error.state.value, "current": error.current_generation}
        case WrongStateError():
            told |= {"state": error.state.value}
        case _:
            pass
    return told


def main(told: Data) -> None:
    """Open, listen, serve until the parent is gone."""
    _thread(end_with_parent)
    queue = JobQueue.open(told["data"], config=config_of(told["config"]))
    queue.start_reaper()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{told['address']}")
    listener.listen(64)
    problems = list(queue.check().problems)
    opened = {"incarnation": queue._store.incarnation, "now_ms": queue.now_ms(), "problems": problems}
    os.write(1, json.dumps(opened).encode() + b"\n")
    served = Served(queue)
    while True:
        connection, _ = listener.accept()
        _thread(lambda connection=connection: _serve(served, connection))  # type: ignore[misc]


def _serve(served: Served, connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            told = served.answer(json.loads(line))
            connection.sendall(json.dumps({"told": told}).encode() + b"\n")


def end_with_parent() -> None:
    """End this process when its standard input ends."""
    while os.read(0, 1):
        pass
    os._exit(0)


def _thread(body: Callable[[], None]) -> None:
    """A thread whose failure ends the process: a call that is never answered would look like a slow queue."""

    def run() -> None:
        try:
            body()
        except (BrokenPipeError, ConnectionResetError):
            pass  # a worker was killed; its connection is its own
        except BaseException:  # noqa: BLE001  nothing is handled: it is shown, and ends the process
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(BROKEN)

    threading.Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
