"""Carried values: payloads, results and progress come back type for type, or are refused and nothing is written."""

import math
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import pytest

from telha_jobs import JobQueue, NewJob, State
from telha_jobs.store.port import Family
from tests.unit.api.conftest import Open
from tests.unit.api.support import A, each, lease, leased, refused, rows

INT_MIN, INT_MAX = -(2**63), 2**64 - 1


def nested(depth: int, innermost: Any = None) -> Any:
    """Lists in lists, `depth` of them."""
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def nested_maps(depth: int) -> Any:
    """Maps in maps, the innermost one empty."""
    value: Any = {}
    for _ in range(depth - 1):
        value = {"k": value}
    return value


class Number(IntEnum):
    """An int with a name."""

    ONE = 1


class Text(str):
    """Text of another type."""

    __slots__ = ()


class Pair(NamedTuple):
    """A tuple with names."""

    left: int


class Loose(dict[Any, Any]):
    """A map of another type."""


SELF_CONTAINING: list[Any] = []
SELF_CONTAINING.append(SELF_CONTAINING)
SELF_CONTAINING_MAP: dict[str, Any] = {}
SELF_CONTAINING_MAP["self"] = [SELF_CONTAINING_MAP]

GOOD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    INT_MIN,
    INT_MAX,
    0.0,
    -0.0,
    1.0,
    5e-324,
    math.inf,
    -math.inf,
    "",
    "é \U0001f600 \0",
    b"",
    b"\xff\0",
    [],
    {},
    [None, [1, [2.0, "3", b"4", {}]]],
    {"b": 1, "a": {"1": 1, 1: "1"}, 0: [], -1: True},
    {INT_MIN: 1, INT_MAX: 2},
    nested(100),
    nested_maps(100),
    list(range(1_000)),
    "x" * 100_000,
]

BAD: list[Any] = [
    (),
    [1, (2,)],
    {"a": (1,)},
    set(),
    frozenset(),
    bytearray(b"x"),
    memoryview(b"x"),
    math.nan,
    [{"a": -math.nan}],
    "\ud800",
    ["\udfff"],
    {"\ud800": 1},
    INT_MIN - 1,
    INT_MAX + 1,
    2**9_999,
    {INT_MAX + 1: 1},
    {True: 1},
    {None: 1},
    {1.0: 1},
    {b"a": 1},
    {(): 1},
    Number.ONE,
    {Number.ONE: 1},
    Text("x"),
    {Text("x"): 1},
    Pair(1),
    Loose(),
    OrderedDict(a=1),
    defaultdict(list),
    range(3),
    iter([1]),
    1j,
    Decimal(1),
    datetime.now(UTC),
    object(),
    len,
    nested(101),
    nested(100, []),
    nested_maps(101),
    nested(100_000),
    SELF_CONTAINING,
    SELF_CONTAINING_MAP,
]


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down; the order of a map's entries does not matter."""
    stack = [(left, right)]
    while stack:
        one, other = stack.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            kinds = [{(type(key), key) for key in part} for part in (one, other)]
            if kinds[0] != kinds[1]:
                return False
            stack += [(one[key], other[key]) for key in one]
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            stack += zip(one, other, strict=True)
        elif isinstance(one, float):
            if (one, math.copysign(1, one)) != (other, math.copysign(1, other)):
                return False
        elif one != other:
            return False
    return True


@each("value", GOOD)
def test_a_payload_comes_back_type_for_type(queue: JobQueue, value: Any) -> None:
    """From the lease and from `get`."""
    made = queue.enqueue(A, "embed", value)
    assert same(value, queue.get(made.job_id).payload)
    assert same(value, lease(queue).payload)


@each("value", GOOD)
def test_result_and_progress_come_back_type_for_type(queue: JobQueue, value: Any) -> None:
    """Progress also with the next lease."""
    held = leased(queue)
    queue.extend("w", [held], progress={held.job_id: value})
    assert same(value, queue.get(held.job_id).progress)
    queue.release(held)
    again = lease(queue)
    assert same(value, again.progress)
    queue.complete(again, value)
    assert same(value, queue.get(held.job_id).result)


@each("value", BAD)
def test_a_payload_that_would_not_come_back_is_refused(queue: JobQueue, value: Any) -> None:
    """At enqueue, with nothing written; no RecursionError escapes, whatever nests in what."""
    with refused(queue, "payload"):
        queue.enqueue(A, "embed", value)
    with refused(queue, "jobs[1].payload"):
        queue.enqueue_many([NewJob(scope=A, kind="embed", payload=payload) for payload in (1, value)])


@each("value", BAD)
def test_a_result_or_progress_that_would_not_come_back_is_refused(queue: JobQueue, value: Any) -> None:
    """The lease stays as it was."""
    held = leased(queue)
    with refused(queue, "result"):
        queue.complete(held, value)
    with refused(queue, "items[0].result"):
        queue.complete_many([(held, value)])
    with refused(queue, f"progress[{held.job_id}]"):
        queue.extend("w", [held], progress={held.job_id: value})


def deep_in_the_stack(call: Callable[[], Any], spare: int) -> Any:
    """The call, made when only about `spare` frames are left."""

    def down(left: int) -> Any:
        return call() if left == 0 else down(left - 1)

    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return down(sys.getrecursionlimit() - depth - spare)


def test_nesting_costs_no_stack(queue: JobQueue) -> None:
    """With 60 frames left, a value 100 deep is written, read and compared, and one 101 deep is refused by name."""
    job_id = deep_in_the_stack(lambda: queue.enqueue(A, "embed", nested(100), idempotency_key="k").job_id, 60)
    assert same(nested(100), deep_in_the_stack(lambda: queue.get(job_id).payload, 60))
    again = deep_in_the_stack(lambda: queue.enqueue(A, "embed", nested(100), idempotency_key="k"), 60)
    assert (job_id, False) == (again.job_id, again.created)
    with refused(queue, "payload"):
        deep_in_the_stack(lambda: queue.enqueue(A, "embed", nested(101)), 60)


def test_a_small_value_that_unfolds_to_a_huge_one_is_refused(opened: Open) -> None:
    """Twenty lists of two that share their content would be a million items: refused by size, soon."""
    queue = opened(payload_bytes_max=10_000)
    value: Any = [1]
    for _ in range(20):
        value = [value, value]
    with refused(queue, "payload"):
        queue.enqueue(A, "embed", value)


def test_the_size_limits_are_exact(opened: Open) -> None:
    """A payload, result or progress may encode to exactly the limit, not to a byte more."""
    queue = opened(payload_bytes_max=12, result_bytes_max=7)
    with refused(queue, "payload"):
        queue.enqueue(A, "embed", "x" * 12)
    held = leased(queue, payload="x" * 11)
    with refused(queue, "result"):
        queue.complete(held, "x" * 7)
    with refused(queue, f"progress[{held.job_id}]"):
        queue.extend("w", [held], progress={held.job_id: "x" * 7})
    queue.extend("w", [held], progress={held.job_id: "x" * 6})
    queue.complete(held, "x" * 6)
    assert tuple(map(len, (held.payload, queue.get(held.job_id).result, queue.get(held.job_id).progress))) == (11, 6, 6)


def test_the_default_payload_limit_is_4_mib(queue: JobQueue) -> None:
    """5 bytes of it go to the length of a large byte string."""
    largest = b"x" * (4 * 1024 * 1024 - 5)
    with refused(queue, "payload"):
        queue.enqueue(A, "embed", largest + b"x")
    assert largest == queue.get(queue.enqueue(A, "embed", largest).job_id).payload


def test_a_payload_belongs_to_the_queue_once_given(queue: JobQueue) -> None:
    """Changing it afterwards changes nothing."""
    payload = {"a": [1]}
    made = queue.enqueue(A, "embed", payload)
    payload["a"].append(2)
    assert queue.get(made.job_id).payload == {"a": [1]}


def test_an_answer_belongs_to_the_caller(queue: JobQueue) -> None:
    """Changing what `get` gave changes nothing in the queue."""
    made = queue.enqueue(A, "embed", {"a": [1]}, headers={"a": "b"})
    found = queue.get(made.job_id)
    found.payload["a"].append(2)
    dict.clear(found.headers)  # type: ignore[arg-type]  # declared as a read-only mapping
    again = queue.get(made.job_id)
    assert (again.payload, again.headers) == ({"a": [1]}, {"a": "b"})


@pytest.mark.parametrize("size", [511, 512, 513, 100_000])
def test_large_payloads_follow_the_job(opened: Open, size: int) -> None:
    """Payloads on either side of 512 bytes are leased, kept through failure and reopening, and go with the job."""
    queue = opened()
    payload = b"x" * (size - 3)
    held = leased(queue, payload=payload)
    queue.fail(held, "x", retryable=False)
    queue.close()
    queue = opened()
    queue.retry(held.job_id)
    assert payload == lease(queue).payload
    queue.cancel(held.job_id)
    queue.discard(held.job_id)
    assert (queue.check().rows, queue.check().problems) == (0, ())
    assert not rows(queue)[Family.PAYLOADS]


def test_a_state_is_a_plain_attribute_and_an_enumeration_s_member() -> None:
    """What spares a call of the descriptor at each use changes nothing else of it."""
    assert all(vars(State)[one.name] is one for one in State)
    for one in State:
        assert (pickle.loads(pickle.dumps(one)), State(one.value), State[one.name]) == (one, one, one)
