"""Whose turn it is to write, when many threads want to at once.

Where an answer waits for a sync, every thread that wants to write gets in line; elsewhere only one that finds the
engine taken. One of them, the *leader*, writes for all who have come by then, in one commit with one wait for
durability; who comes meanwhile is led by the next one after that. No sync begins later for it: there is one at a time
anyway. Each thread is woken once, with its answer (ADR 7).

Nobody waits for a thread that is gone: leading is a token (`Call.leads`), handed on exactly once, also by a thread that
an interrupt takes out of its call.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

TOGETHER_MAX = 256
"""How many calls one commit serves at most: what a leader keeps the engine for is what everybody else waits for."""


class Call:
    """One call in line: what it asks of a unit of work, and its answer once it has one."""

    __slots__ = ("_turn", "answer", "answered", "leads", "operation")

    def __init__(self, operation: Callable[[Any], Any]) -> None:
        self.operation = operation
        self.answer: Any = None  # a reply, or the exception to raise
        self.answered = False
        self.leads = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def give(self, answer: Any) -> None:
        """The answer."""
        self.answer, self.answered = answer, True

    def wait(self) -> None:
        """Sleep until `go`."""
        self._turn.acquire()

    def go(self) -> None:
        """Wake the thread; more than once does no harm."""
        if self._turn.locked():
            self._turn.release()


class Turns:
    """The line. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Call] = deque()
        self._led = False

    def join(self, call: Call) -> None:
        """Get in line; returns when the call leads, or has its answer."""
        with self._lock:
            if not self._led:
                self._led = call.leads = True
                return
            self._line.append(call)
        call.wait()

    def gather(self, calls: list[Call]) -> None:
        """Add those who stand in line to the leader's calls. First added, then taken out: an interrupt loses nobody."""
        with self._lock:
            while self._line and len(calls) < TOGETHER_MAX:
                if not self._line[0].answered:
                    calls.append(self._line[0])
                self._line.popleft()

    def leave(self, call: Call) -> None:
        """The call is over, or its thread was interrupted. If it led, the next in line does."""
        with self._lock:
            if call in self._line:
                self._line.remove(call)
            if not call.leads:
                return
            call.leads = False
            if self._line:
                self._line[0].leads = True
                self._line.popleft().go()
            else:
                self._led = False
