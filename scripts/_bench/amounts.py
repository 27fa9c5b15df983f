"""What is counted rather than timed: the payload that is written once, and leases over what was long deleted.

Exact and repeatable on every machine, so part of both the report and the guard.
"""

from dataclasses import dataclass, field
from pathlib import Path

from scripts._bench.measure import Figure, Limit, single
from scripts._bench.place import KIND, SCOPE, Place, fill, jobs, opened, run_through
from scripts._bench.probe import Amounts, Tally, counting
from telha_jobs import JobQueue, ManualClock, QueueConfig

MIB = 1024 * 1024
START_MS = 1_700_000_000_000
PAYLOAD_LIMIT = Limit(side="at most", value=1.5)
CHURNED = ("seeks", "keys", "graves", "gets")
"""What a lease must not pay more of after a hundred thousand others."""


def counted_queue(path: Path, tally: Tally, clock: ManualClock) -> JobQueue:
    """A queue at "sync" whose storage counts."""
    return opened(path, database=counting(tally), clock=clock, config=QueueConfig(durability="sync"))


def large_payload(path: Path) -> Amounts:
    """1 MiB through an enqueue, three leases (two given back), ten heartbeats with progress, and a completion."""
    tally, clock = Tally(), ManualClock(START_MS)
    queue = counted_queue(path, tally, clock)
    with tally.counted() as spent:
        queue.enqueue(SCOPE, KIND, bytes(MIB))
        for turn in range(3):
            lease = queue.lease_next("worker-1")
            if lease is None:
                raise RuntimeError("the job with the large payload was not there to lease")
            if turn < 2:
                queue.release(lease)
                continue
            for beat in range(10):
                clock.advance(60_000)
                queue.extend("worker-1", [lease], progress={lease.job_id: {"pages": beat}})
            queue.complete(lease, {"vectors": 12})
    queue.close()
    return spent


def lease_amounts(queue: JobQueue, tally: Tally) -> dict[str, Amounts]:
    """One lease from the queue with nothing to lease, and one with a single job."""
    found: dict[str, Amounts] = {}
    with tally.counted() as spent:
        queue.lease_next("worker-1")
    found["empty"] = spent
    queue.enqueue(SCOPE, KIND, b"")
    with tally.counted() as spent:
        lease = queue.lease_next("worker-1")
    found["one job"] = spent
    if lease is not None:
        queue.complete(lease)
    return found


def churn(path: Path, number: int) -> dict[str, Amounts]:
    """The same two leases on a fresh queue, after `number` jobs came and went, and each of the two opened again."""
    tally, clock = Tally(), ManualClock(START_MS)
    database = counting(tally)
    config = QueueConfig(durability="os")

    def open_again() -> JobQueue:
        return opened(path, database=database, clock=clock, config=config)

    found: dict[str, Amounts] = {}

    def take(when: str, queue: JobQueue) -> None:
        found.update({f"{what}, {when}": amounts for what, amounts in lease_amounts(queue, tally).items()})

    queue = open_again()
    lease_amounts(queue, tally)  # the first job of a kind interns it, once
    take("fresh", queue)
    queue.close()
    queue = open_again()
    take("fresh and reopened", queue)
    for _ in range(number // 1_000):
        fill(queue, jobs(1_000))
        run_through(queue, 1_000)
        clock.advance(1_000)
    take("churned", queue)
    queue.close()
    with tally.counted() as spent:
        queue = open_again()
    found["open, churned"] = spent
    take("churned and reopened", queue)
    queue.close()
    return found


def excess(found: dict[str, Amounts]) -> dict[str, int]:
    """How much more than on the fresh queue each lease asked for, summed over `CHURNED`."""
    return {
        f"{what}, churned{after}": sum(
            max(0, getattr(found[f"{what}, churned{after}"], name) - getattr(found[f"{what}, fresh{after}"], name))
            for name in CHURNED
        )
        for what in ("empty", "one job")
        for after in ("", " and reopened")
    }


@dataclass(kw_only=True)
class Counted:
    """Both, as a case."""

    name: str = "counted"
    about: str = "bytes of a 1 MiB payload's life; what a lease asks the storage for after 100,000 completions (F19)"
    rounds: int | None = 1
    _payload: Amounts = field(default_factory=Amounts)
    _churn: dict[str, Amounts] = field(default_factory=dict)

    def prepare(self, place: Place) -> None:
        """Nothing."""

    def round(self, place: Place) -> None:
        self._payload = large_payload(place.fresh("payload"))
        self._churn = churn(place.fresh("churn"), place.size(100_000, 10_000))

    def figures(self) -> list[Figure]:
        found = [
            single(
                self.name,
                "1 MiB payload: written to the log",
                self._payload.batch_bytes / MIB,
                "MiB",
                limit=PAYLOAD_LIMIT,
            )
        ]
        for what, more in excess(self._churn).items():
            name = f"lease, {what}: gets, seeks, keys and graves beyond a fresh queue's"
            found.append(single(self.name, name, more, "", limit=Limit(side="at most", value=0)))
        found.append(single(self.name, "open, churned: graves passed", self._churn["open, churned"].graves, ""))
        return found

    def close(self) -> None:
        """Nothing is open between rounds."""
