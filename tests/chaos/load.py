"""Mixed load on a queue in another process, by callers that live on when it dies: producers and workers.

Producers add jobs one by one and by threes, some under keys they have used before. Workers lease one to three jobs and
complete, fail, release or extend them, enqueue follow-ups with a completion, submit twice, submit too late, and hang.
What each of them does is drawn from the seed; how their calls interleave is nobody's.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos.history import History
from tests.chaos.remote import Caller, LostError, refused

PRODUCERS: Final = 2
WORKERS: Final = 6
SCOPES: Final = 4
AHEAD: Final = 60
"""Producers pause while so many jobs wait."""
_KEYS: Final = 25
_KEY_PAYLOAD: Final = 1_000_000_000
_PAUSE_S: Final = 0.002


class Line:
    """Where the queue is now, for callers that outlive it. `failure` is the first error that was no dead queue."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.stopped = False
        self.draining = False
        self.failure: BaseException | None = None
        self.changed = threading.Condition()

    def set(self, address: str | None) -> None:
        """The queue is there now (or, None, nowhere)."""
        with self.changed:
            self.address = address
            self.changed.notify_all()

    def stop(self) -> None:
        """The callers go home."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def wait(self, stale: str | None) -> str | None:
        """An address other than `stale`; None when it is time to go home."""
        with self.changed:
            while not self.stopped and (self.address is None or self.address == stale):
                self.changed.wait()
            return None if self.stopped else self.address


class Crew:
    """All callers, one thread each, each with a history writer of its own on the one file."""

    def __init__(self, line: Line, history: Path, seed: int) -> None:
        self._line = line
        self.callers: dict[str, Caller] = {}
        self.histories: list[History] = []
        self._threads: list[threading.Thread] = []
        names = [f"p{n}" for n in range(PRODUCERS)] + [f"w{n}" for n in range(WORKERS)]
        for name in names:
            kept = History(history, name)
            self.histories.append(kept)
            chance = Random(f"{seed}/{name}")
            act: Callable[[Caller], None] = (
                Producer(name, chance, line).act if name.startswith("p") else Worker(name, chance, line).act
            )
            thread = threading.Thread(target=self._live, args=(name, kept, act), daemon=True)
            self._threads.append(thread)
            thread.start()

    def pending(self) -> list[str]:
        """The calls that are sent and not answered."""
        return [caller.pending for caller in tuple(self.callers.values()) if caller.pending is not None]

    def end(self) -> None:
        """Wait for everybody; raises what a caller met."""
        self._line.stop()
        for thread in self._threads:
            thread.join()
        for history in self.histories:
            history.close()
        if self._line.failure is not None:
            raise self._line.failure

    def _live(self, name: str, history: History, act: Callable[[Caller], None]) -> None:
        address: str | None = None
        while (address := self._line.wait(address)) is not None:
            try:
                caller = self.callers[name] = Caller(address, history)
                try:
                    while not self._line.stopped:
                        act(caller)
                finally:
                    caller.close()
            except LostError:
                continue
            except BaseException as error:  # noqa: BLE001  whatever it is, the run ends with it
                self._line.failure = self._line.failure or error
                self._line.stop()


class Producer:
    """Adds jobs."""

    def __init__(self, name: str, chance: Random, line: Line) -> None:
        self._chance = chance
        self._line = line
        self._made = int(name[1:]) * 10_000_000

    def act(self, caller: Caller) -> None:
        """One call, or a pause."""
        if self._line.draining:
            time.sleep(_PAUSE_S)
            return
        counts = caller.ask("counts")
        if counts["pending"] > AHEAD:
            time.sleep(_PAUSE_S)
            return
        number = self._chance.choice((1, 1, 1, 3))
        keyed = number == 1 and self._chance.random() < 0.3
        caller.ask("enqueue", jobs=[self._keyed() if keyed else self.plain() for _ in range(number)])

    def plain(self) -> dict[str, Any]:
        """A job of its own; its payload is its name."""
        self._made += 1
        return {"scope": self._chance.randrange(1, SCOPES), "kind": "work", "payload": self._made}

    def _keyed(self) -> dict[str, Any]:
        key = self._chance.randrange(_KEYS)
        return {"scope": 1 + key % 3, "kind": "work", "payload": _KEY_PAYLOAD + key, "key": f"key-{key}"}


class Worker:
    """Leases jobs and does one thing or another with them. Keeps its leases when the queue dies."""

    def __init__(self, name: str, chance: Random, line: Line) -> None:
        self._name = name
        self._chance = chance
        self._line = line
        self._held: list[dict[str, Any]] = []
        self._follow_ups = (int(name[1:]) + 20) * 10_000_000

    def act(self, caller: Caller) -> None:
        """One lease and what follows from it."""
        if not self._held:
            limit = self._chance.choice((1, 1, 2, 3))
            self._held = caller.ask("lease", worker=self._name, limit=limit, wait_ms=20)
        while self._held:
            # Taken off before the call: of one that is lost nobody knows whether it happened.
            one = self._held.pop()
            token = {"job": one["job"], "generation": one["generation"]}
            self._submit(caller, token)

    def _submit(self, caller: Caller, token: dict[str, Any]) -> None:
        chance = 0.0 if self._line.draining else self._chance.random()
        if chance < 0.5:
            caller.ask("complete", **token, result=1, jobs=[])
        elif chance < 0.6:
            made = self._follow_up(), self._follow_up()
            caller.ask("complete", **token, result=1, jobs=list(made))
        elif chance < 0.7:
            caller.ask("fail", **token, reason="so it goes")
        elif chance < 0.8:
            caller.ask("release", **token)
        elif chance < 0.88:
            told = caller.ask("extend", worker=self._name, leases=[token])
            if refused(told) is None and told[0]["status"] == "extended":
                caller.ask("complete", **token, result=2, jobs=[])
        elif chance < 0.92:
            for _ in range(2):
                caller.ask("complete", **token, result=3, jobs=[])
        elif chance < 0.96:
            stale = {**token, "generation": token["generation"] - 1}
            caller.ask("complete", **stale, result=4, jobs=[])
            caller.ask("fail", **token, reason="again")

    def _follow_up(self) -> dict[str, Any]:
        self._follow_ups += 1
        return {"scope": self._chance.randrange(1, SCOPES), "kind": "next", "payload": self._follow_ups}
