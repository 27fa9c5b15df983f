"""The read-only view: it tells what the queue tells, changes nothing, and knows of an owner."""

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import State
from telha_jobs.errors import InvalidArgumentError, JobNotFoundError, JobUnreadableError, QueueUnavailableError
from telha_jobs.queue import JobQueue
from telha_jobs.store import database, opening
from telha_jobs.view import View
from tests.unit.cli.desk import OTHER_SCOPE, SCOPE, START_MS, Desk, held_elsewhere


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A queue with five jobs of two scopes and three kinds, in three states."""
    desk = Desk(tmp_path / "queue")
    desk.add("ingest:pdf", "embed", payload="x" * 1_000)
    desk.add("ingest:html", scope=OTHER_SCOPE)
    desk.bury("rejected", "cancelled", kind="index")
    return desk


def content(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of the directory. Not LOCK: closing it would drop this process's lock."""
    files = [file for file in directory.iterdir() if file.name != "LOCK"]
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


QUESTIONS: dict[str, Callable[[Any], object]] = {
    "get": lambda looker: [looker.get(job.job_id) for job in looker.list_jobs().jobs],
    "first page": lambda looker: looker.list_jobs(limit=2),
    "second page": lambda looker: looker.list_jobs(limit=2, after=looker.list_jobs(limit=2).after),
    "dead": lambda looker: looker.list_jobs(state=State.DEAD),
    "one scope": lambda looker: looker.list_jobs(scope=OTHER_SCOPE),
    "a family": lambda looker: looker.list_jobs(kind="ingest:*"),
    "counts": lambda looker: looker.counts(),
    "filtered counts": lambda looker: looker.counts(scope=SCOPE, kind="ingest:*"),
    "check": lambda looker: looker.check(),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_view_answers_as_the_queue(desk: Desk, question: Callable[[Any], object]) -> None:
    """Reads of a view give what the same reads of the queue give."""
    with View.open(desk.directory, clock=desk.clock) as view:
        seen = question(view)
    with desk.queue() as queue:
        assert seen == question(queue)


def test_a_view_changes_nothing(desk: Desk) -> None:
    """Opening, asking and closing leaves every file as it was."""
    before = content(desk.directory)
    with View.open(desk.directory) as view:
        view.list_jobs()
        view.check()
    assert content(desk.directory) == before


def test_a_view_leaves_an_unclean_end_to_the_next_open(desk: Desk) -> None:
    """Looking at what a killed owner left changes nothing about it: the next open raises the incarnation by one."""
    desk.crash()
    for _ in range(2):
        with View.open(desk.directory) as view:
            view.list_jobs()
    with desk.queue() as queue:
        lease = queue.lease_next("worker")
    assert lease is not None
    assert lease.generation == 1 << 32


def test_a_view_knows_of_another_process(desk: Desk) -> None:
    """Beside an owner in another process a view says so, names it, and shows its newest commit."""
    with held_elsewhere(desk.directory) as process, View.open(desk.directory) as view:
        assert view.owned_elsewhere
        assert view.owner == f"by process {process}"
        assert view.counts(kind="held")[State.PENDING] == 1


def test_a_view_of_a_closed_queue_has_no_owner(desk: Desk) -> None:
    """When nobody has the queue open, a view says so."""
    with View.open(desk.directory) as view:
        assert not view.owned_elsewhere
        assert view.owner is None


def test_a_view_stays_at_its_moment(desk: Desk) -> None:
    """Commits after the view was made do not reach it."""
    with desk.queue() as queue, View.open(desk.directory) as view:
        late = queue.enqueue(SCOPE, "late", None).job_id
        with pytest.raises(JobNotFoundError):
            view.get(late)


def test_a_missing_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    """A view of nothing is refused, and nothing is created."""
    with pytest.raises(QueueUnavailableError, match="there is no queue in"):
        View.open(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_queue_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A view of a directory that holds something else is refused, and nothing is added to it."""
    (tmp_path / "letter.txt").write_text("hello")
    with pytest.raises(QueueUnavailableError, match="there is no queue in"):
        View.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("path", ["", "a\0b", 5, None, b"queue"])
def test_a_path_that_names_nothing_is_refused(path: Any) -> None:
    """As by the queue itself: an empty path is not the current directory."""
    with pytest.raises(InvalidArgumentError) as caught:
        View.open(path)
    assert caught.value.field == "path"


def test_a_closed_view_refuses(desk: Desk) -> None:
    """After its close a view refuses every question."""
    view = View.open(desk.directory)
    view.close()
    view.close()
    with pytest.raises(QueueUnavailableError):
        view.list_jobs()


@pytest.mark.parametrize(
    "spelling",
    [str, lambda job_id: job_id.hex, lambda job_id: str(job_id).upper()],
    ids=["dashes", "digits", "capitals"],
)
def test_an_id_is_found_by_its_beginning_in_any_spelling(desk: Desk, spelling: Callable[[UUID], str]) -> None:
    """Dashes and case do not matter, and every beginning that only one job has finds that job."""
    with View.open(desk.directory) as view:
        ids = [job.job_id for job in view.list_jobs().jobs]
        found = [view.ids_with_prefix(spelling(job_id)[:length], 2) for job_id in ids for length in (22, 30, 36)]
    assert found == [[job_id] for job_id in ids for _ in range(3)]


def test_a_shared_beginning_finds_all_in_order(desk: Desk) -> None:
    """A beginning that several jobs share finds them in id order, at most as many as asked for."""
    with View.open(desk.directory) as view:
        ids = [job.job_id for job in view.list_jobs().jobs]
        assert view.ids_with_prefix(str(ids[0])[:1], 10) == ids
        assert view.ids_with_prefix(str(ids[0])[:1], 2) == ids[:2]
        assert view.ids_with_prefix("f", 10) == []


@pytest.mark.parametrize("prefix", ["", "-", "xyz", "0" * 33, "01\n", 7])
def test_a_malformed_beginning_is_an_argument_error(desk: Desk, prefix: Any) -> None:
    """What is no beginning of an id is refused by field."""
    with View.open(desk.directory) as view, pytest.raises(InvalidArgumentError) as refusal:
        view.ids_with_prefix(prefix, 1)
    assert refusal.value.field == "prefix"


def test_a_quarantined_job_is_listed_as_such(desk: Desk) -> None:
    """A job in quarantine is found by id, refused as unreadable, and listed by `quarantined`."""
    [bad] = desk.add("spoiled")
    desk.quarantine(bad)
    with View.open(desk.directory) as view:
        assert view.quarantined() == (bad,)
        assert view.ids_with_prefix(bad.hex, 2) == [bad]
        with pytest.raises(JobUnreadableError):
            view.get(bad)


def test_a_view_has_the_time_of_the_queue(desk: Desk) -> None:
    """A view's time is not before the newest time in the database."""
    with View.open(desk.directory, clock=desk.clock) as view:
        assert view.now_ms() >= START_MS
    with JobQueue.open(desk.directory, clock=desk.clock) as queue:
        newest = queue.now_ms()
    desk.clock.step_wall(-1_000_000)
    with View.open(desk.directory, clock=desk.clock) as view:
        assert view.now_ms() == newest


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where views make their directories of links, as long as the test lasts."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_view_is_opened_again_when_files_vanish_under_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    """The owner replaced a table while the view was being opened: the next try has the files as they then are."""
    turns = iter([["gone.sst"]])
    real = database.data_files
    monkeypatch.setattr(database, "data_files", lambda path: next(turns, None) or real(path))
    with View.open(desk.directory, clock=desk.clock) as view:
        assert sum(view.counts().values()) == 5
    assert list(scratch.iterdir()) == []


def test_a_view_that_cannot_hold_still_is_refused_and_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    """When the files are others after every try the error says so, and no directory of links is left behind."""
    names = count()
    real = database.data_files
    monkeypatch.setattr(database, "data_files", lambda path: [*real(path), f"{next(names)}"])
    with pytest.raises(QueueUnavailableError, match="changed while it was being opened for reading"):
        View.open(desk.directory)
    assert list(scratch.iterdir()) == []


def test_a_view_of_meta_that_makes_no_sense_is_refused_and_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    """A failure after the files were opened lets go of them."""

    def fails(_view: object) -> None:
        raise LookupError("no such mark")

    monkeypatch.setattr(opening, "recorded", fails)
    with pytest.raises(QueueUnavailableError, match="no such mark"):
        View.open(desk.directory)
    assert list(scratch.iterdir()) == []
