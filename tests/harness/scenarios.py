"""What is cut short by the lane `killpoints`: every operation of the queue, every open and every close, once each.

A scenario is a list of lives; all but the last end without a word after their steps. In the last one `"arm"` stands
where the kill point is armed. Times: a lease lasts 10 ms, the back-off is 2 ms, an ended job stays for 20.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from telha_model import ops
from telha_model.ops import Op
from telha_model.state import Queue, new_queue
from telha_model.states import COMPLETED, DEAD, LEASED
from telha_model.step import step
from telha_model.trace_data import write
from telha_model.types import Backoff, Config, NewJob, Ref
from tests.harness.crashing import START_MS
from tests.harness.values import LARGE

CONFIG: Final = Config(
    lease_ttl_ms=10,
    max_attempts=2,
    backoff=Backoff(2, 2, 8),
    retention_completed_ms=20,
    retention_dead_ms=20,
    lease_batch_max=300,
    events_max=16,
)
CONFIG_DATA: Final[Any] = write(Config, CONFIG)
"""The settings as lives take them."""
Life = tuple[Op | str, ...]


class Scenario(NamedTuple):
    """A name and the lives; `repair`: what they leave is damaged, and repaired before it is looked at."""

    name: str
    lives: tuple[Life, ...]
    repair: bool = False


JOBS: Final = (
    "open",
    ops.EnqueueMany(tuple([NewJob(scope, "a", 1, delay_ms=None) for scope in (1, 1, 2, 2, 3)])),
    ops.Enqueue(NewJob(1, "b", LARGE, idempotency_key="k")),
)
"""Six jobs, the last one with a key and a payload of its own row."""
HELD: Final = (*JOBS, ops.Lease("w", 4), ops.Advance(1))
"""Four of them leased: one of scope 1, of 2, of 3, and again of 1."""
FIRST, SECOND = Ref(1, 1), Ref(3, 1)


def _armed(name: str, before: Life, *cut: Op | str) -> Scenario:
    return Scenario(name, ((*before, "arm", *cut),))


FIRST_OPEN: Final = _armed("first open", (), "open")
LARGE_BATCH: Final = _armed("enqueue of many", JOBS, ops.EnqueueMany((NewJob(4, "new", LARGE),) * 40))
"""Its batch is longer than what RocksDB writes to its log in one piece."""
SCENARIOS: Final = (
    FIRST_OPEN,
    LARGE_BATCH,
    _armed("open after a close", (*HELD, "close"), "open"),
    Scenario("open after a kill", (HELD, ("arm", "open"))),
    Scenario("open after a kill in an open", (HELD, ("open",), ("arm", "open"))),
    _armed("close", HELD, "close"),
    _armed("enqueue", JOBS, ops.Enqueue(NewJob(4, "new", 2, idempotency_key="other"))),
    _armed("enqueue, large", JOBS, ops.Enqueue(NewJob(1, "a", LARGE))),
    _armed("enqueue, known key", JOBS, ops.Enqueue(NewJob(1, "b", LARGE, idempotency_key="k"))),
    _armed("enqueue_many", JOBS, ops.EnqueueMany(tuple([NewJob(4, f"new:{n}", LARGE) for n in range(5)]))),
    _armed("lease", JOBS, ops.Lease("w")),
    _armed("lease_batch", JOBS, ops.Lease("w", 5)),
    _armed("extend", HELD, ops.Extend("w", (FIRST, SECOND), ((1, 5),))),
    _armed("complete", HELD, ops.Complete(FIRST, 3)),
    _armed("complete and enqueue", HELD, ops.Complete(FIRST, 3, (NewJob(9, "c", LARGE), NewJob(1, "a", 2)))),
    _armed("complete again", (*HELD, ops.Complete(FIRST, 3)), ops.Complete(FIRST, 3)),
    _armed("complete_many", HELD, ops.CompleteMany(((FIRST, 3), (SECOND, 4), (Ref(1, 9), 5)))),
    _armed("fail", HELD, ops.Fail(FIRST, "why")),
    _armed("fail for good", HELD, ops.Fail(FIRST, "why", retryable=False)),
    _armed("release", HELD, ops.Release(FIRST)),
    _armed("release, later", HELD, ops.Release(FIRST, 7)),
    _armed("release, too late", (*HELD, ops.Advance(10)), ops.Release(FIRST)),
    _armed("a stale submit", (*HELD, ops.Advance(10), ops.Reap()), ops.Complete(FIRST, 3)),
    _armed("sweep of expired leases", (*HELD, ops.Advance(10)), ops.Reap()),
    _armed("sweep, with a limit", (*HELD, ops.Advance(10)), ops.Reap(3)),
    _armed("sweep of back-offs", (*HELD, ops.Fail(FIRST, "x"), ops.Fail(SECOND, "x"), ops.Advance(2)), ops.Reap()),
    _armed(
        "sweep of ended jobs", (*HELD, ops.Complete(FIRST), ops.Cancel(6), ops.Cancel(3), ops.Advance(20)), ops.Reap()
    ),
    _armed(
        "a sweep that kills",
        (*HELD, ops.Advance(10), ops.Reap(), ops.Advance(8), ops.Lease("w", 9), ops.Advance(10)),
        ops.Reap(),
    ),
    _armed("retry", (*HELD, ops.Fail(FIRST, "why", retryable=False)), ops.Retry(1)),
    _armed("cancel", HELD, ops.Cancel(6)),
    _armed("cancel of a lease", HELD, ops.Cancel(1)),
    _armed("discard", (*HELD, ops.Cancel(6)), ops.Discard(6)),
    Scenario("repair", ((*HELD, "damage"), ("open", "arm", "repair")), repair=True),
)

CUT_IN_THE_MIDDLE: Final = (FIRST_OPEN, LARGE_BATCH)
"""Those of which one step of ours is many of RocksDB's."""


def wanderings(seed: int, length: int) -> Iterator[Scenario]:
    """Programs without end, drawn from a seed: lives of `length` calls, armed from the open on; some follow a kill."""
    number = 0
    while True:
        rng = Random(f"{seed}/{number}")
        before: tuple[Life, ...] = ()
        queue = new_queue(START_MS)
        if rng.random() < 0.4:
            calls, queue = _wandered(rng, queue, length // 2)
            before = (("open", *calls),)
            queue = step(CONFIG, queue, ops.Reopen(clean=False))[1]
        calls, _ = _wandered(rng, queue, length)
        yield Scenario(f"wandering {number}", (*before, ("arm", "open", *calls)))
        number += 1


def _wandered(rng: Random, queue: Queue, length: int) -> tuple[tuple[Op, ...], Queue]:
    calls = list[Op]()
    for _ in range(length):
        calls.append(_drawn(rng, queue))
        queue = step(CONFIG, queue, calls[-1])[1]
    return tuple(calls), queue


def _drawn(rng: Random, queue: Queue) -> Op:
    """A call that mostly makes sense now."""
    new = NewJob(
        rng.randrange(1, 4),
        rng.choice("ab"),
        rng.choice((1, 2, LARGE)),
        rng.choice((128, 1)),
        delay_ms=rng.choice((None, None, 3)),
        idempotency_key=rng.choice((None, "k", "l")),
    )
    plain = new._replace(idempotency_key=None)
    refs = [Ref(job.job_id, job.generation) for job in queue.jobs if job.state is LEASED]
    ended = [job.job_id for job in queue.jobs if job.state in (COMPLETED, DEAD)]
    ref = rng.choice(refs) if refs else Ref(1, 1)
    if rng.random() < 0.1:
        ref = ref._replace(generation=max(ref.generation - 1, 1))
    job = rng.choice(queue.jobs).job_id if queue.jobs else 1
    choices: tuple[tuple[int, Op], ...] = (
        (4, ops.Enqueue(new)),
        (2, ops.EnqueueMany((plain, plain))),
        (6, ops.Lease("w", rng.choice((1, 1, 3)))),
        (4, ops.Complete(ref, rng.choice((None, 3)), rng.choice(((), (plain,))))),
        (1, ops.CompleteMany(((ref, 4),))),
        (2, ops.Fail(ref, "x", retryable=rng.random() < 0.8)),
        (2, ops.Release(ref, rng.choice((0, 3)))),
        (2, ops.Extend("w", (ref,), ((ref.job_id, 2),))),
        (4, ops.Advance(rng.choice((1, 2, 9, 10, 20)))),
        (3, ops.Reap(rng.choice((None, None, 1, 3)))),
        (1, ops.Retry(job)),
        (1, ops.Cancel(job)),
        (1, ops.Discard(rng.choice(ended) if ended else job)),
    )
    [chosen] = rng.choices([op for _, op in choices], [weight for weight, _ in choices])
    return chosen
