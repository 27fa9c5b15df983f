"""Which operations a universe offers in a state, by symbol.

A symbol names an operation by roles ("complete, job 1, older token"), so that the same edge can be walked from any
queue of the same class, whatever its job numbers and generations are. In every state the tokens in play are, per job:

- `current`: the generation last granted (0 when none was)
- `older`: a lower one, where there is any; the one of the recorded submit if that is lower, so that repeats stay in
  play
- `never`: the next higher one, not granted yet
- `held`: the current one, offered only while it is the current lease

and `gone` is the highest number of a job that does not exist any more, or 0, which never existed.
"""

from collections.abc import Callable
from typing import NamedTuple

from telha_model.ops import Op
from telha_model.state import Job, Queue, holder
from telha_model.states import LEASED
from telha_model.types import NewJob, Ref

Block = tuple[list[str], list[Op]]
CURRENT, OLDER, NEVER_ISSUED, HELD = "current", "older", "never", "held"


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
    """An operation that names no job; `creates` limits it to states with room for what it may create.

    With `meets`, it is offered only where the key of the first of them is held.
    """

    name: str
    op: Op
    creates: tuple[NewJob, ...] = ()
    meets: bool = False


class Alphabet(NamedTuple):
    """What is offered; `jobs_max` is the universe's bound on jobs that exist at a time.

    `begin` is offered alone as long as the incarnation is 0, which no way leads back to.
    """

    jobs_max: int
    fixed: tuple[Fixed, ...] = ()
    by_token: tuple[ByToken, ...] = ()
    by_job: tuple[ByJob, ...] = ()
    by_queue: tuple[ByQueue, ...] = ()
    begin: Fixed | None = None


def gone_number(queue: Queue) -> int:
    """The highest job number that exists no more, or 0."""
    number = queue.next_job_id - 1
    for job in reversed(queue.jobs):  # in the order of their numbers
        if job.job_id != number:
            break
        number -= 1
    return number


def older_generation(job: Job) -> int | None:
    """A lower generation to play as an old token, or None."""
    generation, submit = job.generation, job.submit
    if submit is not None and submit.digest.generation < generation:
        return submit.digest.generation
    return generation - 1 if generation > 1 else None


def _room_for(queue: Queue, creates: tuple[NewJob, ...], jobs_max: int) -> bool:
    free = jobs_max - len(queue.jobs)
    if free >= len(creates):
        return True
    for new in creates:
        if holder(queue.jobs, new.scope, new.idempotency_key) is None:
            free -= 1
    return free >= 0


def offers(alphabet: Alphabet) -> Callable[[Queue], list[Op]]:
    """The function from a queue to the operations offered, in the same order for a whole class of queues."""
    pairs = _pairs(alphabet)

    def offer(queue: Queue) -> list[Op]:
        every: list[Op] = []
        for _, ops in pairs(queue):
            every += ops
        return every

    return offer


def symbols(alphabet: Alphabet) -> Callable[[Queue], list[str]]:
    """The function from a queue to the symbols of `offers`, in step with it."""
    pairs = _pairs(alphabet)
    return lambda queue: [name for names, _ in pairs(queue) for name in names]


def _is_free(queue: Queue, new: NewJob) -> bool:
    return holder(queue.jobs, new.scope, new.idempotency_key) is None


def _pairs(alphabet: Alphabet) -> Callable[[Queue], list[Block]]:
    """Symbols and operations in blocks; what depends on a job only is made once per token, since a search asks for
    millions.
    """
    memo: dict[tuple[int, int, int, int | None, bool], Block] = {}
    memo_gone: dict[int, Block] = {}
    jobs_max, fixed, by_token, by_job, by_queue, begin = alphabet
    beginning = None if begin is None else [_block([(begin.name, begin.op)])]
    free = [item for item in by_token if not item.creates]
    creating = [item for item in by_token if item.creates]
    always = _block([(item.name, item.op) for item in fixed if not item.creates])
    bounded = [(item.creates, item.meets, _block([(item.name, item.op)])) for item in fixed if item.creates]

    def of_job(slot: int, job: Job) -> Block:
        key = (slot, job.job_id, job.generation, older_generation(job), job.state is LEASED)
        known = memo.get(key)
        if known is None:
            named = [(f"{item.name}, job {slot + 1}", item.make(job.job_id)) for item in by_job]
            known = memo[key] = _block(_token_pairs(free, slot, job) + named)
        return known

    def of_gone(number: int) -> Block:
        known = memo_gone.get(number)
        if known is None:
            tokens = [(f"{item.name}, gone", item.make(Ref(number, 1))) for item in free if CURRENT in item.tokens]
            known = memo_gone[number] = _block(tokens + [(f"{i.name}, gone", i.make(number)) for i in by_job])
        return known

    def offer(queue: Queue) -> list[Block]:
        if beginning is not None and queue.incarnation == 0:
            return beginning
        blocks = [always]
        for creates, meets, block in bounded:
            if _room_for(queue, creates, jobs_max) and not (meets and _is_free(queue, creates[0])):
                blocks.append(block)
        gone = gone_number(queue)
        blocks.append(of_gone(gone))
        blocks += [of_job(slot, job) for slot, job in enumerate(queue.jobs)]
        for item in creating:
            if _room_for(queue, item.creates, jobs_max):
                blocks += [_block(_token_pairs([item], slot, job)) for slot, job in enumerate(queue.jobs)]
        if by_queue:
            current = tuple([Ref(job.job_id, job.generation) for job in queue.jobs])
            made = [(item.name, item.make(current, gone)) for item in by_queue]
            blocks.append(_block([(name, op) for name, op in made if op is not None]))
        return blocks

    return offer


def _block(pairs: list[tuple[str, Op]]) -> Block:
    return [name for name, _ in pairs], [op for _, op in pairs]


def _token_pairs(items: list[ByToken], slot: int, job: Job) -> list[tuple[str, Op]]:
    older = older_generation(job)
    held = job.generation if job.state is LEASED else None
    generations = {CURRENT: job.generation, OLDER: older, NEVER_ISSUED: job.generation + 1, HELD: held}
    pairs: list[tuple[str, Op]] = []
    for item in items:
        for token in item.tokens:
            generation = generations[token]
            if generation is not None:
                pairs.append((f"{item.name}, job {slot + 1}, {token}", item.make(Ref(job.job_id, generation))))
    return pairs
