"""One job: its log taken through the transition table, and the job held against what the log tells.

The first rule that is broken ends the replay. An `elided` entry tells a state and nothing else; what is unknown after
it is learnt again from the events that follow, and only what is known is judged.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn
from uuid import UUID

from telha_jobs.core import record as log
from telha_jobs.core.log import MOVES
from telha_jobs.core.record import ENDED, STATE_AFTER, TRANSITION_NAMES, WAITING
from telha_jobs.rules import TIME_MAX_MS, is_int, later
from telha_jobs.types import Event, Job, State

Rule = Literal[
    "log", "move", "state", "time", "early", "generation", "attempts", "due", "lease", "end", "marks",
    "id", "key", "commit", "incarnation", "order", "line",
]  # fmt: skip
"""What can be broken; docs/operations.md says what each rule asks."""

_CODES = {name: code for code, name in enumerate(TRANSITION_NAMES)}
_REASONS = ("attempts", "expired", "rejected")
_ID_VERSION = 7
_UNKNOWN = "unknown"


class Marks(NamedTuple):
    """What a row says besides the fields of `Job`: the commit that wrote it, and times that no operator needs."""

    sequence: int
    token: bytes
    leased_at_ms: int | None
    purge_at_ms: int | None
    lease_end: str | None


class Finding(NamedTuple):
    """The first rule that a job breaks. `job_id` None: it is not even known which job."""

    job_id: UUID | None
    rule: Rule
    sentence: str


class Wait(NamedTuple):
    """A time in which the job could have been leased; `end_ms` None: it still can. Ready from `start_ms` on."""

    start_ms: int
    end_ms: int | None
    due_ms: int
    granted: bool


class Replayed(NamedTuple):
    """What a true log tells for comparisons with other jobs: waits as far as known, grants as (at, generation), and
    when the newest event was.
    """

    waits: list[Wait]
    grants: list[tuple[int, int]]
    last_ms: int


class _Broken(Exception):  # noqa: N818  it carries a verdict on the data; nothing went wrong in here
    def __init__(self, rule: Rule, sentence: str) -> None:
        self.rule: Rule = rule
        self.sentence = sentence
        super().__init__(sentence)


def _broken(rule: Rule, sentence: str) -> NoReturn:
    raise _Broken(rule, sentence)


class _Told:
    """What the log has told so far; None: not known (after an elision), or does not apply."""

    __slots__ = (
        "at", "attempts", "dead_reason", "due", "exact", "generation", "grants", "job", "lease_end", "leased_at",
        "state", "waiting_since", "waits", "worker",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        self.job = job
        self.state: State | None = None
        self.at = job.created_at_ms
        self.attempts: int | None = 0
        self.generation = 0
        self.exact = True
        """Whether `generation` is the job's, and not just a lower bound."""
        self.due: int | None = None
        self.worker: object = None
        self.leased_at: int | None = None
        self.lease_end: str | None = None
        self.dead_reason: object = None
        self.waiting_since: int | None = None
        self.waits: list[Wait] = []
        self.grants: list[tuple[int, int]] = []

    def take(self, event: Event) -> None:
        """One event: is it a move of the table, at a time that can be, telling what must be told?"""
        code = _CODES.get(event.transition)
        if code is None:
            _broken("move", f"there is no transition {event.transition!r}")
        if not is_int(event.at_ms) or event.at_ms < self.at:
            _broken("time", f"it is at {event.at_ms}, after {self.at}")
        before, after = self.state, STATE_AFTER.get(code)
        if code != log.ELIDED and before not in MOVES[code]:
            _broken("move", f"no such move from {'nothing' if before is None else before.value}")
        self.at = event.at_ms
        _TAKERS[code](self, event.detail)
        if after is not None:
            self.state = after
        self._wait(before, code)

    def _wait(self, before: State | None, code: int) -> None:
        """Keep the times in which the job was ready, for comparison with the grants of others."""
        if before in WAITING and self.state not in WAITING and code != log.ELIDED:
            if self.waiting_since is not None and self.due is not None:
                granted = self.state is State.LEASED
                self.waits.append(Wait(max(self.waiting_since, self.due), self.at, self.due, granted))
            self.waiting_since = None
        elif code == log.ELIDED:
            self.waiting_since = None
        elif self.state in WAITING and code != log.PROMOTED:
            self.waiting_since = self.at

    # -- what the events tell

    def number(self, detail: Mapping[str, Any], name: str) -> int:
        """A number that the event must tell."""
        value = detail.get(name)
        if not is_int(value):
            _broken("log", f"its {name} is {value!r}, no number")
        return value

    def count(self, detail: Mapping[str, Any], *, one_more: bool) -> int:
        """The attempts that the event tells, which follow from those before."""
        attempts = self.number(detail, "attempts")
        if self.attempts is not None and attempts != self.attempts + one_more:
            _broken("attempts", f"it counts {attempts} attempts, {self.attempts + one_more} were made")
        self.attempts = attempts
        return attempts

    def end_lease(self, detail: Mapping[str, Any], end: str) -> None:
        """The event tells the generation whose lease it ends."""
        self.same_generation(detail)
        self.worker = self.leased_at = None
        self.lease_end = end

    def same_generation(self, detail: Mapping[str, Any]) -> None:
        """The event tells the newest generation."""
        generation = self.number(detail, "generation")
        if generation != self.generation if self.exact else generation < self.generation:
            _broken("generation", f"it is of generation {generation}, the newest lease has {self.generation}")
        self.generation, self.exact = generation, True

    def wait_until(self, detail: Mapping[str, Any], *, not_before: int) -> None:
        """The event tells a due time, not before the given one."""
        due = self.number(detail, "due")
        if not not_before <= due <= TIME_MAX_MS:
            _broken("due", f"it is due at {due}, it cannot be before {not_before}")
        self.due = due

    def must_go_on(self, attempts: int) -> None:
        """A job with a number of its own dies with its last attempt."""
        most = self.job.max_attempts
        if most is not None and attempts >= most:
            _broken("attempts", f"attempt {attempts} of at most {most} failed, and the job is not dead")


def _enqueued(told: _Told, detail: Mapping[str, Any]) -> None:
    job = told.job
    if told.at != job.created_at_ms:
        _broken("time", f"it is at {told.at}, the job says {job.created_at_ms}")
    told.wait_until(detail, not_before=0)
    wanted = max(told.at, job.run_at_ms or 0)
    if told.due != wanted:
        _broken("due", f"it is due at {told.due}, it should be at {wanted}")


def _leased(told: _Told, detail: Mapping[str, Any]) -> None:
    if told.due is not None and told.at < told.due:
        _broken("early", f"leased at {told.at}, and not due before {told.due}")
    generation = told.number(detail, "generation")
    if generation <= told.generation:
        _broken("generation", f"generation {generation} follows {told.generation}")
    attempt = told.number(detail, "attempt")
    if told.attempts is not None and attempt != told.attempts + 1:
        _broken("attempts", f"it is attempt {attempt}, {told.attempts} were made")
    told.attempts, told.generation, told.exact = attempt - 1, generation, True
    told.worker, told.leased_at, told.lease_end = detail.get("worker"), told.at, None
    told.grants.append((told.at, generation))


def _completed(told: _Told, detail: Mapping[str, Any]) -> None:
    told.count(detail, one_more=False)
    told.end_lease(detail, "completed")


def _failed(told: _Told, detail: Mapping[str, Any]) -> None:
    told.must_go_on(told.count(detail, one_more=True))
    told.end_lease(detail, "failed")
    told.wait_until(detail, not_before=later(told.at, 1))


def _reaped(told: _Told, detail: Mapping[str, Any]) -> None:
    told.must_go_on(told.count(detail, one_more=True))
    told.end_lease(detail, "reaped")
    told.wait_until(detail, not_before=later(told.at, 1))


def _promoted(told: _Told, detail: Mapping[str, Any]) -> None:
    del detail
    if told.due is not None and told.at < told.due:
        _broken("early", f"promoted at {told.at}, and its back-off ends at {told.due}")


def _released(told: _Told, detail: Mapping[str, Any]) -> None:
    told.count(detail, one_more=False)
    told.end_lease(detail, "released")
    told.wait_until(detail, not_before=told.due or 0)


def _retried(told: _Told, detail: Mapping[str, Any]) -> None:
    told.attempts, told.dead_reason = 0, None
    told.wait_until(detail, not_before=told.at)
    wanted = max(told.at, told.job.run_at_ms or 0)
    if told.due != wanted:
        _broken("due", f"it is due at {told.due}, it should be at {wanted}")


def _cancelled(told: _Told, detail: Mapping[str, Any]) -> None:
    told.count(detail, one_more=False)
    if told.state is State.LEASED:
        told.end_lease(detail, "cancelled")
    else:
        told.same_generation(detail)
    told.dead_reason = "cancelled"


def _dead(told: _Told, detail: Mapping[str, Any]) -> None:
    attempts, most = told.count(detail, one_more=True), told.job.max_attempts
    reason = detail.get("dead_reason")
    if reason not in _REASONS:
        _broken("end", f"no lease ends in death by {reason!r}")
    if reason != "rejected" and most is not None and attempts < most:
        _broken("attempts", f"dead by {reason} with attempt {attempts} of {most}")
    told.end_lease(detail, "reaped" if reason == "expired" else "failed")
    told.dead_reason = reason


def _elided(told: _Told, detail: Mapping[str, Any]) -> None:
    if told.number(detail, "count") < 2:
        _broken("log", "an elision stands for two events or more")
    try:
        told.state = State(detail.get("state"))
    except ValueError:
        _broken("log", f"an elision ends in a state, not in {detail.get('state')!r}")
    told.attempts, told.due, told.exact = None, None, False
    told.worker = told.leased_at = told.dead_reason = None
    told.lease_end = _UNKNOWN


_TAKERS: dict[int, Callable[[_Told, Mapping[str, Any]], None]] = {
    log.ENQUEUED: _enqueued,
    log.LEASED: _leased,
    log.COMPLETED: _completed,
    log.FAILED: _failed,
    log.PROMOTED: _promoted,
    log.REAPED: _reaped,
    log.RELEASED: _released,
    log.RETRIED: _retried,
    log.CANCELLED: _cancelled,
    log.DEAD: _dead,
    log.ELIDED: _elided,
}


def replay(job: Job, marks: Marks | None = None) -> Replayed | Finding:
    """Take the job's log through the table and hold the job against it: what the log tells, or the first finding."""
    told = _Told(job)
    place = 0
    try:
        for event in job.events:
            place += 1
            told.take(event)
        place = 0
        _compare(told, job)
        if marks is not None:
            _compare_marks(told, job, marks)
    except _Broken as broken:
        where = f"event {place} ({job.events[place - 1].transition}): " if place else ""
        return Finding(job.job_id, broken.rule, where + broken.sentence)
    if told.waiting_since is not None and told.due is not None:
        told.waits.append(Wait(max(told.waiting_since, told.due), None, told.due, granted=False))
    return Replayed(told.waits, told.grants, told.at)


def _same(rule: Rule, name: str, told: object, found: object) -> None:
    if told != found:
        _broken(rule, f"the log tells {name} {told}, the job says {found}")


def _compare(told: _Told, job: Job) -> None:
    """What the job says, against what its log told."""
    if told.state is None:
        _broken("log", "the log is empty")
    _same("state", "state", told.state.value, job.state.value)
    if told.attempts is not None:
        _same("attempts", "attempts", told.attempts, job.attempts)
    if told.exact or job.generation < told.generation:
        _same("generation", "generation", told.generation, job.generation)
    if job.job_id.version != _ID_VERSION or job.job_id.int >> 80 < min(job.created_at_ms, TIME_MAX_MS):
        _broken("id", f"the id was made before the job, which says {job.created_at_ms}")
    elided = job.events[-1].transition == "elided"
    leased, ended = job.state is State.LEASED, job.state in ENDED
    if told.due is not None or ended:
        _same("due", "due", None if ended else told.due, job.due_ms)
    if leased and not elided:
        _same("lease", "worker", told.worker, job.worker)
        if job.deadline_ms is None or not later(told.at, 1) <= job.deadline_ms <= TIME_MAX_MS:
            _broken("lease", f"leased at {told.at}, and its deadline is {job.deadline_ms}")
    elif not leased:
        _same("lease", "worker", None, job.worker)
        _same("lease", "deadline", None, job.deadline_ms)
    _same("end", "end", told.at if ended else None, job.ended_at_ms)
    if not elided or job.state is not State.DEAD:
        _same("end", "dead_reason", told.dead_reason if job.state is State.DEAD else None, job.dead_reason)
    if job.result is not None and job.state is not State.COMPLETED:
        _broken("end", f"the job has a result, and is {job.state.value}")


def _compare_marks(told: _Told, job: Job, marks: Marks) -> None:
    """What the row says besides."""
    if job.events[-1].transition == "elided":
        return
    leased, ended = job.state is State.LEASED, job.state in ENDED
    _same("marks", "leased_at", told.leased_at if leased else None, marks.leased_at_ms)
    if told.lease_end != _UNKNOWN:
        _same("marks", "lease_end", told.lease_end, marks.lease_end)
    if marks.purge_at_ms is not None and not (ended and told.at <= marks.purge_at_ms):
        _broken(
            "marks", f"it is to be purged at {marks.purge_at_ms}, and {f'ended at {told.at}' if ended else 'lives'}"
        )
