"""Looks that are confined to some scopes, and ids between two others: what a server and an audit ask of a queue."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from telha_jobs import JobQueue, ManualClock, State
from telha_jobs.engine import reader
from telha_jobs.engine.commands import Draft
from telha_jobs.engine.reader import JobFilter, Source
from telha_jobs.store.port import Family, Put
from tests.unit.api.support import START_MS, A, B, C, tamper

Answer = TypeVar("Answer")

FILTERS: dict[str, tuple[JobFilter, list[int]]] = {
    "none": (JobFilter(None, None, None), [0, 1, 2, 3]),
    "a scope": (JobFilter(None, A.bytes, None), [0, 3]),
    "within two": (JobFilter(None, None, None, frozenset({A.bytes, B.bytes})), [0, 1, 3]),
    "within none": (JobFilter(None, None, None, frozenset()), []),
    "a scope within": (JobFilter(None, A.bytes, None, frozenset({A.bytes, B.bytes})), [0, 3]),
    "a scope without": (JobFilter(None, C.bytes, None, frozenset({A.bytes, B.bytes})), []),
    "a kind within": (JobFilter(None, None, ("other",), frozenset({A.bytes, B.bytes})), [3]),
    "a state within": (JobFilter(State.DEAD, None, None, frozenset({A.bytes, C.bytes})), [2]),
}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    """Four jobs in three scopes, one of them dead, one of another kind."""
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(START_MS)) as opened:
        for number, scope in enumerate((A, B, C, A)):
            made = opened.enqueue(scope, "other" if number == 3 else "embed", number)
            if number == 2:
                opened.cancel(made.job_id)
        yield opened


def asked(queue: JobQueue, question: Callable[[Source], Answer]) -> Answer:
    """What a source answers."""
    return queue.engine.read(lambda shared: question(shared.source()))


@pytest.mark.parametrize("name", FILTERS)
def test_a_listing_is_of_what_is_wanted(queue: JobQueue, name: str) -> None:
    """Every filter by itself and beside the scopes that there are for who asks."""
    wanted, expected = FILTERS[name]
    found = asked(queue, lambda source: reader.look(source, wanted, b"", 10))
    assert [job.payload for job in found.jobs] == expected


@pytest.mark.parametrize("name", [name for name in FILTERS if name not in ("a state within", "a scope without")])
def test_counts_are_of_what_is_wanted(queue: JobQueue, name: str) -> None:
    """All five states, also those that nobody is in. Scopes are checked by who asks for one."""
    wanted, expected = FILTERS[name]
    found = asked(queue, lambda source: reader.counts(source, wanted))
    dead = sum(number == 2 for number in expected)
    assert found == {**dict.fromkeys(State, 0), State.PENDING: len(expected) - dead, State.DEAD: dead}


def test_ids_between_two_are_both_of_them_and_those_between(queue: JobQueue) -> None:
    """In their order, at most as many as are asked for."""
    ids = [job.job_id.bytes for job in queue.list_jobs().jobs]
    assert asked(queue, lambda source: reader.ids_between(source, ids[1], ids[2], 9)) == ids[1:3]
    assert asked(queue, lambda source: reader.ids_between(source, ids[0], ids[3], 2)) == ids[:2]


def test_rows_are_all_jobs(queue: JobQueue) -> None:
    """In id order, each with its record."""
    found = asked(queue, lambda source: list(reader.rows(source)))
    assert [job_id for job_id, _ in found] == [job.job_id.bytes for job in queue.list_jobs().jobs]
    expected = list(enumerate((A.bytes, B.bytes, C.bytes, A.bytes)))
    assert [pair and (pair[0].payload, pair[1].scope) for _, pair in found] == expected


def test_a_job_that_is_not_there_has_no_row(queue: JobQueue) -> None:
    """Nor has an id of another length."""
    assert asked(queue, lambda source: reader.row(source, UUID(int=1).bytes)) is None
    assert asked(queue, lambda source: reader.row(source, b"short")) is None


def test_a_job_that_cannot_be_read_has_no_row(queue: JobQueue, tmp_path: Path) -> None:
    """It has an id, and nothing else that could be told."""
    [(key, value), *_] = queue._store.scan(Family.JOBS, A.bytes, None, 1)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, value[:-1]))
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(START_MS)) as again:
        found = asked(again, lambda source: list(reader.rows(source)))
    assert [pair is None for job_id, pair in found if job_id == key[-16:]] == [True]
    assert len(found) == 4


def test_a_page_is_no_longer_than_asked_for(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it takes several looks, the first of which finds part of it."""
    monkeypatch.setattr(reader, "LISTED_PER_LOOK", 3)
    for number in (4, 5):
        queue.enqueue(A, "embed", number)
    first = queue.list_jobs(scope=A, limit=2)
    assert [job.payload for job in first.jobs] == [0, 3]
    assert [job.payload for job in queue.list_jobs(scope=A, limit=2, after=first.after).jobs] == [4, 5]


def test_all_of_a_draft_is_what_was_given() -> None:
    """Each argument once, and the payload as it was given instead of encoded."""
    draft = Draft(b"scope", "kind", b"packed", "given", 3, 4, 5, 6, "key", {"a": "b"}, 7)
    assert draft.as_given() == (b"scope", "kind", "given", 3, 4, 5, 6, "key", {"a": "b"}, 7)
