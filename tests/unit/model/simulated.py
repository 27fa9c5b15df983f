"""Concurrent histories as a right queue would give them: random calls on the model, answered at overlapping times."""

from random import Random

from telha_model import ops
from telha_model.course import Course
from telha_model.linear import Call, Commit, Look
from telha_model.ops import Op
from telha_model.replies import Leased, Reply
from telha_model.state import Event, Queue, find, new_queue
from telha_model.states import ENDED, LEASED
from telha_model.step import step
from telha_model.types import Backoff, Config, NewJob, Ref

CONFIG = Config(
    lease_ttl_ms=40, max_attempts=3, backoff=Backoff(5, 2, 20), retention_completed_ms=None, retention_dead_ms=None
)
START_MS = 1_000
CALLERS = 8
OVERLAP = 4.0
"""So many calls' time may pass between a call's being asked and its happening, and again until it is told."""
DIES = 1e6


class Simulated:
    """A life of a queue under random calls. `lost`: so many of the last calls are answered to nobody."""

    def __init__(self, seed: int, number: int, *, lost: int = 0) -> None:
        self.chance = Random(seed)
        self.start: Queue = new_queue(START_MS)
        self.queue = self.start
        self.calls: list[Call] = []
        self.logs: dict[int, tuple[Event, ...]] = {}
        self._tokens: list[Ref] = []
        self._free = [0.0] * CALLERS
        self._commit, self._place, self._over = 0, 0, True
        for at in range(number):
            self._one(float(at), answered=at < number - lost)

    @property
    def course(self) -> Course:
        """The way to the rows at the end."""
        rows = {job.job_id: job._replace(submit=None) for job in self.queue.jobs}
        return Course(CONFIG, rows, self.queue.last_served, self.logs)

    def _one(self, at: float, *, answered: bool) -> None:
        if self.chance.random() < 0.5:
            self._wait(self.chance.choice((1, 3, 20)))
        op, before = self._drawn(), self.queue
        if isinstance(op, ops.Discard) and (job := find(self.queue, op.job_id)) is not None:
            self.logs[job.job_id] = job.events
        reply, self.queue = step(CONFIG, self.queue, op)
        if before.jobs is not self.queue.jobs and (self._over or self.chance.random() < 0.6):
            self._commit, self._place, self._over = self._commit + 1, 0, False
        self._place += 1
        empty = isinstance(reply, Leased) and not reply.grants
        if isinstance(reply, Leased):
            self._tokens += [Ref(grant.job_id, grant.generation) for grant in reply.grants]
        self._note(op, reply if answered else None, at, None if empty else Commit(self._commit, self._place))
        if answered and self.chance.random() < 0.1:
            seen = self.queue.jobs
            self._over = True  # nobody sees half a commit
            self._note(Look(lambda queue: queue.jobs == seen), None, at, Commit(self._commit))

    def _note(self, op: Op | Look, reply: Reply | None, at: float, commit: Commit | None) -> None:
        answered = reply is not None or isinstance(op, Look)
        caller = min(range(CALLERS), key=lambda one: (self._free[one] > at, self.chance.random()))
        asked = max(min(self._free[caller], at), at - self.chance.uniform(0, OVERLAP))
        told = at + self.chance.uniform(0, OVERLAP) if answered else DIES
        self._free[caller] = told
        at_ms = self.queue.now_ms if isinstance(op, ops.Extend) else None
        self.calls.append(Call(f"c{len(self.calls)}", op, reply, asked, told, commit if answered else None, at_ms))

    def _wait(self, ms: int) -> None:
        _, self.queue = step(CONFIG, self.queue, ops.Advance(ms))
        if self.chance.random() < 0.5:
            before = self.queue
            _, self.queue = step(CONFIG, self.queue, ops.Reap(self.chance.choice((1, None))))
            self._over = self._over or before is not self.queue

    def _drawn(self) -> Op:
        chance, token = self.chance, self._token()
        scope, key = chance.randrange(1, 4), chance.choice((None, None, "a", "b"))
        new = NewJob(scope, "work", None if key else chance.randrange(9), idempotency_key=key)
        live = [job.job_id for job in self.queue.jobs]
        job_id = chance.choice(live) if live else 1
        ended = [job.job_id for job in self.queue.jobs if job.state in ENDED]
        choices: list[tuple[int, Op]] = [
            (4, ops.Enqueue(new)),
            (1, ops.EnqueueMany((new._replace(idempotency_key=None, delay_ms=chance.randrange(20)), new))),
            (8, ops.Lease(f"w{chance.randrange(3)}", 1, chance.choice((None, (1, 2))))),
            (3, ops.Complete(token, 1)),
            (1, ops.Complete(token, 2, (new._replace(idempotency_key=None),))),
            (2, ops.CompleteMany(((token, 3), (self._token(), 3)))),
            (2, ops.Fail(token, "x", retryable=chance.random() < 0.8)),
            (2, ops.Release(token, chance.choice((0, 5)))),
            (2, ops.Extend("w", (token,))),
            (1, ops.Cancel(job_id)),
            (1, ops.Retry(job_id)),
            (1, ops.Discard(chance.choice(ended) if ended else 99)),
        ]
        return chance.choices([op for _, op in choices], [weight for weight, _ in choices])[0]

    def _token(self) -> Ref:
        held = [Ref(job.job_id, job.generation) for job in self.queue.jobs if job.state is LEASED]
        if held and self.chance.random() < 0.8:
            return self.chance.choice(held)
        return self.chance.choice(self._tokens) if self._tokens else Ref(1, 1)
