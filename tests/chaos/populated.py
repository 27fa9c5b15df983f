"""A closed queue on disk with jobs of every sort, all of it in tables; the same for the same seed."""

import random
from pathlib import Path
from typing import Final
from uuid import UUID

from telha_jobs import JobQueue, Lease, LeaseRef, ManualClock, NewJob, QueueConfig
from tests.chaos.seeded import SCOPES, START_MS, fixed_ids

CONFIG: Final = QueueConfig(
    durability="os",
    max_attempts=2,
    lease_ttl_ms=600_000,
    retention_completed_ms=None,
    retention_dead_ms=900_000,
)
KINDS: Final = ("embed", "ingest:page", "index")
_JOBS: Final = 24


def populate(path: Path, seed: int) -> tuple[int, list[LeaseRef]]:
    """Make the queue; its time, and the leases that are current."""
    chance, clock = random.Random(seed), ManualClock(START_MS)
    held: list[Lease] = []
    with fixed_ids(seed), JobQueue.open(path, clock=clock, config=CONFIG) as queue:
        for number in range(_JOBS):
            _enqueue(queue, chance, number)
            clock.advance(chance.choice((0, 1, 500)))
        for number, lease in enumerate(queue.lease_batch("w", _JOBS // 2)):
            _use(queue, lease, ("complete", "fail", "reject", "keep", "extend", "release")[number % 6], held)
            clock.advance(chance.choice((0, 1, 500)))
        # The newest job stays: `last_id` is then what the rows tell.
        queue.enqueue_many([NewJob(scope=SCOPES[0], kind="index", payload="p" * 700, idempotency_key="newest")])
        database = queue._store._database
        for family in database._families.values():
            family.flush()
        return clock.wall_ms(), [LeaseRef(one.job_id, one.generation) for one in held]


def _enqueue(queue: JobQueue, chance: random.Random, number: int) -> UUID:
    return queue.enqueue(
        chance.choice(SCOPES),
        KINDS[number % len(KINDS)],
        "x" * chance.choice((3, 700)),
        priority=chance.choice((1, 128)),
        delay_ms=60_000 if number % 6 == 0 else 0,
        idempotency_key=f"key-{number}" if number % 2 else None,
    ).job_id


def _use(queue: JobQueue, lease: Lease, act: str, held: list[Lease]) -> None:
    match act:
        case "complete":
            queue.complete(lease, "done")
        case "fail" | "reject":
            queue.fail(lease, "no", retryable=act == "fail")
        case "release":
            queue.release(lease)
        case _:
            held.append(lease)
            if act == "extend":
                queue.extend("w", [lease], progress={lease.job_id: {"page": 3}})
