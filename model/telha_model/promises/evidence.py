"""What a predicate gets to see of one step, and how to read it."""

from typing import NamedTuple

from telha_model.ops import Op
from telha_model.replies import Grant, Leased, Reply
from telha_model.state import Job, Queue
from telha_model.states import LEASED
from telha_model.types import Config, Ref

Changed = list[tuple[Job | None, Job | None]]


class Taken(NamedTuple):
    """One step: `changed` pairs the jobs that differ, None standing for absence."""

    config: Config
    before: Queue
    op: Op
    reply: Reply
    after: Queue
    changed: Changed


def changes(before: Queue, after: Queue) -> Changed:
    """The jobs that differ between two queues, in order of their numbers."""
    old, new = before.jobs, after.jobs
    if old is new:
        return []
    if len(old) <= len(new):
        pairs: Changed = []
        for was, now in zip(old, new, strict=False):
            if was is not now:
                if was.job_id != now.job_id:
                    break
                pairs.append((was, now))
        else:
            if len(old) != len(new):
                pairs += [(None, now) for now in new[len(old) :]]
            return pairs
    was_by_id, now_by_id = {job.job_id: job for job in old}, {job.job_id: job for job in new}
    return [
        (was_by_id.get(number), now_by_id.get(number))
        for number in sorted(was_by_id | now_by_id)
        if was_by_id.get(number) is not now_by_id.get(number)
    ]


def is_current(queue: Queue, ref: Ref) -> bool:
    """Whether a token is its job's current lease."""
    number = ref.job_id
    for job in queue.jobs:
        if job.job_id == number:
            return job.state is LEASED and job.generation == ref.generation
    return False


def grants(reply: Reply) -> tuple[Grant, ...]:
    """The grants of a reply, if it is one."""
    return reply.grants if isinstance(reply, Leased) else ()
