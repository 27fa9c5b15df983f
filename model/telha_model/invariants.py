"""The promises, by name, as predicates.

`ALWAYS` holds in every reachable state and on every step; each predicate answers None, or a sentence that says what is
broken. The predicates never call the transitions: they say in their own terms what must be true. `GOALS` are promises
about what remains possible, judged on a whole explored graph.

There are six kinds of predicate, so that each is asked only where it can fail: over a state; over a job, whenever it
changed on the way to a new state; over the reply to an operation in a state; over a step that changed something; over
one job that such a step changed; over one that it made or removed. Some name the operations they speak about.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

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
from telha_model.replies import Reply
from telha_model.state import Job, Queue
from telha_model.states import ENDED
from telha_model.types import Config

OnState = Callable[[Config, Queue], str | None]
OnReply = Callable[[Queue, Any, Reply], str | None]
OnStep = Callable[[Taken], str | None]
OnJob = Callable[[Config, Job], str | None]
OnChange = Callable[[Taken, Job, Job], str | None]
OnComing = Callable[[Taken, Job | None, Job | None], str | None]
Ops = tuple[type[Op], ...] | None


class Always(NamedTuple):
    """A promise: the sentence, and its predicates by kind, each with the operations it is asked about (None: all)."""

    promise: str
    on_state: tuple[OnState, ...] = ()
    on_reply: tuple[tuple[OnReply, Ops], ...] = ()
    on_step: tuple[tuple[OnStep, Ops], ...] = ()
    on_change: tuple[tuple[OnChange, Ops], ...] = ()
    on_job: tuple[OnJob, ...] = ()
    on_coming: tuple[OnComing, ...] = ()

    def predicates(self) -> tuple[object, ...]:
        """All of them, of every kind."""
        by_op = [check for check, _ in (*self.on_reply, *self.on_step, *self.on_change)]
        return (*self.on_state, *self.on_job, *self.on_coming, *by_op)


class Goal(NamedTuple):
    """Something that must stay possible from every state, using only operations of the given types."""

    promise: str
    reached: Callable[[Queue], bool]
    ops: tuple[type[Op], ...]


_SUBMITS: Final = (Complete, Fail, Release)
_BULK: Final = (Extend, CompleteMany)
_CREATING: Final = (Enqueue, EnqueueMany, Complete)

ALWAYS: Final[dict[str, Always]] = {
    "exclusive_lease": Always(
        "A (job, generation) pair is granted at most once; a job has at most one current lease.",
        on_step=((leases.grants_are_the_leases, (Lease,)),),
        on_change=((leases.generations_rise, None),),
    ),
    "stale_submit": Always(
        "What is not the current lease changes nothing and is refused, unless it repeats the newest recorded submit.",
        on_reply=(
            (leases.submit_is_judged, _SUBMITS),
            (leases.extensions_are_judged, (Extend,)),
            (leases.completions_are_judged, (CompleteMany,)),
        ),
        on_step=(
            (leases.only_the_current_changes, _SUBMITS),
            (leases.bulk_changes_only_current, _BULK),
            (leases.refusal_changes_nothing, None),
        ),
    ),
    "no_job_is_lost": Always(
        "An acknowledged job is in exactly one state until it is purged or discarded.",
        on_state=(jobs.numbers_in_order,),
        on_job=(jobs.one_state_well_formed,),
        on_coming=(jobs.comes_and_goes_by_the_doors,),
        on_step=((jobs.acknowledged_exist, _CREATING),),
    ),
    "acknowledged_is_durable": Always(
        "Reopening, clean or not, loses and changes no job; an unclean end raises the incarnation.",
        on_step=((jobs.reopening_keeps_everything, (Reopen,)),),
    ),
    "attempts_are_exact": Always(
        "At most max_attempts leases end in failure or expiry between retries, and the last one makes the job dead.",
        on_job=(leases.attempts_within_budget,),
        on_change=((leases.attempts_counted, None), (leases.deadlines_hold, (*_BULK, Release, Reap))),
    ),
    "the_log_tells_the_truth": Always(
        "Replaying a job's events through the transition table ends in its state.",
        on_job=(jobs.logs_replay,),
        on_change=((jobs.log_grows_truly, None),),
    ),
    "order": Always(
        "Within a scope, among the kinds asked for, ready jobs are leased by (priority, due, job id); ids rise.",
        on_reply=((order.nothing_is_left_behind, (Lease,)),),
        on_step=((order.least_first, (Lease,)), (order.ids_rise, _CREATING)),
    ),
    "no_early_run": Always(
        "Nothing is leased before it is due.",
        on_change=((order.only_when_due, (Lease, Reap)),),
    ),
    "fair_scopes": Always(
        "A grant takes the first eligible scope of the ring, and nobody who waits is overtaken.",
        on_state=(order.ring_is_who_waits,),
        on_step=((order.nobody_is_overtaken, None), (order.first_eligible, (Lease,))),
    ),
    "one_key_one_job": Always(
        "An idempotency key maps to at most one job in its scope.",
        on_state=(jobs.keys_are_unique,),
        on_reply=((jobs.key_answers_with_its_job, (Enqueue,)),),
    ),
}


def _all_ended(queue: Queue) -> bool:
    return all(job.state in ENDED for job in queue.jobs)


GOALS: Final[dict[str, Goal]] = {
    "progress": Goal(
        "From every state, leases that are answered or fall silent bring every job to completed or dead.",
        _all_ended,
        (Lease, Complete, CompleteMany, Fail, Reap, Advance),
    ),
}
