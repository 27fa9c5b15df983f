"""Turns calls that arrive together into one commit and one sync, and gives waiting polls what they wait for.

One thread works for the event loop. While it commits and syncs, further calls gather; they are the next batch. A batch
ends with a look for the waiting polls, so that a job is leased in the very commit that made it ready. Between batches
nothing happens: the engine says when there is news (`Engine.watch`), and one timer stands at the next due time.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from telha_jobs.core.record import Record
from telha_jobs.engine import leases as leasing
from telha_jobs.engine.commands import Ref
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.unit import Unit
from telha_jobs.errors import QueueError, QueueUnavailableError
from telha_jobs.rpc.calls import Operation, Places
from telha_jobs.rpc.granting import Look, grant_all
from telha_jobs.rpc.polls import Granted, Line, Polls
from telha_jobs.types import State

OPERATIONS_PER_COMMIT: Final = 1_000
PLACES_MAX: Final = 1_000
"""A batch that makes jobs of more scopes and kinds ready is looked at by every poll."""
LONE_TURNS: Final = 1
CROWD_TURNS: Final = 12
GATHERING_TURNS_MAX: Final = 200
"""A batch begins when nothing more arrived for so many turns of the event loop, where calls come one at a time and
where they come in crowds; at the latest after the last of these. A turn without news takes about 10 µs.
"""
_log = logging.getLogger("telha_jobs")


class Answers(NamedTuple):
    """The replies to one call's operations, refusals among them as exceptions; the commit they saw or made."""

    replies: Sequence[Any]
    sequence: int
    place: int


_Outcome = tuple[list[Any], int] | BaseException
"""What `Engine.write_many` answered or raised."""


_Placed = tuple["asyncio.Future[Answers]", Answers]
"""Who waits, and for which answers."""


class _Waiting(NamedTuple):
    """A call in the queue of the dispatcher. No future: nobody waits for the answer."""

    operations: Sequence[Operation]
    future: "asyncio.Future[Answers] | None"
    ready: Places | None


class Dispatcher:
    """Runs operations for the calls of one server. Everything but the work itself happens in the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._batches: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="telha-engine", daemon=True)
        self._thread.start()
        self._pending: list[_Waiting] = []
        self._busy = False
        self._wanted = False
        self._everybody = False
        self._doubted = False
        self._signalled = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._crowd = 0
        self._sequence = -1
        self._index = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.polls = Polls(self._look, self._release)
        self.waiting = 0
        self.batches = 0
        self.operations = 0
        engine.watch(self._news)

    async def run(self, operations: Sequence[Operation], ready: Places | None = frozenset()) -> Answers:
        """Run a call's operations, in their order, in one commit with those of others.

        `ready` as in `Call`: polls for these look in that very commit. Raises `QueueUnavailableError` when the queue is
        gone.
        """
        future: asyncio.Future[Answers] = self._loop.create_future()
        self._add(_Waiting(operations, future, ready))
        return await future

    async def drain(self) -> None:
        """Return once nothing is pending."""
        while self._busy or self._pending:
            await self._idle.wait()

    def close(self) -> None:
        """End the thread. Nothing may be pending."""
        if self._timer is not None:
            self._timer.cancel()
        self._batches.put(None)
        self._thread.join()

    # -- what there is to do

    def _add(self, waiting: _Waiting) -> None:
        self._pending.append(waiting)
        self.waiting += 1
        self._start()

    def _release(self, refs: list[Ref]) -> None:
        """Give back leases that no client ever got."""
        self._add(_Waiting([partial(_given_back, ref=ref) for ref in refs], None, None))

    def _look(self) -> None:
        """Somebody has come to wait for jobs."""
        self._wanted = True
        self._start()

    def _look_all(self) -> None:
        """There may be something for whoever waits."""
        self._everybody = True
        self._look()

    def _news(self) -> None:
        """Told by the engine, in any thread and under its lock."""
        if self._signalled or threading.current_thread() is self._thread:
            return  # a batch of ours knows what it makes ready, and looks
        self._signalled = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._heard)

    def _heard(self) -> None:
        self._signalled = False
        self._doubted = True
        self._look_all()

    def _start(self) -> None:
        """Begin a batch when those that arrive just now have arrived: each turn of the loop brings a few."""
        if not self._busy and (self._pending or self._wanted):
            self._busy = True
            self._idle.clear()
            self._loop.call_soon(self._gather, len(self._pending), 0, 0)

    def _gather(self, before: int, quiet: int, turns: int) -> None:
        now = len(self._pending)
        quiet = 0 if now > before else quiet + 1
        enough = CROWD_TURNS if max(now, self._crowd) > 1 else LONE_TURNS
        if quiet >= enough or turns >= GATHERING_TURNS_MAX or now >= OPERATIONS_PER_COMMIT:
            self._begin()
        else:
            self._loop.call_soon(self._gather, now, quiet, turns + 1)

    # -- a batch

    def _begin(self) -> None:
        batch = self._take()
        self._crowd = max(len(batch), self._crowd // 2)  # one call alone is no end of a crowd
        operations = [operation for waiting in batch for operation in waiting.operations]
        doubtful = self._doubtful()
        lines: list[Line] | None = None
        places = self._places(batch)
        if self.polls.waiting:
            lines = self.polls.lines(self._turn, places)
            self._turn += 1
        self._wanted = self._everybody = False
        if doubtful:
            operations.append(partial(_ended, refs=doubtful))
        if lines is not None:  # also without any: it tells when something is due
            operations.append(partial(grant_all, lines=lines, engine=self._engine))
        if not operations and not batch:
            self._end()
            return
        self.batches += 1
        self.operations += len(operations)
        done = partial(self._done, batch=batch, lines=lines, doubtful=doubtful, every=places is None)
        self._batches.put(partial(self._work, operations, done))

    def _places(self, batch: list[_Waiting]) -> set[tuple[bytes, str]] | None:
        """Where there may be something new to lease with this batch; None: anywhere."""
        found: set[tuple[bytes, str]] = set()
        for waiting in batch:
            if waiting.ready is None:
                return None
            found |= waiting.ready
        return None if self._everybody or len(found) > PLACES_MAX else found

    def _take(self) -> list[_Waiting]:
        """The calls of the next batch: all that wait, or as many as fit into one commit."""
        total = 0
        for number, waiting in enumerate(self._pending):
            total += len(waiting.operations)
            if total > OPERATIONS_PER_COMMIT and number:
                batch, self._pending = self._pending[:number], self._pending[number:]
                return batch
        batch, self._pending = self._pending, []
        return batch

    def _doubtful(self) -> list[Ref]:
        if not self._doubted:
            return []
        self._doubted = False
        try:
            return self.polls.doubtful(self._engine.store.now())
        except QueueUnavailableError:
            return []

    def _serve(self) -> None:
        """The thread. A queue and no pool: what a pool does for each task is a tenth of a lone call."""
        while (batch := self._batches.get()) is not None:
            batch()

    def _work(self, operations: Sequence[Operation], done: Callable[[_Outcome], None]) -> None:
        """In the thread. The loop is told directly: futures between the two would take it two more turns."""
        try:
            self._engine.require_open()
            outcome: _Outcome = self._engine.write_many(operations)
        except BaseException as error:  # noqa: BLE001  whatever it is, the calls are answered with it
            outcome = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(done, outcome)

    def _done(
        self, outcome: _Outcome, *, batch: list[_Waiting], lines: list[Line] | None, doubtful: list[Ref], every: bool
    ) -> None:
        self.waiting -= len(batch)
        try:
            if isinstance(outcome, BaseException):
                self._fail(outcome, batch, lines or [])
            else:
                replies, sequence = outcome
                self._index = self._index if sequence == self._sequence else 0
                self._sequence = sequence
                placed = self._placed(batch, replies, sequence)
                try:
                    if doubtful:
                        self._room(replies[-1 if lines is None else -2])
                    if lines is not None:
                        self._deliver(lines, replies[-1], sequence, every=every)
                finally:
                    self._answer(placed)  # after those who waited for work: a producer has no use for its receipt yet
        finally:
            self._end()  # whatever happened: those that wait have their turn

    def _placed(self, batch: list[_Waiting], replies: list[Any], sequence: int) -> list[_Placed]:
        """Each call's answers, with their place in the order of the commit: before whatever it granted to polls."""
        placed: list[_Placed] = []
        at = 0
        for waiting in batch:
            end = at + len(waiting.operations)
            if waiting.future is not None:
                placed.append((waiting.future, Answers(replies[at:end], sequence, self._index)))
            self._index += len(waiting.operations)
            at = end
        return placed

    def _answer(self, placed: list[_Placed]) -> None:
        for future, answers in placed:
            if not future.done():
                future.set_result(answers)

    def _room(self, ended: Any) -> None:
        if isinstance(ended, list):
            for ref in ended:
                self.polls.over(*ref)

    def _deliver(self, lines: list[Line], look: Any, sequence: int, *, every: bool) -> None:
        if not isinstance(look, Look):
            _log.error("a look for jobs failed: %r", look)
            return
        for stream, leases in look.found:
            self.polls.granted(stream, Granted(leases, sequence, self._index))
            self._index += 1
        self.polls.looked(lines[: look.lines])
        if look.more:
            self._everybody = self._wanted = True
        self._wake_after(look.pause_s, every=every)

    def _fail(self, error: BaseException, batch: list[_Waiting], lines: list[Line]) -> None:
        if not isinstance(error, QueueError):
            _log.error("a batch of calls failed", exc_info=error)
        for waiting in batch:
            if waiting.future is not None and not waiting.future.done():
                waiting.future.set_exception(error)
        if isinstance(error, QueueUnavailableError):
            self.polls.fail(error)
        else:
            self.polls.looked(lines)

    def _end(self) -> None:
        self._busy = False
        self._start()
        if not self._busy:
            self._idle.set()

    def _wake_after(self, pause_s: float, *, every: bool) -> None:
        """Look again when the next row is due, if anybody waits then.

        A look of some polls alone puts nothing off: what came due before it, others may still wait for.
        """
        at = self._loop.time() + pause_s
        if self._timer is not None:
            if not every and self._timer.when() <= at:
                return
            self._timer.cancel()
            self._timer = None
        if self.polls.waiting and not math.isinf(pause_s):
            self._timer = self._loop.call_at(at, self._due)

    def _due(self) -> None:
        self._timer = None
        self._look_all()


# -- operations of the dispatcher's own: they run in its thread, under the engine's lock


def _given_back(unit: Unit, *, ref: Ref) -> None:
    leasing.release(unit, ref, 0)


def _ended(unit: Unit, *, refs: Sequence[Ref]) -> list[Ref]:
    """Those of the leases that are not current any more."""
    return [ref for ref in refs if not _is_current(unit, ref)]


def _is_current(unit: Unit, ref: Ref) -> bool:
    record = unit.find(ref.job_id)
    return isinstance(record, Record) and record.state is State.LEASED and record.generation == ref.generation
