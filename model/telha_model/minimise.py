"""Minimising: a short run that still fails, found by leaving out parts of one that does (delta debugging).

Operations name jobs and tokens by the step that gave them, so what stays keeps its meaning when something before it
goes: "the first lease of step 40", not "generation 3 of job 7". Every candidate is played on the model first, and what
names something that was never given there is left out as well; what remains is a run the model can follow. Only then is
`fails` asked, which drives a subject and may cost a database.

The first candidates are the end of the run by itself, then all that concerns the jobs of its last steps. After that
parts are left out, the largest first and the last first, and stretches of time between which nothing happens any more
are joined; then items of bulk calls.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from telha_model.ops import Advance, Complete, CompleteMany, Enqueue, EnqueueMany, Extend, Lease, Op, Reopen
from telha_model.promises.evidence import changes
from telha_model.replies import Completed, Enqueued, Leased, Reply
from telha_model.state import new_queue
from telha_model.step import step
from telha_model.trace import Token, renamed
from telha_model.types import Config, Ref

Fails = Callable[[list[Op]], int | None]
"""After how many steps a run fails; None when it does not."""

GoesOn = Callable[[], bool]
"""Whether there is time for one more candidate."""

_Item = TypeVar("_Item")
_HANDLE: Final = 1 << 40
"""Job numbers from here on are handles: places in `_Names.jobs`."""


class _Given(NamedTuple):
    """A job or a lease by what gave it: a step of the original run, and the place in its reply. A lease has its job's
    handle too: with other jobs gone, a batch grants the same job at another place.
    """

    step: int
    place: int
    job: int = 0


class _Part(NamedTuple):
    """A step of the original run with handles for names. `places`: where the items that are left once stood."""

    step: int
    op: Op
    places: tuple[int, ...] | None = None


class _GoneError(Exception):
    """What an operation names was not given in this run."""


class _Names:
    """Handles for what the original run gave: filled once, in its order."""

    def __init__(self) -> None:
        self.jobs: list[_Given] = []
        self.leases: list[_Given] = []
        self.handles: dict[_Given, int] = {}
        self._job: dict[int, int] = {}
        self._lease: dict[Ref, int] = {}
        self._newest: dict[int, Ref] = {}

    def note(self, number: int, reply: Reply) -> None:
        """Name what a step gave."""
        match reply:
            case Enqueued(receipts) | Completed(receipts):
                for place, receipt in enumerate(receipts):
                    if receipt.job_id not in self._job:
                        self._job[receipt.job_id] = len(self.jobs)
                        self.jobs.append(_Given(number, place))
                        self.handles[self.jobs[-1]] = self.job(receipt.job_id)
            case Leased(grants):
                for place, grant in enumerate(grants):
                    ref = Ref(grant.job_id, grant.generation)
                    self._newest[ref.job_id] = ref
                    self._lease[ref] = len(self.leases)
                    self.leases.append(_Given(number, place, self.job(grant.job_id)))
            case _:
                pass

    def job(self, number: int) -> int:
        """The handle of a job; a number that no step gave stays."""
        return _HANDLE + self._job[number] if number in self._job else number

    def ref(self, ref: Ref) -> Ref:
        """The handle of a token."""
        near = ref if ref in self._lease else self._newest.get(ref.job_id)
        if near is None:
            return Ref(self.job(ref.job_id), ref.generation)
        return Token(self._lease[near], ref.generation - near.generation)  # type: ignore[return-value]  # until played


class _Player:
    """Plays a candidate on the model, and finds its operations."""

    def __init__(self, config: Config, start_ms: int, names: _Names) -> None:
        self._config = config
        self._names = names
        self._queue = new_queue(start_ms)
        self._jobs: dict[_Given, int] = {}
        self._handles = names.handles
        self._handle: dict[int, int] = {}
        self._at_place: dict[tuple[int, int], Ref] = {}
        self._of_job: dict[tuple[int, int], Ref] = {}

    def take(self, part: _Part) -> Op:
        """Do a part; what was done. `_GoneError` when what it names was not given."""
        op = self._found(part.op)
        reply, self._queue = step(self._config, self._queue, op)
        places = part.places
        match reply:
            case Enqueued(receipts) | Completed(receipts):
                for place, receipt in enumerate(receipts):
                    given = _Given(part.step, place if places is None else places[place])
                    self._jobs[given] = receipt.job_id
                    if receipt.created and given in self._handles:
                        self._handle[receipt.job_id] = self._handles[given]
            case Leased(grants):
                for place, grant in enumerate(grants):
                    ref = Ref(grant.job_id, grant.generation)
                    self._at_place[part.step, place] = ref
                    self._of_job[part.step, self._handle.get(grant.job_id, grant.job_id)] = ref
            case _:
                pass
        return op

    def _found(self, op: Op) -> Op:
        match op:
            case Reopen():
                return op
            case CompleteMany(items) if items:
                return CompleteMany(_some([(self._ref(ref), result) for ref, result in items if self._has(ref)]))
            case Extend(worker, refs, progress) if refs:
                told = tuple([(self._job(job), value) for job, value in progress if self._has(Ref(job, 0))])
                return Extend(worker, _some([self._ref(ref) for ref in refs if self._has(ref)]), told)
            case _:
                return renamed(op, self._ref, self._job)

    def _has(self, ref: Ref) -> bool:
        try:
            self._ref(ref)
        except _GoneError:
            return False
        return True

    def _ref(self, ref: Ref) -> Ref:
        if not isinstance(ref, Token):
            return Ref(self._job(ref.job_id), ref.generation)
        given, place, job = self._names.leases[ref.grant]
        found = self._of_job.get((given, job)) or self._at_place.get((given, place))
        if found is None:
            raise _GoneError
        return Ref(found.job_id, found.generation + ref.ahead)

    def _job(self, number: int) -> int:
        if number < _HANDLE:
            return number
        found = self._jobs.get(self._names.jobs[number - _HANDLE])
        if found is None:
            raise _GoneError
        return found


class _Minimiser:
    """The mutable part of `minimised`: the shortest failing run so far."""

    def __init__(self, config: Config, start_ms: int, fails: Fails, goes_on: GoesOn) -> None:
        self._config = config
        self._start_ms = start_ms
        self._fails = fails
        self._goes_on = goes_on
        self._names = _Names()
        self.ops: list[Op] = []
        self.parts: list[_Part] = []
        self.concerns: list[frozenset[int]] = []

    def learn(self, ops: Sequence[Op]) -> None:
        """Take the run as it is, and name what its steps gave and which jobs they concern."""
        self._names, self.parts, self.concerns = _Names(), [], []
        queue = new_queue(self._start_ms)
        for number, op in enumerate(ops):
            named = op if isinstance(op, Reopen) else renamed(op, self._names.ref, self._names.job)
            reply, after = step(self._config, queue, op)
            self._names.note(number, reply)
            concerned = [now or was for was, now in changes(queue, after)]
            self.parts.append(_Part(number, named))
            self.concerns.append(frozenset([job.job_id for job in concerned if job is not None]) | named_jobs(op))
            queue = after
        self.ops = list(ops)

    def accepts(self, parts: Sequence[_Part]) -> bool:
        """Try a candidate, and go on from it if it fails too."""
        if not self._goes_on():
            return False
        player = _Player(self._config, self._start_ms, self._names)
        kept: list[_Part] = []
        ops: list[Op] = []
        for part in parts:
            try:
                ops.append(player.take(part))
            except _GoneError:
                continue
            kept.append(part)
        steps = self._fails(ops) if ops else None
        if steps is None:
            return False
        self.ops, self.parts = ops[:steps], kept[:steps]
        return True

    def slice(self) -> None:
        """Keep the end of the run, short or longer, and of that what concerns the jobs of its last steps."""
        for length in (16, 64, 256, 1024):
            if length < len(self.parts) and self.accepts(self.parts[-length:]):
                self.learn(self.ops)  # by itself the end of a run leases other jobs than it did
                break
        for reach in (1, 4, 16, 64, 256):
            jobs = frozenset().union(*[self.concerns[part.step] for part in self.parts[-reach:]])
            kept = [
                part
                for part in self.parts[:-1]
                if self.concerns[part.step] & jobs or isinstance(part.op, Advance | Reopen)
            ]
            if len(kept) < len(self.parts) - 1 and self.accepts(_joined([*kept, self.parts[-1]])):
                return

    def join(self) -> None:
        """Make one of the stretches of time that nothing happens between."""
        joined = _joined(self.parts)
        if len(joined) < len(self.parts):
            self.accepts(joined)

    def leave_out(self) -> None:
        """Leave out parts until not a single one can go."""
        size = len(self.parts) // 2
        while size > 1:
            self._sweep(size)
            size //= 2
        while self._sweep(1):
            pass

    def _sweep(self, size: int) -> bool:
        """Try to leave out each stretch of a size, the last first; whether any could go."""
        before, end = len(self.parts), len(self.parts)
        while end > 0:
            start = max(end - size, 0)
            self.accepts(self.parts[:start] + self.parts[end:])
            end = min(start, len(self.parts))
        self.join()
        return len(self.parts) < before

    def simplify(self) -> bool:
        """Make single parts smaller; whether any became so."""
        for place, part in enumerate(self.parts):
            for smaller in _smaller(part):
                if self.accepts([*self.parts[:place], smaller, *self.parts[place + 1 :]]):
                    return True
        return False


def minimised(
    config: Config, start_ms: int, ops: Sequence[Op], fails: Fails, *, goes_on: GoesOn = lambda: True
) -> list[Op]:
    """A run that fails and from which no single step can go; when `goes_on` says stop, the shortest so far.

    ValueError when `ops` does not fail.
    """
    steps = fails(list(ops))
    if steps is None:
        raise ValueError("the run does not fail: there is nothing to minimise")
    found = _Minimiser(config, start_ms, fails, goes_on)
    found.learn(ops[:steps])
    found.slice()
    found.join()
    found.leave_out()
    while found.simplify():
        while found.simplify():
            pass
        found.leave_out()
    return found.ops


def named_jobs(op: Op) -> frozenset[int]:
    """The numbers of the jobs that an operation names."""
    named: list[int] = []

    def of_ref(ref: Ref) -> Ref:
        named.append(ref.job_id)
        return ref

    def of_job(number: int) -> int:
        named.append(number)
        return number

    if not isinstance(op, Reopen):
        renamed(op, of_ref, of_job)
    return frozenset(named)


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    joined: list[_Part] = []
    for part in parts:
        if joined and isinstance(part.op, Advance) and isinstance(joined[-1].op, Advance):
            joined[-1] = part._replace(op=Advance(joined[-1].op.ms + part.op.ms))
        else:
            joined.append(part)
    return joined


def _some(items: list[_Item]) -> tuple[_Item, ...]:
    if not items:
        raise _GoneError
    return tuple(items)


def _smaller(part: _Part) -> Iterator[_Part]:
    """The part with one item less, or as the call for a single one."""
    match part.op:
        case EnqueueMany(jobs):
            if len(jobs) == 1:
                yield part._replace(op=Enqueue(jobs[0]))
            for at in range(len(jobs)):
                yield _without(part, EnqueueMany(_but(jobs, at)), len(jobs), at)
        case Complete(_, _, follow_ups):
            for at in range(len(follow_ups)):
                yield _without(part, part.op._replace(follow_ups=_but(follow_ups, at)), len(follow_ups), at)
        case CompleteMany(items) if len(items) > 1:
            yield from (part._replace(op=CompleteMany(_but(items, at))) for at in range(len(items)))
        case Extend(worker, refs, progress) if len(refs) > 1:
            yield from (part._replace(op=Extend(worker, _but(refs, at), progress)) for at in range(len(refs)))
        case Lease(limit=limit) if limit > 1:
            yield part._replace(op=part.op._replace(limit=limit // 2))
            yield part._replace(op=part.op._replace(limit=limit - 1))
        case _:
            pass


def _without(part: _Part, op: Op, items: int, at: int) -> _Part:
    places = tuple(range(items)) if part.places is None else part.places
    return part._replace(op=op, places=_but(places, at))


def _but(items: tuple[_Item, ...], at: int) -> tuple[_Item, ...]:
    return items[:at] + items[at + 1 :]
