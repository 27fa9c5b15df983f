"""The audit's rules: a true log passes, and each rule is broken by one changed value and named first."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import Backoff, Event, Job, JobQueue, ManualClock, QueueConfig, State
from telha_jobs.audit import Across, Finding, LineError, Marks, Replayed, job_of, replay
from telha_jobs.view import View
from tests.unit.api.support import A, B, lease

T = 1_700_000_000_000
Story = dict[str, tuple[Job, Marks]]


def tell(queue: JobQueue, clock: ManualClock) -> dict[str, UUID]:
    """A job in every state and with every event in its log; the ids by name."""
    ids = {}

    def leased(name: str, **options: Any) -> Any:
        ids[name] = queue.enqueue(A, "embed", None, max_attempts=3, run_at_ms=T + 5, **options).job_id
        clock.advance(10)
        return lease(queue)

    queue.complete(leased("completed", idempotency_key="k"), 1)
    queue.fail(leased("rejected"), "no", retryable=False)
    queue.fail(leased("failed"), "later")
    queue.cancel(leased("cancelled").job_id)
    held = leased("lively")
    queue.release(held, delay_ms=7)
    clock.advance(7)
    assert lease(queue).job_id == ids["lively"]
    clock.advance(30)
    queue.reap()  # expires this one, promotes the failed one
    clock.advance(10)
    for again in queue.lease_batch("w", 9):
        queue.fail(again, "twice")
    for _ in range(2):
        clock.advance(1_000)
        for again in queue.lease_batch("w", 9):
            queue.fail(again, "again")
    queue.retry(ids["lively"])
    clock.advance(1)
    held = lease(queue)
    assert held.job_id == ids["lively"]
    clock.advance(1)
    ids["pending"] = queue.enqueue(B, "embed", None, delay_ms=100).job_id
    queue.extend("w", [held])
    return ids


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The jobs of the story with their marks."""
    clock = ManualClock(T)
    path = tmp_path_factory.mktemp("story") / "queue"
    with JobQueue.open(path, config=QueueConfig(lease_ttl_ms=30, backoff=Backoff(base_ms=40)), clock=clock) as queue:
        names = {job_id: name for name, job_id in tell(queue, clock).items()}
    with View.open(path) as view:
        return {names[job_id]: found for job_id, found in view.rows() if found is not None}


def test_a_true_log_passes(story: Story) -> None:
    """In every state, over every transition but an elision, with the row's marks and without."""
    jobs = [job for job, _ in story.values()]
    assert {job.state for job in jobs} == {State.PENDING, State.LEASED, State.COMPLETED, State.DEAD}
    told = {event.transition for job in jobs for event in job.events}
    assert told == {
        *("enqueued", "leased", "completed", "failed", "promoted"),
        *("reaped", "released", "retried", "cancelled", "dead"),
    }
    for job, marks in story.values():
        assert isinstance(replay(job), Replayed)
        assert isinstance(replay(job, marks), Replayed)


def edited(job: Job, place: int, *, at_ms: int | None = None, transition: str | None = None, **detail: Any) -> Job:
    """The job with one event changed."""
    events = list(job.events)
    event = events[place]
    events[place] = Event(
        event.at_ms if at_ms is None else at_ms, transition or event.transition, {**event.detail, **detail}
    )
    return replace(job, events=tuple(events))


def place_of(job: Job, transition: str) -> int:
    """Where the last event of a transition stands."""
    return max(place for place, event in enumerate(job.events) if event.transition == transition)


def at(last: str, **changes: Any) -> Callable[[Job], Job]:
    """An edit of the last event of a transition."""
    return lambda job: edited(job, place_of(job, last), **changes)


def says(**changes: Any) -> Callable[[Job], Job]:
    """An edit of the job itself."""
    return lambda job: replace(job, **changes)


EDITS: list[tuple[str, str, Callable[[Job], Job]]] = [
    ("completed", "log", says(events=())),
    ("completed", "move", at("leased", transition="released")),
    ("completed", "move", at("leased", transition="invented")),
    ("completed", "move", lambda job: replace(job, events=job.events[1:])),
    ("completed", "state", says(state=State.DEAD)),
    ("completed", "state", lambda job: replace(job, events=job.events[:-1])),
    ("completed", "time", at("completed", at_ms=T)),
    ("completed", "time", says(created_at_ms=T - 1)),
    ("completed", "early", at("leased", at_ms=T + 4)),
    ("completed", "due", at("enqueued", due=T)),
    ("completed", "due", says(due_ms=T)),
    ("completed", "generation", at("completed", generation=2)),
    ("completed", "generation", says(generation=2)),
    ("completed", "attempts", at("leased", attempt=2)),
    ("completed", "attempts", at("completed", attempts=1)),
    ("completed", "attempts", says(attempts=1)),
    ("completed", "log", at("completed", attempts="0")),
    ("completed", "log", at("enqueued", due=None)),
    ("completed", "end", says(ended_at_ms=T)),
    ("completed", "end", says(dead_reason="expired")),
    ("completed", "lease", says(worker="w")),
    ("completed", "lease", says(deadline_ms=T)),
    ("completed", "id", says(job_id=UUID(int=1))),
    ("rejected", "end", says(dead_reason="expired")),
    ("rejected", "end", at("dead", dead_reason="age")),
    ("rejected", "end", says(result=1)),
    ("rejected", "attempts", at("dead", dead_reason="attempts")),
    ("failed", "attempts", at("dead", attempts=2)),
    ("failed", "attempts", says(max_attempts=2)),
    ("failed", "due", at("failed", due=T)),
    ("failed", "early", lambda job: edited(job, 3, at_ms=T + 50)),
    ("cancelled", "end", says(dead_reason="rejected")),
    ("cancelled", "generation", at("cancelled", generation=0)),
    ("lively", "generation", at("leased", generation=2)),
    ("lively", "due", at("released", due=0)),
    ("lively", "due", at("reaped", due=T + 77)),
    ("lively", "due", at("retried", due=T)),
    ("lively", "attempts", at("reaped", attempts=0)),
    ("lively", "lease", says(worker="another")),
    ("lively", "lease", says(deadline_ms=None)),
    ("lively", "lease", says(deadline_ms=T)),
    ("lively", "end", says(ended_at_ms=T)),
    ("pending", "due", says(due_ms=T)),
    ("pending", "end", says(result=1)),
]


@pytest.mark.parametrize("number", range(len(EDITS)), ids=[f"{n}-{e[0]}-{e[1]}" for n, e in enumerate(EDITS)])
def test_an_edit_breaks_its_rule(story: Story, number: int) -> None:
    """One value of the log or the job is changed, and the rule it breaks is named."""
    name, rule, edit = EDITS[number]
    job = edit(story[name][0])
    found = replay(job)
    assert isinstance(found, Finding)
    assert (found.rule, found.job_id) == (rule, job.job_id), found.sentence


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lively", {"leased_at_ms": T}),
        ("lively", {"lease_end": "reaped"}),
        ("lively", {"purge_at_ms": T}),
        ("completed", {"purge_at_ms": T}),
        ("completed", {"lease_end": "failed"}),
        ("pending", {"leased_at_ms": T}),
    ],
    ids=str,
)
def test_edited_marks_break_their_rule(story: Story, name: str, changes: dict[str, Any]) -> None:
    """What the row says besides the job follows from the log too."""
    job, marks = story[name]
    found = replay(job, marks._replace(**changes))
    assert isinstance(found, Finding)
    assert found.rule == "marks"


def test_an_elision_is_believed_and_what_follows_is_judged(tmp_path: Path) -> None:
    """A log past its cap passes; what the events after the elision tell is held against the job all the same."""
    clock = ManualClock(T)
    with JobQueue.open(tmp_path / "q", config=QueueConfig(max_attempts=2, events_max=12), clock=clock) as queue:
        job_id = queue.enqueue(A, "embed", None).job_id
        for _ in range(12):
            queue.release(lease(queue))
        queue.fail(lease(queue), "x")
        job = queue.get(job_id)
    [place] = [place for place, event in enumerate(job.events) if event.transition == "elided"]
    assert isinstance(replay(job), Replayed)
    for wrong in (
        replace(job, attempts=0),
        replace(job, generation=99),
        replace(job, generation=1),
        edited(job, place, count=1),
        edited(job, place, state="gone"),
        edited(job, place, state="dead"),
    ):
        assert isinstance(replay(wrong), Finding)


# -- jobs against each other


def across(jobs: Iterator[tuple[Job, Marks | None]] | list[tuple[Job, Marks | None]]) -> list[tuple[UUID | None, str]]:
    """What jobs whose own logs are true break together."""
    with Across() as together:
        for job, marks in jobs:
            told = replay(job)
            assert isinstance(told, Replayed)
            together.take(job, told, marks)
        return [(finding.job_id, finding.rule) for finding in together.findings()]


def test_true_jobs_agree(story: Story) -> None:
    """In any order."""
    jobs: list[tuple[Job, Marks | None]] = list(story.values())
    assert across(jobs) == []
    assert across(jobs[::-1]) == []


def moved(job: Job, ms: int) -> Job:
    """The same story, so much later; the id stays."""
    shift: dict[str, Any] = {name: None if (old := getattr(job, name)) is None else old + ms for name in TIMES}
    events = tuple(
        Event(e.at_ms + ms, e.transition, {k: v + ms if k == "due" else v for k, v in e.detail.items()})
        for e in job.events
    )
    return replace(job, events=events, **shift)


TIMES = ("created_at_ms", "due_ms", "deadline_ms", "ended_at_ms", "run_at_ms")


def with_id_above(job: Job, number: int) -> Job:
    """The job under a higher id of a later millisecond."""
    return replace(job, job_id=UUID(int=job.job_id.int + (number << 80)))


def test_an_id_stands_once(story: Story) -> None:
    """A row that is there twice is found."""
    job, _ = story["pending"]
    assert across([(job, None), (job, None)]) == [(job.job_id, "id")]


def test_later_jobs_have_higher_ids(story: Story) -> None:
    """A job with a higher id and an earlier creation is found."""
    job, _ = story["pending"]
    later = with_id_above(moved(job, -1), 1_000)
    assert across([(job, None), (later, None)]) == [(later.job_id, "id")]


def test_a_key_names_one_job_of_its_scope(story: Story) -> None:
    """Two jobs with a key in one scope are found, in two scopes they are right."""
    job, _ = story["completed"]
    other = with_id_above(job, 1)
    assert across([(job, None), (other, None)]) == [(other.job_id, "key")]
    assert across([(job, None), (replace(other, scope=B), None)]) == []


def test_commits_and_times_rise_together(story: Story) -> None:
    """A row that an earlier commit wrote later than a later one did is found; a heartbeat's commit is no event's."""
    job, marks = story["completed"]
    other = replace(with_id_above(moved(job, 5), 5), idempotency_key=None)
    assert across([(job, marks), (other, marks._replace(sequence=marks.sequence + 1, token=b"x"))]) == []
    wrong = across([(job, marks), (other, marks._replace(sequence=marks.sequence - 1, token=b"x"))])
    assert wrong == [(job.job_id, "commit")]
    held, held_marks = story["lively"]
    assert across([(job, marks), (held, held_marks._replace(sequence=9_999))]) == []


def test_a_commit_has_one_token(story: Story) -> None:
    """Two rows of one commit with different tokens are found."""
    job, marks = story["completed"]
    other = replace(with_id_above(job, 1), idempotency_key=None)
    assert across([(job, marks), (other, marks)]) == []
    assert across([(job, marks), (other, marks._replace(token=b"x"))]) == [(other.job_id, "commit")]


def test_later_incarnations_grant_later(story: Story) -> None:
    """A grant of an old incarnation after one of a newer incarnation is found."""
    job, _ = story["completed"]
    risen = replace(with_id_above(job, 1), idempotency_key=None, generation=(3 << 32))
    for place in (1, 2):
        risen = edited(risen, place, generation=3 << 32)
    early = moved(risen, -5)
    late = replace(with_id_above(moved(job, 5), 9), scope=B)
    assert across([(early, None), (late, None)]) == [(late.job_id, "incarnation")]
    later = moved(with_id_above(risen, 5), 5)
    assert across([(later, None), (job, None)]) == []


def test_a_grant_takes_the_first_that_waits(story: Story) -> None:
    """In one scope and kind; of two that came due in the same millisecond as the grant nothing is said."""
    job, _ = story["completed"]
    waiting = Job(**{**vars(story["pending"][0]), "scope": A, "priority": 0})
    urgent = moved(waiting, job.created_at_ms - waiting.created_at_ms)
    urgent = replace(edited(replace(urgent, run_at_ms=None), 0, due=T), due_ms=T)
    assert urgent.created_at_ms == T
    assert across([(job, None), (urgent, None)]) == [(job.job_id, "order")]
    for right in (
        replace(urgent, priority=255),
        replace(urgent, kind="other"),
        replace(urgent, scope=B),
        moved(urgent, job.events[1].at_ms - T),
    ):
        assert across([(job, None), (right, None)]) == []


# -- lines


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "{}", '{"job_id": 1}', "[" * 100_000],
    ids=["empty", "torn", "list", "bare", "number", "deep"],
)
def test_a_line_that_is_no_job_says_so(line: str) -> None:
    """Whatever it is, the error is the reader's own."""
    with pytest.raises(LineError):
        job_of(line)
