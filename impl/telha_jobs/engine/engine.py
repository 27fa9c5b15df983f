"""The engine of one open queue: who may enter, one unit of work at a time, and the reply rule.

The reply rule is mechanical: every answer, also a read, a refusal or an empty poll, leaves only when everything it may
have seen is durable.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from telha_jobs.clock import Clock, ManualClock, SystemClock, monotonic
from telha_jobs.config import QueueConfig
from telha_jobs.engine.find import BadRowError
from telha_jobs.engine.observer import Observer
from telha_jobs.engine.shared import Shared
from telha_jobs.engine.sweep import Sweep
from telha_jobs.engine.turns import Call, Turns
from telha_jobs.engine.unit import Unit, Unreadable
from telha_jobs.errors import JobUnreadableError, QueueError, QueueUnavailableError, StaleLeaseError
from telha_jobs.store.port import Store
from telha_jobs.types import ReapReport

_CLOSED = "the queue is closed: open it again"
_INTERRUPTED = "the thread that wrote for this call too was interrupted: look at the job"
_CONFLICTS_MAX = 100
_FOREIGN_CLOCK_PAUSE_S = 0.05
"""How long a poll trusts that a clock it knows nothing about was not moved."""

Reply = TypeVar("Reply")
Subject = TypeVar("Subject")


class _ApartError(QueueError):
    """One of the calls that were to share a commit needs one of its own."""


class Engine:
    """Runs operations against one store. Thread-safe."""

    def __init__(self, store: Store, config: QueueConfig, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # a waiting poll should look again
        self._config = config
        self.closing = False
        self._shared = Shared(store, config)
        self._in_step = True  # what is derived in memory is what the rows say
        self._polling = 0  # polls that wait for work
        self._turns = Turns()
        self._waits = store.waits  # then a turn is worth waiting for: it ends with a sync
        self._watchers: list[Callable[[], None]] = []
        self._observer: Observer | None = None

    def require_open(self) -> None:
        """Raise `QueueUnavailableError` when closed, failed or forked: of all refusals this one comes first."""
        if self.closing:
            raise QueueUnavailableError(_CLOSED)
        self.store.require_usable()

    def shut(self) -> None:
        """Refuse what comes later, let the operation at hand finish (a sweep: its commit), and wake those that wait."""
        self.closing = True  # before the lock, which a sweep takes again and again
        self.wake()

    def close(self) -> None:
        """Shut, and close the store. Whoever still waits for durability is answered by the sync that this makes."""
        self.shut()
        with self._lock:
            self.store.close()

    def wake(self) -> None:
        """Let waiting polls look again: the clock was moved, or the queue closes or failed."""
        with self._lock:
            self._notify()

    def watch(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever a waiting poll should look again, and after each commit of a sweep.

        It is called under the engine's lock, in whatever thread made the news: it may only tell another one.
        """
        with self._lock:
            self._watchers.append(callback)

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` (one at most; None: nobody) what every commit from now on does to jobs."""
        with self._lock:
            self._observer = observer
            self._derived().observe(observer)

    # -- running operations

    def write(self, operation: Callable[[Unit], Reply]) -> Reply:
        """Run one operation as one commit, or together with those of other threads that wait to write.

        Its reply or refusal leaves when it is durable.
        """
        if self._waits or self._lock.locked():
            return self._take_turn(operation)
        return self._reply(self._run, operation)

    def write_many(self, operations: Sequence[Callable[[Unit], Any]]) -> tuple[list[Any], int]:
        """Run the operations of several calls, in their order, as one commit with one wait for durability.

        Answers with each one's reply, or the exception that it would have raised by itself, and with the sequence of
        the newest commit that they saw or made. Where a call is refused after it has changed something already, or
        meets a row that goes to quarantine, each of them gets a commit of its own.
        """
        return self._reply(self._run_many, operations)

    def poll(self, operation: Callable[[Unit], list[Reply]], wait_ms: int) -> list[Reply]:
        """Run an operation until it yields something, for at most `wait_ms` of real time."""
        if wait_ms == 0:
            return self.write(operation)
        until = monotonic() + wait_ms / 1_000

        def attempt(operation: Callable[[Unit], list[Reply]]) -> list[Reply]:
            while True:
                if self.closing:  # also for who passed `require_open` before: nobody would wake it
                    raise QueueUnavailableError(_CLOSED)
                replies = self._run(operation)
                remaining_s = until - monotonic()
                if replies or remaining_s <= 0:
                    return replies
                self._polling += 1
                try:
                    self._work.wait(self.pause_s(remaining_s))
                finally:
                    self._polling -= 1

        return self._reply(attempt, operation)

    def read(self, question: Callable[[Shared], Reply]) -> Reply:
        """Ask something that writes nothing. Its answer or refusal leaves when what it saw is durable."""
        return self._reply(self._ask, question)

    def rewrite(self, work: Callable[[Store], Reply]) -> Reply:
        """Let `work` change rows behind everything that is derived in memory, while every other call waits.

        If it wrote anything, all that is derived is derived anew; `work` may ask `require_open` and raise.
        """

        def alone(work: Callable[[Store], Reply]) -> Reply:
            before, was_in_step, self._in_step = self.store.sequence, self._in_step, False
            self.store.forget()
            reply = work(self.store)
            self._in_step = was_in_step and before == self.store.sequence
            self._derived()
            return reply

        return self._reply(alone, work)

    def reap(self, limit: int | None) -> ReapReport:
        """One sweep, a chunk at a time, so that other calls, and a close, get their turn between the commits."""
        sweep = Sweep(self.store.now(), limit, self._shared.timers_floor)
        self.read(sweep.look)
        try:
            while not sweep.finished:
                with self._lock:
                    self.require_open()
                    sweep.add(self._run(sweep.chunk))
                    self._notify()
            return self.read(sweep.report)
        except QueueUnavailableError as error:
            self.wake()
            if sweep.begun and error.outcome == "not_applied":
                raise QueueUnavailableError(f"{error}; part of the sweep is done", outcome="unknown") from error
            raise

    def _reply(self, run: Callable[[Subject], Reply], subject: Subject) -> Reply:
        """The reply rule. A refusal is a reply: what it tells may not be durable yet either."""
        with self._lock:
            try:
                reply = run(subject)
            except QueueUnavailableError:
                self._notify()  # whoever waits learns of it too
                raise
            except QueueError as refusal:
                answer: Reply | QueueError = refusal
            else:
                answer = reply
            sequence = self.store.sequence if self._waits else 0
        if self._waits:
            try:
                self.store.wait(sequence)
            except QueueUnavailableError:
                self.wake()
                raise
        if isinstance(answer, QueueError):
            raise answer
        return answer

    def _run(self, operation: Callable[[Unit], Reply]) -> Reply:
        """Decide and commit; after a conflict, read and decide again. Called under the lock."""
        conflicts = 0
        while conflicts < _CONFLICTS_MAX:
            shared = self._shared if self._in_step else self._derived()
            self._in_step = False
            unit = Unit(shared)
            try:
                reply = operation(unit)
                conflict = unit.commit()
            except QueueError as error:
                with suppress(QueueUnavailableError):  # what went wrong first is the news
                    unit.roll_back()
                self._in_step = True
                if isinstance(error, StaleLeaseError):
                    unit.tell_refusals()
                if isinstance(error, BadRowError):
                    self._quarantine(error)
                    raise JobUnreadableError(error.job_id) from None
                raise
            self._in_step = True
            if conflict is None:
                if unit.refusals:
                    unit.tell_refusals()
                if unit.inserted and (self._polling or self._watchers):
                    self._notify()
                return reply
            conflicts += 1
        raise QueueUnavailableError(f"another writer changed the rows first, {_CONFLICTS_MAX} times: try again")

    def _take_turn(self, operation: Callable[[Unit], Reply]) -> Reply:
        """Write when other threads want to as well: lead, or let somebody else do it."""
        call = Call(operation)
        try:
            self._turns.join(call)
            if call.leads:
                self._lead(call)
        finally:
            self._turns.leave(call)
        if isinstance(call.answer, Exception):
            raise call.answer
        answer: Reply = call.answer
        return answer

    def _lead(self, own: Call) -> None:
        """Write for everybody in line; who comes later is led by the next one, once this is durable."""
        calls = [own]
        try:
            with self._lock:
                self._turns.gather(calls)
                answers, sequence = self._run_many([call.operation for call in calls])
            self.store.wait(sequence)
            for call, answer in zip(calls, answers, strict=True):
                call.give(answer)
        except QueueUnavailableError as error:
            self.wake()
            for call in calls:
                call.give(QueueUnavailableError(str(error), outcome=error.outcome))
        finally:
            for call in calls:
                if not call.answered:
                    call.give(QueueUnavailableError(_INTERRUPTED, outcome="unknown"))
                call.go()

    def _run_many(self, operations: Sequence[Callable[[Unit], Any]]) -> tuple[list[Any], int]:
        if len(operations) == 1:
            return self._run_apart(operations), self.store.sequence
        try:
            replies = self._run(lambda unit: _together(unit, operations))
        except QueueUnavailableError:
            raise
        except Exception:  # noqa: BLE001  also a flaw that one call meets: it must not fail the others
            replies = self._run_apart(operations)
        return replies, self.store.sequence

    def _run_apart(self, operations: Sequence[Callable[[Unit], Any]]) -> list[Any]:
        replies: list[Any] = []
        for operation in operations:
            try:
                replies.append(self._run(operation))
            except QueueUnavailableError as error:
                if replies:
                    raise QueueUnavailableError(str(error), outcome="unknown") from error
                raise
            except Exception as error:  # noqa: BLE001  as above
                replies.append(error)
        return replies

    def _notify(self) -> None:
        self._work.notify_all()
        for callback in self._watchers:
            callback()

    def _derived(self) -> Shared:
        """What is derived in memory. Called under the lock.

        After a call that an interrupt or a flaw ended nobody knows on which side of its commit that was: then it is
        derived from the rows again.
        """
        if not self._in_step:
            self._shared = Shared(self.store, self._config)
            self._shared.observe(self._observer)
            self._in_step = True
            self._notify()
        return self._shared

    def _ask(self, question: Callable[[Shared], Reply]) -> Reply:
        return question(self._derived())

    def _quarantine(self, error: BadRowError) -> None:
        """Move the row that a call by id met, in a commit of its own."""

        def move(unit: Unit) -> None:
            found = unit.find(error.job_id.bytes)
            if isinstance(found, Unreadable):
                unit.quarantine(found)

        self._run(move)

    def pause_s(self, remaining_s: float) -> float:
        """How long a poll sleeps unless woken: until the next row is due, as far as the clock tells. Called under the
        lock: for operations.
        """
        if isinstance(self._clock, ManualClock):
            return remaining_s  # moving it wakes whoever waits
        due = self._shared.agenda.next_due()
        if due is not None:
            remaining_s = min(remaining_s, max(due - self.store.now(), 1) / 1_000)
        return remaining_s if isinstance(self._clock, SystemClock) else min(remaining_s, _FOREIGN_CLOCK_PAUSE_S)


def _together(unit: Unit, operations: Sequence[Callable[[Unit], Any]]) -> list[Any]:
    """The replies and refusals of several operations in one unit of work."""
    replies: list[Any] = []
    for operation in operations:
        mark = unit.mark
        try:
            replies.append(operation(unit))
        except (QueueUnavailableError, BadRowError):
            raise
        except QueueError as refusal:
            if unit.mark != mark:
                raise _ApartError("it was refused after it had changed something") from refusal
            replies.append(refusal)
    return replies
