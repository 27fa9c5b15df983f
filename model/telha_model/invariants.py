"""The promises, by name, as predicates.

`ALWAYS` holds in every reachable state and on every step; each predicate answers None, or a sentence that says what is broken. The
predicates never call the transitions: they say in their own terms what must be true of a state, or of the state before a step, the
operation, the reply and the state after it. `GOALS` are promises about what remains possible, judged on a whole explored graph.

A predicate over steps is only asked where it can fail: `ops` names the operations it speaks about (None: all), and a step that
changed nothing is shown only to those that say `idle`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from telha_model.ops import (
    Advance,
    Complete,
    CompleteMany,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
)
from telha_model.promises import jobs, leases, order
from telha_model.promises.evidence import Taken
from telha_model.state import Queue
from telha_model.states import ENDED
from telha_model.types import Config

OnState = Callable[[Config, Queue], str | None]
OnStep = Callable[[Taken], str | None]


class StepCheck(NamedTuple):
    """A predicate over steps, and where it is asked."""

    check: OnStep
    ops: tuple[type[Op], ...] | None = None
    idle: bool = False


class Always(NamedTuple):
    """A promise: the sentence, the predicates over states and those over steps."""

    promise: str
    on_state: tuple[OnState, ...] = ()
    on_step: tuple[StepCheck, ...] = ()


_SUBMITS = (Complete, Fail, Release)
_BULK = (Extend, CompleteMany)

ALWAYS: Final[dict[str, Always]] = {
    "exclusive_lease": Always(
        "A (job, generation) pair is granted at most once; a job has at most one current lease.",
        on_step=(StepCheck(leases.generations_rise), StepCheck(leases.grants_are_the_leases, (Lease,))),
    ),
    "stale_submit": Always(
        "What is not the current lease changes nothing and is refused, unless it repeats the newest recorded submit.",
        on_step=(
            StepCheck(leases.stale_changes_nothing, _SUBMITS, idle=True),
            StepCheck(leases.bulk_items_fenced, _BULK, idle=True),
            StepCheck(leases.refusal_changes_nothing),
        ),
    ),
    "no_job_is_lost": Always(
        "A job is in exactly one state until it is purged or discarded.",
        on_state=(jobs.one_state_well_formed,),
        on_step=(
            StepCheck(jobs.leaves_only_by_the_doors),
            StepCheck(jobs.acknowledged_exist, (Enqueue, EnqueueMany, Complete)),
        ),
    ),
    "acknowledged_is_durable": Always(
        "Reopening, clean or not, loses and changes no job; an unclean end raises the incarnation.",
        on_step=(StepCheck(jobs.reopening_keeps_everything, (Reopen,)),),
    ),
    "attempts_are_exact": Always(
        "At most max_attempts leases end in failure or expiry between retries, and the last one makes the job dead.",
        on_state=(leases.attempts_within_budget,),
        on_step=(StepCheck(leases.attempts_counted), StepCheck(leases.expiry_is_not_early)),
    ),
    "the_log_tells_the_truth": Always(
        "Replaying a job's events through the transition table ends in its state.",
        on_state=(jobs.logs_replay,),
        on_step=(StepCheck(jobs.log_grows_truly),),
    ),
    "order": Always(
        "Within a scope, among the kinds asked for, ready jobs are leased by (priority, due, job id); ids rise.",
        on_step=(StepCheck(order.least_first, (Lease,), idle=True), StepCheck(order.ids_rise)),
    ),
    "no_early_run": Always("Nothing is leased before it is due.", on_step=(StepCheck(order.only_when_due),)),
    "fair_scopes": Always(
        "A grant takes the first eligible scope of the ring, and nobody who waits is overtaken.",
        on_state=(order.ring_is_who_waits,),
        on_step=(StepCheck(order.nobody_overtakes), StepCheck(order.first_eligible, (Lease,))),
    ),
    "one_key_one_job": Always(
        "An idempotency key maps to at most one job in its scope.",
        on_state=(jobs.keys_are_unique,),
        on_step=(StepCheck(jobs.key_answers_with_its_job, (Enqueue,), idle=True),),
    ),
}


class Goal(NamedTuple):
    """Something that must stay possible from every state, using only operations of the given types."""

    promise: str
    reached: Callable[[Queue], bool]
    ops: tuple[type[Op], ...]


def _all_ended(queue: Queue) -> bool:
    return all(job.state in ENDED for job in queue.jobs)


GOALS: Final[dict[str, Goal]] = {
    "progress": Goal(
        "From every state, leases that are answered or fall silent bring every job to completed or dead.",
        _all_ended,
        (Lease, Complete, CompleteMany, Fail, Reap, Advance),
    ),
}
