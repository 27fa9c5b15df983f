"""Mutants of the model: no engine runs, the promises alone must show them, by name. The lane is `explore:UNIVERSE`."""

from typing import Final

from tests.harness.catalogue import Mutant

_ENQUEUE: Final = "telha_model.transitions.enqueue"
_LEASE: Final = "telha_model.transitions.lease"
_SUBMIT: Final = "telha_model.transitions.submit"
_SWEEP: Final = "telha_model.transitions.sweep"
_OPERATOR: Final = "telha_model.transitions.operator"
_REOPEN: Final = "telha_model.transitions.reopen"

OF_MODEL: Final[tuple[Mutant, ...]] = (
    Mutant(
        "model: complete is not fenced",
        "stale submit",
        "explore:protocol",
        _SUBMIT,
        "        (Ruling.STALE, ref_stale),\n        (Ruling.KEY_CONFLICT, _follow_up_conflict),\n",
        "        (Ruling.KEY_CONFLICT, _follow_up_conflict),\n",
    ),
    Mutant(
        "model: a second lease keeps the generation",
        "exclusive lease",
        "explore:protocol",
        _LEASE,
        "generation = max(job.generation + 1, incarnation << 32)",
        "generation = max(job.generation, 1, incarnation << 32)",
    ),
    Mutant(
        "model: an expiry counts no attempt",
        "attempts are exact",
        "explore:sweep",
        _SWEEP,
        "kind, attempts = job.spec.kind, job.attempts + 1",
        "kind, attempts = job.spec.kind, job.attempts",
    ),
    Mutant(
        "model: the last expiry leaves the job in limbo",
        "attempts are exact",
        "explore:protocol",
        _SWEEP,
        "    if attempts >= max_attempts(config, kind, job.spec.max_attempts):\n",
        "    if attempts > max_attempts(config, kind, job.spec.max_attempts):\n",
    ),
    Mutant(
        "model: a failed job is forgotten",
        "no job is lost",
        "explore:protocol",
        _SUBMIT,
        "        return make(Failed, (FAILED,)), with_job(queue, job, new)\n",
        "        left = tuple([one for one in queue.jobs if one is not job])\n"
        "        return make(Failed, (FAILED,)), queue._replace(jobs=left)\n",
    ),
    Mutant(
        "model: recovery forgets leased rows",
        "acknowledged is durable",
        "explore:reopen",
        _REOPEN,
        "    if not op.clean:\n        incarnation += 1\n",
        "    if not op.clean:\n        incarnation += 1\n"
        "        jobs = tuple([job for job in jobs if job.deadline_ms is None])\n",
    ),
    Mutant(
        "model: cancel writes no event",
        "the event log tells the truth",
        "explore:protocol",
        _OPERATOR,
        "events=logged(job.events, config.events_max, make(Event, (now_ms, Transition.CANCELLED, detail))),",
        "events=job.events,",
    ),
    Mutant(
        "model: the last in order goes first",
        "order",
        "explore:order",
        _LEASE,
        "place < best_place",
        "place > best_place",
    ),
    Mutant(
        "model: a lease looks a millisecond ahead",
        "no early run",
        "explore:order",
        _LEASE,
        "is_ready(job, now_ms)",
        "is_ready(job, now_ms + 1)",
    ),
    Mutant(
        "model: a served scope stays at the head",
        "fair scopes",
        "explore:fairness",
        _LEASE,
        "        ring += (scope,)\n",
        "        ring = (scope, *ring)\n",
    ),
    Mutant(
        "model: a key is free once its job has ended",
        "one key, one job",
        "explore:keys",
        _ENQUEUE,
        "    met = holder(jobs, new.scope, new.idempotency_key)\n",
        "    met = holder(\n"
        "        tuple([job for job in jobs if job.ended_at_ms is None]), new.scope, new.idempotency_key\n"
        "    )\n",
    ),
)
