"""A seeded load on a queue, told to a history so completely that every state it may be found in is known.

`Recorder` makes a store and a database that tell every batch as it goes to RocksDB and the number of every commit after
it. `Load` makes one call after another, each announced before and answered after. Nothing is left to chance but the
seed; `fixed_ids` takes care of ids and tokens. So a run can be made again: the same calls, answers and states, and the
same log but for the numbers that RocksDB gives its column families.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from rocksdict import WriteBatch

from telha_jobs import JobQueue, Lease, ManualClock, NewJob, QueueError, QueueUnavailableError, State
from telha_jobs.store.database import Database
from telha_jobs.store.port import NO_ADDS, Adds, Committed, Conflict, Guard, Write
from telha_jobs.store.rocks import RocksStore
from tests.chaos.history import History

START_MS: Final = 1_700_000_000_000
SCOPES: Final = (UUID(int=0xA), UUID(int=0xB))
SMALL_SIZES: Final = (0, 5, 5, 40)
ALL_SIZES: Final = (*SMALL_SIZES, *SMALL_SIZES, 700, 700, 9_000)
"""Of payloads: also some that have a row of their own, and some that soon fill a block of the log."""
_KINDS: Final = ("embed", "ingest:page", "ingest:site")
_FREE_CALLS: Final = ("enqueue", "enqueue_many", "enqueue", "lease", "lease", "read", "reap")
_BESIDE_CALLS: Final = ("lease", "lease", "lease", "reap", "read")
"""What commits beside another thread's sync: polls and sweeps, which do not stand in the line of writers."""
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


class Recorder:
    """Tells the history what goes to the database, and lets a second thread in, or the end, at a sync."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.changes: Sequence[Write] = ()
        self.at_sync: Callable[[Callable[[], None]], None] = lambda sync: sync()
        self.at_call: Callable[[], object] = lambda: None
        self.at_close: Callable[[], object] = lambda: None
        self.second = _Second()
        self.own = threading.local()

    def database(self) -> type[Database]:
        """The database that tells this recorder."""
        recorder = self

        class Recorded(Database):
            def batch(self, changes: Sequence[Write]) -> WriteBatch:
                recorder.changes = tuple(changes)
                return super().batch(changes)

            def write(self, batch: WriteBatch) -> None:
                told = [
                    (family.value, key.hex(), None if value is None else value.hex())
                    for family, key, value in recorder.changes
                ]
                recorder.history.note("written", changes=told)
                super().write(batch)

            def flush(self) -> None:
                recorder.at_sync(super().flush)

            def close(self) -> None:
                if self._shadow is None:  # not the view that an open looks through
                    recorder.at_close()
                super().close()

        return Recorded

    def store(self) -> type[RocksStore]:
        """The store that tells this recorder."""
        recorder = self

        class Recording(RocksStore):
            def commit(
                self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
            ) -> Committed | Conflict:
                answer = super().commit(checks, writes, token, adds)
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
        self._sequence = 0
        self.store: RocksStore
        self.queue: JobQueue

    def opened(self, store: RocksStore, queue: JobQueue) -> None:
        """Go on with this queue."""
        self.store, self.queue = store, queue

    def step(self, *, beside: bool = False) -> None:
        """One call, announced before and told after; `settle` takes note of what it leased. `beside`: one of those that
        another thread's sync does not keep waiting.
        """
        name, given, call = self._drawn(beside=beside)
        intent = self._history.intent(name, given)
        self._recorder.own.sequence = self._newest()
        told: dict[str, Any] = {}
        self._recorder.at_call()
        try:
            answer = call()
        except QueueError as refusal:
            told["refused"] = type(refusal).__name__
            told["outcome"] = refusal.outcome if isinstance(refusal, QueueUnavailableError) else None
        else:
            if isinstance(answer, list) and answer and isinstance(answer[0], Lease):
                self._granted[threading.current_thread() is self._first] = answer
                told["leases"] = [(one.job_id.hex, one.generation) for one in answer]
        self._history.outcome(intent, {**told, "sequence": self._recorder.own.sequence})

    def _newest(self) -> int:
        """The commit that the next call sees at least."""
        with suppress(QueueUnavailableError):  # the storage failed: it stays where it was
            self._sequence = self.store.sequence
        return self._sequence

    def settle(self) -> None:
        """Both threads are through their calls: from now on their leases are there to be drawn, in a fixed order."""
        for first in (True, False):
            self._held += self._granted.pop(first, [])

    def _drawn(self, *, beside: bool) -> tuple[str, dict[str, Any], Callable[[], Any]]:
        chance, queue = self.chance, self.queue
        if chance.random() < 0.1:
            self._clock.advance(chance.choice((1, 40, 400, 11_000)))
        held = self._held.pop(chance.randrange(len(self._held))) if self._held else None
        name = chance.choice(_BESIDE_CALLS if beside else _CALLS if held is not None else _FREE_CALLS)
        job = None if held is None else held.job_id
        scope = chance.choice(SCOPES)
        given: dict[str, Any] = {"job": None if job is None else job.hex}
        if name in ("enqueue", "enqueue_many", "lease", "read", "reap"):
            if held is not None:
                self._held.append(held)
            given = {"number": chance.choice((1, 1, 2, 5))}
        number = given.get("number", 0)
        if held is None or name in _FREE_CALLS:
            return name, given, self._free(name, scope, number, wait_ms=1 if beside else 0)
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

    def _free(self, name: str, scope: UUID, number: int, *, wait_ms: int) -> Callable[[], Any]:
        queue = self.queue
        calls: dict[str, Callable[[], Any]] = {
            "enqueue": lambda: queue.enqueue_many([self._job(scope)]),
            "enqueue_many": lambda: queue.enqueue_many([self._job(scope) for _ in range(number)]),
            "lease": lambda: queue.lease_batch("w", number, wait_ms=wait_ms),
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


@contextmanager
def fixed_ids(seed: int) -> Iterator[None]:
    """What a queue that is opened in here draws for ids and tokens follows from the seed."""
    fixed = random.Random(seed)
    with (
        patch("telha_jobs.engine.job_ids.random.Random", lambda: fixed),
        patch("telha_jobs.engine.shared.secrets.token_bytes", fixed.randbytes),
    ):
        yield
