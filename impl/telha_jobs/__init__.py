"""Telha: an embedded, durable job queue on RocksDB with leases that are fenced by generation.

    from telha_jobs import JobQueue

    with JobQueue.open("jobs.db") as queue:
        queue.enqueue(scope, "embed", {"document": 7})
        lease = queue.lease_next("worker-1")
        queue.complete(lease, {"vectors": 12})

`JobQueue` is the whole library; `telha_jobs.errors` shows every error, `telha_jobs.config` every setting.
"""

from telha_jobs.clock import Clock, ManualClock
from telha_jobs.config import Backoff, KindPolicy, QueueConfig
from telha_jobs.errors import (
    FormatVersionError,
    IdempotencyConflictError,
    InvalidArgumentError,
    JobNotFoundError,
    JobUnreadableError,
    QueueError,
    QueueLockedError,
    QueueUnavailableError,
    StaleLeaseError,
    WrongStateError,
)
from telha_jobs.queue import JobQueue
from telha_jobs.types import (
    SYSTEM_SCOPE,
    CheckReport,
    Event,
    Job,
    Lease,
    LeaseRef,
    NewJob,
    Outcome,
    Page,
    ReapReport,
    Receipt,
    State,
)

__all__ = [
    "SYSTEM_SCOPE",
    "Backoff",
    "CheckReport",
    "Clock",
    "Event",
    "FormatVersionError",
    "IdempotencyConflictError",
    "InvalidArgumentError",
    "Job",
    "JobNotFoundError",
    "JobQueue",
    "JobUnreadableError",
    "KindPolicy",
    "Lease",
    "LeaseRef",
    "ManualClock",
    "NewJob",
    "Outcome",
    "Page",
    "QueueConfig",
    "QueueError",
    "QueueLockedError",
    "QueueUnavailableError",
    "ReapReport",
    "Receipt",
    "StaleLeaseError",
    "State",
    "WrongStateError",
]
