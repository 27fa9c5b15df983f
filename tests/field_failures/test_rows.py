"""Reports about rows: orphans, corruption, write errors, families that disagree, one bad row among many."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from telha_jobs import (
    JobNotFoundError,
    JobQueue,
    JobUnreadableError,
    Lease,
    LeaseRef,
    ManualClock,
    NewJob,
    QueueUnavailableError,
    StaleLeaseError,
    State,
)
from telha_jobs.codec import decode_record
from telha_jobs.core.record import timer_of
from telha_jobs.keys import idem_key, parse_job_key, ready_key, timer_key
from telha_jobs.store.port import Delete, Family, Put
from telha_jobs.store.rocks import RocksStore
from tests.contract.rigs import Faults, faulty
from tests.field_failures.seam import queue_on
from tests.unit.api.conftest import Open
from tests.unit.api.support import MISSING, START_MS, A, B, healthy, lease, leased, refusal, row_of, rows, tamper

TTL = 300_000


def one_to_one(queue: JobQueue) -> None:
    """Each row has exactly the entries that follow from it, told from the raw bytes alone."""
    found = rows(queue)
    kinds = {name: key[-8:] for key, name in found[Family.META].items() if key.startswith(b"kind/")}
    expected: dict[Family, set[bytes]] = {family: set() for family in (Family.READY, Family.TIMERS, Family.IDS)}
    for key, value in found[Family.JOBS].items():
        record = decode_record(key, value)
        kind = int.from_bytes(kinds[record.kind.encode()], "big")
        expected[Family.IDS].add(record.job_id)
        if record.state in (State.PENDING, State.FAILED):
            expected[Family.READY].add(ready_key(record.scope, kind, record.priority, record.due, record.job_id))
        if (time := timer_of(record)) is not None:
            expected[Family.TIMERS].add(timer_key(time, record.job_id))
    assert expected == {family: set(found[family]) for family in expected}


def test_f4_rows_and_entries_stay_one_to_one(opened: Open, clock: ManualClock) -> None:
    """F4: deadline entries without jobs piled up. After each of 400 random operations there is none too many or few."""
    queue = opened(durability="os", lease_ttl_ms=50, retention_completed_ms=30, retention_dead_ms=40)
    chance = random.Random(4)
    held: list[Lease] = []
    acts: list[Callable[[], object]] = [
        lambda: queue.enqueue(chance.choice((A, B)), "embed", None, delay_ms=chance.choice((0, 0, 5))),
        lambda: held.extend(queue.lease_batch("w", 3)),
        lambda: queue.extend("w", held),
        lambda: queue.complete(held.pop(chance.randrange(len(held)))),
        lambda: queue.fail(held.pop(chance.randrange(len(held))), "x", retryable=chance.random() < 0.7),
        lambda: queue.release(chance.choice(held)),
        lambda: queue.reap(chance.choice((1, None))),
        lambda: clock.advance(chance.choice((1, 49, 50, 10_000))),
        lambda: queue.retry(queue.list_jobs(state=State.DEAD).jobs[0].job_id),
        lambda: queue.cancel(queue.list_jobs(state=State.PENDING).jobs[0].job_id),
    ]
    for _ in range(400):
        # Nothing held, nobody dead, or a lease that has ended: then nothing happens.
        with suppress(StaleLeaseError, JobNotFoundError, IndexError, ValueError):
            chance.choice(acts)()
        one_to_one(queue)
    healthy(queue)


ORPHANS: dict[str, Put] = {
    "timer": Put(Family.TIMERS, timer_key(START_MS - 5, MISSING.bytes), b""),
    "timer of a malformed key": Put(Family.TIMERS, b"\0" * 7, b""),
    "ready": Put(Family.READY, ready_key(A.bytes, 1, 0, 0, MISSING.bytes), b""),
    "ready of an unknown kind": Put(Family.READY, ready_key(A.bytes, 77, 0, 0, MISSING.bytes), b""),
    "ready of an unknown scope": Put(Family.READY, ready_key(B.bytes, 1, 0, 0, MISSING.bytes), b""),
}
MALFORMED: dict[str, bytes] = {
    "first of all": b"\0",
    "in the scope": A.bytes + b"\0" * 5,
    "in the group": A.bytes + b"\0" * 7 + b"\x01" + b"\x80" + b"\0" * 8,
    "too long": A.bytes + b"\0" * 7 + b"\x01" + b"\x80" + b"\0" * 30,
}


@pytest.mark.parametrize("name", ORPHANS)
def test_f4_an_orphan_never_blocks(
    tmp_path: Path, opened: Open, clock: ManualClock, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F4: an entry without a job, first in line: dropped, counted and said; leases and sweeps go on beside it."""
    queue = opened()
    expiring = leased(queue, B)
    waiting = queue.enqueue(A, "embed", None)
    queue.close()
    tamper(tmp_path / "queue", ORPHANS[name])
    queue = opened()
    assert not queue.check()
    clock.advance(TTL)
    assert queue.reap().requeued == 1
    assert {waiting.job_id} == {one.job_id for one in queue.lease_batch("w", 9)}
    assert queue.get(expiring.job_id).attempts == 1
    healthy(queue)
    assert queue._engine._shared.orphans_dropped == 1
    assert "no row explains" in caplog.text


@pytest.mark.parametrize("name", MALFORMED)
def test_f4_an_entry_that_is_no_key_never_blocks(tmp_path: Path, opened: Open, name: str) -> None:
    """F4: bytes that are no key of `ready`: passed over at open and by every grant, and told by the check."""
    queue = opened()
    made = queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 40)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.READY, MALFORMED[name], b""))
    queue = opened()
    assert [one.job_id for one in made] == [lease(queue).job_id for _ in range(40)]
    assert list(queue.check().problems) == ["ready: 1 entries, 0 follow from the rows"]


def test_f4_ten_thousand_orphans_are_swept(tmp_path: Path, opened: Open, clock: ManualClock) -> None:
    """F4: tens of thousands of orphan deadlines drowned the sweep. One sweep drops them and does its work."""
    queue = opened()
    held = leased(queue)
    queue.close()
    orphans = [Put(Family.TIMERS, timer_key(START_MS, number.to_bytes(16, "big")), b"") for number in range(10_000)]
    tamper(tmp_path / "queue", *orphans)
    queue = opened()
    clock.advance(TTL)
    assert queue.reap().requeued == 1
    assert queue.get(held.job_id).state is State.PENDING
    healthy(queue)


# -- F7: a malformed record


def flipped(value: bytes, place: int) -> bytes:
    """The value with one bit turned."""
    return value[:place] + bytes([value[place] ^ 0x10]) + value[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "one byte": lambda value: value[:1],
    "cut": lambda value: value[:-3],
    "a bit in the middle": lambda value: flipped(value, len(value) // 2),
    "a bit in the checksum": lambda value: flipped(value, len(value) - 1),
    "another version": lambda value: b"\x7f" + value[1:],
    "text": lambda _: b"not a record at all",
    "longer": lambda value: value + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("state", State)
def test_f7_a_corrupt_row_stops_nobody(
    tmp_path: Path, opened: Open, clock: ManualClock, state: State, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F7: one malformed record crash-looped the server. Here open, lease, reap and listings go on around it."""
    queue = opened(retention_dead_ms=5)
    bad = bring(queue, state)
    before = [queue.enqueue(A, "embed", "good").job_id for _ in range(3)]
    key, value = row_of(queue, bad)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, DAMAGES[damage](value)))
    queue = opened(retention_dead_ms=5)
    refusal(JobUnreadableError, lambda: queue.get(bad))
    assert bad not in {job.job_id for job in queue.list_jobs().jobs}
    assert not queue.check()
    assert sorted(before) == sorted(one.job_id for one in queue.lease_batch("w", 9))
    clock.advance(604_800_000)
    report = queue.reap()
    assert report.requeued == 3
    for verb in (queue.retry, queue.cancel, queue.discard):
        refusal(JobUnreadableError, lambda verb=verb: verb(bad))  # type: ignore[misc]  # mypy cannot infer the default
    refusal(JobUnreadableError, lambda: queue.complete(LeaseRef(bad, 1)))
    assert [(bad,), 3] == [queue.check().quarantined, sum(queue.counts().values())]
    healthy(queue)
    queue.close()
    queue = opened()
    assert (bad,) == queue.check().quarantined
    refusal(JobUnreadableError, lambda: queue.get(bad))
    healthy(queue)


def bring(queue: JobQueue, state: State) -> UUID:
    """A job in the state, with a key and a large payload."""
    job_id = queue.enqueue(B, "embed", "x" * 600, idempotency_key="bad").job_id
    if state is not State.PENDING:
        held = lease(queue)
        if state is State.COMPLETED:
            queue.complete(held)
        elif state in (State.FAILED, State.DEAD):
            queue.fail(held, "x", retryable=state is State.FAILED)
    return job_id


@pytest.mark.parametrize("call", ["complete", "fail", "release", "cancel", "extend", "complete_many", "enqueue"])
def test_f7_whoever_meets_a_bad_row_moves_it(tmp_path: Path, opened: Open, call: str) -> None:
    """F7: every writing call that names it quarantines it, says so, and leaves the rest of the queue in step."""
    queue = opened()
    held = leased(queue, payload=1, idempotency_key="k")
    other = leased(queue)
    key, value = row_of(queue, held.job_id)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, value[:-1]))
    queue = opened()
    calls: dict[str, Callable[[], object]] = {
        "complete": lambda: queue.complete(held),
        "fail": lambda: queue.fail(held, "x"),
        "release": lambda: queue.release(held),
        "cancel": lambda: queue.cancel(held.job_id),
        "enqueue": lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"),
    }
    if call in calls:
        for _ in range(2):
            assert held.job_id == refusal(JobUnreadableError, calls[call]).job_id
    else:
        found = queue.extend("w", [other, held]) if call == "extend" else queue.complete_many([(other, 1), (held, 1)])
        assert found[1].status == "not_found"
        assert isinstance(found[1].error, JobUnreadableError)
    assert (held.job_id,) == queue.check().quarantined
    healthy(queue)


def test_f7_a_quarantined_job_keeps_its_key(tmp_path: Path, opened: Open) -> None:
    """F7: nobody can enqueue the same work beside a job that is only unreadable."""
    queue = opened()
    made = queue.enqueue(A, "embed", 1, idempotency_key="k")
    key, value = row_of(queue, made.job_id)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, value[:-1]))
    queue = opened()
    assert queue.lease_next("w") is None
    refusal(JobUnreadableError, lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"))
    refusal(JobUnreadableError, lambda: queue.enqueue_many([NewJob(scope=A, kind="embed", payload=2), _keyed()]))
    assert sum(queue.counts().values()) == 0
    healthy(queue)


def _keyed() -> NewJob:
    return NewJob(scope=A, kind="embed", payload=1, idempotency_key="k")


def test_f7_a_bad_payload_is_a_bad_row(tmp_path: Path, opened: Open) -> None:
    """F7: a record that decodes but whose payload does not goes to quarantine, and the next job is leased."""
    for damage in (b"", b"\x01\xc1", b"\x09\xc0", None):
        queue = opened()
        bad = queue.enqueue(A, "embed", "x" * 600).job_id
        good = queue.enqueue(A, "embed", None).job_id
        queue.close()
        change = Delete(Family.PAYLOADS, bad.bytes) if damage is None else Put(Family.PAYLOADS, bad.bytes, damage)
        tamper(tmp_path / "queue", change)
        queue = opened()
        refusal(JobUnreadableError, lambda queue=queue, bad=bad: queue.get(bad))  # type: ignore[misc]  # as above
        assert good == lease(queue).job_id
        assert bad in queue.check().quarantined
        healthy(queue)
        queue.close()


SIDES: dict[str, Callable[[bytes, bytes], Put | Delete]] = {
    "ids is text": lambda _, job_id: Put(Family.IDS, job_id, b"nonsense"),
    "ids is empty": lambda _, job_id: Put(Family.IDS, job_id, b""),
    "ids has a bad state": lambda key, job_id: Put(Family.IDS, job_id, key[:16] + b"\x63" + key[17:] + b"\0" * 8),
    "ids names no row": lambda key, job_id: Put(Family.IDS, job_id, b"\xee" * 16 + key[16:] + b"\0" * 7 + b"\x01"),
    "ids is gone": lambda _, job_id: Delete(Family.IDS, job_id),
    "idem is text": lambda _, __: Put(Family.IDEM, idem_key(A.bytes, "k"), b"nonsense"),
    "idem names nobody": lambda _, __: Put(Family.IDEM, idem_key(A.bytes, "k"), MISSING.bytes),
    "a counter is text": lambda _, __: Put(Family.META, b"count/" + A.bytes + b"\0" * 7 + b"\x01\x01", b"nonsense!"),
    "a counter's key is malformed": lambda _, __: Put(Family.META, b"count/x", b"\0" * 8),
    "a counter of an unknown state": lambda _, __: Put(
        Family.META, b"count/" + A.bytes + b"\0" * 7 + b"\x01\x63", b"\0" * 7 + b"\x01"
    ),
    "last_id is text": lambda _, __: Put(Family.META, b"last_id", b"nonsense"),
    "last_served is text": lambda _, __: Put(Family.META, b"last_served", b"nonsense"),
}


@pytest.mark.parametrize("side", SIDES)
def test_f7_a_bad_derived_entry_stops_nobody(
    tmp_path: Path, opened: Open, clock: ManualClock, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F7, its whole kind: whatever stands in a derived entry, the queue opens, grants, sweeps and lists the others."""
    queue = opened()
    bad = queue.enqueue(A, "embed", 1, idempotency_key="k").job_id
    good = [queue.enqueue(A, "embed", 2).job_id for _ in range(2)]
    expiring = leased(queue, B).job_id
    key, _ = row_of(queue, bad)
    queue.close()
    tamper(tmp_path / "queue", SIDES[side](key, bad.bytes))
    queue = opened()
    assert side.startswith("last_") or not queue.check()
    clock.advance(TTL)
    assert queue.reap().requeued == 1
    assert set(good) <= {one.job_id for one in queue.lease_batch("w", 9)}
    assert {*good, expiring} <= {job.job_id for job in queue.list_jobs().jobs}
    fresh = queue.enqueue(A, "embed", 3).job_id
    assert all(fresh.int > job_id.int for job_id in (bad, *good, expiring))
    for call in (
        lambda: queue.get(bad),
        lambda: queue.cancel(bad),
        lambda: queue.enqueue(A, "embed", 1, idempotency_key="k"),
    ):
        try:
            call()
        except (JobUnreadableError, JobNotFoundError, StaleLeaseError):
            pass  # this job may be out of reach; what it may not do is raise something else
        except Exception as error:  # noqa: BLE001  anything else is the failure this test looks for
            pytest.fail(f"{type(error).__name__}: {error}")


# -- F18, F20: errors of the storage


@pytest.fixture
def failing(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[Callable[[], JobQueue], Faults]]:
    """Opens the queue on a database that raises on demand."""
    faults = Faults()
    made: list[JobQueue] = []

    def open_it() -> JobQueue:
        store = RocksStore.open(tmp_path / "queue", clock=clock, database=faulty(faults))
        made.append(queue_on(store, clock))
        return made[-1]

    yield open_it, faults
    for queue in made:
        queue.close()


Failing = tuple[Callable[[], JobQueue], Faults]


@pytest.mark.parametrize("where", ["write", "flush", "get"])
def test_f18_after_a_failure_every_call_is_refused(failing: Failing, where: str) -> None:
    """F18: after one I/O error the server went on in memory only. Here nothing is answered until it is opened again."""
    open_it, faults = failing
    queue = open_it()
    kept = [queue.enqueue(A, "embed", number).job_id for number in range(3)]
    queue.close()
    queue = open_it()  # it has yet to read every row
    setattr(faults, where, OSError("input/output error, says the test"))
    error = refusal(QueueUnavailableError, lambda: queue.cancel(kept[2]))
    assert {"write": "unknown", "flush": "unknown", "get": "not_applied"}[where] == error.outcome
    for call in (
        lambda: queue.enqueue(A, "embed", None),
        lambda: queue.get(kept[0]),
        queue.counts,
        lambda: queue.lease_next("w"),
        queue.reap,
        queue.now_ms,
    ):
        assert "open it again" in str(refusal(QueueUnavailableError, call))
    queue.close()
    queue = open_it()
    assert kept == [job.job_id for job in queue.list_jobs().jobs]
    assert queue.get(kept[2]).state in ({State.PENDING} if where != "flush" else {State.PENDING, State.DEAD})
    assert lease(queue).generation == 1 << 32  # closing a failed store is no clean end
    healthy(queue)


STEPS: dict[str, Callable[[JobQueue, Lease], object]] = {
    "enqueue": lambda queue, _: queue.enqueue(A, "embed", "x" * 600, idempotency_key="k"),
    "lease": lambda queue, _: queue.lease_batch("w", 2),
    "complete": lambda queue, held: queue.complete(held, enqueue=[NewJob(scope=B, kind="new", payload="y" * 600)]),
    "fail": lambda queue, held: queue.fail(held, "x"),
    "release": lambda queue, held: queue.release(held),
    "cancel": lambda queue, held: queue.cancel(held.job_id),
    "reap": lambda queue, _: queue.reap(),
    "read": lambda queue, held: queue.get(held.job_id),
}


@pytest.mark.parametrize("where", ["write", "flush"])
@pytest.mark.parametrize("step", STEPS)
def test_f20_families_agree_after_a_failed_write(failing: Failing, clock: ManualClock, step: str, where: str) -> None:
    """F20: a batch was in one family and not in another. After an error in any step and reopening all agree."""
    open_it, faults = failing
    queue = open_it()
    held = leased(queue, B, payload="z" * 600)
    for number in range(3):
        queue.enqueue(A, "embed", number)
    clock.advance(TTL)
    setattr(faults, where, OSError("no space left on this device, says the test"))
    if step == "read":
        queue.get(held.job_id)  # everything it sees is durable: nothing is written or synced
    else:
        refusal(QueueUnavailableError, lambda: STEPS[step](queue, held))
    faults.write = faults.flush = None
    queue.close()
    queue = open_it()
    healthy(queue)
    one_to_one(queue)
    STEPS[step](queue, held) if step in ("enqueue", "reap", "read") else None
    healthy(queue)


# -- F22: one row in conflict


@pytest.mark.parametrize("place", [0, 3, 7])
def test_f22_one_bad_row_among_many_due_ones(tmp_path: Path, opened: Open, clock: ManualClock, place: int) -> None:
    """F22: one row in conflict blocked a whole promotion batch. Here the other seven are promoted."""
    queue = opened()
    held = [leased(queue) for _ in range(8)]
    for one in held:
        queue.fail(one, "x")
    key, value = row_of(queue, held[place].job_id)
    queue.close()
    tamper(tmp_path / "queue", Put(Family.JOBS, key, value[:9]))
    queue = opened()
    clock.advance(10_000)
    report = queue.reap()
    assert (report.promoted, report.quarantined, report.more) == (7, 1, False)
    assert queue.counts()[State.PENDING] == 7
    healthy(queue)


def test_f22_many_bad_rows_cost_one_sweep(tmp_path: Path, opened: Open, clock: ManualClock) -> None:
    """F22: two hundred bad rows of three hundred are out of the way after one sweep."""
    queue = opened()
    queue.enqueue_many([NewJob(scope=A, kind="embed", payload=None)] * 300)
    held = queue.lease_batch("w", 300)
    bad = [row_of_key for row_of_key in rows(queue)[Family.JOBS] if row_of_key[-1] % 3]
    queue.close()
    tamper(tmp_path / "queue", *[Put(Family.JOBS, key, b"") for key in bad])
    queue = opened()
    clock.advance(TTL)
    report = queue.reap()
    assert (len(held) - len(bad), len(bad)) == (report.requeued, report.quarantined)
    assert {UUID(bytes=parse_job_key(key).job_id) for key in bad} == set(queue.check().quarantined)
    healthy(queue)


def test_the_helpers_of_these_tests_see_an_orphan(tmp_path: Path, opened: Open) -> None:
    """`one_to_one` is red when an entry is too many: a canary."""
    queue = opened()
    queue.enqueue(A, "embed", None)
    one_to_one(queue)
    queue.close()
    tamper(tmp_path / "queue", ORPHANS["timer"])
    with pytest.raises(AssertionError):
        one_to_one(opened())
