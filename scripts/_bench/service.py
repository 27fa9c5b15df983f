"""Over the wire: `telha serve` at durability "sync" beside an echo over grpc.aio, each in a process of its own.

Client and servers share the machine's processors, so whatever one of them spends the others lack. Every work is a fresh
client process (`caller`); the servers live through all the rounds. CPU time is of the server alone where the text does
not say more, from the kernel's accounts of its threads.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from scripts._bench.hosts import CPU_PARTS, ROOT, Host, peer, telha
from scripts._bench.measure import Figure, Limit, Span, microseconds, timed
from scripts._bench.place import Place, fill, jobs, opened

SHARE_LIMIT = Limit(side="at least", value=0.5)
JOBS_LIMIT = Limit(side="at least", value=8_000)
ECHOES_LIMIT = Limit(side="at least", value=8_000 / 7_000)
"""The same on a machine that is busy with other things: 8,000 jobs where the echo does 7,000 calls."""
WAKE_LIMIT = Limit(side="at most", value=3.0)
IDLE_LIMIT = Limit(side="at most", value=1.0)
LIBRARY_BATCH = 100
CALL_BOUND_S = 120

Taken = dict[str, Any]
"""What `caller` prints."""


def call(work: str, host: Host, *words: float) -> Taken:
    """A work of `caller` against a server."""
    command = [sys.executable, "-m", "scripts._bench.caller", work, host.address, str(host.pid), *map(str, words)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=CALL_BOUND_S)
    if ended.returncode != 0:
        raise RuntimeError(f"the client of {work!r} failed: {ended.stderr[-2_000:]}")
    found: Taken = json.loads(ended.stdout)
    return found


def rate(taken: Taken) -> float:
    """By the wall, a second."""
    return int(taken["number"]) / float(taken["wall_s"])


def server_us(taken: Taken) -> float:
    """CPU time of the server, a call or job."""
    return sum(map(float, taken["server_s"].values())) / int(taken["number"]) * 1e6


def both_us(taken: Taken) -> float:
    """The same and the client's."""
    return server_us(taken) + float(taken["client_s"]) / int(taken["number"]) * 1e6


def library(path: Path, number: int) -> Span:
    """What the leases and completions of so many jobs take without a server, a hundred a call."""
    with opened(path, durability="sync") as queue:
        fill(queue, jobs(number))

        def work() -> None:
            for _ in range(0, number, LIBRARY_BATCH):
                leases = queue.lease_batch("worker-1", LIBRARY_BATCH)
                queue.complete_many([(lease, None) for lease in leases])

        return timed(work)


@dataclass(kw_only=True)
class Service:
    """Submits beside an echo, jobs through streams, and how soon a poll wakes."""

    name: str = "service"
    about: str = 'telha serve at "sync" beside an echo over grpc.aio; client and server in processes of their own'
    rounds: int | None = 5
    _stack: ExitStack = field(default_factory=ExitStack)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _taken: dict[str, list[Taken]] = field(default_factory=dict)
    _library: list[Span] = field(default_factory=list)
    _jobs: int = 0

    def prepare(self, place: Place) -> None:
        self._hosts = {
            "echo": self._stack.enter_context(peer()),
            "telha": self._stack.enter_context(telha(place.fresh("service"))),
        }

    def round(self, place: Place) -> None:
        calls, trips, self._jobs = place.size(5_000, 200), place.size(300, 20), place.size(10_000, 500)
        sizes = {"echo": calls, "submit": calls, "work": self._jobs, "whole": self._jobs, "trip": trips, "wake": trips}
        for work, number in sizes.items():
            host = self._hosts["echo" if work in {"echo", "trip"} else "telha"]
            self._taken.setdefault(work, []).append(call(work, host, number))
        self._library.append(library(place.fresh("library"), self._jobs))

    def figures(self) -> list[Figure]:
        return [*self._submits(), *self._streams(), *self._wakes()]

    def close(self) -> None:
        self._stack.close()

    def _submits(self) -> list[Figure]:
        echoes, submits = self._taken["echo"], self._taken["submit"]
        pairs = list(zip(submits, echoes, strict=True))
        return [
            self._figure("echo, 64 in flight", "/s", "echo", rate),
            self._figure("Submit, 64 in flight", "/s", "submit", rate),
            Figure(
                case=self.name,
                name="Submit / echo (by CPU: of both ends)",
                unit="x",
                wall=[rate(submit) / rate(echo) for submit, echo in pairs],
                cpu=[both_us(echo) / both_us(submit) for submit, echo in pairs],
                limit=SHARE_LIMIT,
            ),
            self._figure("echo: CPU of its server, a call", "µs", "echo", server_us),
            self._figure("Submit: CPU of the server, a call", "µs", "submit", server_us),
            *(self._part("Submit", "a call", part, "submit") for part in CPU_PARTS),
        ]

    def _streams(self) -> list[Figure]:
        works, echoes = self._taken["work"], self._taken["echo"]
        pairs = list(zip(works, echoes, strict=True))
        return [
            Figure(
                case=self.name,
                name="PollJobs and SubmitBatch, 8 streams (by CPU: a second of the server's)",
                unit="jobs/s",
                wall=[rate(one) for one in works],
                cpu=[1e6 / server_us(one) for one in works],
                limit=JOBS_LIMIT,
            ),
            Figure(
                case=self.name,
                name="PollJobs and SubmitBatch / echo (by CPU: of both ends)",
                unit="x",
                wall=[rate(work) / rate(echo) for work, echo in pairs],
                cpu=[both_us(echo) / both_us(work) for work, echo in pairs],
                limit=ECHOES_LIMIT,
            ),
            self._figure("the same, and EnqueueBatch", "jobs/s", "whole", rate),
            *(self._part("PollJobs and SubmitBatch", "a job", part, "work") for part in CPU_PARTS),
            self._figure("the client: CPU, a job", "µs", "work", lambda one: both_us(one) - server_us(one)),
            microseconds(self.name, "the library alone, a job leased and completed", self._library, self._jobs),
        ]

    def _wakes(self) -> list[Figure]:
        wakes, trips = self._taken["wake"], self._taken["trip"]
        return [
            self._figure("a round trip (echo)", "µs", "trip", lambda one: median(one["trips_s"]) * 1e6),
            self._figure("an enqueue answered", "µs", "wake", lambda one: median(one["trips_s"]) * 1e6),
            self._figure("enqueue to delivery", "µs", "wake", lambda one: median(one["woken_s"]) * 1e6),
            Figure(
                case=self.name,
                name="enqueue to delivery / a round trip",
                unit="x",
                wall=[
                    median(wake["woken_s"]) / median(trip["trips_s"]) for wake, trip in zip(wakes, trips, strict=True)
                ],
                limit=WAKE_LIMIT,
            ),
            self._figure("a round trip (echo): CPU of its server", "µs", "trip", server_us),
            self._figure("enqueue, delivery and submit of a job: CPU of the server", "µs", "wake", server_us),
        ]

    def _figure(self, name: str, unit: str, work: str, value: Callable[[Taken], float]) -> Figure:
        return Figure(case=self.name, name=name, unit=unit, wall=[value(one) for one in self._taken[work]])

    def _part(self, what: str, per: str, part: str, work: str) -> Figure:
        return self._figure(
            f"{what}: CPU of the {part}, {per}", "µs", work, lambda one: one["server_s"][part] / one["number"] * 1e6
        )


@dataclass(kw_only=True)
class Idle:
    """Ten thousand polls with nothing for them."""

    name: str = "idle"
    about: str = "10,000 idle polls over ten connections: the server's CPU time in ten seconds, before and with them"
    rounds: int | None = 2
    _stack: ExitStack = field(default_factory=ExitStack)
    _host: Host | None = None
    _polls: int = 0
    _taken: list[Taken] = field(default_factory=list)

    def prepare(self, place: Place) -> None:
        self._host = self._stack.enter_context(telha(place.fresh("idle")))

    def round(self, place: Place) -> None:
        self._polls = place.size(10_000, 100)
        if self._host is not None:
            self._taken.append(call("idle", self._host, self._polls, place.size(10, 1)))

    def figures(self) -> list[Figure]:
        shares = {key: [one[key] / one["window_s"] * 100 for one in self._taken] for key in ("none_s", "polls_s")}
        pairs = zip(shares["polls_s"], shares["none_s"], strict=True)
        return [
            Figure(case=self.name, name="CPU with no polls, of a core", unit="%", wall=shares["none_s"]),
            Figure(case=self.name, name="CPU with the polls, of a core", unit="%", wall=shares["polls_s"]),
            Figure(
                case=self.name,
                name="CPU of the polls, of a core",
                unit="%",
                wall=[polls - none for polls, none in pairs],
                limit=IDLE_LIMIT,
            ),
            Figure(
                case=self.name,
                name="memory, a poll",
                unit="kB",
                # Those of later rounds lie where the first ones did.
                wall=[one["memory"] / self._polls / 1e3 for one in self._taken[:1]],
            ),
        ]

    def close(self) -> None:
        self._stack.close()
