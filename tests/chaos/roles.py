"""What callers of a server do under load: producers, workers, an operator, one who is both; drawn from a seed.

Between them they make every call there is, right ones and wrong ones: keys that two producers use at the same moment,
leases that are submitted twice, too late or never, filters, delays, follow-ups, jobs that an operator cancels under a
worker's hands, polls that are one call and polls that are a stream.
"""

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tests.chaos.remote import LostError, refused
from tests.chaos.service import GrpcCaller

SCOPES: Final = 4
KINDS: Final = ("work", "mail:in", "mail:out")
WAKE: Final = "wake"
"""The kind of the jobs that one waits for while all others are quiet."""
WAKING: Final = "waking"
"""The note after each of them: whether it was waited for in vain."""
WAKINGS: Final = 4
"""How many kinds of waking there are, one after another."""
OTHER: Final = "other"
AHEAD: Final = 40
"""Producers rest while so many jobs wait."""
_REST_S: Final = 0.01
_WAIT_MS: Final = 30
_WAKE_WAIT_MS: Final = 20_000
_WOKEN_S: Final = 5.5
"""How long to wait until a job that somebody waits for is done: longer than it may lie ready."""
_KEYS_PER_S: Final = 10
_STREAM: Final = {"limit": 2, "wait_ms": 0}
_NOBODY: Final = "0" * 32

Data = dict[str, Any]


class Role:
    """One caller. `act` makes the next calls, in one of the modes. What it was not answered it may ask again later."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self.chance = chance
        self._made = 0
        self._woken = -1
        self._number = sum(map(ord, name)) * 100_000
        self._unsure: list[Data] = []
        self._acts: Mapping[str, Callable[[GrpcCaller], None]] = {
            "p": self._produce,
            "w": self._work,
            "o": self._operate,
            "m": self._mix,
        }

    def act(self, mode: str, caller: GrpcCaller) -> None:
        """The next calls."""
        if mode == "load":
            while self._unsure:  # the submit whose answer was lost, over again
                caller.ask("complete", **self._unsure.pop())
            self._acts[self.name[0]](caller)
        elif mode == WAKE and self.name == "w0":
            self._wait(caller)
        elif mode == WAKE and self.name == "p0":
            self._wake(caller)
        else:
            time.sleep(_REST_S)

    # -- producers

    def _produce(self, caller: GrpcCaller) -> None:
        chance = self.chance.random()
        if chance < 0.15:
            if caller.ask("counts")["pending"] > AHEAD:
                time.sleep(_REST_S)
        elif chance < 0.55:
            caller.ask("enqueue", jobs=[self._job()])
        elif chance < 0.7:
            caller.ask("enqueue", jobs=[self._job() for _ in range(self.chance.randint(2, 4))])
        elif chance < 0.95:
            # Whoever adds a keyed job just now adds the same one.
            key = int(time.monotonic() * _KEYS_PER_S)
            caller.ask("enqueue", jobs=[{"scope": 1 + key % 3, "kind": "work", "payload": key, "key": f"k{key}"}])
        else:
            key = int(time.monotonic() * _KEYS_PER_S)
            caller.ask("enqueue", jobs=[{"scope": 1 + key % 3, "kind": "mail:in", "payload": 0, "key": f"k{key}"}])

    def _job(self) -> Data:
        self._made += 1
        job: Data = {"scope": self.chance.randrange(1, SCOPES), "kind": self.chance.choice(KINDS)}
        job |= {"payload": self._number + self._made, "priority": self.chance.choice((100, 128, 128, 200))}
        if self.chance.random() < 0.2:
            job["delay_ms"] = self.chance.randrange(80)
        if self.chance.random() < 0.2:
            job["max_attempts"] = 1
        return job

    # -- workers

    def _work(self, caller: GrpcCaller) -> None:
        scopes = self.chance.choice((None, None, [1, 2], [3]))
        kinds = self.chance.choice((None, None, ["work"], ["mail:*"]))
        given: Data = {"worker": self.name, "scopes": scopes, "kinds": kinds}
        if self.chance.random() < 0.25:
            caller.stream({**given, **_STREAM}, self.chance.randint(1, 4), lambda told: self._submit_all(caller, told))
        else:
            limit = self.chance.choice((1, 1, 2, 3))
            self._submit_all(
                caller, caller.ask("lease", **given, limit=limit, wait_ms=self.chance.choice((0, _WAIT_MS)))
            )

    def _submit_all(self, caller: GrpcCaller, held: list[Data]) -> None:
        tokens = [{"job": one["job"], "generation": one["generation"]} for one in held]
        if len(tokens) > 1 and self.chance.random() < 0.4:
            caller.ask("complete_many", items=[{**token, "result": 7} for token in tokens])
            return
        for token in tokens:
            self._submit(caller, token)

    def _submit(self, caller: GrpcCaller, token: Data) -> None:
        chance = self.chance.random()
        if chance < 0.35:
            self._complete(caller, token, [])
        elif chance < 0.5:
            self._complete(caller, token, [self._job() for _ in range(self.chance.randint(1, 2))])
        elif chance < 0.65:
            caller.ask("fail", **token, reason="so it goes", retryable=self.chance.random() < 0.8)
        elif chance < 0.75:
            caller.ask("release", **token, delay_ms=self.chance.choice((0, 20)))
        elif chance < 0.85:
            progress = {token["job"]: self.chance.randrange(9)} if self.chance.random() < 0.5 else {}
            caller.ask("extend", worker=self.name, leases=[token, {"job": _NOBODY, "generation": 1}], progress=progress)
            self._complete(caller, token, [])
        elif chance < 0.9:
            self._complete(caller, token, [])
            self._complete(caller, token, [])
        elif chance < 0.95:
            stale = {**token, "generation": token["generation"] - 1}
            self._complete(caller, stale, [])
            caller.ask("fail", **token, reason="again", retryable=True)
        # Else the lease expires.

    def _complete(self, caller: GrpcCaller, token: Data, jobs: list[Data]) -> None:
        given = {**token, "result": self.chance.randrange(9), "jobs": jobs}
        try:
            caller.ask("complete", **given)
        except LostError:
            self._unsure.append(given)
            raise

    # -- an operator

    def _operate(self, caller: GrpcCaller) -> None:
        chance = self.chance.random()
        if chance < 0.15:
            caller.ask("counts")
        elif chance < 0.25:
            caller.ask("reap")
        elif chance < 0.3:
            caller.ask(self.chance.choice(("get", "retry", "cancel", "discard")), job=_NOBODY)
        else:
            states = ("dead", "dead", "leased", "pending", "completed", None)
            limit = self.chance.randint(1, 8)
            told = caller.ask("list", state=self.chance.choice(states), limit=limit, after=None)
            for one in told["jobs"][:2]:
                self._end(caller, one["job"])

    def _end(self, caller: GrpcCaller, job: str) -> None:
        """Look, and act on what was seen: by then a living job may be something else. What is discarded was ended, and
        only this caller changes such jobs, so what it saw is the last of them.
        """
        told = caller.ask("get", job=job)
        if refused(told) is not None:
            return
        chance = self.chance.random()
        if told["state"] in ("completed", "dead") and chance < 0.4:
            caller.ask("discard", job=job)
        elif chance < 0.8:
            caller.ask("retry" if told["state"] == "dead" else "cancel", job=job)

    def _mix(self, caller: GrpcCaller) -> None:
        if self.chance.random() < 0.4:
            self._produce(caller)
        else:
            self._work(caller)

    # -- waiting, all others being quiet

    def _wait(self, caller: GrpcCaller) -> None:
        given = {"worker": self.name, "scopes": None, "kinds": [WAKE], "limit": 1, "wait_ms": _WAKE_WAIT_MS}
        for one in caller.ask("lease", **given):
            caller.ask("complete", job=one["job"], generation=one["generation"], result=1, jobs=[])

    def _wake(self, caller: GrpcCaller) -> None:
        """A job to wake for: enqueued, come due, retried, or a follow-up. The next one when it is done: nothing else
        happens that could wake somebody by chance. A note says how it ended.
        """
        self._made += 1
        self._woken = (self._woken + 1) % WAKINGS
        wake: Data = {"scope": 1, "kind": WAKE, "payload": self._number + self._made}
        match self._woken:
            case 0:
                made = caller.ask("enqueue", jobs=[wake])
            case 1:
                made = caller.ask("enqueue", jobs=[{**wake, "delay_ms": 60}])
            case 2:
                made = caller.ask("enqueue", jobs=[{**wake, "delay_ms": 100}])
                caller.ask("cancel", job=made[0]["job"])
                time.sleep(0.15)
                caller.ask("retry", job=made[0]["job"])
            case _:
                made = self._follow_up(caller, wake)
        until = time.monotonic() + _WOKEN_S
        while made and caller.ask("get", job=made[0]["job"])["state"] != "completed":
            if time.monotonic() > until:
                caller.note(WAKING, vain=True)
                return
            time.sleep(_REST_S)
        caller.note(WAKING, vain=False)

    def _follow_up(self, caller: GrpcCaller, wake: Data) -> list[Data]:
        """A job that a completion adds."""
        other: Data = {"scope": 2, "kind": OTHER, "payload": wake["payload"]}
        caller.ask("enqueue", jobs=[other])
        for one in caller.ask("lease", worker=self.name, scopes=None, kinds=[OTHER], limit=1, wait_ms=0):
            token = {"job": one["job"], "generation": one["generation"]}
            made: list[Data] = caller.ask("complete", **token, result=1, jobs=[wake])
            return made
        return []
