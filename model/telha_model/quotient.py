"""When two queues count as the same state of a universe.

A queue's history is endless (time passes, generations and job numbers rise) although its behaviour is not. `Quotient` forgets what no
future reply depends on, up to renaming of times, generations and job numbers:

- time is relative to now; instants that have passed keep only their order among each other and to now, since nothing asks how long ago
- a generation is known by what its tokens can be: none issued, no lower one, or a lower one in play; whether the next one jumps to a
  new incarnation's range; and whether the newest recorded submit belongs to the current one
- jobs are numbered by their place among the jobs that exist
- created_at, ended_at, worker, headers, result and progress, and the payload of a job without key, are never read by any transition
- of a recorded reply the state and the `created` flags stay, the job numbers do not
- the event log is write-only; `log_length` keeps its length where a universe is about the cap
- `last_served` is only read by reopening; `reopens` keeps it
- whether `run_at` still lies ahead is read by retry only

What is forgotten is still compared on the real queue after every step of a tour: the quotient only says which states need no second
visit. A test samples that queues of one class answer alike and stay in one class.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from telha_model.policy import latest_deadline_ms
from telha_model.state import Job, Queue, Spec, Submit
from telha_model.states import FAILED, LEASED, PENDING, State
from telha_model.types import Config

Class = Hashable
NEVER: Final = 1 << 60
MEMO_MAX: Final = 200_000


class Quotient(NamedTuple):
    """What a universe keeps beyond the common part."""

    log_length: bool = False
    reopens: bool = False


def classifier(config: Config, quotient: Quotient) -> Callable[[Queue], Class]:
    """A function from a queue to its class. It remembers what it worked out per job, so build one per exploration.

    Classes hold numbers it gave to what it met: compare only classes of one classifier.
    """
    memo: dict[int, tuple[Job, int, int, tuple[int, ...]]] = {}
    specs: dict[int, tuple[Spec, int]] = {}
    numbers: dict[Class, int] = {}
    log_length, reopens = quotient

    ranked: dict[tuple[int, ...], tuple[int, ...]] = {}

    def rank(instants: tuple[int, ...]) -> tuple[int, ...]:
        past = sorted({at for at in instants if at < 0})
        places = {at: place - len(past) for place, at in enumerate(past)}
        ranked[instants] = tuple([places.get(at, at) for at in instants])
        return ranked[instants]

    def classify(queue: Queue) -> Class:
        now_ms, incarnation, _, jobs, ring, last_served = queue
        parts: list[int] = []
        times: list[int] = []
        floor = incarnation << 32
        for job in jobs:
            key = id(job)
            known = memo.get(key)
            if known is None or known[0] is not job or known[1] != now_ms:
                spec = specs.get(id(job.spec))
                if spec is None or spec[0] is not job.spec:
                    number = numbers.setdefault(_spec_class(job.spec), len(numbers))
                    spec = specs[id(job.spec)] = (job.spec, number)
                number = numbers.setdefault(_part(job, now_ms, spec[1], log_length), len(numbers))
                memo[key] = known = (job, now_ms, number, _times(config, job, now_ms))
            parts.append(known[2])
            times += known[3]
            if reopens:
                parts.append(job.generation + 1 < floor)
        if len(memo) > MEMO_MAX:
            memo.clear()
        instants = tuple(times)
        return (tuple(parts), ranked.get(instants) or rank(instants), ring, last_served if reopens else None)

    return classify


def _spec_class(spec: Spec) -> Class:
    key = spec.idempotency_key
    work = None if key is None else (key, spec.payload, spec.payload_version)
    return (spec.scope, spec.kind, spec.priority, spec.max_attempts, work)


def _part(job: Job, now_ms: int, spec: int, log_length: bool) -> Class:  # noqa: FBT001  once per job and edge
    generation, submit, run_at_ms = job.generation, job.submit, job.spec.run_at_ms
    return (
        spec,
        job.state,
        job.attempts,
        generation if generation < 2 else 2,
        job.lease_end,
        None if submit is None else _submit_class(submit, generation),
        0 if run_at_ms is None or run_at_ms <= now_ms else run_at_ms - now_ms,
        len(job.events) if log_length else 0,
    )


def _submit_class(submit: Submit, generation: int) -> Class:
    verb, own, arguments = submit.digest
    reply = submit.reply
    if isinstance(reply, State):
        return (verb, own == generation, arguments, reply)
    return (verb, own == generation, arguments, tuple([(receipt.created, receipt.state) for receipt in reply]))


def _times(config: Config, job: Job, now_ms: int) -> tuple[int, ...]:
    """The instants of a job that something may still ask about, relative to now; always as many per state."""
    state, due_ms = job.state, job.due_ms
    if state is LEASED and due_ms is not None and job.deadline_ms is not None and job.leased_at_ms is not None:
        limit_ms = latest_deadline_ms(config, job.spec.kind, job.leased_at_ms)
        if limit_ms is None:
            return (due_ms - now_ms, job.deadline_ms - now_ms)
        return (due_ms - now_ms, job.deadline_ms - now_ms, limit_ms - now_ms)
    if (state is PENDING or state is FAILED) and due_ms is not None:
        return (due_ms - now_ms,)
    return (NEVER if job.purge_at_ms is None else job.purge_at_ms - now_ms,)
