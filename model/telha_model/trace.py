"""Traces: a run as a value, in names that another run can take over.

A trace holds settings, operations with the time of each, the replies they must get, and what a replay is to find. Its
tokens are symbolic: `Token(n)` is the lease of the n-th grant of the run (counted from 0 over the replies, in their
order), whatever job and generation that turns out to be; `Token(n, ahead)` is a token of the same job whose generation
is `ahead` higher (lower, when negative): one that was never granted. A job is a number: the n-th job that the run
created is n, and any other number is a job that does not exist. A token of a job that had no grant yet stays a `Ref`.

`recorded` makes a trace of operations, `Run` plays one on the model. A trace has two words for the reopening that
`step` knows, and one operation more than it: `Cut`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from telha_model import SPEC_VERSION
from telha_model.ops import (
    Advance,
    Cancel,
    Complete,
    CompleteMany,
    Discard,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
    Retry,
)
from telha_model.promises.evidence import grants
from telha_model.replies import Reply
from telha_model.state import Queue, new_queue
from telha_model.step import step
from telha_model.types import Config, Ref

FORMAT: Final = 1
"""The version of the file format; a reader knows exactly one."""

SPEC_VERSIONS: Final = (SPEC_VERSION,)
"""Versions of the specification that a trace may have been written under."""


class TraceError(ValueError):
    """A trace that says nothing a replay could follow: unknown words or versions, no steps, names of nothing."""


class Token(NamedTuple):
    """A symbolic lease token; stands where an operation has its `Ref`."""

    grant: int
    ahead: int = 0


class Restart(NamedTuple):
    """The queue is closed and opened again."""


class Crash(NamedTuple):
    """The process ends without closing the queue, which is opened again: all that was committed is there."""


class Cut(NamedTuple):
    """The power fails and takes the last `commits` commits along: a crash after which they were never made.

    A commit is a step that changed a job or the scope served last. A cut cannot reach behind the last opening, which
    was durable before it answered. Time stands where it stood, job numbers are not given again, and the incarnation
    rises as after any crash.
    """

    commits: int


NamedOp = (
    Enqueue
    | EnqueueMany
    | Lease
    | Extend
    | Complete
    | CompleteMany
    | Fail
    | Release
    | Reap
    | Retry
    | Cancel
    | Discard
    | Advance
)
"""An operation that a trace writes as the model does, but for the names in it."""

Done = NamedOp | Restart | Crash | Cut
"""An operation as a trace writes it down."""

Act = Op | Cut
"""An operation as it is done: with real tokens."""


class Step(NamedTuple):
    """One operation, the queue's time when it is done, and the reply it must get."""

    at_ms: int
    op: Done
    reply: Reply


class Agrees(NamedTuple):
    """What a replay finds: every reply and every state as the specification has it."""


class Differs(NamedTuple):
    """What a replay finds: `subject` first differs at `step` (counted from 1); `because` are the sentences it drew."""

    subject: str
    step: int
    because: tuple[str, ...] = ()


Verdict = Agrees | Differs


class Origin(NamedTuple):
    """Where a trace comes from: the lane (`hand` for one a person wrote), its seed, the commit, and what was broken on
    purpose.
    """

    lane: str
    seed: int | None = None
    commit: str | None = None
    mutant: str | None = None


class Trace(NamedTuple):
    """A run. `title` is one sentence about what it shows."""

    title: str
    origin: Origin
    verdict: Verdict
    config: Config
    start_ms: int
    steps: tuple[Step, ...]
    spec: str = SPEC_VERSION


class Played(NamedTuple):
    """One step as the model takes it: its reply, and the queue before and after."""

    op: Act
    reply: Reply
    before: Queue
    after: Queue


class Run:
    """A run on the model, and the names it has given: the mutable part of recording, replaying and minimising."""

    def __init__(self, config: Config, start_ms: int) -> None:
        self.config = config
        self.queue = new_queue(start_ms)
        self.grants: list[Ref] = []
        self._numbers: dict[Ref, int] = {}
        self._newest: dict[int, int] = {}
        self._commits: list[Queue] = []

    def take(self, op: Act) -> Played:
        """Do one operation with real tokens."""
        before = self.queue
        if isinstance(op, Cut):
            reply, after = self._cut(op)
        else:
            reply, after = step(self.config, before, op)
        if isinstance(op, (Reopen, Cut)):
            self._commits.clear()
        elif after.jobs is not before.jobs or after.last_served != before.last_served:
            self._commits.append(before)
        for grant in grants(reply):
            ref = Ref(grant.job_id, grant.generation)
            self._numbers[ref] = self._newest[ref.job_id] = len(self.grants)
            self.grants.append(ref)
        self.queue = after
        return Played(op, reply, before, after)

    def _cut(self, op: Cut) -> tuple[Reply, Queue]:
        if not 0 <= op.commits <= len(self._commits):
            raise TraceError(
                f"a cut of {op.commits} commits is impossible: {len(self._commits)} were made since the last opening"
            )
        left = self._commits[-op.commits] if op.commits else self.queue
        now = self.queue
        survivor = left._replace(now_ms=now.now_ms, next_job_id=now.next_job_id, incarnation=now.incarnation)
        return step(self.config, survivor, Reopen(clean=False))

    def real(self, op: Done) -> Act:
        """The operation as it is done now; `TraceError` for a token of a grant that was not made."""
        match op:
            case Restart():
                return Reopen(clean=True)
            case Crash():
                return Reopen(clean=False)
            case Cut():
                return op
            case _:
                return renamed(op, self._real_ref, int)

    def symbolic(self, op: Act) -> Done:
        """The operation as a trace writes it down: tokens symbolic where a grant gives them a name."""
        match op:
            case Reopen(clean):
                return Restart() if clean else Crash()
            case Cut():
                return op
            case _:
                return renamed(op, self._symbolic_ref, int)

    def _real_ref(self, ref: Ref) -> Ref:
        if not isinstance(ref, Token):
            return ref
        if not 0 <= ref.grant < len(self.grants):
            raise TraceError(f"$t{ref.grant} names a grant that was not made: there were {len(self.grants)}")
        granted = self.grants[ref.grant]
        return Ref(granted.job_id, granted.generation + ref.ahead)

    def _symbolic_ref(self, ref: Ref) -> Ref:
        number = self._numbers.get(ref)
        if number is not None:
            return _as_ref(Token(number))
        near = self._newest.get(ref.job_id)
        return ref if near is None else _as_ref(Token(near, ref.generation - self.grants[near].generation))


def _as_ref(token: Token) -> Ref:
    # An operation takes a token wherever it takes a `Ref`; only `Run.real` tells the two apart.
    return token  # type: ignore[return-value]  # the one place where a symbolic token passes for a real one


def renamed(op: NamedOp, ref: Callable[[Ref], Ref], job: Callable[[int], int]) -> NamedOp:
    """The operation with each of its tokens and job numbers replaced: all places where an operation names one."""
    match op:
        case Complete() | Fail() | Release():
            return op._replace(ref=ref(op.ref))
        case CompleteMany(items):
            return CompleteMany(tuple([(ref(token), result) for token, result in items]))
        case Extend(worker, refs, progress):
            return Extend(worker, tuple(map(ref, refs)), tuple([(job(number), value) for number, value in progress]))
        case Retry() | Cancel() | Discard():
            return op._replace(job_id=job(op.job_id))
        case Enqueue() | EnqueueMany() | Lease() | Reap() | Advance():
            return op


def recorded(
    config: Config, start_ms: int, ops: Sequence[Act | Done], *, title: str, origin: Origin, verdict: Verdict
) -> Trace:
    """The trace of operations: times, replies and names as the model has them. Tokens may come real or symbolic.

    `TraceError` when there are no operations, or one names a grant that was not made.
    """
    if not ops:
        raise TraceError("a trace without steps proves nothing")
    run = Run(config, start_ms)
    steps: list[Step] = []
    for op in ops:
        act = op if isinstance(op, Reopen) else run.real(op)
        at_ms, done = run.queue.now_ms, run.symbolic(act)
        steps.append(Step(at_ms, done, run.take(act).reply))
    return Trace(title, origin, verdict, config, start_ms, tuple(steps))
