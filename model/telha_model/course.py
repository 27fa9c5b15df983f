"""The way a queue must have gone, as far as the rows that were found at its end tell it.

Every job's log says what happened to it and when, so all logs together are a timetable: no call may put an event into
a log that is not there, and time may not pass an event that has not happened yet. That is what makes a search through
the orders of many calls short. It proves nothing by itself: an order that is found this way is checked afterwards,
call by call (`telha_model.witness`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from telha_model.ops import Advance, Op, Reap, Reopen
from telha_model.replies import Reply
from telha_model.state import Event, Job, Queue
from telha_model.states import FAILED, LEASED
from telha_model.step import step
from telha_model.types import Config


class Place(NamedTuple):
    """A queue on its way, and how many events of the timetable lie behind it."""

    queue: Queue
    passed: int


class Move(NamedTuple):
    """One way on: the operations, the reply to the last of them (of a look none), and where they lead."""

    ops: tuple[Op, ...]
    reply: Reply | None
    place: Place


class _Due(NamedTuple):
    at_ms: int
    job_id: int
    entry: int


class Course:
    """The way to these rows, and to the scope that was served last.

    `logs`: of jobs that were discarded on the way, as somebody saw them last.
    """

    def __init__(
        self, config: Config, rows: Mapping[int, Job], last_served: int | None, logs: Mapping[int, Sequence[Event]]
    ) -> None:
        self.config = config
        self.rows = rows
        self._last_served = last_served
        self._logs = {number: tuple(log) for number, log in logs.items()}
        self._logs |= {number: row.events for number, row in rows.items()}
        self._table = sorted(
            _Due(event.at_ms, number, entry) for number, log in self._logs.items() for entry, event in enumerate(log)
        )

    def at(self, queue: Queue, passed: int = 0) -> Place:
        """Where a queue stands, when at least so many events lie behind it."""
        table = self._table
        while passed < len(table) and _has(queue, table[passed]):
            passed += 1
        return Place(queue, passed)

    def openings(self, queue: Queue, latest_ms: int) -> Iterator[tuple[tuple[Op, ...], Queue]]:
        """A killed queue opened again, no later than that, once for each moment that makes a difference.

        An open puts the scopes that have ready jobs in an order of its own, so it matters which jobs were due by then.
        """
        moments = {queue.now_ms}
        moments |= {job.due_ms for job in queue.jobs if job.due_ms is not None and job.state is not LEASED}
        for at_ms in sorted(moments):
            if queue.now_ms <= at_ms <= max(latest_ms, queue.now_ms):
                ops = (*_wait(queue, at_ms), Reopen(clean=False))
                yield ops, _taken(self.config, queue, ops)

    def moves(self, place: Place, op: Op, at_ms: int | None) -> Iterator[Move]:
        """The ways in which a call can have come next; at that time, if it is known."""
        queue, now_ms = place.queue, place.queue.now_ms
        next_ms = self._next_ms(place)
        moments = {now_ms if next_ms is None else next_ms, now_ms} if at_ms is None else {at_ms}
        for moment in sorted(moments):
            if self._can_wait(place, moment):
                wait = _wait(queue, moment)
                reply, after = step(self.config, _taken(self.config, queue, wait), op)
                found = self._on_the_way(place, after)
                # A call that changes nothing can as well have come before the time passed.
                if found is not None and (at_ms is not None or moment == now_ms or after.jobs is not queue.jobs):
                    yield Move((*wait, op), reply, found)

    def sweep(self, place: Place) -> Move | None:
        """One piece of a sweep's work, where the timetable has it next."""
        at_ms = self._next_ms(place)
        if at_ms is None:
            return None
        wait, op = _wait(place.queue, at_ms), Reap(1)
        queue = _taken(self.config, place.queue, wait)
        reply, after = step(self.config, queue, op)
        found = None if after is queue else self._on_the_way(place, after)
        return None if found is None else Move((*wait, op), reply, found)

    def differences(self, queue: Queue) -> list[str]:
        """How a queue differs from what was found, one sentence each."""
        jobs = {job.job_id: job._replace(submit=None) for job in queue.jobs}
        served, on_disk = queue.last_served, self._last_served
        other = [] if served == on_disk else [f"the calls end with a grant to scope {served}, on disk it is {on_disk}"]
        return other + [
            f"job {number}: the calls lead to {_short(jobs.get(number))}, the row is {_short(self.rows.get(number))}"
            for number in sorted(jobs.keys() | self.rows.keys())
            if jobs.get(number) != self.rows.get(number)
        ]

    def arrived(self, queue: Queue) -> bool:
        """Whether the queue is what the rows say; the recorded submits, which rows keep as hashes, aside."""
        rows = self.rows
        if queue.last_served != self._last_served or len(queue.jobs) != len(rows):
            return False
        return all(rows.get(job.job_id) == job._replace(submit=None) for job in queue.jobs)

    def missing(self, place: Place) -> str:
        """The next event of the timetable."""
        if place.passed == len(self._table):
            return "nothing: every event has happened"
        due = self._table[place.passed]
        event = self._logs[due.job_id][due.entry]
        return f"{event.transition} of job {due.job_id} at {event.at_ms} {dict(event.detail)}"

    # -- inside

    def _next_ms(self, place: Place) -> int | None:
        return self._table[place.passed].at_ms if place.passed < len(self._table) else None

    def _can_wait(self, place: Place, at_ms: int) -> bool:
        next_ms = self._next_ms(place)
        return at_ms >= place.queue.now_ms and (next_ms is None or at_ms <= next_ms)

    def _on_the_way(self, place: Place, after: Queue) -> Place | None:
        """Where a step has led; None when that is not on the way."""
        before = place.queue.jobs
        if before is after.jobs:
            return place if after is place.queue else Place(after, place.passed)
        if len(after.jobs) < len(before):
            [gone] = [job for job in before if _job(after, job.job_id) is None]
            return self.at(after, place.passed) if self._logs.get(gone.job_id) == gone.events else None
        for index, job in enumerate(after.jobs):
            if index < len(before) and before[index] is job:
                continue
            log, row = self._logs.get(job.job_id, ()), self.rows.get(job.job_id)
            if log[: len(job.events)] != job.events or (row is not None and row.spec != job.spec):
                return None
        return self.at(after, place.passed)


def _wait(queue: Queue, at_ms: int) -> tuple[Op, ...]:
    return () if at_ms == queue.now_ms else (Advance(at_ms - queue.now_ms),)


def _taken(config: Config, queue: Queue, ops: Sequence[Op]) -> Queue:
    for op in ops:
        queue = step(config, queue, op)[1]
    return queue


def _job(queue: Queue, number: int) -> Job | None:
    place = bisect_left(queue.jobs, number, key=lambda job: job.job_id)
    return queue.jobs[place] if place < len(queue.jobs) and queue.jobs[place].job_id == number else None


def _has(queue: Queue, due: _Due) -> bool:
    """Whether the event has happened; to a job that is gone everything has."""
    job = _job(queue, due.job_id)
    return due.job_id < queue.next_job_id if job is None else len(job.events) > due.entry


def _short(job: Job | None) -> str:
    if job is None:
        return "none"
    log = " ".join(str(event.transition) for event in job.events)
    due = job.due_ms if job.state is FAILED else job.deadline_ms
    return f"{job.state} (generation {job.generation}, attempts {job.attempts}, due {due}, log: {log})"
