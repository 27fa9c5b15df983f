"""Arguments of a wrong type, out of range or against a rule: refused by name, with nothing written."""

from collections.abc import Callable
from enum import IntEnum
from os import PathLike
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import (
    SYSTEM_SCOPE,
    InvalidArgumentError,
    JobQueue,
    KindPolicy,
    LeaseRef,
    ManualClock,
    NewJob,
    QueueConfig,
    State,
)
from tests.unit.api.conftest import Open
from tests.unit.api.support import MISSING, START_MS, A, B, each, leased, open_queue, refused, unchanged

TIME_MAX_MS = 253_402_300_799_999
TEN_YEARS_MS = 315_576_000_000
SURROGATE = "bad\ud800"

BAD_HEADERS: list[Any] = [
    [],
    "a",
    {"a": 1},
    {1: "a"},
    {b"a": "b"},
    {"a": None},
    {"a": SURROGATE},
    {SURROGATE: "a"},
    {str(number): "" for number in range(65)},
    {"a": "b" * 16_384},
    {"é" * 8_000: "é" * 193},
]

JOB_FAULTS: list[tuple[str, Any]] = [
    *(("scope", value) for value in (None, str(A), A.bytes, 1)),
    *(("kind", value) for value in (None, 1, b"embed", "", "x" * 129, "a b", "é", "a\n", "ingest:*", "*", SURROGATE)),
    *(("priority", value) for value in (None, "1", 1.0, True, -1, 256)),
    *(("run_at_ms", value) for value in ("1", 1.0, True, -1, TIME_MAX_MS + 1)),
    *(("delay_ms", value) for value in ("1", 1.0, False, -1, TEN_YEARS_MS + 1)),
    *(("max_attempts", value) for value in ("1", 1.0, True, 0, -1, 64)),
    *(("idempotency_key", value) for value in (1, b"k", "", "k" * 1_025, "é" * 513, SURROGATE)),
    *(("headers", value) for value in BAD_HEADERS),
    *(("payload_version", value) for value in (None, "1", 1.0, True, -1)),
]


def job(**changes: Any) -> NewJob:
    """A job that is right but for the changes."""
    values: dict[str, Any] = {"scope": A, "kind": "embed", "payload": None, **changes}
    return NewJob(**values)


@each("field, value", JOB_FAULTS)
def test_enqueue_refuses_a_bad_argument(queue: JobQueue, field: str, value: Any) -> None:
    """The error names the argument."""
    arguments: dict[str, Any] = {"scope": A, "kind": "embed", "payload": None, field: value}
    with refused(queue, field):
        queue.enqueue(**arguments)


@each("field, value", JOB_FAULTS)
def test_enqueue_many_refuses_a_bad_job(queue: JobQueue, field: str, value: Any) -> None:
    """The error names the position and the field, and the good jobs before it are not written."""
    with refused(queue, f"jobs[3].{field}"):
        queue.enqueue_many([job(), job(), job(), job(**{field: value}), job()])


@each("field, value", JOB_FAULTS)
def test_complete_refuses_a_bad_follow_up(queue: JobQueue, field: str, value: Any) -> None:
    """The error names the position among the follow-ups, and the lease stays current."""
    held = leased(queue)
    with refused(queue, f"enqueue[0].{field}"):
        queue.complete(held, enqueue=[job(**{field: value})])
    assert queue.get(held.job_id).state is State.LEASED


ACCEPTED: list[dict[str, Any]] = [
    {"kind": "x" * 128},
    {"kind": "x"},
    {"kind": "aZ09_.:/+-"},
    {"priority": 0},
    {"priority": 255},
    {"run_at_ms": 0},
    {"run_at_ms": TIME_MAX_MS},
    {"delay_ms": 0},
    {"delay_ms": TEN_YEARS_MS},
    {"max_attempts": 1},
    {"max_attempts": 63},
    {"idempotency_key": "k"},
    {"idempotency_key": "k" * 1_024},
    {"idempotency_key": "é" * 512},
    {"headers": {}},
    {"headers": {str(number): "" for number in range(64)}},
    {"headers": {"a": "b" * 16_383}},
    {"headers": {"é" * 8_000: "é" * 192}},
    {"payload_version": 0},
    {"scope": SYSTEM_SCOPE, "kind": "system:sweep"},
    {"scope": SYSTEM_SCOPE, "kind": "embed"},
]


@each("arguments", ACCEPTED)
def test_a_limit_itself_is_accepted(queue: JobQueue, arguments: dict[str, Any]) -> None:
    """The last allowed value on either side."""
    made = queue.enqueue(**{"scope": A, "kind": "embed", "payload": None, **arguments})
    found = queue.get(made.job_id)
    for field in arguments.keys() - {"delay_ms", "scope"}:
        assert arguments[field] == getattr(found, field)


def test_run_at_and_delay_exclude_each_other(queue: JobQueue) -> None:
    """Both given is refused, also when the delay is 0."""
    with refused(queue, "delay_ms"):
        queue.enqueue(A, "embed", None, run_at_ms=START_MS, delay_ms=0)


@each("kind", ["system:sweep", "system:", "system:a:b"])
def test_system_kinds_belong_to_the_nil_scope(queue: JobQueue, kind: str) -> None:
    """Anywhere else they are refused; a kind that merely begins alike is not."""
    with refused(queue, "kind"):
        queue.enqueue(A, kind, None)
    queue.enqueue(A, "systematic", None)
    queue.enqueue(A, "system", None)


def test_max_attempts_must_fit_in_the_event_log(opened: Open) -> None:
    """A job may ask for as many attempts as 4 a + 4 events leave room for."""
    queue = opened(max_attempts=1, events_max=15)
    queue.enqueue(A, "embed", None, max_attempts=2)
    with refused(queue, "max_attempts"):
        queue.enqueue(A, "embed", None, max_attempts=3)


@each("jobs", [None, 3, "ab", b"ab", {"a": 1}, job()])
def test_enqueue_many_wants_an_iterable_of_jobs(queue: JobQueue, jobs: Any) -> None:
    """Text, bytes and mappings are none, although Python can iterate them."""
    with refused(queue, "jobs"):
        queue.enqueue_many(jobs)


def test_enqueue_many_wants_new_jobs(queue: JobQueue) -> None:
    """Anything else among them is named by its position."""
    items: list[Any] = [job(), {"scope": A, "kind": "embed", "payload": None}]
    with refused(queue, "jobs[1]"):
        queue.enqueue_many(items)


def test_enqueue_many_takes_ten_thousand_jobs(queue: JobQueue) -> None:
    """And not one more; an endless iterable is refused, too."""
    assert len(queue.enqueue_many(job() for _ in range(10_000))) == 10_000
    with refused(queue, "jobs"):
        queue.enqueue_many(job() for _ in range(10_001))


def test_follow_ups_are_at_most_a_thousand(queue: JobQueue) -> None:
    """And not one more."""
    held = leased(queue)
    with refused(queue, "enqueue"):
        queue.complete(held, enqueue=[job()] * 1_001)
    assert len(queue.complete(held, enqueue=[job()] * 1_000)) == 1_000


def test_bulk_calls_take_nothing_at_all(queue: JobQueue) -> None:
    """An empty bulk call is answered with an empty list and writes nothing."""
    with unchanged(queue):
        assert [queue.enqueue_many([]), queue.extend("w", []), queue.complete_many([])] == [[], [], []]


@each("worker", [None, 1, b"w", "", "w" * 257, SURROGATE])
def test_a_worker_is_a_name(queue: JobQueue, worker: Any) -> None:
    """1 to 256 characters of text, for leases and heartbeats alike."""
    held = leased(queue)
    queue.enqueue(A, "embed", None)
    calls: list[Callable[[], object]] = [
        lambda: queue.lease_next(worker),
        lambda: queue.lease_batch(worker, 1),
        lambda: queue.extend(worker, [held]),
    ]
    for call in calls:
        with refused(queue, "worker"):
            call()


def test_a_worker_of_256_characters_is_kept(queue: JobQueue) -> None:
    """The limit counts characters, not bytes."""
    queue.enqueue(A, "embed", None)
    granted = queue.lease_next("é" * 256)
    assert granted is not None
    assert "é" * 256 == granted.worker == queue.get(granted.job_id).worker


FILTER_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"kinds": "embed"}, "kinds"),
    ({"kinds": b"embed"}, "kinds"),
    ({"kinds": {"embed": 1}}, "kinds"),
    ({"kinds": 1}, "kinds"),
    ({"kinds": []}, "kinds"),
    ({"kinds": ["embed", 1]}, "kinds[1]"),
    ({"kinds": ["embed", "*"]}, "kinds[1]"),
    ({"kinds": ["ingest*"]}, "kinds[0]"),
    ({"kinds": ["ingest:*:x"]}, "kinds[0]"),
    ({"kinds": [""]}, "kinds[0]"),
    ({"kinds": [None]}, "kinds[0]"),
    ({"scopes": str(A)}, "scopes"),
    ({"scopes": A}, "scopes"),
    ({"scopes": []}, "scopes"),
    ({"scopes": iter(())}, "scopes"),
    ({"scopes": [A, str(A)]}, "scopes[1]"),
    ({"scopes": [None]}, "scopes[0]"),
    ({"wait_ms": -1}, "wait_ms"),
    ({"wait_ms": True}, "wait_ms"),
    ({"wait_ms": 1.5}, "wait_ms"),
    ({"wait_ms": None}, "wait_ms"),
]


@each("filters, field", FILTER_FAULTS)
def test_leases_refuse_bad_filters(queue: JobQueue, filters: dict[str, Any], field: str) -> None:
    """Wrong types, empty filters, a star that is no family; single and batch alike."""
    queue.enqueue(A, "embed", None)
    with refused(queue, field):
        queue.lease_next("w", **filters)
    with refused(queue, field):
        queue.lease_batch("w", 1, **filters)


def test_filters_may_be_any_iterable(queue: JobQueue) -> None:
    """Sets, tuples and generators; also one with the same entry twice."""
    for _ in range(3):
        queue.enqueue(A, "embed", None)
    filters: list[dict[str, Any]] = [
        {"scopes": {A}, "kinds": ("embed", "embed")},
        {"scopes": (one for one in (A, A)), "kinds": {"embed"}},
        {"scopes": frozenset({A, B}), "kinds": (kind for kind in ("nobody", "embed"))},
    ]
    assert all(queue.lease_next("w", **one) is not None for one in filters)


@each("limit", [None, "1", 1.0, True, 0, -1, 10_001])
def test_a_batch_has_a_limit(queue: JobQueue, limit: Any) -> None:
    """From 1 to `lease_batch_max`."""
    queue.enqueue(A, "embed", None)
    with refused(queue, "limit"):
        queue.lease_batch("w", limit)


def test_the_batch_limit_is_configured(opened: Open) -> None:
    """`lease_batch_max` itself is allowed."""
    queue = opened(lease_batch_max=2)
    queue.enqueue_many([job()] * 3)
    with refused(queue, "limit"):
        queue.lease_batch("w", 3)
    assert len(queue.lease_batch("w", 2)) == 2


REF_FAULTS: list[tuple[Any, str]] = [
    (None, ""),
    ("lease", ""),
    ((MISSING, 1), ""),
    (LeaseRef(str(MISSING), 1), ".job_id"),  # type: ignore[arg-type]  # the fault
    (LeaseRef(MISSING.bytes, 1), ".job_id"),  # type: ignore[arg-type]  # the fault
    (LeaseRef(MISSING, "1"), ".generation"),  # type: ignore[arg-type]  # the fault
    (LeaseRef(MISSING, True), ".generation"),
    (LeaseRef(MISSING, 1.0), ".generation"),  # type: ignore[arg-type]  # the fault
    (LeaseRef(MISSING, -1), ".generation"),
]


@each("lease, field", REF_FAULTS)
def test_submits_refuse_what_is_no_lease(queue: JobQueue, lease: Any, field: str) -> None:
    """The single calls name `lease`, the bulk calls the position."""
    held = leased(queue)
    with refused(queue, f"lease{field}"):
        queue.complete(lease)
    with refused(queue, f"lease{field}"):
        queue.fail(lease, "x")
    with refused(queue, f"lease{field}"):
        queue.release(lease)
    with refused(queue, f"leases[1]{field}"):
        queue.extend("w", [held, lease])
    with refused(queue, f"items[1].lease{field}"):
        queue.complete_many([(held, None), (lease, None)])


@each("items", [None, 1, "ab", {"a": 1}])
def test_complete_many_wants_an_iterable(queue: JobQueue, items: Any) -> None:
    """Text and mappings are none."""
    with refused(queue, "items"):
        queue.complete_many(items)


@each("item", [None, (), (1,), "ab", (1, 2, 3)])
def test_complete_many_wants_pairs(queue: JobQueue, item: Any) -> None:
    """An item that is none is named by its position."""
    held = leased(queue)
    with refused(queue, "items[1]"):
        queue.complete_many([(held, None), item])


def test_a_bad_result_refuses_the_whole_bulk_call(opened: Open) -> None:
    """Too large or not carried: `items[3].result`, and the good ones before it stay leased."""
    queue = opened(result_bytes_max=10)
    held = [leased(queue) for _ in range(4)]
    for bad in (b"x" * 10, {1, 2}):
        with refused(queue, "items[3].result"):
            queue.complete_many([*((one, None) for one in held[:3]), (held[3], bad)])


@each("leases", [None, 1, "ab", {"a": 1}, LeaseRef(MISSING, 1)])
def test_extend_wants_a_sequence_of_leases(queue: JobQueue, leases: Any) -> None:
    """A single lease is none."""
    with refused(queue, "leases"):
        queue.extend("w", leases)


def test_progress_is_for_listed_jobs(queue: JobQueue) -> None:
    """A mapping by job id; a job that is not among the leases is an argument error."""
    held = leased(queue)
    bad: Any
    for bad, field in (
        ([1], "progress"),
        ("ab", "progress"),
        ({str(held.job_id): 1}, f"progress[{held.job_id}]"),
        ({MISSING: 1}, f"progress[{MISSING}]"),
        ({held.job_id: (1,)}, f"progress[{held.job_id}]"),
        ({held.job_id: b"x" * 1_048_577}, f"progress[{held.job_id}]"),
    ):
        with refused(queue, field):
            queue.extend("w", [held], progress=bad)


@each("reason", [None, 1, b"why", ValueError("why")])
def test_a_reason_is_text(queue: JobQueue, reason: Any) -> None:
    """Only its type can be wrong: what it says is never refused."""
    held = leased(queue)
    with refused(queue, "reason"):
        queue.fail(held, reason)


@each("flag", [None, 0, 1, "yes"])
def test_a_flag_is_a_bool(queue: JobQueue, flag: Any) -> None:
    """Nothing that merely counts as one."""
    held = leased(queue)
    with refused(queue, "retryable"):
        queue.fail(held, "x", retryable=flag)
    with refused(queue, "repair"):
        queue.check(repair=flag)


@each("delay", [None, True, 1.0, "1", -1, TEN_YEARS_MS + 1])
def test_a_release_delay_is_a_duration(queue: JobQueue, delay: Any) -> None:
    """From 0 to ten years."""
    held = leased(queue)
    with refused(queue, "delay_ms"):
        queue.release(held, delay_ms=delay)


@each("limit", [True, 1.0, "1", 0, -1])
def test_a_reap_limit_is_a_count(queue: JobQueue, limit: Any) -> None:
    """1 or more, or None for everything."""
    with refused(queue, "limit"):
        queue.reap(limit)


@each("job_id", [None, 1, str(MISSING), MISSING.bytes])
def test_a_job_id_is_a_uuid(queue: JobQueue, job_id: Any) -> None:
    """For every call by id."""
    for call in (queue.get, queue.retry, queue.cancel, queue.discard):
        with refused(queue, "job_id"):
            call(job_id)


LISTING_FAULTS: list[tuple[str, Any]] = [
    *(("state", value) for value in ("dead", 1)),
    *(("scope", value) for value in (str(A), 1)),
    *(("kind", value) for value in (1, "*", "a b", "", ["embed"])),
    *(("limit", value) for value in (None, True, 1.0, "1", 0, -1)),
    *(("after", value) for value in (1, "x", "", MISSING, b"x")),
]


@each("field, value", LISTING_FAULTS)
def test_listings_refuse_bad_filters(queue: JobQueue, field: str, value: Any) -> None:
    """Each argument by name; counts have two of them."""
    with refused(queue, field):
        queue.list_jobs(**{field: value})
    if field in ("scope", "kind"):
        with refused(queue, field):
            queue.counts(**{field: value})


class Bytes(PathLike[bytes]):
    """A path object that is no text."""

    def __fspath__(self) -> bytes:
        return b"queue"


@each("path", [None, 1, b"queue", Bytes()])
def test_a_path_is_text_or_a_path(path: Any) -> None:
    """Anything else is refused before anything is touched."""
    with pytest.raises(InvalidArgumentError) as caught:
        JobQueue.open(path)
    assert caught.value.field == "path"


@each("path", ["", "a\0b", "a\ud800"])
def test_a_path_that_names_nothing_is_refused(path: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text, a NUL, a surrogate that stands for no byte: the current directory does not become a queue."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        JobQueue.open(path)
    assert caught.value.field == "path"
    assert not list(tmp_path.iterdir())


@each("config", [None, {}, "sync", QueueConfig])
def test_a_config_is_a_config(config: Any, tmp_path: Any) -> None:
    """Anything else is refused and no directory is made."""
    with pytest.raises(InvalidArgumentError) as caught:
        JobQueue.open(tmp_path / "queue", config=config)
    assert caught.value.field == "config"
    assert not (tmp_path / "queue").exists()


@each("clock", [1, "noon", object()])
def test_a_clock_is_a_clock(clock: Any, tmp_path: Any) -> None:
    """What has no readings is refused, and the directory can be opened afterwards."""
    with pytest.raises(InvalidArgumentError) as caught:
        JobQueue.open(tmp_path / "queue", clock=clock)
    assert caught.value.field == "clock"
    JobQueue.open(tmp_path / "queue").close()


class Name(str):
    """Text that prints as something else, as the members of many enums do."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"Name.{self.upper()}"


RED = Name("red")


class Ranked(str):
    """Text that compares in a way of its own, so that Python takes its hash away."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranked) and len(self) == len(other)


class Equal(str):
    """Text that equals every other."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("embed")

    def __eq__(self, other: object) -> bool:
        return True


class Level(IntEnum):
    """An int with a name of its own."""

    HIGH = 3


def test_text_of_a_subclass_is_taken_as_its_text(queue: JobQueue) -> None:
    """A str enum as kind, key, header, worker or reason means its characters, not what `str()` makes of it."""
    made = queue.enqueue(A, RED, None, idempotency_key=RED, headers={RED: RED})
    again = queue.enqueue(A, "red", None, idempotency_key="red")
    granted = queue.lease_next(RED, kinds=[RED])
    assert granted is not None
    assert (made.job_id, False, made.job_id) == (again.job_id, again.created, granted.job_id)
    assert (granted.kind, granted.worker, granted.headers) == ("red", "red", {"red": "red"})
    queue.fail(granted, RED)
    found = queue.get(made.job_id)
    assert {found.kind, found.idempotency_key, found.events[-1].detail["reason"]} == {"red"}
    assert {str} == {type(found.kind), type(found.idempotency_key), *map(type, found.headers)}


def test_text_without_a_hash_is_taken_as_its_text(queue: JobQueue) -> None:
    """A subclass may compare as it likes: what counts are the characters."""
    made = queue.enqueue(A, Ranked("gruen"), None, idempotency_key=Ranked("key"))
    granted = queue.lease_next(Ranked("w"), kinds=[Ranked("gruen"), Ranked("gr:*")])
    assert granted is not None
    assert (granted.job_id, granted.kind, granted.worker) == (made.job_id, "gruen", "w")


def test_a_kind_is_not_taken_for_another_that_compares_equal(queue: JobQueue) -> None:
    """A good kind first, then a bad one that says it equals it."""
    queue.enqueue(A, Equal("embed"), None)
    with refused(queue, "kind"):
        queue.enqueue(A, Equal("em ed"), None)


def test_an_int_of_a_subclass_is_taken_as_its_number(queue: JobQueue) -> None:
    """An int enum as a number is that number."""
    made = queue.enqueue(A, "embed", None, priority=Level.HIGH)
    assert (3, int) == (queue.get(made.job_id).priority, type(queue.get(made.job_id).priority))


class Unprintable:
    """A value whose `repr` raises."""

    def __repr__(self) -> str:
        raise LookupError("no repr")


HUGE = 10**5_000  # more digits than Python prints


@each(
    "call, field",
    [
        (lambda queue: queue.enqueue(A, "embed", None, priority=HUGE), "priority"),
        (lambda queue: queue.complete(LeaseRef(MISSING, HUGE)), "lease.generation"),
        (lambda queue: queue.lease_batch("w", -HUGE), "limit"),
        (lambda queue: queue.extend("w", [], progress={HUGE: 1}), "progress[a value of type int]"),
        (lambda queue: queue.extend("w", [], progress={Unprintable(): 1}), "progress[a value of type Unprintable]"),
        (lambda _: QueueConfig(lease_ttl_ms=HUGE), "lease_ttl_ms"),
        (lambda _: QueueConfig(kinds={HUGE: KindPolicy()}), "kinds[a value of type int]"),  # type: ignore[dict-item]
        (lambda _: QueueConfig(durability=Unprintable()), "durability"),  # type: ignore[arg-type]
        (lambda _: ManualClock(HUGE), "start_ms"),
    ],
)
def test_a_value_that_cannot_be_printed_is_refused_by_name(
    queue: JobQueue, call: Callable[[JobQueue], object], field: str
) -> None:
    """The refusal of an int of 5,001 digits, or of an object whose `repr` raises, is an `InvalidArgumentError` too."""
    with refused(queue, field):
        call(queue)


def test_an_iterable_that_raises_changes_nothing(queue: JobQueue) -> None:
    """The caller's own error comes through, and the queue goes on."""

    def jobs() -> Any:
        yield job()
        raise LookupError("the caller's own")

    with unchanged(queue), pytest.raises(LookupError, match="the caller's own"):
        queue.enqueue_many(jobs())
    queue.enqueue_many([job()])


def test_an_iterable_may_ask_the_queue(queue: JobQueue) -> None:
    """Jobs may be made from what the queue says while they are being listed."""
    first = queue.enqueue(A, "embed", 1).job_id
    made = queue.enqueue_many(job(payload=queue.get(first).payload) for _ in range(2))
    assert [queue.get(one.job_id).payload for one in made] == [1, 1]


def test_uuid_subclasses_are_uuids(queue: JobQueue) -> None:
    """A scope of a subclass is the same scope."""

    class Tenant(UUID):
        pass

    made = queue.enqueue(Tenant(int=A.int), "embed", None)
    assert [made.job_id] == [one.job_id for one in queue.list_jobs(scope=A).jobs]


def test_open_queue_accepts_a_path_object(tmp_path: Any, clock: Any) -> None:
    """Text and path objects name the same directory."""
    open_queue(tmp_path / "queue", clock).close()
    with JobQueue.open(str(tmp_path / "queue"), clock=clock) as queue:
        assert {0} == set(queue.counts().values())
