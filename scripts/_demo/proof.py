"""The proof: what the rows say, held against the directory as it is and the kills as they were.

Each claim is a function from the evidence to problems, one sentence each; a claim without problems holds. None of them
trusts what the queue's process said about itself.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts._demo import history
from scripts._demo.documents import Areas, Document, UnreadableDocumentError, text_of
from scripts._demo.embedding import embed
from scripts._demo.lives import Kill
from scripts._demo.settings import CONFIG, KILLS
from telha_jobs import CheckReport, Job, JobQueue, State

_PAGE: Final = 1_000
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the parent itself finds in a document: its text, or why it cannot be read."""

    document: Document
    text: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything the claims look at."""

    jobs: tuple[Job, ...]
    counts: Mapping[State, int]
    check: CheckReport
    readings: tuple[Reading, ...]
    kills: tuple[Kill, ...]

    @property
    def met(self) -> list[int]:
        """How many leases each kill met in the hands of the process it killed."""
        held = [history.held_at(self.jobs, number, kill.reopened_ms) for number, kill in enumerate(self.kills)]
        return [sum(grant.incarnation == number for grant in left) for number, left in enumerate(held)]

    @property
    def ingests(self) -> list[Job]:
        return [job for job in self.jobs if job.kind.startswith("ingest:")]

    @property
    def embeds(self) -> list[Job]:
        return [job for job in self.jobs if job.kind == "embed"]

    @property
    def readable(self) -> list[Reading]:
        return [reading for reading in self.readings if reading.reason is None]

    @property
    def unreadable(self) -> list[Reading]:
        return [reading for reading in self.readings if reading.reason is not None]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A promise, what was looked at, and what contradicts it."""

    promise: str
    seen: str
    problems: tuple[str, ...]


def read_again(areas: Areas, documents: Sequence[Document]) -> tuple[Reading, ...]:
    """Read every document once more, without any queue."""
    readings: list[Reading] = []
    for document in documents:
        try:
            text = text_of(document, areas.locate(document.area, document.path))
            readings.append(Reading(document=document, text=text, reason=None))
        except UnreadableDocumentError as error:
            readings.append(Reading(document=document, text=None, reason=str(error)))
    return tuple(readings)


def gather(queue: JobQueue, readings: tuple[Reading, ...], kills: tuple[Kill, ...]) -> Evidence:
    """All rows of the queue, page by page, and its own check."""
    jobs: list[Job] = []
    after: str | None = None
    while True:
        page = queue.list_jobs(limit=_PAGE, after=after)
        jobs += page.jobs
        after = page.after
        if after is None:
            break
    return Evidence(jobs=tuple(jobs), counts=queue.counts(), check=queue.check(), readings=readings, kills=kills)


def _identity(payload: Mapping[str, Any]) -> tuple[str, str, str]:
    return payload["area"], payload["path"], payload["sha256"]


def _of(document: Document) -> tuple[str, str, str]:
    return document.area, document.path, document.sha256


def _nothing_lost(evidence: Evidence) -> Iterator[str]:
    jobs = Counter(_identity(job.payload) for job in evidence.ingests)
    there = {_of(reading.document): reading.document for reading in evidence.readings}
    for identity, document in there.items():
        if jobs[identity] != 1:
            yield f"{document.path} has {jobs[identity]} jobs instead of one"
    yield from (f"a job reads {path}, which the walk did not find" for area, path, _ in jobs.keys() - there.keys())
    for job in evidence.jobs:
        if job.state not in (State.COMPLETED, State.DEAD):
            yield f"{job.job_id} ({job.kind}) is still {job.state.value}"


def _completed_once(evidence: Evidence) -> Iterator[str]:
    jobs = {_identity(job.payload): job for job in evidence.ingests}
    for reading in evidence.readable:
        job = jobs.get(_of(reading.document))
        if job is None:
            continue  # said by the claim before
        times = sum(event.transition == "completed" for event in job.events)
        if job.state is not State.COMPLETED or times != 1:
            yield f"{reading.document.path} is {job.state.value} and was completed {times} times"
        elif job.result != {"characters": len(reading.text or "")}:
            yield f"{reading.document.path} has the result {job.result!r}, not {len(reading.text or '')} characters"


def _one_follow_up(evidence: Evidence) -> Iterator[str]:
    parents = {_identity(job.payload): job for job in evidence.ingests}
    embeds: defaultdict[tuple[str, str, str], list[Job]] = defaultdict(list)
    for job in evidence.embeds:
        embeds[_identity(job.payload["document"])].append(job)
    for reading in evidence.readings:
        path, found = reading.document.path, embeds.pop(_of(reading.document), [])
        if len(found) != (reading.text is not None):
            yield f"{path} has {len(found)} embed jobs instead of {int(reading.text is not None)}"
            continue
        if reading.text is None:
            continue
        [job] = found
        times = sum(event.transition == "completed" for event in job.events)
        if job.state is not State.COMPLETED or times != 1:
            yield f"the embedding of {path} is {job.state.value} and was completed {times} times"
        elif job.result != {"vector": embed(reading.text)}:
            yield f"the embedding of {path} is not the one its text gives"
        parent = parents.get(_of(reading.document))
        if parent is not None and job.created_at_ms != parent.ended_at_ms:
            yield f"the embed job of {path} was not made when its document was completed"
    yield from (f"{len(found)} embed jobs belong to no document: {key[1]}" for key, found in embeds.items())


def _poison_is_dead(evidence: Evidence) -> Iterator[str]:
    jobs = {_identity(job.payload): job for job in evidence.ingests}
    limit = CONFIG.max_attempts
    for reading in evidence.unreadable:
        path, job = reading.document.path, jobs.get(_of(reading.document))
        if job is None:
            continue
        tries = history.grants(job)
        ends = [grant.end for grant in tries if grant.end is not None]
        if job.state is not State.DEAD or not job.attempts == len(tries) == len(ends) == limit:
            yield f"{path} is {job.state.value} after {job.attempts} attempts; its log tells {len(ends)} of {limit}"
            continue
        reasons = {end.detail["reason"] for grant in tries if (end := grant.end) and not grant.expired}
        if reasons - {reading.reason}:
            yield f"{path} failed with {sorted(reasons)}, not with {reading.reason!r}"
        waits = [end.detail["due"] - end.at_ms for end in ends[:-1]]
        if waits != sorted(set(waits)):
            yield f"the back-off of {path} does not grow: {waits}"
    if sum(reading.document.area == "inbox" for reading in evidence.unreadable) != 3:
        yield "the three documents that the demo spoiled are not all unreadable"


def _granted_once(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs:
        generations = [grant.generation for grant in history.grants(job)]
        if generations != sorted(set(generations)):
            yield f"{job.job_id} was granted the generations {generations}"
        elif generations and generations[-1] != job.generation:
            yield f"{job.job_id} is at generation {job.generation}, its log ends at {generations[-1]}"


def _killed_leases_came_back(evidence: Evidence) -> Iterator[str]:
    if len(evidence.kills) != KILLS:
        yield f"the process was killed {len(evidence.kills)} times instead of {KILLS}: the work ended too early"
    for number, kill in enumerate(evidence.kills):
        left = history.held_at(evidence.jobs, number, kill.reopened_ms)
        # A kill soon after another one finds what that one left, too: not expired yet.
        met = [grant for grant in left if grant.incarnation == number]
        if not met:
            yield f"kill {number + 1} met no lease"
        if len(left) != kill.found:
            yield f"after kill {number + 1} there were {kill.found} leases, but {len(left)} are in the logs"
        for grant in met:
            if not grant.expired:
                ended = "is held" if grant.end is None else f"ended as {grant.end.transition}"
                yield f"{grant.job.job_id} was in the killed process's hands, and its lease {ended}"


def _one_incarnation_a_life(evidence: Evidence) -> Iterator[str]:
    lives = {grant.incarnation for job in evidence.jobs for grant in history.grants(job)}
    if lives != set(range(len(evidence.kills) + 1)):
        yield f"leases were granted in the incarnations {sorted(lives)} after {len(evidence.kills)} kills"


def _logs_are_true(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs:
        try:
            end = history.end_of(job)
        except ValueError as error:
            yield f"the log of {job.job_id} cannot be: {error}"
            continue
        if end is not job.state:
            yield f"{job.job_id} is {job.state.value}, its log ends in {end.value}"


def _database_agrees(evidence: Evidence) -> Iterator[str]:
    yield from evidence.check.problems
    yield from (f"{job_id} is in quarantine" for job_id in evidence.check.quarantined)
    if evidence.check.rows != len(evidence.jobs):
        yield f"check() saw {evidence.check.rows} rows, list_jobs() {len(evidence.jobs)}"
    listed = Counter(job.state for job in evidence.jobs)
    for state in State:
        if evidence.counts[state] != listed[state]:
            yield f"counts() says {evidence.counts[state]} {state.value}, there are {listed[state]}"


def claims(evidence: Evidence) -> list[Claim]:
    """Every claim, judged."""
    found = evidence
    leases = sum(len(history.grants(job)) for job in found.jobs)
    met = sum(found.met)
    judged: list[tuple[str, str, Callable[[Evidence], Iterator[str]]]] = [
        ("nothing lost: one job for each document", f"{len(found.readings):,} documents", _nothing_lost),
        ("every readable document completed once", f"{len(found.readable):,} documents", _completed_once),
        ("one embedding each, enqueued with the completion", f"{len(found.embeds):,} vectors", _one_follow_up),
        ("unreadable documents are dead, every attempt told", f"{len(found.unreadable)} documents", _poison_is_dead),
        ("no generation granted twice", f"{leases:,} leases", _granted_once),
        ("what the kills interrupted expired and came back", f"{met} leases", _killed_leases_came_back),
        ("a new incarnation after each kill", f"{len(found.kills)} kills", _one_incarnation_a_life),
        ("each log leads to its job's state", f"{sum(len(job.events) for job in found.jobs):,} events", _logs_are_true),
        ("check() and counts() agree with the rows", f"{found.check.rows:,} rows", _database_agrees),
    ]
    return [Claim(promise=promise, seen=seen, problems=tuple(claim(found))) for promise, seen, claim in judged]


def shortened(problems: Sequence[str]) -> list[str]:
    """The first problems, and how many more there are."""
    rest = len(problems) - _SHOWN
    return [*problems[:_SHOWN], *([f"... and {rest:,} more"] if rest > 0 else [])]
