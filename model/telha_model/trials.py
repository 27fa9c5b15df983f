"""What the search for endless behaviour must find: nothing in the queue as it is, and every model broken on purpose.

A trial that expects nothing, or a lasso that the specification allows, runs at the full number of jobs. A broken model
is tried with one job, then two, and so on, so that what is shown is the smallest case.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from telha_model.explore import Progress, Step
from telha_model.liveness import GIVING_BACK_ENDS, HEARTBEATS_END, Lasso, Net, Promise, lassos, net_of
from telha_model.ops import Lease, Op, Reap
from telha_model.replies import Reaped, Reply
from telha_model.state import Queue
from telha_model.states import FAILED, PENDING
from telha_model.step import step
from telha_model.types import Config
from telha_model.universes.liveness import liveness

MAX_LEASE_AGE_MS: Final = 2


class Trial(NamedTuple):
    """A model, what its workers promise, and what is expected.

    A `broken` model must show a lasso, any other none, except where `is_known` says which one the specification allows:
    then there must be some, and all of that kind.
    """

    name: str
    sentence: str
    take: Step
    max_lease_age_ms: int | None
    promises: tuple[Promise, ...]
    is_known: Callable[[Lasso], bool] | None = None
    broken: bool = False


class Outcome(NamedTuple):
    """What a trial found, the shortest first, with how many jobs, and whether that was expected."""

    trial: Trial
    jobs: int
    net: Net
    found: tuple[Lasso, ...]
    as_expected: bool


def without_reaper(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """Nobody sweeps: a lease that fell silent stays."""
    if isinstance(op, Reap):
        return Reaped(0, 0, 0, 0, more=False), queue
    return step(config, queue, op)


def without_promotion(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A failed job stays failed after its back-off: neither sweep nor lease takes it up."""
    if isinstance(op, Lease):
        asleep = [job for job in queue.jobs if job.state is FAILED]
        if not asleep:
            return step(config, queue, op)
        awake = queue._replace(jobs=tuple([job for job in queue.jobs if job.state is not FAILED]))
        reply, after = step(config, awake, op)
        if after is awake:
            return reply, queue
        jobs = sorted([*after.jobs, *asleep], key=lambda job: job.job_id)
        return reply, after._replace(jobs=tuple(jobs))
    reply, after = step(config, queue, op)
    if not isinstance(op, Reap) or after is queue:
        return reply, after
    failed = {job.job_id: job for job in queue.jobs if job.state is FAILED}
    jobs = [failed.get(job.job_id, job) if job.state is PENDING else job for job in after.jobs]
    told = reply._replace(promoted=0) if isinstance(reply, Reaped) else reply
    return told, after._replace(jobs=tuple(jobs))


def rotation_that_skips(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A grant passes over the head of the ring whenever somebody waits behind it."""
    if not isinstance(op, Lease) or len(queue.ring) < 2:
        return step(config, queue, op)
    skipped = queue.ring[0]
    turned = queue._replace(ring=(*queue.ring[1:], skipped))
    reply, after = step(config, turned, op)
    if after is turned:
        return reply, queue
    if skipped not in after.ring:
        return reply, after
    return reply, after._replace(ring=(skipped, *[scope for scope in after.ring if scope != skipped]))


def is_heartbeat_for_ever(lasso: Lasso) -> bool:
    """The job is leased all the way round, and it is heartbeats that keep it so."""
    return lasso.among == ("leased",) and lasso.extends


BOTH: Final = (HEARTBEATS_END, GIVING_BACK_ENDS)
TRIALS: Final = (
    Trial("as it is", "leases are answered or fall silent: every job ends", step, None, BOTH),
    Trial(
        "heartbeats for ever",
        "without max_lease_age a worker can hold a job for ever by extending, and in no other way",
        step,
        None,
        (GIVING_BACK_ENDS,),
        is_heartbeat_for_ever,
    ),
    Trial(
        "max_lease_age",
        "with it, every job ends even if heartbeats never do",
        step,
        MAX_LEASE_AGE_MS,
        (GIVING_BACK_ENDS,),
    ),
    Trial("no reaper", "a lease that fell silent stays", without_reaper, None, BOTH, broken=True),
    Trial("no promotion", "a failed job is never taken up again", without_promotion, None, BOTH, broken=True),
    Trial("a rotation that skips", "a scope waits for ever", rotation_that_skips, None, BOTH, broken=True),
)


def tried(trials: Iterable[Trial], jobs_max: int, *, on_progress: Progress | None = None) -> Iterator[Outcome]:
    """Run trials one after another; neighbours that differ in promises only share one exploration."""
    last: Net | None = None
    for trial in trials:
        for jobs in range(1, jobs_max + 1) if trial.broken else (jobs_max,):
            universe = liveness(jobs, max_lease_age_ms=trial.max_lease_age_ms)
            if last is None or (last.take, last.universe.bounds) != (trial.take, universe.bounds):
                last = net_of(universe, trial.take, on_progress=on_progress)
            found = sorted(lassos(last, trial.promises), key=lambda lasso: len(lasso.prefix) + len(lasso.loop))
            if found or jobs == jobs_max:
                yield Outcome(trial, jobs, last, tuple(found), _as_expected(trial, found))
                break


def _as_expected(trial: Trial, found: list[Lasso]) -> bool:
    if trial.is_known is not None:
        return bool(found) and all(map(trial.is_known, found))
    return bool(found) is trial.broken
