"""Real threads on one real queue to the end, and a judgement of everything they were told.

Producers add jobs over a few scopes, kinds and priorities, some of them under keys that two producers share. Pollers
lease, one or a batch at a time, with and without filters; most leases are completed, some fail, some are released, some
are left to expire, and a lease that was left is tried again at the end, when it must be stale. What is judged:

- each (job, generation) was granted at most once, and each job completed exactly once, by its newest lease;
- each key made one job; ids rise in commit order: a call that ended before another began has the lower ids;
- within a scope and priority no job was granted while an older one, which was waiting all that time, was granted later;
- nothing is left, every derived family follows from the rows, and a lease that was left to expire is refused;
- in the order of the commits the model answers every call as its thread was answered (runs of up to 1,000 jobs; of
  larger ones only when something else is wrong).

Times of calls are real ones, taken around each call; only what must have been one before the other is compared.
"""

import random
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

from telha_jobs import (
    Backoff,
    JobQueue,
    Lease,
    LeaseRef,
    NewJob,
    QueueConfig,
    Receipt,
    StaleLeaseError,
    State,
)
from tests.harness.classes import Hits
from tests.harness.history import Journal, kept, model_config
from tests.harness.traces import for_mutant

Durability = Literal["sync", "os"]

_SCOPES = tuple(UUID(int=number + 1) for number in range(7))
_KINDS = ("ingest:pdf", "ingest:html", "embed")
_PRIORITIES = (0, 128, 128, 128, 255)
_KEYED_EVERY = 10
_LEASE_TTL_MS = 1_500
_MAX_ATTEMPTS = 60
_STALLED_S = 120
WITNESS_JOBS_MAX = 1_000
HISTORY_JOBS_MAX = 20_000
"""Up to so many jobs the calls are noted: a run with more is too long for the model, and for anybody to look into."""


class Made(NamedTuple):
    """One job as its producer was told: when the call began and ended (ns)."""

    receipt: Receipt
    scope: UUID
    priority: int
    began: int
    ended: int


class Grant(NamedTuple):
    """One lease as its poller was told. `whole`: the call asked for any kind."""

    ref: LeaseRef
    scope: UUID
    whole: bool
    began: int
    ended: int


@dataclass(slots=True)
class Account:
    """What one thread was told. Only that thread writes it."""

    made: list[Made] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    completed: list[LeaseRef] = field(default_factory=list)
    left: list[LeaseRef] = field(default_factory=list)
    returned: int = 0
    stale: int = 0
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The figures of a run, and what is wrong with it."""

    jobs: int
    pollers: int
    durability: Durability
    seed: int
    seconds: float
    grants: int
    returned: int
    left_to_expire: int
    stale_submits: int
    commits: int
    syncs: int
    problems: tuple[str, ...]
    trace: str | None = None

    @property
    def jobs_per_second(self) -> float:
        """From the first enqueue to the last completion."""
        return self.jobs / self.seconds

    @property
    def syncs_per_job(self) -> float:
        """Below the commits per job when calls share syncs."""
        return self.syncs / self.jobs

    def figures(self) -> dict[str, object]:
        """As `--json` prints them."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "seconds": round(self.seconds, 2),
            "jobs_per_second": round(self.jobs_per_second),
            "syncs_per_job": round(self.syncs_per_job, 3),
        }


class Run:
    """Threads on one queue until every job is completed."""

    def __init__(self, queue: JobQueue, *, jobs: int, pollers: int, seed: int) -> None:
        self.journal = Journal(queue)
        self.queue = self.journal if jobs <= HISTORY_JOBS_MAX else queue
        self.watching = self.journal.watching if jobs <= HISTORY_JOBS_MAX else nullcontext
        self.jobs = jobs
        self.seed = seed
        self.producers = [Account() for _ in range(max(2, pollers // 4))]
        self.pollers = [Account() for _ in range(pollers)]
        self.stop = threading.Event()

    @property
    def done(self) -> int:
        """Completions so far."""
        return sum(len(account.completed) for account in self.pollers)

    def to_the_end(self, progress: Callable[[int], None]) -> None:
        """Start everybody, and return when every job is completed, somebody raised, or nothing moves any more."""
        threads = [
            threading.Thread(target=self._guarded, args=(account, self._produce, number))
            for number, account in enumerate(self.producers)
        ]
        threads += [
            threading.Thread(target=self._guarded, args=(account, self._poll, number))
            for number, account in enumerate(self.pollers)
        ]
        for thread in threads:
            thread.start()
        moved, done = time.monotonic(), -1
        while not self.stop.wait(0.2):
            if self.done != done:
                moved, done = time.monotonic(), self.done
            progress(done)
            if done >= self.jobs or time.monotonic() - moved > _STALLED_S:
                break
        self.stop.set()
        for thread in threads:
            thread.join()

    def _guarded(self, account: Account, work: Callable[[Account, int, random.Random], None], number: int) -> None:
        try:
            work(account, number, random.Random(f"{self.seed} {work.__name__} {number}"))
        except BaseException as error:  # noqa: BLE001  whatever a thread meets is a problem of the run, and ends it
            account.error = error
            self.stop.set()

    def _produce(self, account: Account, number: int, chance: random.Random) -> None:
        """This producer's share of the jobs, and the keyed ones of its neighbour once more."""
        others = len(self.producers)
        mine = list(range(number, self.jobs, others))
        shared = [one for one in range((number + 1) % others, self.jobs, others) if one % _KEYED_EVERY == 0]
        todo = sorted(mine + shared)
        while todo and not self.stop.is_set():
            batch, todo = todo[:50], todo[50:]
            if chance.random() < 0.2:
                for one in batch[:5]:
                    self._enqueue(account, [one])
                batch = batch[5:]
            self._enqueue(account, batch)

    def _enqueue(self, account: Account, numbers: Sequence[int]) -> None:
        jobs = [
            NewJob(
                scope=_SCOPES[number % len(_SCOPES)],
                kind=_KINDS[number % len(_KINDS)],
                payload={"number": number, "padding": "x" * (number % 7 * 150)},
                priority=_PRIORITIES[number // 7 % len(_PRIORITIES)],
                idempotency_key=f"job {number}" if number % _KEYED_EVERY == 0 else None,
            )
            for number in numbers
        ]
        began = time.monotonic_ns()
        receipts = self.queue.enqueue_many(jobs)
        ended = time.monotonic_ns()
        account.made += [
            Made(receipt, job.scope, job.priority, began, ended)
            for receipt, job in zip(receipts, jobs, strict=True)
            if receipt.created
        ]

    def _poll(self, account: Account, number: int, chance: random.Random) -> None:
        kinds: Iterable[str] | None
        scopes: Iterable[UUID] | None
        while not self.stop.is_set():
            # The first poller takes whatever there is, so that filters never leave a job to nobody.
            kinds = ("ingest:*",) if number and chance.random() < 0.2 else None
            scopes = chance.sample(_SCOPES, 3) if number and chance.random() < 0.2 else None
            limit = chance.choice((1, 1, 1, 20))
            began = time.monotonic_ns()
            leases = self.queue.lease_batch(f"poller {number}", limit, kinds=kinds, scopes=scopes, wait_ms=100)
            ended = time.monotonic_ns()
            account.grants += [
                Grant(LeaseRef(one.job_id, one.generation), one.scope, kinds is None, began, ended) for one in leases
            ]
            self._answer(account, leases, chance)

    def _answer(self, account: Account, leases: Sequence[Lease], chance: random.Random) -> None:
        """Fail, release or leave a few of the leases, and complete the rest."""
        finished: list[LeaseRef] = []
        for lease in leases:
            ref = LeaseRef(lease.job_id, lease.generation)
            roll = chance.random()
            if roll < 0.003:
                account.left.append(ref)
            elif roll < 0.03:
                try:
                    if roll < 0.015:
                        self.queue.fail(ref, "by chance")
                    else:
                        self.queue.release(ref)
                    account.returned += 1
                except StaleLeaseError:
                    account.stale += 1  # it expired while this thread did not run
            else:
                finished.append(ref)
        if len(finished) == 1:
            try:
                self.queue.complete(finished[0], "done")
                account.completed.append(finished[0])
            except StaleLeaseError:
                account.stale += 1
        elif finished:
            outcomes = self.queue.complete_many([(ref, "done") for ref in finished])
            ended = [ref for ref, outcome in zip(finished, outcomes, strict=True) if outcome.status == "completed"]
            account.completed += ended
            account.stale += len(finished) - len(ended)


def judge(run: Run) -> list[str]:
    """Everything that is wrong with what the threads were told and with what is left."""
    made = [one for account in run.producers for one in account.made]
    grants = [one for account in run.pollers for one in account.grants]
    completed = [ref for account in run.pollers for ref in account.completed]
    left = [ref for account in run.pollers for ref in account.left]
    errors = [one.error for one in (*run.producers, *run.pollers) if one.error is not None]
    problems = [f"a thread raised {type(error).__name__}: {error}" for error in errors]
    if errors:
        return problems  # the others stopped in the middle
    return [
        *problems,
        *_amounts(run.jobs, made, grants, completed),
        *_ids(made),
        *_order(made, grants),
        *_rest(run.queue, run.jobs, left),
    ]


def _amounts(jobs: int, made: Sequence[Made], grants: Sequence[Grant], completed: Sequence[LeaseRef]) -> Iterable[str]:
    ids = Counter(one.receipt.job_id for one in made)
    if len(ids) != jobs or len(made) != jobs:
        yield f"{jobs} jobs were to be made, {len(made)} receipts say created, for {len(ids)} ids"
    twice = [ref for ref, number in Counter(one.ref for one in grants).items() if number > 1]
    yield from (f"lease {ref.generation} of job {ref.job_id} was granted more than once" for ref in twice[:10])
    ends = Counter(ref.job_id for ref in completed)
    yield from (f"job {job_id} was completed {number} times" for job_id, number in ends.items() if number > 1)
    if ends.keys() != ids.keys():
        yield f"{len(ids.keys() - ends.keys())} jobs were never completed, {len(ends.keys() - ids.keys())} never made"
    newest: dict[UUID, int] = {}
    for one in grants:
        newest[one.ref.job_id] = max(newest.get(one.ref.job_id, 0), one.ref.generation)
    old = [ref for ref in completed if newest.get(ref.job_id) != ref.generation]
    yield from (f"job {ref.job_id} was completed by lease {ref.generation}, not its newest" for ref in old[:10])


def _ids(made: Sequence[Made]) -> Iterable[str]:
    """Ids rise in commit order: no call that ended before another began has the higher id."""
    latest = 0
    for one in sorted(made, key=lambda one: one.receipt.job_id.int):
        if one.ended < latest:
            yield f"job {one.receipt.job_id} was made before one with a lower id"
            return
        latest = max(latest, one.began)


def _order(made: Sequence[Made], grants: Sequence[Grant]) -> Iterable[str]:
    """Promise 7, as far as real time tells it: who waited all the while is not overtaken by a younger one."""
    first: dict[UUID, Grant] = {}
    for grant in sorted(grants, key=lambda one: one.ref.generation, reverse=True):
        first[grant.ref.job_id] = grant
    groups: dict[tuple[UUID, int], list[Made]] = defaultdict(list)
    for one in made:
        groups[one.scope, one.priority].append(one)
    for group in groups.values():
        group.sort(key=lambda one: one.receipt.job_id.int)
        taken = [first[one.receipt.job_id] for one in group if one.receipt.job_id in first]
        if len(taken) < len(group):
            continue  # told as jobs that were never completed
        # Of the first k jobs: when the last was there for certain, and when the last was granted at the earliest.
        there = list(accumulate((one.ended for one in group), max))
        granted = list(accumulate((one.began for one in taken), max))
        for grant in taken:
            waiting = bisect_left(there, grant.began)
            place = bisect_left(group, grant.ref.job_id.int, key=lambda one: one.receipt.job_id.int)
            older = min(waiting, place)
            if grant.whole and older and granted[older - 1] > grant.ended:
                yield f"job {grant.ref.job_id} was granted before an older one of its scope and priority that waited"
                return


def _rest(queue: JobQueue | Journal, jobs: int, left: Sequence[LeaseRef]) -> Iterable[str]:
    for ref in left:
        try:
            queue.complete(ref, "late")
        except StaleLeaseError:
            continue
        yield f"lease {ref.generation} of job {ref.job_id} was left to expire, and taken all the same"
    counts = queue.counts()
    if counts != {state: jobs if state is State.COMPLETED else 0 for state in State}:
        yield f"at the end the counts are { {state.value: number for state, number in counts.items()} }"
    if queue.lease_next("last") is not None:
        yield "a job is left to lease"
    yield from queue.check().problems


def contend(
    path: Path,
    *,
    jobs: int,
    pollers: int,
    durability: Durability,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
    hits: Hits | None = None,
) -> Report:
    """Run it in the empty directory `path` and judge it. Calls that the model answers alike go to `hits`, of runs small
    enough for it.
    """
    settings = QueueConfig(
        durability=durability,
        lease_ttl_ms=_LEASE_TTL_MS,
        reaper_interval_ms=100,
        backoff=Backoff(base_ms=1, factor=1),
        max_attempts=_MAX_ATTEMPTS,
    )
    with JobQueue.open(path, config=settings) as queue:
        queue.start_reaper()
        run = Run(queue, jobs=jobs, pollers=pollers, seed=seed)
        began = time.monotonic()
        with run.watching():
            run.to_the_end(progress)
        seconds = time.monotonic() - began
        counters = queue._store.counters
        problems = judge(run)
    trace = None
    if jobs <= (HISTORY_JOBS_MAX if problems else WITNESS_JOBS_MAX):
        config = model_config(lease_ttl_ms=_LEASE_TTL_MS, max_attempts=_MAX_ATTEMPTS)
        history = run.journal.history(config, hits)
        problems += [] if history.differs is None else [history.differs]
        if problems and history.ops:
            repeat = f"scripts/replay --lane contention --jobs {jobs} --pollers {pollers} --seed {seed}{for_mutant()}"
            trace = kept(config, history, problems, seed=seed, repeat=repeat)
    return Report(
        jobs=jobs,
        pollers=pollers,
        durability=durability,
        seed=seed,
        seconds=seconds,
        grants=sum(len(account.grants) for account in run.pollers),
        returned=sum(account.returned for account in run.pollers),
        left_to_expire=sum(len(account.left) for account in run.pollers),
        stale_submits=sum(account.stale for account in run.pollers),
        commits=counters.commits,
        syncs=counters.syncs,
        problems=tuple(problems),
        trace=trace,
    )
