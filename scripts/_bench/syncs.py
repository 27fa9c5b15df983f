"""Group commit: what 64 threads get done at "sync" beside one, each of them waiting for its own answers."""

import shutil
import threading
import time
from dataclasses import dataclass, field

from scripts._bench.measure import Figure, Limit
from scripts._bench.place import KIND, PAYLOAD, SCOPE, Place, opened
from scripts._bench.probe import Tally, counting
from telha_jobs import JobQueue

THREADS = 64
ANSWERS = 3
"""Each turn is an enqueue, a lease and a completion."""


def turns(queue: JobQueue, number: int) -> None:
    """Enqueue, lease, complete: so many times."""
    for _ in range(number):
        queue.enqueue(SCOPE, KIND, PAYLOAD)
        lease = queue.lease_next("worker-1")
        if lease is not None:
            queue.complete(lease)


def answers_a_second(queue: JobQueue, *, threads: int, number: int) -> float:
    """By the wall, `number` turns in each thread."""
    together = threading.Barrier(threads + 1)

    def work() -> None:
        together.wait()
        turns(queue, number)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    together.wait()
    started = time.perf_counter()
    for thread in running:
        thread.join()
    return threads * number * ANSWERS / (time.perf_counter() - started)


@dataclass(kw_only=True)
class Threads:
    """One thread and 64 of them, in one round."""

    name: str = "threads"
    about: str = 'answers a second at "sync": 64 threads beside one (each answer waits for its sync)'
    rounds: int | None = None
    _one: list[float] = field(default_factory=list)
    _many: list[float] = field(default_factory=list)
    _syncs: list[float] = field(default_factory=list)

    def prepare(self, place: Place) -> None:
        """Nothing: every round begins with a queue of its own."""

    def round(self, place: Place) -> None:
        path, tally = place.fresh(self.name), Tally()
        queue = opened(path, durability="sync", database=counting(tally))
        number = place.size(60, 25)
        with tally.counted() as spent:
            self._one.append(answers_a_second(queue, threads=1, number=number))
        self._syncs.append(spent.syncs / (number * ANSWERS))
        self._many.append(answers_a_second(queue, threads=THREADS, number=place.size(20, 8)))
        queue.close()
        shutil.rmtree(path)

    def figures(self) -> list[Figure]:
        gains = [many / one for one, many in zip(self._one, self._many, strict=True)]
        return [
            Figure(case=self.name, name="one thread", unit="/s", wall=self._one),
            Figure(case=self.name, name=f"{THREADS} threads", unit="/s", wall=self._many),
            Figure(
                case=self.name,
                name=f"{THREADS} threads / one",
                unit="x",
                wall=gains,
                limit=Limit(side="at least", value=2.5),
            ),
            Figure(
                case=self.name,
                name="one thread: syncs an answer, at most",
                unit="",
                wall=self._syncs,
                limit=Limit(side="at most", value=1),
            ),
            Figure(
                case=self.name,
                name="one thread: syncs an answer, at least",
                unit="",
                wall=self._syncs,
                limit=Limit(side="at least", value=1),
            ),
        ]

    def close(self) -> None:
        """Nothing is open between rounds."""
