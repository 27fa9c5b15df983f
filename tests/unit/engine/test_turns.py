"""Threads that want to write at once: one of them does it for all, and nobody waits for one that is gone."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from telha_jobs import JobNotFoundError, JobQueue, ManualClock, QueueUnavailableError
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.turns import TOGETHER_MAX, Call, Turns
from telha_jobs.engine.unit import Unit

SCOPE = UUID(int=1)


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A test of waiting that would wait for ever fails after twenty seconds."""

    def over(_signal: int, _frame: object) -> None:
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    """A queue with a clock that only the test moves."""
    with JobQueue.open(tmp_path / "q", clock=ManualClock(1_700_000_000_000)) as opened:
        yield opened


def caught(call: Callable[[], Any]) -> Any:
    """What a call answers or raises."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001  it is what is asked for
        return error


class Threads:
    """Calls, each in a thread of its own, and what became of them, in the order of their start."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.found: list[Any] = []

    def start(self, *calls: Callable[[], Any]) -> None:
        """Start each; returns once it stands in line, or leads it."""
        for call in calls:
            place = len(self.found)
            self.found.append(None)
            thread = threading.Thread(target=self._run, args=(place, call), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, place: int, call: Callable[[], Any]) -> None:
        self.found[place] = caught(call)

    def join(self) -> list[Any]:
        """What they found; fails when one of them waits for ever."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        return self.found


@contextmanager
def busy(engine: Engine, waiting: int) -> Iterator[Threads]:
    """The engine is not free meanwhile; leaves once one thread leads and the others, all but one, stand in line."""
    threads = Threads()
    with engine._lock:
        yield threads
        turns = engine._turns
        settled = threading.Event()
        while not (turns._led and len(turns._line) == waiting - 1):
            settled.wait(0.001)


def test_those_who_wait_share_a_commit_and_a_sync(queue: JobQueue) -> None:
    """Ten threads find the engine taken: each has its own receipt, all from one commit and one sync."""
    before = queue._store.counters
    with busy(queue.engine, 10) as threads:
        threads.start(*[lambda n=n: queue.enqueue(SCOPE, "k", n) for n in range(10)])
    receipts = threads.join()
    after = queue._store.counters
    assert (after.commits - before.commits, after.syncs - before.syncs) == (1, 1)
    assert [queue.get(receipt.job_id).payload for receipt in receipts] == list(range(10))


def beside_an_enqueue(queue: JobQueue, call: Callable[[], Any]) -> tuple[Any, type]:
    """A call shares a turn with an enqueue of 1: the payload that is there then, and the type of the call's answer."""
    with busy(queue.engine, 2) as threads:
        threads.start(lambda: queue.enqueue(SCOPE, "k", 1), call)
    receipt, answer = threads.join()
    return queue.get(receipt.job_id).payload, type(answer)


def test_a_refusal_is_its_own_caller_s(queue: JobQueue) -> None:
    """Of two that share a turn one is refused, and the other done."""
    assert beside_an_enqueue(queue, lambda: queue.cancel(uuid4())) == (1, JobNotFoundError)


def test_a_flaw_is_its_own_caller_s(queue: JobQueue) -> None:
    """An operation that breaks fails its own call alone."""

    def broken(_unit: Unit) -> None:
        raise ZeroDivisionError

    assert beside_an_enqueue(queue, lambda: queue.engine.write(broken)) == (1, ZeroDivisionError)


def test_who_was_led_by_an_interrupted_thread_is_told_so(queue: JobQueue) -> None:
    """An interrupt of the leader: whoever it wrote for cannot know, and the next call goes on."""

    def interrupted(_unit: Unit) -> None:
        raise KeyboardInterrupt

    with busy(queue.engine, 3) as threads:
        threads.start(*[lambda: queue.engine.write(interrupted)] * 2, lambda: queue.enqueue(SCOPE, "k", 1))
    found = sorted(map(type, threads.join()), key=lambda kind: kind.__name__)
    assert found == [KeyboardInterrupt, QueueUnavailableError, QueueUnavailableError]
    [unknown, _] = [one for one in threads.found if isinstance(one, QueueUnavailableError)]
    assert unknown.outcome == "unknown"
    assert queue.enqueue(SCOPE, "k", 2).created


def test_a_closed_queue_refuses_everybody_in_line(queue: JobQueue) -> None:
    """A store that fails under the leader fails all of them, each with an error of its own."""
    with busy(queue.engine, 3) as threads:
        threads.start(*[lambda n=n: queue.enqueue(SCOPE, "k", n) for n in range(3)])
        queue._store._refusal = "the storage failed"
    found = threads.join()
    assert [(type(one), one.outcome) for one in found] == [(QueueUnavailableError, "not_applied")] * 3
    assert len({id(one) for one in found}) == 3
    queue._store._refusal = None


def test_a_turn_serves_a_bounded_number() -> None:
    """Whoever does not fit waits for the next leader."""
    turns = Turns()
    leader, calls = Call(print), list[Call]()
    turns.join(leader)
    turns._line.extend(Call(print) for _ in range(TOGETHER_MAX + 3))
    turns.gather(calls)
    assert (len(calls), len(turns._line), TOGETHER_MAX) == (TOGETHER_MAX, 3, 256)


def test_whoever_has_an_answer_is_not_served_again() -> None:
    """A leader that was interrupted between giving answers and leaving has left calls in line that have theirs."""
    turns, leader, answered, waiting = Turns(), Call(print), Call(print), Call(print)
    turns.join(leader)
    answered.give(1)
    for line in ((answered, waiting), (waiting, answered)):
        turns._line.extend(line)
        calls = [leader]
        turns.gather(calls)
        assert calls == [leader, waiting]


def test_leading_is_handed_on_once() -> None:
    """When a leader leaves, the first in line leads; leaving again changes nothing."""
    turns, leader, second, third = Turns(), Call(print), Call(print), Call(print)
    turns.join(leader)
    turns._line.extend((second, third))
    turns.leave(leader)
    turns.leave(leader)
    assert (leader.leads, second.leads, third.leads) == (False, True, False)


def test_whoever_is_interrupted_in_line_is_not_waited_for() -> None:
    """A call that left the line is neither run nor made the leader."""
    turns, leader, second, third = Turns(), Call(print), Call(print), Call(print)
    turns.join(leader)
    turns._line.extend((second, third))
    turns.leave(second)
    turns.leave(leader)
    assert (second.leads, third.leads) == (False, True)


def test_with_nobody_in_line_the_next_to_come_leads() -> None:
    """The token is free again."""
    turns, first, second = Turns(), Call(print), Call(print)
    turns.join(first)
    turns.leave(first)
    turns.join(second)
    assert second.leads
