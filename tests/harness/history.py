"""What many threads did to one queue, as one run: the calls that changed something, in the order of their commits.

`Journal` stands between the threads and the queue. It notes each call with what was told, and each commit with its time
and the call it belongs to, inside the queue's own lock, so that the order is the order of commits. Played on the model
in that order, every call must get the reply that its thread was told: then the threads' history is one that could have
happened one call after another (a witness of linearizability). Calls that commit nothing have no place in it.

What it repeats of a failure: the calls, their order and times. What it cannot: which thread stood where between them.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from uuid import UUID

from telha_jobs import JobQueue, Lease, LeaseRef, NewJob, Outcome, QueueError, Receipt
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.unit import Unit
from telha_jobs.store.port import Conflict
from telha_model import ops, replies
from telha_model.ops import Op
from telha_model.state import new_queue
from telha_model.step import step
from telha_model.types import Backoff, Config, Ref
from telha_model.types import NewJob as ModelJob
from tests.harness.classes import Hits
from tests.harness.lockstep import DisagreementError
from tests.harness.replay import failing
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import Keeper

VALUE: Final = 1
"""Every payload and result: the threads give the same ones to the same key."""
GONE: Final = 1 << 30


class _Call:
    """One call of a thread: how to say it for the model, and what was told."""

    __slots__ = ("say", "told")

    def __init__(self, say: Callable[["_Numbers"], Op]) -> None:
        self.say = say
        self.told: Any = None


class _Commit(NamedTuple):
    """One commit: its time, the call it belongs to (None: the reaper's), and how many jobs it moved."""

    at_ms: int
    call: _Call | None
    moved: int


class History(NamedTuple):
    """A run as the model takes it, and after which step, and why, the threads were told something else."""

    start_ms: int
    ops: list[Op]
    differs: str | None


class _Numbers:
    """Job ids as the model numbers them."""

    def __init__(self) -> None:
        self._numbers: dict[UUID, int] = {}

    def created(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            if receipt.created:
                self._numbers.setdefault(receipt.job_id, len(self._numbers) + 1)

    def number(self, job_id: UUID) -> int:
        return self._numbers.get(job_id, GONE)

    def ref(self, ref: LeaseRef) -> Ref:
        return Ref(self.number(ref.job_id), ref.generation)


class Journal:
    """A queue that notes what it is asked. Has the calls that the contention lane makes."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._local = threading.local()
        self._commits: list[_Commit] = []
        self._unit: tuple[Unit, list[_Call]] | None = None  # the newest unit of work, and whose calls changed it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every commit of this process while it lasts."""
        commit, write = Unit.commit, Engine.write

        def noted(unit: Unit) -> Conflict | None:
            before = unit.shared.store.sequence
            moved = sum(slot.before is not slot.now for slot in unit._slots.values())
            answer = commit(unit)
            if answer is None and unit.shared.store.sequence != before:
                for call in self._calls_of(unit):
                    self._commits.append(_Commit(unit.now, call, moved))
            return answer

        def written(engine: Engine, operation: Callable[[Unit], Any]) -> Any:
            return write(engine, self._claimed(operation, getattr(self._local, "call", None)))

        with patch.object(Unit, "commit", noted), patch.object(Engine, "write", written):
            yield

    def _claimed(self, operation: Callable[[Unit], Any], call: _Call | None) -> Callable[[Unit], Any]:
        """The operation, saying whose it is when it changes something: another thread's leader may run it."""

        def run(unit: Unit) -> Any:
            mark = unit.mark
            reply = operation(unit)
            if call is not None and unit.mark != mark:
                if self._unit is None or self._unit[0] is not unit:
                    self._unit = unit, []
                self._unit[1].append(call)
            return reply

        return run

    def _calls_of(self, unit: Unit) -> list[_Call | None]:
        """Whose work a unit is, in the order in which they did it; that of polls and the reaper is their thread's."""
        if self._unit is not None and self._unit[0] is unit:
            return [*self._unit[1]]
        return [getattr(self._local, "call", None)]

    def _noted(self, say: Callable[[_Numbers], Op], ask: Callable[[], Any]) -> Any:
        call = self._local.call = _Call(say)
        try:
            call.told = ask()
        except QueueError as error:
            call.told = error
            raise
        finally:
            self._local.call = None
        return call.told

    # -- the calls

    def enqueue_many(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        news = tuple([ModelJob(one.scope.int, one.kind, VALUE, one.priority, idempotency_key=one.idempotency_key) for one in jobs])  # noqa: E501  # fmt: skip
        found: Sequence[Receipt] = self._noted(lambda _: ops.EnqueueMany(news), lambda: self._queue.enqueue_many(jobs))
        return found

    def lease_batch(self, worker: str, limit: int, **options: Any) -> Sequence[Lease]:
        scopes, kinds = options.get("scopes"), options.get("kinds")
        wanted = None if scopes is None else tuple([scope.int for scope in scopes])
        op = ops.Lease(worker, limit, wanted, None if kinds is None else tuple(kinds))
        found: Sequence[Lease] = self._noted(lambda _: op, lambda: self._queue.lease_batch(worker, limit, **options))
        return found

    def complete(self, ref: LeaseRef, result: Any) -> Any:
        return self._noted(lambda names: ops.Complete(names.ref(ref), VALUE), lambda: self._queue.complete(ref, result))

    def complete_many(self, items: Sequence[tuple[LeaseRef, Any]]) -> Sequence[Outcome]:
        refs = [ref for ref, _ in items]
        found: Sequence[Outcome] = self._noted(
            lambda names: ops.CompleteMany(tuple([(names.ref(ref), VALUE) for ref in refs])),
            lambda: self._queue.complete_many(items),
        )
        return found

    def fail(self, ref: LeaseRef, reason: str) -> Any:
        return self._noted(lambda names: ops.Fail(names.ref(ref), reason), lambda: self._queue.fail(ref, reason))

    def release(self, ref: LeaseRef) -> None:
        self._noted(lambda names: ops.Release(names.ref(ref)), lambda: self._queue.release(ref))

    # -- the history

    def history(self, config: Config, hits: Hits | None = None) -> History:
        """The commits as one run of the model, up to the first that told its thread something else. Calls that were
        told what the model answers go to `hits`; the reaper's commits were told to nobody.
        """
        if not self._commits:
            return History(0, [], None)
        names, start_ms = _Numbers(), self._commits[0].at_ms
        queue, done = new_queue(start_ms), list[Op]()
        for at_ms, call, moved in self._commits:
            if at_ms > queue.now_ms:
                done.append(ops.Advance(at_ms - queue.now_ms))
                _, queue = step(config, queue, done[-1])
            done.append(ops.Reap(moved) if call is None else call.say(names))
            before = queue
            reply, queue = step(config, before, done[-1])
            if call is None:
                continue
            if isinstance(done[-1], ops.EnqueueMany) and not isinstance(call.told, QueueError):
                names.created(call.told or ())
            wanted, told = _projected(reply), _told(names, done[-1], call.told)
            if wanted != told:
                return History(start_ms, done, f"in commit order the model answers {wanted}, a thread was told {told}")
            if hits is not None:
                hits.take(config, before, done[-1], reply, queue)
        return History(start_ms, done, None)


def _told(names: _Numbers, op: Op, told: Any) -> Any:
    """What a thread was told, as far as it is compared."""
    if isinstance(told, QueueError):
        return "refused"
    match op:
        case ops.EnqueueMany():
            return [(names.number(receipt.job_id), receipt.created) for receipt in told or ()]
        case ops.Lease():
            return [(names.number(lease.job_id), lease.generation, lease.attempt) for lease in told or ()]
        case ops.CompleteMany():
            return [outcome.status for outcome in told or ()]
        case _:
            return "done"


def _projected(reply: replies.Reply) -> Any:
    """The model's reply, as far as it is compared."""
    match reply:
        case replies.Enqueued(receipts):
            return [(receipt.job_id, receipt.created) for receipt in receipts]
        case replies.Leased(grants):
            return [(grant.job_id, grant.generation, grant.attempt) for grant in grants]
        case replies.CompletedMany(outcomes):
            return [outcome.status for outcome in outcomes]
        case replies.Completed() | replies.Failed() | replies.Released():
            return "done"
        case _:
            return "refused"


def model_config(*, lease_ttl_ms: int, max_attempts: int) -> Config:
    """The model's settings for the contention lane's."""
    return Config(lease_ttl_ms=lease_ttl_ms, max_attempts=max_attempts, backoff=Backoff(base_ms=1, factor=1))


def kept(config: Config, history: History, problems: Sequence[str], *, seed: int, repeat: str) -> str:
    """Write the trace of a history; the sentences that tell where it is and how to repeat it.

    When the engine differs from the model along it with one thread too, it is minimised to that difference; else it is
    the whole history, and what differs are the problems.
    """
    keeper = Keeper("contention", "engine", seed=seed, repeat=repeat)
    error = failing(config, history.start_ms, history.ops, SUBJECTS["engine"])
    if error is None:
        keeper.subject = "threads"
        error = DisagreementError(config, history.ops, history.start_ms, list(problems))
        keeper.write(error)
    else:
        keeper.keep(error)
    return keeper.told()
