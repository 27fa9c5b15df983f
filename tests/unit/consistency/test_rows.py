"""Repair of rows: of two of one job one stands, what cannot be read is kept aside, what can be again comes back."""

import random
from uuid import UUID

import pytest

from telha_jobs import JobNotFoundError, JobQueue, JobUnreadableError, Lease, NewJob, State
from telha_jobs.codec import decode_record, encode_record
from telha_jobs.core.record import Record
from telha_jobs.keys import LAST_ID, idem_key, parse_quarantine_key, quarantine_key
from telha_jobs.store.port import Delete, Family, Put
from tests.harness.damage import MISSING, ROW_DAMAGE, START_MS, A, B, Disk, damage, flipped, populated
from tests.unit.consistency.repairs import differences, listed, repaired


def row_of(hurt: Disk, job_id: UUID) -> tuple[bytes, Record]:
    """Key and record of a job's one row."""
    [key] = [key for key in hurt.disk.keys[Family.JOBS] if key.endswith(job_id.bytes)]
    return key, decode_record(key, hurt.disk.values[Family.JOBS][key])


def spoiled(hurt: Disk, job_id: UUID) -> bytes:
    """Make a job's row unreadable; the row as it was."""
    key, _ = row_of(hurt, job_id)
    value = hurt.disk.values[Family.JOBS][key]
    hurt.disk.apply([Put(Family.JOBS, key, flipped(random.Random(1), value))])
    return value


def lease(queue: JobQueue) -> Lease:
    """The next lease; there is one."""
    granted = queue.lease_next("w")
    assert granted is not None
    return granted


@pytest.fixture
def hurt() -> Disk:
    """A small queue."""
    return populated(1, 6)


def newest(hurt: Disk) -> UUID:
    """The job that was enqueued last: pending, of scope B, with a key and a payload of its own."""
    return UUID(bytes=hurt.disk.values[Family.META][LAST_ID])


# -- two rows of one job


@pytest.mark.parametrize("state", [state for state in State if state is not State.PENDING])
@pytest.mark.parametrize(
    ("generation", "events", "sequence", "stronger"),
    [(1, 0, 0, True), (-1, 0, 0, False), (0, 1, 0, True), (0, -1, 9, False), (0, 0, 1, True), (0, 0, -1, False)],
)
@pytest.mark.parametrize("named", [True, False])
def test_of_two_rows_the_stronger_one_stands(
    state: State, generation: int, events: int, sequence: int, stronger: bool, named: bool
) -> None:
    """By generation, then by the length of the log, then by the commit; whichever of them `ids` names."""
    twin = populated(1, 6)
    with twin.opened() as queue:
        for _ in range(2):
            queue.release(queue.lease_batch("w", 1, scopes=[B])[0])
    job_id = newest(twin)
    key, record = row_of(twin, job_id)
    hurt = twin.copied()
    log = record.events + record.events[-1:] if events > 0 else record.events[: len(record.events) + events]
    other = record._replace(
        state=state, generation=record.generation + generation, events=log, deadline=START_MS, worker="w"
    )
    other_key, value = encode_record(other, sequence=record.sequence + sequence, token=record.token)
    hurt.disk.apply([Put(Family.JOBS, other_key, value)])
    if not named:
        place = hurt.disk.values[Family.IDS][job_id.bytes]
        hurt.disk.apply([Put(Family.IDS, job_id.bytes, other_key + place[42:])])
    before = hurt.pairs()[Family.JOBS]
    done = repaired(hurt)
    winner, loser = (other_key, key) if stronger else (key, other_key)
    assert (winner in hurt.pairs()[Family.JOBS], loser in hurt.pairs()[Family.JOBS]) == (True, False)
    assert hurt.pairs()[Family.QUARANTINE] == {quarantine_key(loser, superseded=True): before[loser]}
    assert done.report.quarantined == (job_id,)
    assert [problem for problem in done.report.problems if "its log ends in" not in problem] == []
    if not stronger:
        assert differences(twin.pairs(), hurt.pairs() | {Family.QUARANTINE: {}}) == []


def test_a_superseded_row_never_comes_back(hurt: Disk) -> None:
    """Also when the row that stood is gone: a job that was purged does not run again."""
    with hurt.opened() as queue:
        queue.enqueue(A, "embed", None, priority=0)
        held = lease(queue)
    old_key, old = row_of(hurt, held.job_id)
    stale = hurt.disk.values[Family.JOBS][old_key]
    with hurt.opened() as queue:
        queue.complete(held)
    hurt.disk.apply([Put(Family.JOBS, old_key, stale)])
    assert old.state is State.LEASED
    repaired(hurt)
    with hurt.opened() as queue:
        assert queue.get(held.job_id).state is State.COMPLETED
        queue.discard(held.job_id)
        assert queue.check().quarantined == (held.job_id,)
    assert (repaired(hurt).commits, quarantine_key(old_key, superseded=True) in hurt.disk.keys[Family.QUARANTINE]) == (
        0,
        True,
    )
    with hurt.opened() as queue, pytest.raises(JobNotFoundError):
        queue.get(held.job_id)


# -- rows that cannot be read


def test_a_row_that_cannot_be_read_is_kept_aside(hurt: Disk) -> None:
    """With its key and its value as found; its job keeps `ids`, key and payload, and has no place in any order."""
    twin = hurt.copied()
    job_id = newest(hurt)
    spoiled(hurt, job_id)
    key = next(key for key in hurt.disk.keys[Family.JOBS] if key.endswith(job_id.bytes))
    value = hurt.disk.values[Family.JOBS][key]
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), (job_id,))
    assert hurt.pairs()[Family.QUARANTINE] == {quarantine_key(key): value}
    changed = {line.split()[0] for line in differences(twin.pairs(), hurt.pairs())}
    assert changed == {"jobs", "ready", "quarantine", "meta"}
    assert hurt.disk.values[Family.IDEM][idem_key(B.bytes, "newest")] == job_id.bytes
    with hurt.opened() as queue, pytest.raises(JobUnreadableError):
        queue.get(job_id)


def test_a_row_whose_payload_is_gone_is_kept_aside(hurt: Disk) -> None:
    """The record can be read; what it is about cannot."""
    job_id = newest(hurt)
    hurt.disk.apply([Delete(Family.PAYLOADS, job_id.bytes)])
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), (job_id,))


@pytest.mark.parametrize("key", [b"", b"x", b"\xff" * 42, b"\0" * 41, b"\0" * 43])
def test_a_row_under_a_malformed_key_is_kept_aside(hurt: Disk, key: bytes) -> None:
    """Whatever its length: it is listed under the id that its last bytes are."""
    hurt.disk.apply([Put(Family.JOBS, key, b"nonsense")])
    done = repaired(hurt)
    assert (done.report.problems, len(done.report.quarantined)) == ((), 1)
    [kept] = hurt.disk.keys[Family.QUARANTINE]
    assert (parse_quarantine_key(kept).row_key, hurt.disk.values[Family.QUARANTINE][kept]) == (key, b"nonsense")
    assert repaired(hurt).commits == 0


def test_a_row_that_is_gone_is_listed(hurt: Disk) -> None:
    """`ids` names a row that is nowhere: the job was made, so it is kept in quarantine, empty, and its key with it."""
    job_id = newest(hurt)
    key, _ = row_of(hurt, job_id)
    hurt.disk.apply([Delete(Family.JOBS, key)])
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), (job_id,))
    assert hurt.pairs()[Family.QUARANTINE] == {quarantine_key(key): b""}
    with hurt.opened() as queue, pytest.raises(JobUnreadableError):
        queue.enqueue(B, "index", "y" * 600, idempotency_key="newest")


def test_an_id_that_was_never_made_is_no_lost_job(hurt: Disk) -> None:
    """An entry of `ids` for an id that is not of its scope is a wrong entry, and goes."""
    twin = hurt.copied()
    key = bytes(16) + b"\x01\x80" + START_MS.to_bytes(8, "big") + MISSING.bytes
    hurt.disk.apply([Put(Family.IDS, MISSING.bytes, key + b"\0" * 7 + b"\x01")])
    repaired(hurt)
    assert differences(twin.pairs(), hurt.pairs()) == []


# -- restoring


def test_a_row_that_can_be_read_again_comes_back(hurt: Disk) -> None:
    """With everything that follows from it: the database equals the one before the damage."""
    twin = hurt.copied()
    job_id = newest(hurt)
    value = spoiled(hurt, job_id)
    repaired(hurt)
    [key] = hurt.disk.keys[Family.QUARANTINE]
    hurt.disk.apply([Put(Family.QUARANTINE, key, value)])
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), ())
    assert differences(twin.pairs(), hurt.pairs()) == []


def test_a_row_whose_payload_is_there_again_comes_back(hurt: Disk) -> None:
    """Also one that a grant moved."""
    twin = hurt.copied()
    job_id = newest(hurt)
    payload = hurt.disk.values[Family.PAYLOADS][job_id.bytes]
    hurt.disk.apply([Delete(Family.PAYLOADS, job_id.bytes)])
    repaired(hurt)
    hurt.disk.apply([Put(Family.PAYLOADS, job_id.bytes, payload)])
    assert repaired(hurt).report.quarantined == ()
    assert differences(twin.pairs(), hurt.pairs()) == []


def test_a_row_does_not_come_back_over_a_key_that_is_taken(hurt: Disk) -> None:
    """It stays, and the check tells why until somebody has ended the other job; then it comes back."""
    job_id = newest(hurt)
    value = spoiled(hurt, job_id)
    repaired(hurt)
    hurt.disk.apply([Delete(Family.IDEM, idem_key(B.bytes, "newest"))])
    with hurt.opened() as queue:
        usurper = queue.enqueue(B, "index", "y" * 600, idempotency_key="newest").job_id
    [key] = hurt.disk.keys[Family.QUARANTINE]
    hurt.disk.apply([Put(Family.QUARANTINE, key, value)])
    for _ in range(2):
        done = repaired(hurt)
        assert (len(done.report.problems), bool(done.report), done.report.quarantined) == (1, False, (job_id,))
        assert f"its idempotency key is that of job {usurper}" in done.report.problems[0]
    with hurt.opened() as queue:
        queue.cancel(usurper)
        queue.discard(usurper)
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), ())
    with hurt.opened() as queue:
        assert queue.enqueue(B, "index", "y" * 600, idempotency_key="newest").job_id == job_id


def test_a_row_does_not_come_back_beside_another_of_its_job(hurt: Disk) -> None:
    """The job runs already: the other row is marked, and stays for good."""
    job_id = newest(hurt)
    key, record = row_of(hurt, job_id)
    other = record._replace(state=State.FAILED, events=record.events)
    other_key, value = encode_record(other, sequence=1, token=b"\0" * 16)
    hurt.disk.apply([Put(Family.QUARANTINE, quarantine_key(other_key), value)])
    twin = hurt.copied()
    done = repaired(hurt)
    assert (done.report.problems, done.report.quarantined) == ((), (job_id,))
    assert hurt.pairs()[Family.QUARANTINE] == {quarantine_key(other_key, superseded=True): value}
    assert differences(twin.pairs(), hurt.pairs() | {Family.QUARANTINE: twin.pairs()[Family.QUARANTINE]}) == []
    assert key in hurt.disk.keys[Family.JOBS]


def test_of_two_rows_in_quarantine_the_stronger_one_comes_back(hurt: Disk) -> None:
    """And the other is superseded."""
    job_id = newest(hurt)
    key, record = row_of(hurt, job_id)
    value = hurt.disk.values[Family.JOBS][key]
    weaker = record._replace(priority=record.priority - 1)
    weaker_key, weaker_value = encode_record(weaker, sequence=1, token=b"\0" * 16)
    twin = hurt.copied()
    hurt.disk.apply(
        [
            Delete(Family.JOBS, key),
            Put(Family.QUARANTINE, quarantine_key(weaker_key), weaker_value),
            Put(Family.QUARANTINE, quarantine_key(key), value),
        ]
    )
    assert repaired(hurt).report.problems == ()
    assert hurt.pairs()[Family.QUARANTINE] == {quarantine_key(weaker_key, superseded=True): weaker_value}
    assert differences(twin.pairs(), hurt.pairs() | {Family.QUARANTINE: {}}) == []


# -- what a repair cannot know


def test_two_jobs_with_one_key_are_told_and_left(hurt: Disk) -> None:
    """Both were acknowledged; nobody can say which of them the key means but who made them."""
    hurt.disk.apply([Delete(Family.IDEM, idem_key(B.bytes, "newest"))])
    with hurt.opened() as queue:
        second = queue.enqueue_many([NewJob(scope=B, kind="embed", payload=1, idempotency_key="newest")])[0].job_id
    twin = hurt.copied()
    hurt.disk.apply([Put(Family.TIMERS, b"", b"")])
    done = repaired(hurt)
    assert [problem.split(";")[1] for problem in done.report.problems] == [" end and discard one of them"]
    assert differences(twin.pairs(), hurt.pairs()) == []
    with hurt.opened() as queue:
        queue.cancel(second)
        queue.discard(second)
    assert repaired(hurt).report.problems == ()


def test_a_log_that_belies_its_row_is_told_and_left(hurt: Disk) -> None:
    """A whole row with a right checksum that cannot have come about: an audit's matter, not a repair's."""
    key, record = row_of(hurt, newest(hurt))
    _, value = encode_record(record._replace(events=record.events * 2), sequence=1, token=b"\0" * 16)
    hurt.disk.apply([Put(Family.JOBS, key, value)])
    done = repaired(hurt)
    assert ["its log ends in an impossible move" in one for one in done.report.problems] == [True]
    assert hurt.disk.values[Family.JOBS][key] == value


@pytest.mark.parametrize("seed", range(40))
def test_no_job_is_dropped(seed: int) -> None:
    """Whatever befalls rows: each job that had a row, or is named by `ids`, is in one state or listed in quarantine."""
    hurt = populated(seed, 6)
    everybody = listed(hurt.pairs())
    names = random.Random(seed).choices(sorted(ROW_DAMAGE), k=2)
    damage(hurt.disk, names[:1], seed)
    done = repaired(hurt)
    assert set() == everybody - listed(hurt.pairs())
    assert [problem for problem in done.report.problems if "its log ends in" not in problem] == []
    standing = [key[-16:] for key in hurt.disk.keys[Family.JOBS]]
    assert len(standing) == len(set(standing))
    assert repaired(hurt).commits == 0
