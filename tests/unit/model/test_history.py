"""The checker of concurrent histories: what it explains, and seeded histories of broken queues that it does not."""

from collections.abc import Callable

import pytest

from telha_model import history, ops, replies
from telha_model.history import Asked, Found, UndecidedError, agreed, explained
from telha_model.ops import Op
from telha_model.replies import Reply
from telha_model.state import Job, Queue, find, new_queue
from telha_model.states import State
from telha_model.step import step
from telha_model.types import Backoff, Config, NewJob, Ref

CONFIG = Config(lease_ttl_ms=10, max_attempts=3, backoff=Backoff(1, 1, 1), retention_completed_ms=None)
START_MS = 1_000
NEW = ops.Enqueue(NewJob(1, "a", 7))
LEASE = ops.Lease("w")


class Told:
    """Plays calls on the model, one after another, and writes down what a caller would have been told."""

    def __init__(self) -> None:
        self.queue: Queue = new_queue(START_MS)
        self.calls: list[Asked] = []
        self._moment = 0.0

    def ask(self, op: Op, *, answered: bool = True, at: tuple[float, float] | None = None) -> Reply:
        """A call; `at` is when it was asked and answered, in turn unless given."""
        reply, self.queue = step(CONFIG, self.queue, op)
        self.note(op, reply if answered else None, at=at)
        return reply

    def note(self, op: Op, reply: Reply | None, *, at: tuple[float, float] | None = None) -> None:
        """Only write down."""
        self._moment += 1
        asked, told = at or (self._moment, self._moment + 0.5)
        at_ms = self.queue.now_ms if isinstance(op, ops.Extend) and reply is not None else None
        fits: Callable[[Reply], bool] | None = None if reply is None else (lambda found: found == reply)
        self.calls.append(Asked(f"c{len(self.calls)}", op, fits, asked, told if reply is not None else 1e9, at_ms))

    def pass_ms(self, ms: int) -> None:
        """Time passes, and the sweep does what is due; nobody's call."""
        _, self.queue = step(CONFIG, self.queue, ops.Advance(ms))
        _, self.queue = step(CONFIG, self.queue, ops.Reap())

    @property
    def row(self) -> Job:
        """The row as it would be found."""
        job = find(self.queue, 1)
        assert job is not None
        return job._replace(submit=None)

    def found(self, row: Job | None = None, *, gone: bool = False) -> Found:
        """The verdict, on this row or the true one."""
        return explained(CONFIG, new_queue(START_MS), self.calls, None if gone else row or self.row)


def leased() -> Told:
    """A job made and leased."""
    told = Told()
    told.ask(NEW)
    told.ask(LEASE)
    return told


def test_a_plain_history_is_explained() -> None:
    """Calls, extensions, back-offs and sweeps of one job, each answered before the next."""
    told = leased()
    _, told.queue = step(CONFIG, told.queue, ops.Advance(3))
    told.ask(ops.Extend("w", (Ref(1, 1),)))
    told.ask(ops.Fail(Ref(1, 1), "x"))
    told.pass_ms(1)
    told.ask(LEASE)
    told.pass_ms(10)
    told.ask(ops.Complete(Ref(1, 2), 5))
    told.pass_ms(1)
    told.ask(LEASE)
    told.ask(ops.Complete(Ref(1, 3), 5))
    told.ask(ops.Complete(Ref(1, 3), 5))
    told.ask(ops.Fail(Ref(1, 3), "x"))
    assert told.found() == Found(frozenset((frozenset(),)))


def test_overlapping_calls_are_put_in_the_order_that_explains_them() -> None:
    """Two submits at once: the one that was told stale came second, wherever it stands."""
    told = leased()
    _, after = step(CONFIG, told.queue, ops.Complete(Ref(1, 1), 5))
    stale, _ = step(CONFIG, after, ops.Fail(Ref(1, 1), "x"))
    told.note(ops.Fail(Ref(1, 1), "x"), stale, at=(10, 20))
    told.ask(ops.Complete(Ref(1, 1), 5), at=(11, 19))
    assert told.found().happened == {frozenset()}


def test_real_time_is_kept() -> None:
    """The same two, but the stale one was answered before the other was asked: nothing explains that."""
    told = leased()
    _, after = step(CONFIG, told.queue, ops.Complete(Ref(1, 1), 5))
    stale, _ = step(CONFIG, after, ops.Fail(Ref(1, 1), "x"))
    told.note(ops.Fail(Ref(1, 1), "x"), stale, at=(10, 11))
    told.ask(ops.Complete(Ref(1, 1), 5), at=(12, 19))
    assert told.found().happened == set()


def test_an_unanswered_call_that_happened_is_named() -> None:
    """The row tells that it did."""
    told = leased()
    told.ask(ops.Complete(Ref(1, 1), 5), answered=False)
    assert told.found().happened == {frozenset(("c2",))}


def test_an_unanswered_call_that_did_not_happen_is_not_named() -> None:
    """The row tells that it did not."""
    told = leased()
    told.note(ops.Complete(Ref(1, 1), 5), None)
    assert told.found().happened == {frozenset()}


def test_an_unanswered_extension_is_placed_by_the_deadline() -> None:
    """No event tells of it; the row's deadline does."""
    told = leased()
    _, told.queue = step(CONFIG, told.queue, ops.Advance(4))
    told.ask(ops.Extend("w", (Ref(1, 1),)), answered=False)
    assert told.found().happened == {frozenset(("c2",))}


def test_a_job_that_was_never_made_is_explained_when_nobody_was_told() -> None:
    """An unanswered enqueue and no row."""
    told = Told()
    told.note(NEW, None)
    assert told.found(gone=True).happened == {frozenset()}


# -- histories of queues that broke a promise


def broken(name: str) -> Found:
    """A history with one thing wrong."""
    told = leased()
    match name:
        case "a completion that was told is not in the row":
            row = told.row
            told.ask(ops.Complete(Ref(1, 1), 5))
            return told.found(row)
        case "a job that was told of has no row":
            return told.found(gone=True)
        case "a row that nobody asked for":
            return explained(CONFIG, new_queue(START_MS), [], told.row)
        case "a completion that nobody asked for":
            _, told.queue = step(CONFIG, told.queue, ops.Complete(Ref(1, 1), 5))
            return told.found()
        case "one lease told to two workers":
            told.calls.append(told.calls[1]._replace(name="c9"))
            return told.found()
        case "granted again while the lease is held":
            first = told.row
            _, queue = step(CONFIG, told.queue, ops.Release(Ref(1, 1)))
            reply, queue = step(CONFIG, queue, LEASE)
            told.note(LEASE, reply)
            second = find(queue, 1)
            assert second is not None
            return told.found(second._replace(events=(*first.events, second.events[-1]), submit=None))
        case "reaped before its deadline":
            told.pass_ms(10)
            early = [one._replace(at_ms=one.at_ms - 1) if one.at_ms > START_MS else one for one in told.row.events]
            return told.found(told.row._replace(events=tuple(early)))
        case "a stale submit was accepted":
            told.pass_ms(10)
            told.pass_ms(1)
            told.ask(LEASE)
            told.note(ops.Complete(Ref(1, 1), 5), replies.Completed(()))
            return told.found()
        case "an attempt was not counted":
            told.ask(ops.Fail(Ref(1, 1), "x"))
            return told.found(told.row._replace(attempts=0))
        case "the extension was forgotten and the job reaped":
            _, told.queue = step(CONFIG, told.queue, ops.Advance(5))
            kept = told.queue
            told.ask(ops.Extend("w", (Ref(1, 1),)))
            told.queue = kept
            told.pass_ms(5)
            return told.found()
        case _:
            raise KeyError(name)


@pytest.mark.parametrize(
    "name",
    [
        "a completion that was told is not in the row",
        "a job that was told of has no row",
        "a row that nobody asked for",
        "a completion that nobody asked for",
        "one lease told to two workers",
        "granted again while the lease is held",
        "reaped before its deadline",
        "a stale submit was accepted",
        "an attempt was not counted",
        "the extension was forgotten and the job reaped",
    ],
)
def test_a_broken_history_is_not_explained(name: str) -> None:
    """No order of the calls leads to the row that was found."""
    assert broken(name).happened == set()


def test_the_true_row_of_each_broken_history_is_explained() -> None:
    """What is wrong is the one thing that was broken: the lease it starts from is explained."""
    assert (leased().found(), leased().row.state) == (Found(frozenset((frozenset(),))), State.LEASED)


# -- calls of several jobs


def test_a_call_that_happened_to_one_job_and_not_to_another_is_half_a_call() -> None:
    """`agreed` says so, and only when both are certain."""
    did, did_not = Found(frozenset((frozenset(("c",)),))), Found(frozenset((frozenset(),)))
    either = Found(did.happened | did_not.happened)
    told = {"c": ["one", "two"]}
    assert [agreed({"one": did, "two": other}, told) for other in (did, did_not, either)] == [
        [],
        ["c happened to one and not to two"],
        [],
    ]


def test_a_search_that_is_too_long_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker says that it does not know."""
    monkeypatch.setattr(history, "NODES_MAX", 2)
    with pytest.raises(UndecidedError):
        leased().found()
