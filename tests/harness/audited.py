"""The audit on the model's states: each job as the queue would show it, with its row's marks."""

from uuid import UUID

import telha_jobs as jobs
from telha_jobs.audit import Across, Finding, Marks, Replayed, replay
from telha_model.state import Job, Queue
from tests.harness.public import viewed
from tests.harness.values import scope_uuid

_VERSION_7 = 7 << 76
_VARIANT = 0b10 << 62


def audited(job: Job) -> tuple[jobs.Job, Marks]:
    """The job and its marks. Its commit is not the model's to know: the time of its newest event stands for it."""
    told = viewed(job)
    created_ms = job.spec.created_at_ms
    newest_ms = job.events[-1].at_ms
    public = jobs.Job(
        **{
            **told,
            "job_id": UUID(int=created_ms << 80 | _VERSION_7 | _VARIANT | job.job_id),
            "scope": scope_uuid(job.spec.scope),
            "state": jobs.State(told["state"]),
            "payload": None,
            "events": tuple([jobs.Event(at_ms, name, detail) for at_ms, name, detail in told["events"]]),
        }
    )
    token = newest_ms.to_bytes(16, "big")
    return public, Marks(newest_ms, token, job.leased_at_ms, job.purge_at_ms, job.lease_end)


def findings(queue: Queue, *, across: bool) -> list[Finding]:
    """What the audit says of the jobs of a state; `across`: also of all together."""
    found = []
    with Across() as together:
        for job in queue.jobs:
            public, marks = audited(job)
            told = replay(public, marks)
            if not isinstance(told, Replayed):
                found.append(told)
            elif across:
                together.take(public, told, marks)
        return found + (list(together.findings()) if across else [])
