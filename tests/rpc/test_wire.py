"""Messages and values, errors and statuses: what goes over the wire comes back the same."""

import json
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telha_jobs import (
    CheckReport,
    Event,
    IdempotencyConflictError,
    InvalidArgumentError,
    Job,
    JobNotFoundError,
    JobUnreadableError,
    Lease,
    LeaseRef,
    NewJob,
    QueueConfig,
    QueueError,
    QueueUnavailableError,
    ReapReport,
    Receipt,
    StaleLeaseError,
    State,
    WrongStateError,
)
from telha_jobs.arguments import draft_of
from telha_jobs.audit import Marks
from telha_jobs.client import exchanges
from telha_jobs.rpc import status, wire
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import A

_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)
VALUES: Final = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(-9, 9)), inner, max_size=3),
    ),
    max_leaves=8,
)
JOB: Final = UUID("0199c2f1-7a3e-7000-805c-1d5b3c2a9f10")


def typed(value: Any) -> Any:
    """The value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), value


@given(value=VALUES)
@pytest.mark.parametrize("put", [wire.msgpack_value, wire.json_value])
def test_a_value_comes_back_type_for_type(put: wire.Put, value: Any) -> None:
    """In either format, also bytes, infinities and maps with integer keys."""
    sent = pb.Value.FromString((put(value) or pb.Value()).SerializeToString())
    assert typed(wire.value_of("payload", sent)) == typed(value)


@given(value=VALUES)
def test_json_is_json(value: Any) -> None:
    """What is sent as JSON any parser takes."""
    sent = wire.json_value(value)
    assert sent is None or json.loads(sent.json) is not sent


NO_VALUES: Final = {
    "empty text": pb.Value(json=""),
    "no JSON": pb.Value(json="{'a': 1}"),
    "NaN": pb.Value(json="NaN"),
    "key twice": pb.Value(json='{"a": 1, "a": 2}'),
    "no base64": pb.Value(json='{"$bytes": "?"}'),
    "deep JSON": pb.Value(json="[" * 100_000),
    "long number": pb.Value(json="1" * 5_000),
    "large number": pb.Value(json="1e999"),
    "empty bytes": pb.Value(msgpack=b""),
    "unused byte": pb.Value(msgpack=b"\xc1"),
    "two values": pb.Value(msgpack=b"\x01\x02"),
    "list as key": pb.Value(msgpack=b"\x81\x90\x01"),
    "too long a list": pb.Value(msgpack=b"\xdd\xff\xff\xff\xff"),
    "deep msgpack": pb.Value(msgpack=b"\x91" * 100_000),
}


@pytest.mark.parametrize("name", NO_VALUES)
def test_what_is_no_value_is_refused(name: str) -> None:
    """As a bad argument of the field."""
    with pytest.raises(InvalidArgumentError) as caught:
        wire.value_of("payload", NO_VALUES[name])
    assert caught.value.field == "payload"


LEASE: Final = Lease(
    JOB, 1 << 33, A, "ingest:pdf", {"a": b"x"}, 3, {"z": "1", "a": "2"}, 2, 1_700_000_000_000, "w", [1.0]
)
EVENTS: Final = (Event(1, "enqueued", {"due": 5}), Event(2, "failed", {"reason": "x", "generation": 1}))
FULL: Final = Job(
    JOB,
    A,
    "k",
    State.DEAD,
    7,
    {"a": 1},
    2,
    {"h": "v"},
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    "w",
    "expired",
    b"r",
    {1: 2},
    "key",
    EVENTS,
)
BARE: Final = Job(
    JOB, A, "k", State.PENDING, 0, None, 0, {}, 0, None, None, None, None, 0, None, 0, None, None, None, None, None, ()
)


@pytest.mark.parametrize("put", [wire.msgpack_value, wire.json_value])
def test_leases_and_jobs_come_back(put: wire.Put) -> None:
    """With every field set, and with every one left out that can be."""
    assert wire.lease_of(wire.lease(LEASE, put)) == LEASE
    assert list(wire.lease_of(wire.lease(LEASE, put)).headers) == ["z", "a"]
    assert [wire.job_of(wire.job(job, put)) for job in (FULL, BARE)] == [FULL, BARE]


def test_jobs_to_add_come_back() -> None:
    """As a client sends them: with every field set, and with those that must be."""
    full = NewJob(
        scope=A,
        kind="k",
        payload=[1],
        priority=0,
        delay_ms=2,
        max_attempts=3,
        idempotency_key="key",
        headers={"b": "1", "a": "2"},
        payload_version=0,
    )
    bare = NewJob(scope=A, kind="k", payload=None)
    jobs = [full, bare, replace(bare, run_at_ms=1)]
    assert [wire.new_job_of("", exchanges._new_job(draft_of(job, QueueConfig()))) for job in jobs] == jobs


def test_reports_come_back() -> None:
    """Receipts, references, counts, checks, sweeps and marks."""
    assert wire.receipt_of(wire.receipt(Receipt(JOB, True, State.FAILED))) == Receipt(JOB, True, State.FAILED)
    assert wire.lease_ref_of("lease", wire.lease_ref(LeaseRef(JOB, 5))) == LeaseRef(JOB, 5)
    counts = {state: number for number, state in enumerate(State)}
    assert wire.counts_of(wire.counts(counts)) == counts
    check = CheckReport(5, ("a", "b"), 2, (JOB,))
    assert wire.check_report_of(wire.check_report(check)) == check
    sweep = ReapReport(1, 2, 3, 4, 5, True)
    assert wire.reap_report_of(wire.reap_report(sweep)) == sweep
    for marks in (Marks(1, b"t", 2, 3, "reaped"), Marks(1, b"", None, None, None)):
        assert wire.marks_of(wire.marks(marks)) == marks


ERRORS: Final[list[QueueError]] = [
    InvalidArgumentError("jobs[3].kind", "must be one"),
    JobNotFoundError(JOB),
    WrongStateError(JOB, State.DEAD, frozenset({State.PENDING, State.LEASED})),
    StaleLeaseError(JOB, generation=1, current_generation=2, state=State.LEASED, why="superseded"),
    IdempotencyConflictError(JOB, "k\u20ac" * 300, index=4),
    IdempotencyConflictError(JOB, "k", index=None),
    JobUnreadableError(JOB),
    QueueUnavailableError("closed", outcome="unknown"),
    status.RemoteRefusalError(status.TOO_MUCH, "later"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_come_back(number: int) -> None:
    """With their fields and words, as the status of a call and as the refusal of an item."""
    error = ERRORS[number]
    told = status.status_of(error)
    trailers: list[tuple[str, str | bytes]] = [("x", "y"), (status.DETAILS_KEY, status.details(told))]
    for back in (
        status.error_of_trailers(told.message, trailers),
        status.error_of_message(status.error_message(error)),
    ):
        assert (type(back), vars(back), str(back)) == (type(error), vars(error), str(error))


def test_a_status_fits_into_metadata() -> None:
    """Words of any length are cut, so that a client takes the metadata."""
    told = status.status_of(InvalidArgumentError("f" * 100_000, "\ud800" * 100_000))
    assert len(status.details(told)) + 3 * len(told.message.encode()) < 16_384


def test_a_newer_servers_words_are_told_as_they_are() -> None:
    """A reason, or a value in its metadata, that this version does not know is no crash."""
    for reason, metadata in (("NEWER", {"message": "m"}), ("WRONG_STATE", {"job_id": str(JOB), "state": "asleep"})):
        back = status.error_of(reason, "words", metadata)
        assert (type(back), str(back)) == (status.RemoteRefusalError, "words")


@pytest.mark.parametrize("raw", [b"", b"\xff", b"\x1a\x02\x0a\x00"])
def test_trailers_of_others_are_no_error_of_ours(raw: bytes) -> None:
    """A proxy's status, or none, stays what it is."""
    assert status.error_of_trailers("words", [(status.DETAILS_KEY, raw)]) is None
    assert status.error_of_trailers("words", []) is None
