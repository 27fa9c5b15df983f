"""Running the model in a few words."""

from telha_model.ops import Complete, Enqueue, Fail, Lease, Op
from telha_model.replies import Reply
from telha_model.state import Job, Queue, find, new_queue
from telha_model.step import step
from telha_model.types import Backoff, Config, NewJob, Ref

CONFIG = Config(
    lease_ttl_ms=10,
    max_attempts=3,
    backoff=Backoff(base_ms=2, factor=3, cap_ms=50),
    retention_completed_ms=100,
    retention_dead_ms=200,
)
START_MS = 1_000


class Rig:
    """A queue under test: `do` takes an operation and keeps the state after it."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.config = config
        self.queue: Queue = new_queue(START_MS)

    def do(self, *ops: Op) -> Reply:
        """Take the operations; the last reply."""
        reply: Reply | None = None
        for op in ops:
            reply, self.queue = step(self.config, self.queue, op)
        assert reply is not None
        return reply

    def refused(self, op: Op) -> Reply:
        """Take an operation that must change nothing."""
        before = self.queue
        reply = self.do(op)
        assert self.queue is before
        return reply

    def job(self, number: int = 1) -> Job:
        """A job that must exist."""
        job = find(self.queue, number)
        assert job is not None
        return job

    def enqueue(self, scope: int = 1, kind: str = "a", **fields: object) -> None:
        """One job."""
        self.do(Enqueue(NewJob(scope, kind, **fields)))  # type: ignore[arg-type]  # fields of NewJob, spelt by the test

    def lease(self, limit: int = 1) -> list[int]:
        """Lease and tell the numbers of the jobs granted."""
        reply = self.do(Lease("w", limit))
        return [grant.job_id for grant in reply.grants]  # type: ignore[union-attr]  # a lease without faults is granted

    def ref(self, number: int = 1) -> Ref:
        """The token of the generation last granted."""
        return Ref(number, self.job(number).generation)

    def complete(self, number: int = 1) -> None:
        """Complete under the current token."""
        self.do(Complete(self.ref(number)))

    def fail(self, number: int = 1, *, retryable: bool = True) -> None:
        """Fail under the current token."""
        self.do(Fail(self.ref(number), "x", retryable))

    def log(self, number: int = 1) -> list[str]:
        """The transitions of a job's log."""
        return [event.transition.value for event in self.job(number).events]


def leased(config: Config = CONFIG) -> Rig:
    """A queue with one leased job."""
    rig = Rig(config)
    rig.enqueue()
    assert rig.lease() == [1]
    return rig
