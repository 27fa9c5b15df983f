"""Long failing runs for the minimiser: two thousand steps that end in a mutant's difference.

A run is calm for most of its length (jobs come, are leased, completed and discarded, time passes), so that a bug which
plain work does not meet shows late; its end is wild: old tokens, expiries, crashes, keys, operators, bulk calls.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from telha_model import ops
from telha_model.minimise import minimised
from telha_model.ops import Op
from telha_model.replies import Enqueued, Leased
from telha_model.state import Queue, new_queue
from telha_model.states import ENDED, LEASED
from telha_model.step import step
from telha_model.types import Backoff, Config, KindPolicy, NewJob, Ref
from tests.harness.lockstep import Subjects
from tests.harness.mutants import Mutant
from tests.harness.replay import breaks_a_promise, failing, shortest
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import BUDGET_S

STEPS: Final = 2_000
CALM: Final = 1_700
START_MS: Final = 1_000
TTL_MS: Final = 4
SEEDS: Final = range(1, 13)
PROGRAM_MAX: Final = 12

BIG_BY_NATURE: Final = {
    "the log forgets how much it swallowed": "a log overflows twice before it can count wrong, one event at a time",
}
"""Mutants whose shortest program is longer than `PROGRAM_MAX`, and why."""

KINDS: Final = ("a", "b", "ingest:x", "ingest:y:z")
POLICIES: Final = (
    (),
    (("b", KindPolicy(lease_ttl_ms=2, max_attempts=1, backoff_base_ms=5)),),
    (
        ("ingest:*", KindPolicy(backoff_base_ms=6, backoff_factor=3)),
        ("ingest:y:*", KindPolicy(max_attempts=1, max_lease_age_ms=6)),
        ("a", KindPolicy(lease_ttl_ms=1, backoff_cap_ms=2)),
    ),
)


class Shortened(NamedTuple):
    """What became of a mutant's long run: its length up to the difference, the minimised length, seconds of computing
    that this took, what differed.
    """

    mutant: str
    seed: int
    steps: int
    program: int
    seconds: float
    sentence: str

    @property
    def fits(self) -> bool:
        """Whether it is as short as it has to be, and was so in time."""
        return self.seconds <= BUDGET_S and (self.program <= PROGRAM_MAX or self.mutant in BIG_BY_NATURE)


class _Writer:
    """Writes a run, step by step, with the model at hand to know what there is to name."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        self.config = Config(
            lease_ttl_ms=TTL_MS,
            max_attempts=chance.choice((2, 1, 3)),
            backoff=chance.choice((Backoff(1, 2, 3), Backoff(2, 1, 1), Backoff(3, 4, 40))),
            kinds=POLICIES[seed % len(POLICIES)],
            max_lease_age_ms=chance.choice((None, 6)),
            retention_completed_ms=chance.choice((None, 0, 3)),
            retention_dead_ms=chance.choice((None, 0, 5)),
            reason_chars_max=3,
            events_max=chance.choice((16, 17)),
            lease_batch_max=4,
        )
        self.queue: Queue = new_queue(START_MS)
        self.ops: list[Op] = []
        self.tokens: list[Ref] = [Ref(1, 1)]
        self.jobs: list[int] = [1]
        self.submits: list[Op] = []

    def do(self, op: Op) -> None:
        reply, self.queue = step(self.config, self.queue, op)
        self.ops.append(op)
        if isinstance(reply, Leased):
            self.tokens += [Ref(grant.job_id, grant.generation) for grant in reply.grants]
        elif isinstance(reply, Enqueued):
            self.jobs += [receipt.job_id for receipt in reply.receipts]

    def calm(self) -> None:
        """A few steps of plain work, at the end of which nothing is leased."""
        chance = self.chance
        for _ in range(chance.randint(1, 3)):
            self.do(ops.Enqueue(NewJob(chance.randint(1, 3), chance.choice(KINDS), chance.randint(1, 4))))
        self.do(ops.Lease("w"))
        if self.queue.jobs and any(job.state is LEASED for job in self.queue.jobs):
            self.do(ops.Complete(self.tokens[-1], 1))
        self.do(ops.Advance(chance.randint(1, 2)))
        for job in self.queue.jobs:
            if job.state in ENDED:
                self.do(ops.Discard(job.job_id))
        if len(self.queue.jobs) > 6:
            self.do(ops.Cancel(self.queue.jobs[0].job_id))

    def wild(self) -> None:
        """One step of anything; now and then what such steps rarely bring together."""
        roll = self.chance.random()
        if roll < 0.03:  # a job is given back so often that its log is full
            for _ in range(10):
                self.do(ops.Lease("w", 1, (1,)))
                self.do(ops.Release(self.tokens[-1]))
        elif roll < 0.08:  # a job that waits for its time ends, and comes back
            self.do(ops.Enqueue(NewJob(1, "a", 1, delay_ms=TTL_MS)))
            self.do(ops.Cancel(self.jobs[-1]))
            self.do(ops.Retry(self.jobs[-1]))
        elif roll < 0.13:  # in a scope of their own one of two jobs to come is cancelled before either is due
            for delay_ms in self.chance.sample((2, 1, 3), 2):
                self.do(ops.Enqueue(NewJob(9, "a", 1, delay_ms=delay_ms)))
            self.do(ops.Cancel(self.chance.choice(self.jobs[-2:])))
            self.do(ops.Advance(1))
            self.do(ops.Reap())
            for job in self.jobs[-2:]:
                self.do(ops.Cancel(job))
        self.do(self.chance.choice(_WILD)(self))

    # -- what a wild step draws

    def token(self) -> Ref:
        """Mostly a recent one, now and then one that was never granted."""
        ref = self.chance.choice(self.tokens[-6:])
        return ref if self.chance.random() < 0.9 else ref._replace(generation=ref.generation + 1)

    def job(self) -> int:
        return self.chance.choice(self.jobs[-8:])

    def new(self) -> NewJob:
        chance = self.chance
        keyed = chance.random() < 0.4
        delay_ms = chance.choice((None, None, 1, TTL_MS, 9))
        return NewJob(
            chance.choice((1, 2, 3, 0)),
            chance.choice(KINDS),
            chance.choice((1, 1, 2)) if keyed else chance.randint(1, 5),
            chance.choice((128, 128, 0, 255)),
            None if delay_ms is not None else chance.choice((None, self.queue.now_ms + 5)),
            delay_ms,
            chance.choice((None, None, 1)),
            "k" if keyed else None,
        )

    def submit(self) -> Op:
        if self.submits and self.chance.random() < 0.3:
            return self.chance.choice(self.submits[-4:])
        op: Op = ops.Complete(self.token(), self.chance.choice((None, 1, 2)))
        if self.chance.random() < 0.5:
            op = ops.Fail(self.token(), "reason", self.chance.random() < 0.8)
        elif self.chance.random() < 0.3:
            op = ops.Complete(self.token(), 1, (self.new(),))
        self.submits.append(op)
        return op

    def extend(self) -> Op:
        refs = tuple(dict.fromkeys(self.token() for _ in range(self.chance.randint(1, 2))))
        told = tuple({ref.job_id: (ref.job_id, self.chance.randint(1, 3)) for ref in refs}.values())
        return ops.Extend("v", refs, told if self.chance.random() < 0.5 else ())

    def lease(self) -> Op:
        chance = self.chance
        scopes = chance.choice((None, None, (1,), (2, 1)))
        return ops.Lease("w", chance.choice((1, 1, 2, 4)), scopes, chance.choice((None, None, ("a",), ("ingest:*",))))


_WILD: Final[tuple[Callable[[_Writer], Op], ...]] = (
    *[lambda writer: ops.Enqueue(writer.new())] * 3,
    lambda writer: ops.EnqueueMany((writer.new(), writer.new())),
    *[_Writer.lease] * 4,
    *[_Writer.submit] * 4,
    *[_Writer.extend] * 2,
    lambda writer: ops.CompleteMany(((writer.token(), 1), (writer.token(), None))),
    lambda writer: ops.Release(writer.token(), writer.chance.choice((0, 0, 2))),
    *[lambda writer: ops.Advance(writer.chance.choice((1, TTL_MS - 1, TTL_MS, TTL_MS + 1)))] * 3,
    *[lambda writer: ops.Reap(writer.chance.choice((None, None, 1)))] * 2,
    lambda writer: ops.Retry(writer.job()),
    lambda writer: ops.Cancel(writer.job()),
    lambda writer: ops.Discard(writer.job()),
    lambda writer: ops.Reopen(writer.chance.random() < 0.5),
)


def long_run(seed: int) -> tuple[Config, list[Op]]:
    """A run of `STEPS` operations, the same for the same seed."""
    writer = _Writer(seed)
    while len(writer.ops) < CALM:
        writer.calm()
    while len(writer.ops) < STEPS:
        writer.wild()
    return writer.config, writer.ops[:STEPS]


def wild_run(seed: int, steps: int) -> tuple[Config, list[Op]]:
    """A run of so many operations that is wild from its start."""
    writer = _Writer(seed)
    while len(writer.ops) < steps:
        writer.wild()
    return writer.config, writer.ops[:steps]


def failing_runs(subjects: Subjects) -> Iterator[tuple[int, Config, list[Op]]]:
    """Long runs that differ on the subject, by seed; each is cut at its difference."""
    for seed in SEEDS:
        config, run = long_run(seed)
        error = failing(config, START_MS, run, subjects)
        if error is not None:
            yield seed, config, error.ops


def has_runs(mutant: Mutant) -> bool:
    """Whether it dies where runs are compared with the model or judged by the promises: those can be minimised."""
    return mutant.lane.partition(":")[0] in ("tours", "narrow", "stateful", "explore")


def shortened(mutant: Mutant) -> Shortened | None:
    """Minimise a long run that queue or model of this process, broken by `mutant`, fails; None when it fails none."""
    if mutant.of_model:
        return _shortened_on_model(mutant)
    narrow = mutant.lane.startswith("narrow")
    subjects = SUBJECTS["engine-narrow" if narrow else "engine"]
    for seed, config, run in failing_runs(subjects):
        began = time.process_time()
        end = began + BUDGET_S
        error = shortest(config, START_MS, run, subjects, goes_on=lambda end=end: time.process_time() < end)  # type: ignore[misc]
        seconds = round(time.process_time() - began, 1)
        return Shortened(mutant.name, seed, len(run), len(error.ops), seconds, error.sentences[0])
    return None


def _shortened_on_model(mutant: Mutant) -> Shortened | None:
    for seed in SEEDS:
        config, run = long_run(seed)
        breaks = partial(breaks_a_promise, config, START_MS)
        steps = breaks(run)
        if steps is not None:
            began = time.process_time()
            end = began + BUDGET_S
            left = minimised(config, START_MS, run[:steps], breaks, goes_on=lambda end=end: time.process_time() < end)  # type: ignore[misc]
            seconds = round(time.process_time() - began, 1)
            return Shortened(mutant.name, seed, steps, len(left), seconds, "a promise is broken")
    return None
