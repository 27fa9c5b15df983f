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

from telha_model.policy import max_lease_age_ms
from telha_model.state import Job, Queue, Spec, Submit
from telha_model.states import FAILED, LEASED, State
from telha_model.types import Config, add_ms, make

Class = Hashable
NEVER: Final = 1 << 60
ENDED: Final = -1
"""Stands for the spec of an ended job that nothing asks for any more."""
NUMBERS_MAX: Final = 200_000

Instants = tuple[int, int, int, int, int]
"""Of one job: the number of its scope and priority, `run_at`, due, then when the sweep cares for it and the latest
that its deadline can be.
"""


class _SpecKnown(NamedTuple):
    """The number of what counts of a spec, as long as its job lives and then; of its scope and priority; `run_at` if
    that counts; the greatest age of a lease. It holds the spec, so that the identity stays what it is.
    """

    spec: Spec
    number: int
    number_ended: int
    group: int
    again: int
    age_ms: int | None


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

    Whatever is compared is numbered once, so that the class of a queue is found by a few small integers: the number of
    each of its jobs, which does not depend on the time, and now. A search classifies many queues one step away from the
    same one; `focus` on that one spares the numbering of what they share.
    """

    def __init__(self, config: Config, quotient: Quotient) -> None:
        self._config = config
        self._tokens, self._revival, self._returns, self._log_length, self._reopens, self._in_part = quotient
        self._numbers: dict[Class, int] = {}
        self._specs: dict[int, _SpecKnown] = {}
        self._jobs: dict[tuple[Class, Instants], int] = {}
        self._rows: list[tuple[int, Instants]] = []
        self._several: dict[tuple[int, ...], int] = {}
        self._near: dict[int, int] = {}
        self._held: list[Job] = []

    def focus(self, queue: Queue) -> None:
        """Remember this queue's jobs by identity; they are held from now on, so that no other gets one of theirs."""
        near = self._near
        for job in queue.jobs:
            if id(job) not in near:
                near[id(job)] = self._job(job)
                self._held.append(job)

    def __call__(self, queue: Queue) -> Class:
        """The class of a queue."""
        now_ms, incarnation, _, jobs, ring, last_served = queue
        near = self._near
        seen = [now_ms]
        for job in jobs:
            number = near.get(id(job))
            seen.append(self._job(job) if number is None else number)
        key = tuple(seen)
        several = self._several.get(key)
        if several is None:
            if len(self._several) > NUMBERS_MAX:
                self._forget()
                return self(queue)
            several = self._several[key] = self._number(self._ranked(now_ms, seen[1:]))
        if self._reopens:
            floor = incarnation << 32
            jumps = tuple([job.generation + 1 < floor for job in jobs])
            return (several, ring, last_served, incarnation > 0, jumps)
        return (several, ring)

    def _forget(self) -> None:
        """Let go of what only saves work; the numbers that classes are made of stay."""
        self._several.clear()
        self._jobs.clear()
        self._rows.clear()
        self._near.clear()
        self._held.clear()

    def _number(self, value: Class) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _spec(self, spec: Spec) -> _SpecKnown:
        """What counts of a job whatever becomes of it."""
        number = self._number(_spec_class(spec))
        known = self._specs[id(spec)] = make(
            _SpecKnown,
            (
                spec,
                number,
                number if self._revival or spec.idempotency_key is not None else ENDED,
                self._number(("place", spec.scope, spec.priority)),
                (spec.run_at_ms or 0) if self._revival else 0,
                max_lease_age_ms(self._config, spec.kind),
            ),
        )
        return known

    def _job(self, job: Job) -> int:
        """The number of what counts of a job."""
        spec, state, due_ms, attempts = job.spec, job.state, job.due_ms, job.attempts
        known = self._specs.get(id(spec))
        if known is None or known.spec is not spec:
            known = self._spec(spec)
        _, number, number_ended, group, again, age_ms = known
        sweep_ms = limit_ms = NEVER
        if due_ms is None:
            group, due_ms, number = 0, NEVER, number_ended
            if job.purge_at_ms is not None:
                sweep_ms = job.purge_at_ms
            if not self._revival:
                attempts = 0
        elif state is FAILED:
            sweep_ms = due_ms
        elif state is LEASED and not self._returns:
            group, again, due_ms = 0, 0, NEVER
        elif state is LEASED and job.deadline_ms is not None and job.leased_at_ms is not None:
            sweep_ms = job.deadline_ms
            if age_ms is not None:
                limit_ms = add_ms(job.leased_at_ms, age_ms)
        part: tuple[Class, ...] = (number, state, attempts, len(job.events) if self._log_length else 0)
        if self._tokens:
            generation, submit = job.generation, job.submit
            said = None if submit is None else _submit_class(submit, generation)
            part = (*part, generation if generation < 2 else 2, job.lease_end, said)
        key = (part, (group, again, due_ms, sweep_ms, limit_ms))
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = len(self._rows)
            self._rows.append((self._number(part), key[1]))
        return found

    def _ranked(self, now_ms: int, numbers: list[int]) -> Class:
        """The jobs with their instants relative to now, those that have passed replaced by their rank.

        The latest has rank -1. Due times are ranked within their scope and priority; what is swept is ranked together,
        or not at all where sweeps are whole: then it is due now or is not.
        """
        row: list[int] = []
        late: list[tuple[int, int, int]] = []
        swept: list[tuple[int, int, int]] = []
        for number in numbers:
            part, (group, again, due, sweep, limit) = self._rows[number]
            if due < now_ms:
                late.append((due, len(row), group))
            if sweep < now_ms:
                swept.append((sweep, len(row), 3))
            if limit < now_ms:
                swept.append((limit, len(row), 4))
            row += (
                part,
                again - now_ms if again > now_ms else 0,
                due if due == NEVER else due - now_ms,
                sweep if sweep == NEVER else max(sweep - now_ms, 0),
                limit if limit == NEVER else max(limit - now_ms, 0),
            )
        if late:
            ranks: dict[int, int] = {}
            for _, at, group in sorted(late, reverse=True):
                row[at + 2] = ranks[group] = ranks.get(group, 0) - 1
        if swept and self._in_part:
            for rank, (_, at, place) in enumerate(sorted(swept, reverse=True)):
                row[at + place] = -1 - rank
        return tuple(row)


def _spec_class(spec: Spec) -> Class:
    key = spec.idempotency_key
    work = None if key is None else (key, spec.payload, spec.payload_version)
    return (spec.scope, spec.kind, spec.priority, spec.max_attempts, work)


def _submit_class(submit: Submit, generation: int) -> Class:
    verb, own, arguments = submit.digest
    reply = submit.reply
    if isinstance(reply, State):
        return (verb, own == generation, arguments, reply)
    return (verb, own == generation, arguments, tuple([(receipt.created, receipt.state) for receipt in reply]))
