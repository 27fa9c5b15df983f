"""A unit of work: what it writes, no more than what changed, and how much it says to have read."""

from collections.abc import Callable
from typing import Any

import pytest

from telha_jobs import InvalidArgumentError, JobUnreadableError, ManualClock, NewJob, arguments
from telha_jobs.engine import leases as leasing
from telha_jobs.engine import unit as unit_module
from telha_jobs.engine.commands import Filters, Ref
from telha_jobs.engine.enqueue import enqueue
from telha_jobs.engine.unit import Unit
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Adds, Family, Write
from tests.field_failures.seam import queue_on
from tests.unit.api.support import START_MS, A, lease, refusal


def _named(family: Family, key: bytes) -> str:
    return key.partition(b"/")[0].decode() if family is Family.META else family.value


class Recorder:
    """A queue in memory, and what its commits write, in sorted plain words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk()
        store = MemoryStore.open(self.disk, clock=self.clock)
        self.queue = queue_on(store, self.clock)
        self.writes: list[str] = []
        real = store.commit

        def commit(checks: Any, writes: list[Write], token: bytes, adds: Adds) -> Any:
            self.writes += [
                f"{'Delete' if value is None else 'Put'} {_named(family, key)}" for family, key, value in writes
            ]
            self.writes += [f"Add {_named(Family.META, key)} {delta:+}" for key, delta in adds.items()]
            return real(checks, writes, token, adds)

        monkeypatch.setattr(store, "commit", commit)

    def of(self, act: Callable[[], object]) -> list[str]:
        """What the commits of an act write."""
        self.writes.clear()
        act()
        return sorted(self.writes)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """An empty queue that is listened to."""
    return Recorder(monkeypatch)


def test_an_enqueue_writes_a_job_and_what_follows_from_it(recorder: Recorder) -> None:
    """The row, its two entries, its count and the id that no later one may be below; a new kind once."""
    written = ["Add count +1", "Put ids", "Put jobs", "Put kind", "Put last_id", "Put ready"]
    assert recorder.of(lambda: recorder.queue.enqueue(A, "embed", 1)) == written
    written.remove("Put kind")
    assert recorder.of(lambda: recorder.queue.enqueue(A, "embed", 1)) == written


def test_a_lease_writes_what_changed(recorder: Recorder) -> None:
    """No id was made, so none is noted."""
    recorder.queue.enqueue(A, "embed", 1)
    entries = ["Delete jobs", "Delete ready", "Put ids", "Put jobs", "Put last_served", "Put timers"]
    assert recorder.of(lambda: lease(recorder.queue)) == ["Add count +1", "Add count -1", *entries]


def test_what_stays_is_not_written_again(recorder: Recorder) -> None:
    """A heartbeat in the millisecond of the lease writes the row alone; a later one moves the deadline's entry too."""
    queue = recorder.queue
    queue.enqueue(A, "embed", 1)
    held = [lease(queue)]
    assert recorder.of(lambda: queue.extend("w", held)) == ["Put jobs"]
    recorder.clock.advance(10)
    assert recorder.of(lambda: queue.extend("w", held)) == ["Delete timers", "Put jobs", "Put timers"]


def test_counts_that_come_out_even_are_not_written(recorder: Recorder) -> None:
    """A job that is leased and given back in one unit is pending before and after."""
    queue = recorder.queue
    queue.enqueue(A, "embed", 1)

    def there_and_back(unit: Unit) -> None:
        [granted] = leasing.grant(unit, "w", 1, Filters(None, None))
        leasing.release(unit, Ref(granted.job_id.bytes, granted.generation), 0)

    assert not [one for one in recorder.of(lambda: queue.engine.write(there_and_back)) if one.startswith("Add")]


def test_large_payloads_are_written_once(recorder: Recorder) -> None:
    """Apart from the row, when they are longer than 512 bytes encoded: no lease or heartbeat carries one along."""
    queue = recorder.queue
    assert "Put payloads" in recorder.of(lambda: queue.enqueue(A, "embed", "x" * 509))
    assert "Put payloads" not in recorder.of(lambda: queue.enqueue(A, "embed", "x" * 508))
    assert not [one for one in recorder.of(lambda: lease(queue)) if "payloads" in one]


def test_new_kinds_of_one_commit_are_numbered_one_after_the_other(recorder: Recorder) -> None:
    """Three of them behind two that there are: five numbers, no gap, none twice."""
    queue = recorder.queue
    for kinds in (["a", "b"], ["c", "b", "d", "e", "c"]):
        queue.enqueue_many([NewJob(scope=A, kind=kind, payload=None) for kind in kinds])
    assert queue._engine._shared.kinds.numbers == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


def test_the_last_kind_that_fits_is_taken(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that is the maximum is given, the next one refused."""
    monkeypatch.setattr(unit_module, "KINDS_MAX", 2)
    recorder.queue.enqueue(A, "a", None)
    recorder.queue.enqueue(A, "b", None)
    refusal(InvalidArgumentError, lambda: recorder.queue.enqueue(A, "c", None))


def test_a_kind_is_leased_by_the_commit_that_makes_it(recorder: Recorder) -> None:
    """By its name and by its family, and not under another name."""
    queue = recorder.queue
    drafts = arguments.drafts("jobs", [NewJob(scope=A, kind="new:kind", payload=None)] * 2, queue.config, 10)

    def both(unit: Unit) -> list[int]:
        enqueue(unit, drafts, field="jobs")
        return [len(leasing.grant(unit, "w", 1, Filters((kind,), None))) for kind in ("other", "new:kind", "new:*")]

    assert queue.engine.write(both) == [0, 1, 1]


def test_bytes_found_are_those_of_rows(recorder: Recorder) -> None:
    """Of two jobs, once out of what is known and once read; finding one again adds nothing."""
    queue = recorder.queue
    made = [queue.enqueue(A, "embed", number).job_id.bytes for number in range(2)]
    size = sum(len(value) for value in recorder.disk.values[Family.JOBS].values())

    def found(unit: Unit) -> int:
        for job_id in (*made, *made):
            unit.find(job_id)
        return unit.bytes_found

    assert [queue.engine.write(found) for _ in range(2)] == [size, size]


def test_only_work_that_came_is_news_to_who_waits(recorder: Recorder) -> None:
    """A watcher is told of an enqueue and of a release, not of a lease, a heartbeat or a completion."""
    queue, told = recorder.queue, list[str]()
    queue.engine.watch(lambda: told.append(doing))
    doing = "enqueue"
    queue.enqueue(A, "embed", 1)
    doing = "lease"
    held = lease(queue)
    doing = "release"
    queue.release(held)
    doing = "what holds a lease"
    held = lease(queue)
    queue.extend("w", [held])
    queue.complete(held)
    assert told == ["enqueue", "release"]


@pytest.mark.parametrize("damage", [b"", b"\x01\xc1", b"\x09\xc0"], ids=["nothing", "no msgpack", "another version"])
def test_work_whose_payload_cannot_be_read_is_not_compared(recorder: Recorder, damage: bytes) -> None:
    """A key that names such a job is told so; nothing is written."""
    queue = recorder.queue
    made = queue.enqueue(A, "embed", "x" * 600, idempotency_key="k").job_id
    recorder.disk.values[Family.PAYLOADS][made.bytes] = damage

    def again() -> None:
        error = refusal(JobUnreadableError, lambda: queue.enqueue(A, "embed", "x" * 600, idempotency_key="k"))
        assert error.job_id == made

    assert recorder.of(again) == []


def test_a_payload_that_cannot_be_read_does_not_end_a_batch(recorder: Recorder) -> None:
    """The first of three goes to quarantine, the others are leased."""
    queue = recorder.queue
    made = [queue.enqueue(A, "embed", "x" * 600).job_id for _ in range(3)]
    recorder.disk.values[Family.PAYLOADS][made[0].bytes] = b"bad"
    assert [one.job_id for one in queue.lease_batch("w", 3)] == made[1:]
