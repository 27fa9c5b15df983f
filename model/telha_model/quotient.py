"""When two queues count as the same state of a universe.

A queue's history is endless (time passes, generations and job numbers rise) although its behaviour is not. `Quotient`
forgets what no future reply depends on, up to renaming of times, generations and job numbers:

- instants ahead are relative to now; of those that have passed only the order counts, since nothing asks how long ago.
  Order is asked in two ways only: who is leased first, among the due times of one scope and priority, and what is swept
  first, among deadlines, ends of back-offs and purges; ties go by job id in both
- a generation is known by what its tokens can be: none issued, no lower one, or a lower one in play; whether the next
  one jumps to a new incarnation's range; and whether the newest recorded submit belongs to the current one
- jobs are numbered by their place among the jobs that exist
- created_at, ended_at, worker, headers, result and progress, and the payload of a job without key, are read by no
  transition
- of a recorded reply the state and the `created` flags stay, the job numbers do not
- the event log is write-only; `log_length` keeps its length where a universe is about the cap
- the scope served last is read by reopening only; `reopens` keeps it
- what an ended job was, and whether `run_at` still lies ahead, is read by retry only; `revival` keeps it

What is forgotten is still compared on the real queue after every step of a tour: the quotient only says which states
need no second visit. A test samples that queues of one class answer alike and stay in one class.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from telha_model.policy import latest_deadline_ms
from telha_model.state import Job, Queue, Spec, Submit
from telha_model.states import FAILED, LEASED, State
from telha_model.types import Config

Class = Hashable
NEVER: Final = 1 << 60
SEVERAL_MAX: Final = 1_000_000

Instants = tuple[int, ...]
"""Of one job: the number of its scope and priority, `run_at`, due, then when the sweep cares for it."""

Known = tuple[Class, Instants]
NOTHING: Final[Instants] = (0, 0, NEVER)


class Quotient(NamedTuple):
    """What a universe keeps beyond the common part, because its alphabet can ask for it.

    `tokens`: it offers tokens that are not the current lease, so generations, ends of leases and submits count.
    `revival`: it offers retry, so what an ended job was counts. `returns`: a lease can be given back or expire, so its
    place and deadline count. `log_length`: it is about the cap of the log. `reopens`: it offers reopening.
    `sweeps_in_part`: it offers sweeps with a limit, so the order of what is to be swept counts; a whole sweep does the
    same in any order, since it makes no job ready.
    """

    tokens: bool = True
    revival: bool = True
    returns: bool = True
    log_length: bool = False
    reopens: bool = False
    sweeps_in_part: bool = True


class Classifier:
    """Gives queues their class. A class holds numbers of this classifier: compare only what one classifier gave.

    A search classifies many queues one step away from the same one; `focus` on that one spares the work on what they
    share.
    """

    def __init__(self, config: Config, quotient: Quotient) -> None:
        self._config = config
        self._quotient = quotient
        self._reopens = quotient.reopens
        self._ranked = _ranked if quotient.sweeps_in_part else _ranked_by_due
        self._numbers: dict[Class, int] = {}
        self._specs: dict[int, tuple[Spec, int, int]] = {}
        self._several: dict[tuple[int | Known, ...], int] = {}
        self._focus: tuple[Job, ...] = ()
        self._near: dict[int, Known] = {}

    def focus(self, queue: Queue) -> None:
        """Keep what is known of this queue's jobs at hand; they are held as long as that, so their identities hold."""
        self._focus = queue.jobs
        self._near = {id(job): self._known(job) for job in queue.jobs}

    def __call__(self, queue: Queue) -> Class:
        """The class of a queue."""
        now_ms, incarnation, _, jobs, ring, last_served = queue
        near = self._near
        known = [near.get(id(job)) or self._known(job) for job in jobs]
        key: tuple[int | Known, ...] = (now_ms, *known)
        several = self._several.get(key)
        if several is None:
            if len(self._several) > SEVERAL_MAX:
                self._several.clear()
            parts = tuple([part for part, _ in known])
            several = self._several[key] = self._number((parts, self._ranked(now_ms, [times for _, times in known])))
        if self._reopens:
            floor = incarnation << 32
            jumps = tuple([job.generation + 1 < floor for job in jobs])
            return (several, ring, last_served, incarnation > 0, jumps)
        return (several, ring)

    def _number(self, value: Class) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._numbers)
        return number

    def _known(self, job: Job) -> Known:
        spec = job.spec
        known = self._specs.get(id(spec))
        if known is None or known[0] is not spec:
            group = self._number(("place", spec.scope, spec.priority))
            known = self._specs[id(spec)] = (spec, self._number(_spec_class(spec)), group)
        _, number, group = known
        return _part(self._quotient, job, number), _instants(self._config, self._quotient, job, group)


def _spec_class(spec: Spec) -> Class:
    key = spec.idempotency_key
    work = None if key is None else (key, spec.payload, spec.payload_version)
    return (spec.scope, spec.kind, spec.priority, spec.max_attempts, work)


def _part(quotient: Quotient, job: Job, spec: int) -> Class:
    """What counts of a job besides its instants."""
    tokens, revival, _, log_length, _, _ = quotient
    attempts = job.attempts
    if not revival and job.due_ms is None:
        attempts = 0
        spec = spec if job.spec.idempotency_key is not None else -1
    length = len(job.events) if log_length else 0
    if not tokens:
        return (spec, job.state, attempts, length)
    generation, submit = job.generation, job.submit
    said = None if submit is None else _submit_class(submit, generation)
    return (spec, job.state, attempts, length, generation if generation < 2 else 2, job.lease_end, said)


def _submit_class(submit: Submit, generation: int) -> Class:
    verb, own, arguments = submit.digest
    reply = submit.reply
    if isinstance(reply, State):
        return (verb, own == generation, arguments, reply)
    return (verb, own == generation, arguments, tuple([(receipt.created, receipt.state) for receipt in reply]))


def _instants(config: Config, quotient: Quotient, job: Job, group: int) -> Instants:
    due_ms, run_at_ms = job.due_ms, job.spec.run_at_ms if quotient.revival else None
    again = run_at_ms or 0
    if due_ms is None:
        return (0, again, NEVER, NEVER if job.purge_at_ms is None else job.purge_at_ms)
    if job.state is LEASED and job.deadline_ms is not None and job.leased_at_ms is not None:
        if not quotient.returns:
            return NOTHING
        limit_ms = latest_deadline_ms(config, job.spec.kind, job.leased_at_ms)
        if limit_ms is None:
            return (group, again, due_ms, job.deadline_ms)
        return (group, again, due_ms, job.deadline_ms, limit_ms)
    return (group, again, due_ms, due_ms) if job.state is FAILED else (group, again, due_ms)


def _ranked(now_ms: int, instants: list[Instants]) -> Class:
    """The instants relative to now, those that have passed replaced by their rank, the latest being -1."""
    swept = [
        (at, slot, place) for slot, times in enumerate(instants) for place, at in enumerate(times[3:]) if at < now_ms
    ]
    rows = [[at if at == NEVER else at - now_ms for at in times[2:]] for times in instants]
    for rank, (_, slot, place) in enumerate(sorted(swept, reverse=True)):
        rows[slot][place + 1] = -1 - rank
    return _finished(now_ms, instants, rows)


def _ranked_by_due(now_ms: int, instants: list[Instants]) -> Class:
    """The same where sweeps are whole: what they care for is due now or is not."""
    rows = [
        [
            times[2] if times[2] == NEVER else times[2] - now_ms,
            *[at if at == NEVER else max(at - now_ms, 0) for at in times[3:]],
        ]
        for times in instants
    ]
    return _finished(now_ms, instants, rows)


def _finished(now_ms: int, instants: list[Instants], rows: list[list[int]]) -> Class:
    """The rows with the due times that have passed ranked within their scope and priority, and the waits for retry."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for slot, (group, _, due, *_rest) in enumerate(instants):
        if due < now_ms:
            groups.setdefault(group, []).append((due, slot))
    for places in groups.values():
        for rank, (_, slot) in enumerate(sorted(places, reverse=True)):
            rows[slot][0] = -1 - rank
    waits = [max(times[1] - now_ms, 0) for times in instants]
    return tuple([(wait, *row) for wait, row in zip(waits, rows, strict=True)])
