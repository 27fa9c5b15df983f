"""Which operations a universe offers in a state, by symbol.

A symbol names an operation by roles ("complete, job 1, older token"), so that the same edge can be walked from any queue of the same
class, whatever its job numbers and generations are. In every state the tokens in play are, per job:

- `current`: the generation last granted (0 when none was)
- `older`: a lower one, where there is any; the one of the recorded submit if that is lower, so that repeats stay in play
- `never`: the next higher one, not granted yet

and `gone` is the highest number of a job that does not exist any more, or 0, which never existed.
"""

from collections.abc import Callable
from typing import NamedTuple

from telha_model.ops import Op
from telha_model.state import Job, Queue, find, holder
from telha_model.types import NewJob, Ref

Symbols = tuple[str, ...]
Offer = tuple[Symbols, list[Op]]
CURRENT, OLDER, NEVER_ISSUED = "current", "older", "never"


class ByToken(NamedTuple):
    """An operation on one lease, offered for each job and each of `tokens`."""

    name: str
    make: Callable[[Ref], Op]
    tokens: tuple[str, ...] = (CURRENT, OLDER, NEVER_ISSUED)
    creates: tuple[NewJob, ...] = ()


class ByJob(NamedTuple):
    """An operation on one job by its number."""

    name: str
    make: Callable[[int], Op]


class ByQueue(NamedTuple):
    """An operation on several leases at once; `make` gets the current tokens and the gone number, None: not offered."""

    name: str
    make: Callable[[tuple[Ref, ...], int], Op | None]


class Fixed(NamedTuple):
    """An operation that names no job; `creates` limits it to states with room for what it may create."""

    name: str
    op: Op
    creates: tuple[NewJob, ...] = ()


class Alphabet(NamedTuple):
    """What is offered; `jobs_max` is the universe's bound on jobs that exist at a time."""

    jobs_max: int
    fixed: tuple[Fixed, ...] = ()
    by_token: tuple[ByToken, ...] = ()
    by_job: tuple[ByJob, ...] = ()
    by_queue: tuple[ByQueue, ...] = ()


def gone_number(queue: Queue) -> int:
    """The highest job number that exists no more, or 0."""
    number = queue.next_job_id - 1
    while number and find(queue, number) is not None:
        number -= 1
    return number


def older_generation(job: Job) -> int | None:
    """A lower generation to play as an old token, or None."""
    if job.submit is not None and job.submit.digest.generation < job.generation:
        return job.submit.digest.generation
    return job.generation - 1 if job.generation > 1 else None


def _room_for(queue: Queue, creates: tuple[NewJob, ...], jobs_max: int) -> bool:
    fresh = sum(holder(queue.jobs, new.scope, new.idempotency_key) is None for new in creates)
    return len(queue.jobs) + fresh <= jobs_max


def offers(alphabet: Alphabet) -> Callable[[Queue], Offer]:
    """The function from a queue to its symbols and operations, in step with each other and in the same order for a whole class."""
    memo: dict[tuple[int, int, int, int | None], tuple[Symbols, list[Op]]] = {}
    gone_memo: dict[int, tuple[Symbols, list[Op]]] = {}
    free = [item for item in alphabet.by_token if not item.creates]
    creating = [item for item in alphabet.by_token if item.creates]

    def of_job(slot: int, job: Job) -> tuple[Symbols, list[Op]]:
        older = older_generation(job)
        key = (slot, job.job_id, job.generation, older)
        known = memo.get(key)
        if known is None:
            pairs = _token_pairs(free, slot, job) + [
                (f"{item.name}, job {slot + 1}", item.make(job.job_id)) for item in alphabet.by_job
            ]
            known = memo[key] = (tuple([name for name, _ in pairs]), [op for _, op in pairs])
        return known

    def of_gone(number: int) -> tuple[Symbols, list[Op]]:
        known = gone_memo.get(number)
        if known is None:
            ref = Ref(number, 1)
            pairs = [(f"{item.name}, gone", item.make(ref)) for item in free if CURRENT in item.tokens]
            pairs += [(f"{item.name}, gone", item.make(number)) for item in alphabet.by_job]
            known = gone_memo[number] = (tuple([name for name, _ in pairs]), [op for _, op in pairs])
        return known

    def offer(queue: Queue) -> Offer:
        symbols: Symbols = ()
        ops: list[Op] = []
        for fixed in alphabet.fixed:
            if not fixed.creates or _room_for(queue, fixed.creates, alphabet.jobs_max):
                symbols += (fixed.name,)
                ops.append(fixed.op)
        gone = gone_number(queue)
        for names, made in [of_gone(gone)] + [of_job(slot, job) for slot, job in enumerate(queue.jobs)]:
            symbols += names
            ops += made
        for item in creating:
            if _room_for(queue, item.creates, alphabet.jobs_max):
                for slot, job in enumerate(queue.jobs):
                    for name, op in _token_pairs([item], slot, job):
                        symbols += (name,)
                        ops.append(op)
        current = tuple([Ref(job.job_id, job.generation) for job in queue.jobs])
        for several in alphabet.by_queue:
            made_op = several.make(current, gone)
            if made_op is not None:
                symbols += (several.name,)
                ops.append(made_op)
        return symbols, ops

    return offer


def _token_pairs(items: list[ByToken], slot: int, job: Job) -> list[tuple[str, Op]]:
    older = older_generation(job)
    generations = {CURRENT: job.generation, OLDER: older, NEVER_ISSUED: job.generation + 1}
    pairs = []
    for item in items:
        for token in item.tokens:
            generation = generations[token]
            if generation is not None:
                pairs.append((f"{item.name}, job {slot + 1}, {token}", item.make(Ref(job.job_id, generation))))
    return pairs
