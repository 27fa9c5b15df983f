"""Servers that are broken on purpose, each in a way that only concurrent callers can tell: the lane `histories` has to.

Each flaw changes classes of a process that `tests.chaos.serving` is about to serve in.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from telha_jobs.engine import engine as engine_module
from telha_jobs.engine.unit import Unit
from telha_jobs.rpc import calls, service
from telha_jobs.rpc.dispatcher import Answers, Dispatcher
from telha_jobs.rpc.polls import Granted, Line, Polls
from telha_jobs.rpc.tokens import Role

_HOLD_S: Final = 0.03
"""How long the moment lasts in which the flaw can be seen."""
_LATE_S: Final = 0.12
"""How long a commit comes after its answer: a kill, which comes soon after an answer was heard, lies between."""


def reply_before_commit() -> None:
    """Everybody has his answer, and a moment later it is written."""
    take, together = Dispatcher._take, engine_module._together
    current: dict[str, Any] = {}

    def taken(self: Dispatcher) -> list[Any]:
        batch = take(self)
        current.update(batch=batch, dispatcher=self)
        return batch

    def early(dispatcher: Dispatcher, batch: list[Any], replies: list[Any], sequence: int) -> None:
        kept = dispatcher._index
        dispatcher._index = kept if sequence == dispatcher._sequence else 0
        dispatcher._answer(dispatcher._placed(batch, replies, sequence))
        dispatcher._index = kept

    def answered(unit: Unit, operations: Sequence[Callable[[Unit], Any]]) -> list[Any]:
        before = unit.mark
        replies = together(unit, operations)
        sequence = unit.sequence - (unit.mark == before)
        dispatcher = current["dispatcher"]
        dispatcher._loop.call_soon_threadsafe(early, dispatcher, current["batch"], replies, sequence)
        time.sleep(_LATE_S)
        return replies

    _set(Dispatcher, "_take", taken)
    _set(engine_module, "_together", answered)


def check_and_write_in_two_steps() -> None:
    """Whether a key is taken is looked up first, and whoever finds it free adds the job a moment later."""
    enqueue, named, run = calls.enqueue, Unit.named, Dispatcher.run
    looked_up: dict[tuple[bytes, str], bytes | None] = {}

    def found(self: Unit, scope: bytes, key: str) -> bytes | None:
        return looked_up[scope, key] if (scope, key) in looked_up else named(self, scope, key)

    def as_looked_up(unit: Unit, operation: calls.Operation, place: tuple[bytes, str], holder: bytes | None) -> Any:
        looked_up[place] = holder
        try:
            return operation(unit)
        finally:
            del looked_up[place]

    def prepared(request: Any, context: calls.Context) -> calls.Call:
        call, key = enqueue(request, context), request.job.idempotency_key
        operations: Any = [_Keyed(operation, request.job.scope, key) for operation in call.operations]
        return call._replace(operations=operations) if key else call

    async def in_two_steps(self: Dispatcher, operations: Sequence[Any], *rest: Any) -> Answers:
        if isinstance(operations[0], _Keyed):
            keyed = operations[0]
            place = (keyed.scope, keyed.key)
            [holder] = (await run(self, [lambda unit: named(unit, *place)])).replies
            await asyncio.sleep(_HOLD_S)
            operations = [partial(as_looked_up, operation=keyed.operation, place=place, holder=holder)]
        return await run(self, operations, *rest)

    _set(Unit, "named", found)
    service._CALLS["Enqueue"] = (Role.PRODUCER, prepared)
    _set(Dispatcher, "run", in_two_steps)


class _Keyed:
    """An operation that adds a job under a key."""

    def __init__(self, operation: calls.Operation, scope: str, key: str) -> None:
        self.operation = operation
        self.scope = UUID(scope).bytes
        self.key = key


def lost_wake_up() -> None:
    """A poll is looked after when it comes; whoever has begun to wait is not woken by what happens later."""
    lines = Polls.lines
    looked_after: set[Any] = set()

    def once(self: Polls, *given: Any) -> list[Line]:
        found = []
        for line in lines(self, *given):
            takers = [taker for taker in line.takers if taker[0] in self._lookers or taker[0].news not in looked_after]
            looked_after.update(stream.news for stream, _ in takers)
            found.append(line._replace(takers=takers))
        return [line for line in found if line.takers]

    _set(Polls, "lines", once)


def lease_delivered_twice() -> None:
    """What one poll is granted goes to another one too, when there is one that waits."""
    deliver = Dispatcher._deliver

    def twice(self: Dispatcher, lines: list[Line], look: Any, sequence: int, **options: Any) -> None:
        taken = {stream for stream, _ in look.found}
        idle = [stream for line in lines for stream, _ in line.takers if stream not in taken]
        deliver(self, lines, look, sequence, **options)
        for (_, leases), other in zip(look.found, idle, strict=False):
            if other.news is not None and not other.news.done():
                self.polls.granted(other, Granted(leases, sequence, self._index))

    _set(Dispatcher, "_deliver", twice)


def _set(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


FLAWS: Final[dict[str, Callable[[], None]]] = {
    "reply before commit": reply_before_commit,
    "check and write in two steps": check_and_write_in_two_steps,
    "lost wake-up": lost_wake_up,
    "lease delivered twice": lease_delivered_twice,
}
