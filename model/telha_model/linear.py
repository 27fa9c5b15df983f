"""Whether the answers that concurrent callers got can be those of one call after another: the search for an order.

Wing and Gong's search, as Lowe made it practical: states that were met before, with the same calls behind them, are
cut. A call that was answered has happened somewhere between being asked and being told; one that was not has happened
somewhere before its server died, or never. An order keeps real time (a call that was told before another was asked
comes first), gives every answered call the very answer it got, and, where a whole life is searched, ends in the rows
that were found (`telha_model.course`, which also has the sweeps that nobody calls).

With `by_commit` the order must besides be that of the commits which the server named; then next to nothing is left to
search. Without, nothing that a server says about order is believed.

Cost: `UndecidedError` when `give_up` says so, asked at every node. It says nothing, and must never be taken for a pass.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from telha_model.course import Course, Move, Place
from telha_model.history import UndecidedError
from telha_model.ops import Op
from telha_model.replies import Reply
from telha_model.state import Job, Queue

SWEEP: Final = "sweep"
"""The name of a step that nobody called for."""
_NEVER: Final = float("inf")
_SHOWN: Final = 4


class Look(NamedTuple):
    """A call that only looked: whether the queue is as it was told."""

    fits: Callable[[Queue], bool]


class Commit(NamedTuple):
    """The commit that an answer covers, and the call's place in it; of a look the newest that it saw, and no place."""

    sequence: int
    place: int | None = None


class Call(NamedTuple):
    """A call. `reply` is None when nobody was told; then `told` is when its server died.

    `after` names a call that comes before: another part of what was one call to its caller. `at_ms` is the queue's time
    of it where the answer, or a row, tells it.
    """

    name: str
    op: Op | Look
    reply: Reply | None
    asked: float
    told: float
    commit: Commit | None = None
    at_ms: int | None = None
    after: str | None = None

    @property
    def answered(self) -> bool:
        """Whether it must have happened."""
        return self.reply is not None or isinstance(self.op, Look)


def same(reply: Reply | None, other: Reply | None) -> bool:
    """Whether two replies are equal and of one kind: named tuples of the same parts are equal whatever they are."""
    return type(reply) is type(other) and reply == other


class Step(NamedTuple):
    """One step of an order: whose call (SWEEP: nobody's), and the operations; no operation: it only looked."""

    name: str
    ops: tuple[Op, ...]


class Found(NamedTuple):
    """An order, from one of the starts; the queue after it."""

    opening: tuple[Op, ...]
    steps: tuple[Step, ...]
    queue: Queue


class Stuck(NamedTuple):
    """There is no order. How far the longest went, and why it went no further, one sentence for each call."""

    done: int
    sentences: tuple[str, ...]


Start = tuple[tuple[Op, ...], Queue]


class _Node(NamedTuple):
    place: Place
    done: int
    """A bit for each call."""
    low: int
    """Every call before this one is done."""
    turn: int
    """Every call of a commit before this one is done."""
    before: "_Node | None"
    step: Step | None
    opening: tuple[Op, ...]


def search(
    course: Course,
    starts: Iterable[Start],
    calls: Sequence[Call],
    *,
    by_commit: bool,
    whole: bool,
    give_up: Callable[[], bool],
) -> Found | Stuck:
    """Search for an order. `whole`: it ends in the course's rows; else the calls are the beginning of a life."""
    search = _Search(course, sorted(calls, key=lambda call: call.asked), by_commit=by_commit)
    todo = [_Node(course.at(queue), 0, 0, 0, None, None, opening) for opening, queue in starts]
    deepest, most = todo[0], 0
    while todo:
        if give_up():
            raise UndecidedError(f"given up with {most} of {len(search.required)} calls in order")
        node = todo.pop()
        number = (node.done & search.required_bits).bit_count()
        if number >= most:
            deepest, most = node, number
        if number == len(search.required) and (not whole or course.arrived(node.place.queue)):
            return Found(node.opening, _steps(node), node.place.queue)
        todo += search.on(node)
    return Stuck(most, tuple(search.why(deepest)))


class _Search:
    """What does not change in a search."""

    def __init__(self, course: Course, calls: Sequence[Call], *, by_commit: bool) -> None:
        self._course = course
        self._calls = calls
        self._bits = {call.name: 1 << index for index, call in enumerate(calls)}
        self.required = [index for index, call in enumerate(calls) if call.answered]
        self.required_bits = sum(1 << index for index in self.required)
        self._turns = _turns(calls) if by_commit else []
        self._jobs: dict[Job, Job] = {}
        self._known: dict[int, tuple[Job, Job]] = {}
        self._seen: set[tuple[object, ...]] = set()

    def on(self, node: _Node) -> list[_Node]:
        """The nodes one step further, the most likely last. A call that changes nothing is taken at once: that it is
        done keeps nobody from anything.
        """
        found: list[tuple[tuple[int, int, int], _Node]] = []
        for index in self._enabled(node):
            call = self._calls[index]
            for move in self._moves(node, call):
                if move.place is not node.place:
                    liking = (-move.place.queue.now_ms, 0 if call.answered else -2, -index)
                    found.append((liking, self._node(node, index, move)))
                elif call.answered:
                    return [self._node(node, index, move)]
        swept = self._course.sweep(node.place)
        if swept is not None:
            found.append(((-swept.place.queue.now_ms, -1, 0), self._node(node, None, swept)))
        if len(found) == 1:
            return [found[0][1]]
        found.sort(key=lambda one: one[0])
        return [one for _, one in found if self._is_new(one)]

    def why(self, node: _Node) -> Iterable[str]:
        """Why nothing comes next."""
        queue = node.place.queue
        yield f"the rows' next event is {self._course.missing(node.place)}"
        enabled = sorted(self._enabled(node), key=lambda index: not self._calls[index].answered)
        for index in enabled[:_SHOWN]:
            call = self._calls[index]
            if isinstance(call.op, Look):
                yield f"{call.name} saw what is not so at {queue.now_ms}"
                continue
            found = {move.reply for move in self._course.moves(node.place, call.op, call.at_ms)}
            answers = ", or ".join(map(str, found)) or "nothing: it is not in the rows, or not then"
            told = "nobody was told" if call.reply is None else f"was told {call.reply}"
            yield f"{call.name} {call.op} {told}; in this order the model answers {answers}"
        if node.done & self.required_bits == self.required_bits:
            yield from self._course.differences(queue)[:_SHOWN]

    def _moves(self, node: _Node, call: Call) -> Iterable[Move]:
        if isinstance(call.op, Look):
            return [Move((), None, node.place)] if call.op.fits(node.place.queue) else []
        found = self._course.moves(node.place, call.op, call.at_ms)
        return [move for move in found if call.reply is None or same(move.reply, call.reply)]

    def _enabled(self, node: _Node) -> list[int]:
        """The calls that may come next: nothing that was told before they were asked is still to come."""
        found, horizon, done = list[int](), _NEVER, node.done
        turn = self._turn(node)
        for index in range(node.low, len(self._calls)):
            call = self._calls[index]
            if done >> index & 1:
                continue
            if call.asked > horizon:
                break
            if call.answered:
                horizon = min(horizon, call.told)
            if call.after is not None and not done & self._bits[call.after]:
                continue
            if turn is None or call.commit is None or index in turn:
                found.append(index)
        return found

    def _turn(self, node: _Node) -> set[int] | None:
        """Whose turn it is by commit: the first calls in place of the first commit that is not done, and its looks."""
        if node.turn == len(self._turns):
            return None
        left = [index for index in self._turns[node.turn] if not node.done >> index & 1]
        first = min([place for index in left if (place := self._place(index)) is not None], default=None)
        return {index for index in left if self._place(index) in (None, first)}

    def _place(self, index: int) -> int | None:
        commit = self._calls[index].commit
        return None if commit is None else commit.place

    def _node(self, node: _Node, index: int | None, move: Move) -> _Node:
        if index is None:
            return node._replace(place=move.place, before=node, step=Step(SWEEP, move.ops))
        done, low = node.done | 1 << index, node.low
        while done >> low & 1:
            low += 1
        turn = node.turn
        while turn < len(self._turns) and all(done >> one & 1 for one in self._turns[turn]):
            turn += 1
        return _Node(move.place, done, low, turn, node, Step(self._calls[index].name, move.ops), node.opening)

    def _is_new(self, node: _Node) -> bool:
        queue = node.place.queue
        jobs = tuple([self._address(job) for job in queue.jobs])
        key = (node.done, queue.now_ms, queue.next_job_id, queue.ring, queue.last_served, jobs)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _address(self, job: Job) -> int:
        """The same number for equal jobs. Both are kept, so that no address is used again."""
        known = self._known.get(id(job))
        if known is None:
            known = self._known[id(job)] = (job, self._jobs.setdefault(job, job))
        return id(known[1])


def _turns(calls: Sequence[Call]) -> list[list[int]]:
    """The calls of each commit, in the commits' order."""
    found: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        if call.commit is not None:
            found.setdefault(call.commit.sequence, []).append(index)
    return [found[sequence] for sequence in sorted(found)]


def _steps(node: _Node) -> tuple[Step, ...]:
    found = []
    at: _Node | None = node
    while at is not None:
        if at.step is not None:
            found.append(at.step)
        at = at.before
    return tuple(reversed(found))
