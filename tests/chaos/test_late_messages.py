"""Messages of a stream that its caller reads, or only announces, after the server was killed: they are of its life."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from telha_jobs import JobQueue, Lease, ManualClock
from tests.chaos.calls import grant, scope
from tests.chaos.histories import CONFIG
from tests.chaos.server import config_of, receipt
from tests.harness.judging import ROWS, Report, snapshot
from tests.harness.linearity import judged

Data = dict[str, Any]
START_MS: Final = 1_000
SINCE, KILLED, LATE = 1.5, 2.0, 2.1
JOB: Final[Data] = {"scope": 1, "kind": "work", "payload": 7}


class Story:
    """A queue with one job, and a history of its only life that a test writes line by line."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lines: list[Data] = []
        self.queue = JobQueue.open(root / "db", config=config_of(CONFIG), clock=ManualClock(START_MS))
        self.note(1.0, "opened", now_ms=START_MS, problems=[])
        made = self.queue.enqueue(scope(JOB["scope"]), JOB["kind"], JOB["payload"])
        self.intent(1.1, "p0-1", "enqueue", jobs=[JOB])
        self.outcome(1.2, "p0-1", [receipt(made)])

    def lease(self) -> Lease:
        """Lease the job; nobody is told of it."""
        lease = self.queue.lease_next("w0")
        assert lease is not None
        return lease

    def note(self, at: float, what: str, **data: Any) -> None:
        self._lines.append({"say": "note", "at": at, "what": what, "data": data})

    def intent(self, at: float, name: str, call: str, **given: Any) -> None:
        self._lines.append({"say": "intent", "id": name, "at": at, "call": call, "given": given})

    def outcome(self, at: float, name: str, told: Any) -> None:
        self._lines.append({"say": "outcome", "id": name, "at": at, "told": {"told": told, "commit": None}})

    def poll(self, at: float, name: str, since: float = SINCE) -> None:
        """Await a message of the stream that was opened then."""
        given = {"worker": "w0", "scopes": None, "kinds": None, "limit": 2, "wait_ms": 0, "since": since}
        self.intent(at, name, "lease", **given)

    def killed(self) -> None:
        """The rows are looked at."""
        self.note(KILLED, "killed", life=1)
        snapshot(self._root / "db", self._root / ROWS.format(1))

    def lived_again(self) -> None:
        """The next life, in which nothing happens."""
        self.note(3.0, "opened", now_ms=START_MS, problems=[])
        self.note(5.0, "killed", life=2)
        shutil.copy(self._root / ROWS.format(1), self._root / ROWS.format(2))

    def judged(self) -> Report:
        """What the lane says."""
        lines = sorted(self._lines, key=lambda line: line["at"])
        (self._root / "history.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return judged(self._root, CONFIG, Random(1)).report


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A life whose job nobody has leased yet."""
    found = Story(tmp_path)
    yield found
    found.queue.close()


def test_a_message_read_after_the_kill_is_of_the_life_that_sent_it(story: Story) -> None:
    """Its caller announced it after the kill, too: the stream had been opened before."""
    lease = story.lease()
    story.killed()
    story.poll(LATE, "w0-1")
    story.outcome(LATE + 0.1, "w0-1", [grant(lease)])
    story.poll(LATE + 0.1, "w0-2")
    assert story.judged().sentences == []


def test_a_message_read_after_the_next_open_is_of_the_life_that_sent_it(story: Story) -> None:
    """However long its caller was kept from reading it."""
    lease = story.lease()
    story.killed()
    story.lived_again()
    story.poll(4.0, "w0-1")
    story.outcome(4.1, "w0-1", [grant(lease)])
    report = story.judged()
    assert (report.lives, report.sentences) == (2, [])


def test_a_stream_announced_after_the_kill_explains_a_lease_that_nobody_heard_of(story: Story) -> None:
    """No message ever came: the lease in the rows is a call without an answer that happened."""
    story.lease()
    story.killed()
    story.poll(LATE, "w0-1")
    report = story.judged()
    assert (report.recovered, report.sentences) == (1, [])


def test_a_stream_opened_after_the_kill_explains_nothing(story: Story) -> None:
    """A lease in the rows that no poll of the life can have got is found."""
    story.lease()
    story.killed()
    story.poll(LATE, "w0-1", since=KILLED + 0.05)
    assert story.judged().unexpected == 1


def test_a_lease_told_before_and_after_the_kill_is_found(story: Story) -> None:
    """One generation, told to two streams."""
    told = [grant(story.lease())]
    story.poll(1.6, "w0-1", since=SINCE)
    story.outcome(1.7, "w0-1", told)
    story.killed()
    story.poll(LATE, "w0-2", since=SINCE + 0.25)
    story.outcome(LATE + 0.1, "w0-2", told)
    assert story.judged().duplicated == 1


def test_a_lease_told_after_the_kill_that_no_row_has_is_found(story: Story) -> None:
    """It was handed out before it was committed."""
    story.killed()
    story.poll(LATE, "w0-1")
    story.outcome(LATE + 0.1, "w0-1", [grant(story.lease())])
    assert story.judged().unexpected == 1


def test_a_server_takes_nothing_back_of_a_stream_that_is_left_after_its_kill(story: Story) -> None:
    """Its caller was still there: a release in the rows is nobody's."""
    lease = story.lease()
    story.queue.release(lease)
    story.killed()
    story.poll(LATE, "w0-1")
    story.outcome(LATE + 0.1, "w0-1", [grant(lease)])
    story.poll(LATE + 0.1, "w0-2")
    assert story.judged().unexpected == 1


def test_a_server_may_take_back_what_a_stream_left_before_the_kill_was_told(story: Story) -> None:
    """It cannot know that the message has arrived."""
    lease = story.lease()
    story.queue.release(lease)
    story.poll(1.6, "w0-1")
    story.outcome(1.7, "w0-1", [grant(lease)])
    story.poll(1.7, "w0-2")
    story.killed()
    assert story.judged().sentences == []
