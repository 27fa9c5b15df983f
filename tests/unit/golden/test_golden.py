"""Golden rows of version 1: they decode to what they meant, encode to the same bytes, and open as a database."""

from pathlib import Path
from typing import Any
from uuid import UUID

import google_crc32c
import msgpack
import pytest

from telha_jobs import Job, JobQueue, JobUnreadableError, LeaseRef, ManualClock, State
from telha_jobs.codec import decode_record, encode_record, pack_plain
from telha_jobs.core.record import Record, timer_of
from telha_jobs.engine.rows import Slot, ready_row, write_slot
from telha_jobs.keys import (
    count_key,
    idem_key,
    job_key,
    kind_key,
    parse_count_key,
    parse_job_key,
    parse_place,
    parse_ready_key,
    parse_timer_key,
    quarantine_key,
    ready_key,
    timer_key,
)
from telha_jobs.store import layout
from telha_jobs.store.port import Delete, Family, Put, Write
from tests.unit.api.support import lease, refusal, row_of, rows, tamper

GOLDEN = Path(__file__).parent / "v1"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.row"))
T = 1_700_000_000_000
A = UUID(int=0xA)
GENERATION = (1 << 32) + 1


def job_id(number: int) -> UUID:
    """The id of a golden job."""
    return UUID(f"018bcfe5-6800-7000-800{number}-202000000001")


def golden(name: str) -> tuple[bytes, bytes]:
    """Key and value of one golden row of `jobs`."""
    key, value = (GOLDEN / f"{name}.row").read_text("ascii").split()
    return bytes.fromhex(key), bytes.fromhex(value)


def database() -> list[Put]:
    """Every row of the golden database."""
    lines = [line.split() for line in (GOLDEN / "database.rows").read_text("ascii").splitlines()]
    return [
        Put(Family(family), bytes.fromhex(key), b"" if value == "-" else bytes.fromhex(value))
        for family, key, value in lines
    ]


def family(name: Family) -> dict[bytes, bytes]:
    """The golden rows of one family."""
    return {put.key: put.value for put in database() if put.family is name}


# What each golden record says, field by field where it differs from a job that was just enqueued.
MEANT: dict[str, dict[str, Any]] = {
    "pending": {"job_id": job_id(1)},
    "pending-with-everything": {
        "job_id": job_id(2),
        "scope": UUID(int=0),
        "kind": "system:sweep",
        "priority": 0,
        "payload": None,
        "payload_version": 3,
        "headers": {"trace": "é"},
        "run_at": T + 5,
        "due": T + 310_006,
        "attempts": 1,
        "max_attempts": 9,
        "generation": GENERATION,
        "lease_end": "reaped",
        "progress": b"\x01\x92\x01\xc0",
        "key": "key-2",
    },
    "leased": {
        "job_id": job_id(3),
        "state": State.LEASED,
        "generation": 1,
        "worker": "w1",
        "leased_at": T + 1,
        "deadline": T + 300_001,
    },
    "failed": {
        "job_id": job_id(4),
        "state": State.FAILED,
        "due": T + 10_002,
        "attempts": 1,
        "generation": 1,
        "lease_end": "failed",
    },
    "completed": {
        "job_id": job_id(5),
        "state": State.COMPLETED,
        "generation": 2,
        "lease_end": "completed",
        "ended_at": T + 4,
        "purge_at": T + 604_800_004,
        "result": b"\x01\x81\xa2ok\xc3",
        "key": "key-5",
    },
    "dead": {
        "job_id": job_id(6),
        "state": State.DEAD,
        "attempts": 1,
        "max_attempts": 1,
        "generation": 1,
        "lease_end": "failed",
        "ended_at": T + 2,
        "dead_reason": "attempts",
    },
    "of-a-newer-minor-version": {
        "job_id": job_id(7),
        "unknown": ("from the future", {"a": (1, 2)}),
    },
}


def meant(name: str) -> dict[str, Any]:
    """All plain fields of a golden record."""
    number = int(str(MEANT[name]["job_id"])[22])
    plain: dict[str, Any] = {
        **dict.fromkeys(Record._fields),
        "scope": A,
        "state": State.PENDING,
        "priority": 128,
        "created_at": T,
        "kind": "embed",
        "payload": b"\x01\x81\xa1n" + bytes([number]),
        "payload_version": 1,
        "headers": {},
        "due": T,
        "attempts": 0,
        "generation": 0,
        "sequence": number,
        "token": b"nonce678" + number.to_bytes(8, "big"),
        "unknown": (),
        **MEANT[name],
    }
    plain |= {"job_id": plain["job_id"].bytes, "scope": plain["scope"].bytes}
    return {field: plain[field] for field in plain if field not in ("submit_digest", "submit_reply", "events")}


def test_every_state_has_a_golden_row() -> None:
    """And each golden row is meant by this test."""
    assert sorted(MEANT) == NAMES
    assert set(State) == {decode_record(*golden(name)).state for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_row_decodes_to_what_it_meant(name: str) -> None:
    """Field by field; what is absent in the row is None, empty or its default."""
    record = decode_record(*golden(name))
    assert meant(name) == {field: getattr(record, field) for field in meant(name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_row_encodes_to_the_same_bytes(name: str) -> None:
    """Key and value, checksum included."""
    record = decode_record(*golden(name))
    assert golden(name) == encode_record(record, sequence=record.sequence, token=record.token)


@pytest.mark.parametrize("name", NAMES)
def test_the_entries_of_a_golden_row_are_the_golden_ones(name: str) -> None:
    """`ids`, `ready`, `timers` and `idem`, byte for byte."""
    record = decode_record(*golden(name))
    kind = {"embed": 1, "system:sweep": 2}[record.kind]
    expected = {put for put in database() if record.job_id in (put.key[-16:], put.value[:16], put.key[:16])}
    expected = {put for put in expected if put.family not in (Family.META, Family.PAYLOADS)}
    slot, writes = Slot(kind), list[Write]()
    slot.now, slot.row = record, ready_row(record, kind)
    write_slot(writes, slot, record.sequence, record.token, pack_plain)
    assert (expected, len(golden(name)[1])) == (set(writes), slot.size)


def test_the_rows_stand_alone() -> None:
    """The bytes can be read without this library: version, msgpack, CRC-32C over key and value (docs/format.md)."""
    key, value = golden("leased")
    assert (key[:16], key[16], key[17], key[26:]) == (A.bytes, 2, 128, job_id(3).bytes)
    assert int.from_bytes(key[18:26], "big") == T
    assert value[0] == 1
    assert int.from_bytes(value[-4:], "big") == google_crc32c.value(key + value[:-4])
    fields = msgpack.unpackb(value[1:-4], strict_map_key=False)
    assert fields == [
        *("embed", b"\x01\x81\xa1n\x03", 1, {}, None, T, 0, None, 1, None, "w1", T + 1, T + 300_001),
        *(None, None, None, None, None, None, None, None, 3, b"nonce678" + (3).to_bytes(8, "big")),
        [[T, 0, {"due": T}], [T + 1, 1, {"worker": "w1", "generation": 1, "attempt": 1}]],
    ]


def test_keys_take_apart_and_put_together() -> None:
    """Every golden key of every family is what its parser and its maker say."""
    for put in database():
        key, value = put.key, put.value
        match put.family:
            case Family.JOBS:
                assert key == job_key(*parse_job_key(key))
            case Family.READY:
                assert (key, value) == (ready_key(*parse_ready_key(key)), b"")
            case Family.TIMERS:
                assert (key, value) == (timer_key(*parse_timer_key(key)), b"")
            case Family.IDS:
                assert key == parse_job_key(parse_place(value, key)[0]).job_id
            case Family.QUARANTINE:
                assert key == quarantine_key(key[16:])
            case Family.IDEM:
                number = 2 if key[:16] == bytes(16) else value[9] & 0x0F
                assert (idem_key(key[:16], f"key-{number}"), job_id(number).bytes) == (key, value)
            case Family.PAYLOADS:
                assert (job_id(2).bytes, b"\x01\xda\x02\x58" + b"x" * 600) == (key, value)
            case Family.META:
                if key.startswith(b"count/"):
                    assert key == count_key(*parse_count_key(key))


def test_the_meta_keys() -> None:
    """Kinds, the newest id, the last served scope, and the store's own."""
    meta = {key: value for key, value in family(Family.META).items() if not key.startswith(b"count/")}
    assert meta == {
        kind_key(1): b"embed",
        kind_key(2): b"system:sweep",
        b"last_id": job_id(8).bytes,
        b"last_served": A.bytes,
        b"store/format": bytes.fromhex("0001 0000"),
        b"store/commit": layout.encode_commit(8, T + 310_006),
        b"store/incarnation": bytes.fromhex("00000001"),
    }


# -- the golden rows as a database


def put_in_place(path: Path) -> None:
    """A database that holds the golden rows and nothing else."""
    clock = ManualClock(T)
    with JobQueue.open(path, clock=clock) as queue:
        extra = [Delete(Family.META, key) for key in rows(queue)[Family.META]]
    tamper(path, *extra, *database())


def test_the_golden_database_opens(tmp_path: Path) -> None:
    """Everything in it agrees, the quarantined job is listed as such, and the time is no earlier than its newest."""
    put_in_place(tmp_path / "queue")
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(T)) as queue:
        report = queue.check()
        assert ((), 7, (job_id(8),)) == (report.problems, report.rows, report.quarantined)
        assert queue.counts() == {
            State.PENDING: 3,
            State.LEASED: 1,
            State.FAILED: 1,
            State.COMPLETED: 1,
            State.DEAD: 1,
        }
        assert [job_id(number) for number in range(1, 8)] == [job.job_id for job in queue.list_jobs().jobs]
        assert job_id(8) == refusal(JobUnreadableError, lambda: queue.get(job_id(8))).job_id
        assert queue.now_ms() == T + 310_006


def test_a_golden_job_reads_as_it_was(tmp_path: Path) -> None:
    """Every public field of one that has them all."""
    put_in_place(tmp_path / "queue")
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(T)) as queue:
        found = queue.get(job_id(2))
    events = found.events
    assert [event.transition for event in events] == ["enqueued", "leased", "reaped"]
    assert found == Job(
        job_id=job_id(2),
        scope=UUID(int=0),
        kind="system:sweep",
        state=State.PENDING,
        priority=0,
        payload="x" * 600,
        payload_version=3,
        headers={"trace": "é"},
        created_at_ms=T,
        due_ms=T + 310_006,
        deadline_ms=None,
        ended_at_ms=None,
        run_at_ms=T + 5,
        attempts=1,
        max_attempts=9,
        generation=GENERATION,
        worker=None,
        dead_reason=None,
        result=None,
        progress=[1, None],
        idempotency_key="key-2",
        events=events,
    )


def test_the_golden_database_works(tmp_path: Path) -> None:
    """Its lease can be completed, its submits repeated, its key met, its jobs leased in order and retried."""
    put_in_place(tmp_path / "queue")
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(T)) as queue:
        assert queue.complete(LeaseRef(job_id(3), 1), "late but not reaped") == []
        assert queue.complete(LeaseRef(job_id(5), 2), {"ok": True}) == []
        assert queue.fail(LeaseRef(job_id(4), 1), "broken") is State.FAILED
        receipt = queue.enqueue(A, "embed", {"n": 5}, idempotency_key="key-5")
        assert (job_id(5), False, State.COMPLETED) == (receipt.job_id, receipt.created, receipt.state)
        queue.retry(job_id(6))
        leases = queue.lease_batch("w", 9)
        assert [job_id(number) for number in (2, 1, 7, 4, 6)] == [one.job_id for one in leases]
        assert {1 << 32, GENERATION + 1} == {one.generation for one in leases}
        assert queue.enqueue(A, "embed", None).job_id.int > job_id(8).int
        assert queue.check().problems == ()


def test_unknown_fields_survive_a_rewrite(tmp_path: Path) -> None:
    """Leased, failed, retried and completed by this version: what a newer one wrote is still there."""
    put_in_place(tmp_path / "queue")
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(T)) as queue:
        for one in queue.lease_batch("w", 9):
            if one.job_id == job_id(7):
                queue.fail(one, "x", retryable=False)
        queue.retry(job_id(7))
        held = lease(queue)
        assert job_id(7) == held.job_id
        queue.complete(held)
        record = decode_record(*row_of(queue, job_id(7)))
    assert (record.state, record.unknown) == (State.COMPLETED, ("from the future", {"a": (1, 2)}))


def test_a_row_without_max_attempts_has_none() -> None:
    """Rows written before the field existed: the job has no ceiling of its own."""
    key, value = golden("dead")
    fields = msgpack.unpackb(value[1:-4], strict_map_key=False)
    assert fields[7] == 1
    fields[7] = None
    body = value[:1] + msgpack.packb(fields)
    record = decode_record(key, body + google_crc32c.value(key + body).to_bytes(4, "big"))
    assert (record.max_attempts, decode_record(key, value).max_attempts) == (None, 1)


def test_the_timers_of_golden_rows() -> None:
    """Deadline, end of back-off, purge; none for a pending job, nor for a dead one that is kept for ever."""
    found = {name: timer_of(decode_record(*golden(name))) for name in NAMES}
    assert found == {
        "pending": None,
        "pending-with-everything": None,
        "of-a-newer-minor-version": None,
        "leased": T + 300_001,
        "failed": T + 10_002,
        "completed": T + 604_800_004,
        "dead": None,
    }
