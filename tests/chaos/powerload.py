"""The program that the lane `powerloss` runs to its death: a seeded load on one queue, every write told outside it.

    python -m tests.chaos.powerload DATABASE HISTORY '{"seed": 7, "durability": "sync", ...}'

The history holds the calls (the outcome of each with the commit its answer may have seen), every batch as it goes to
RocksDB, and the number of every commit behind its batches: so whoever reads it knows each state that the database may
be found in. Nothing here is left to chance but the seed: ids and tokens too, and the second thread, which is let in at
chosen syncs and waited for. So the log is the same, byte for byte, each time.
"""

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from rocksdict import WriteBatch

from telha_jobs import JobQueue, Lease, ManualClock, NewJob, QueueConfig, QueueError, State
from telha_jobs.store.database import Database
from telha_jobs.store.port import Check, Committed, Conflict, Delete, Put, Write
from telha_jobs.store.rocks import RocksStore
from tests.chaos.history import History

START_MS: Final = 1_700_000_000_000
SCOPES: Final = (UUID(int=0xA), UUID(int=0xB))
BESIDE: Final = 0.3
"""How many syncs let the second thread make a call."""


class Recorder:
    """Tells the history what goes to the database, and lets a second thread in, or the end, at a sync."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.changes: Sequence[Put | Delete] = ()
        self.at_sync: Callable[[Callable[[], None]], None] = lambda sync: sync()
        self.second = _Second()
        self.own = threading.local()

    def database(self) -> type[Database]:
        """The database that tells this recorder."""
        recorder = self

        class Recorded(Database):
            def batch(self, changes: Sequence[Put | Delete]) -> WriteBatch:
                recorder.changes = tuple(changes)
                return super().batch(changes)

            def write(self, batch: WriteBatch) -> None:
                told = [
                    (one.family.value, one.key.hex(), one.value.hex() if isinstance(one, Put) else None)
                    for one in recorder.changes
                ]
                recorder.history.note("written", changes=told)
                super().write(batch)

            def flush(self) -> None:
                recorder.at_sync(super().flush)

        return Recorded

    def store(self) -> type[RocksStore]:
        """The store that tells this recorder."""
        recorder = self

        class Recording(RocksStore):
            def commit(self, checks: Sequence[Check], writes: Sequence[Write], token: bytes) -> Committed | Conflict:
                answer = super().commit(checks, writes, token)
                if isinstance(answer, Committed):
                    recorder.own.sequence = answer.sequence
                    recorder.history.note("commit", sequence=answer.sequence)
                return answer

            def wait(self, sequence: int) -> None:
                recorder.second.reached_wait()
                super().wait(sequence)

        return Recording


class _Second:
    """The second thread: one call at a time, until it waits for its sync; then the first goes on."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._waits = threading.Event()

    def run(self, call: Callable[[], None]) -> None:
        """Make the call in a thread; returns when it waits for a sync, or is over."""

        def body() -> None:
            try:
                call()
            finally:
                self._waits.set()

        self._waits.clear()
        self._thread = threading.Thread(target=body)
        self._thread.start()
        self._waits.wait()

    def reached_wait(self) -> None:
        """Some thread is about to wait for a sync."""
        if threading.current_thread() is self._thread:
            self._waits.set()

    def join(self) -> None:
        """Until its call is over."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Load:
    """Calls drawn from a seed, on one queue after another."""

    def __init__(
        self, seed: int, history: History, recorder: Recorder, clock: ManualClock, *, sizes: tuple[int, ...]
    ) -> None:
        self.chance = random.Random(seed)
        self._sizes = sizes
        self._history = history
        self._recorder = recorder
        self._clock = clock
        self._held: list[Lease] = []
        self._granted: dict[bool, list[Lease]] = {}
        self._first = threading.current_thread()
        self._keys = 0
        self.store: RocksStore
        self.queue: JobQueue

    def opened(self, store: RocksStore, queue: JobQueue) -> None:
        """Go on with this queue."""
        self.store, self.queue = store, queue

    def step(self) -> None:
        """One call, announced before and told after; `settle` takes note of what it leased."""
        name, given, call = self._drawn()
        intent = self._history.intent(name, given)
        seen = self.store.sequence
        self._recorder.own.sequence = seen
        told: dict[str, Any] = {}
        try:
            answer = call()
        except QueueError as refusal:
            told["refused"] = type(refusal).__name__
        else:
            if isinstance(answer, list) and answer and isinstance(answer[0], Lease):
                self._granted[threading.current_thread() is self._first] = answer
                told["leases"] = [(one.job_id.hex, one.generation) for one in answer]
        self._history.outcome(intent, {**told, "sequence": max(seen, self._recorder.own.sequence)})

    def settle(self) -> None:
        """Both threads are through their calls: from now on their leases are there to be drawn, in a fixed order."""
        for first in (True, False):
            self._held += self._granted.pop(first, [])

    def _drawn(self) -> tuple[str, dict[str, Any], Callable[[], Any]]:
        chance, queue = self.chance, self.queue
        if chance.random() < 0.1:
            self._clock.advance(chance.choice((1, 40, 400, 11_000)))
        held = self._held.pop(chance.randrange(len(self._held))) if self._held else None
        name = chance.choice(_CALLS if held is not None else _FREE_CALLS)
        job = None if held is None else held.job_id
        scope = chance.choice(SCOPES)
        given: dict[str, Any] = {"job": None if job is None else job.hex}
        if name in ("enqueue", "enqueue_many", "lease", "read", "reap"):
            if held is not None:
                self._held.append(held)
            given = {"number": chance.choice((1, 1, 2, 5))}
        number = given.get("number", 0)
        if held is None or name in _FREE_CALLS:
            return name, given, self._free(name, scope, number)
        bound: dict[str, Callable[[], Any]] = {
            "complete": lambda: queue.complete(held, self._payload()),
            "follow": lambda: queue.complete(held, enqueue=[self._job(scope)]),
            "complete_many": lambda: queue.complete_many([(held, 1), *[(one, 2) for one in self._held[:2]]]),
            "fail": lambda: queue.fail(held, "no luck", retryable=chance.random() < 0.7),
            "release": lambda: queue.release(held),
            "extend": lambda: queue.extend("w", [held], progress={held.job_id: number}),
            "cancel": lambda: queue.cancel(held.job_id),
        }
        return name, given, bound[name]

    def _free(self, name: str, scope: UUID, number: int) -> Callable[[], Any]:
        queue = self.queue
        calls: dict[str, Callable[[], Any]] = {
            "enqueue": lambda: queue.enqueue_many([self._job(scope)]),
            "enqueue_many": lambda: queue.enqueue_many([self._job(scope) for _ in range(number)]),
            "lease": lambda: queue.lease_batch("w", number),
            "reap": lambda: queue.reap(number),
            "read": lambda: queue.list_jobs(state=self.chance.choice(tuple(State))),
        }
        return calls[name]

    def _job(self, scope: UUID) -> NewJob:
        self._keys += 1
        key = f"key-{self._keys}" if self.chance.random() < 0.4 else None
        return NewJob(scope=scope, kind=self.chance.choice(_KINDS), payload=self._payload(), idempotency_key=key)

    def _payload(self) -> str:
        return "x" * self.chance.choice(self._sizes)


_FREE_CALLS: Final = ("enqueue", "enqueue_many", "enqueue", "lease", "lease", "read", "reap")
_CALLS: Final = (
    *_FREE_CALLS,
    "complete",
    "complete",
    "follow",
    "complete_many",
    "fail",
    "release",
    "extend",
    "cancel",
)
_SMALL: Final = (0, 5, 5, 40)
_ALL: Final = (*_SMALL, *_SMALL, 700, 700, 9_000)
"""Of payloads: also some that have a row of their own, and some that soon fill a block of the log."""
_KINDS: Final = ("embed", "ingest:page", "ingest:site")


def main(arguments: Sequence[str]) -> None:
    """Load a new queue, close it, load it again and die by SIGKILL: within a call, or between two."""
    path, told, given = Path(arguments[0]), Path(arguments[1]), json.loads(arguments[2])
    history = History(told, "load")
    recorder = Recorder(history)
    clock = ManualClock(START_MS)
    load = Load(given["seed"], history, recorder, clock, sizes=_ALL if given["large"] else _SMALL)
    config = QueueConfig(
        lease_ttl_ms=1_000, retention_completed_ms=10_000, retention_dead_ms=10_000, durability=given["durability"]
    )
    fixed = random.Random(given["seed"])
    with (
        patch("telha_jobs.engine.job_ids.random.Random", lambda: fixed),
        patch("telha_jobs.engine.shared.secrets.token_bytes", fixed.randbytes),
    ):
        for calls, last in ((given["before"], False), (given["calls"], True)):
            store = recorder.store().open(
                path, clock=clock, durability=given["durability"], database=recorder.database()
            )
            load.opened(store, JobQueue(store, config, clock))
            history.note("opened", incarnation=store.incarnation)
            _play(load, recorder, calls, last=last)
            load.queue.close()


def _play(load: Load, recorder: Recorder, calls: int, *, last: bool) -> None:
    chance = load.chance
    within = chance.random() < 0.5
    first = threading.current_thread()
    for number in range(calls):
        ending = last and number == calls - 1

        def at_sync(sync: Callable[[], None], ending: bool = ending) -> None:
            if ending and within:
                _die()
            if threading.current_thread() is not first or chance.random() >= BESIDE:
                sync()
            elif chance.random() < 0.5:
                # Written before the sync, which covers it although the one who waits for it does not know.
                recorder.second.run(load.step)
                sync()
            else:
                # Written after the sync, before anybody was told that it is over.
                sync()
                recorder.second.run(load.step)

        recorder.at_sync = at_sync
        load.step()
        recorder.second.join()
        load.settle()
        if ending:
            _die()
    recorder.at_sync = lambda sync: sync()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
