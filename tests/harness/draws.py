"""What the machine draws: settings, new jobs, filters, times. Small choices all of them, expanded later."""

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

from telha_model import ops
from telha_model.ops import Op
from telha_model.types import OVERSIZE, Backoff, Config, KindPolicy, NewJob, Ref, Value
from tests.harness.values import LARGE, MAP

START_MS: Final = 1_000
TTL_MS: Final = 4
KINDS: Final = ("a", "b", "ingest:x", "ingest:y:z", "system:t")
VALUES: Final[tuple[Value, ...]] = (None, 0, 1, 2, 3, 4, 5, LARGE, MAP)

LEASES: Final = (
    ops.Lease("v", 4),
    ops.Lease("v"),
    ops.Lease(""),
    ops.Lease("v", 5),
    ops.Lease("v", scopes=()),
    ops.Lease("v", kinds=()),
    ops.Lease("v", kinds=("a", "*")),
)
"""Plain leases, and leases with one fault each."""
small = st.sampled_from
configs = st.builds(
    Config,
    lease_ttl_ms=st.just(TTL_MS),
    max_attempts=small((2, 1)),
    backoff=small((Backoff(1, 2, 3), Backoff(2, 1, 1), Backoff(3, 4, 40))),
    kinds=small(
        (
            (),
            (("b", KindPolicy(lease_ttl_ms=2, max_attempts=1, backoff_base_ms=5)),),
            (
                ("ingest:*", KindPolicy(backoff_base_ms=6, backoff_factor=3)),
                ("ingest:y:*", KindPolicy(max_attempts=1, max_lease_age_ms=6)),
                ("a", KindPolicy(lease_ttl_ms=1, backoff_cap_ms=2)),
            ),
        )
    ),
    max_lease_age_ms=small((None, 6)),
    retention_completed_ms=small((None, 0, 3)),
    retention_dead_ms=small((None, 0, 5)),
    reason_chars_max=st.just(3),
    events_max=small((12, 13)),
    lease_batch_max=st.just(4),
)

values = small(VALUES)
new_jobs = st.builds(
    NewJob,
    scope=small((1, 2, 255, 0)),
    kind=small(KINDS[:-1]),
    payload=values,
    priority=small((128, 128, 0, 255)),
    run_at_ms=st.none() | small((0, START_MS + 3, START_MS + 30)),
    delay_ms=st.none(),
    max_attempts=small((None, None, 1, 2)),
    idempotency_key=small((None, None, "k", "ключ")),
    headers=small(((), (("trace", "1"),))),
    payload_version=small((1, 1, 2)),
)
later_jobs = st.tuples(small((1, 0)), small(KINDS[:3]), small((128, 0)), small((0, 1, TTL_MS))).map(
    lambda drawn: NewJob(drawn[0], drawn[1], 1, drawn[2], delay_ms=drawn[3])
)
keyed_jobs = st.tuples(small((1, 1, 2)), small(("a", "a", "a", "b")), small((1, 1, 1, 2, 3, MAP))).map(
    lambda drawn: NewJob(*drawn, idempotency_key="k")
)
# One fault each: which of two would be told first, nothing says.
wrong_jobs = small(
    (
        NewJob(1, "system:t"),
        NewJob(1, "no blanks"),
        NewJob(1, "a", OVERSIZE),
        NewJob(1, "a", priority=256),
        NewJob(1, "a", run_at_ms=0, delay_ms=0),
        NewJob(1, "a", max_attempts=9),
        NewJob(1, "a", idempotency_key=""),
    )
)
any_jobs = new_jobs | keyed_jobs | later_jobs | keyed_jobs | small((NewJob(0, "system:t"),)) | wrong_jobs
scopes = st.none() | small(((1,), (0, 255), (2, 1)))
kinds = st.none() | small((("a",), ("ingest:*",), ("ingest:y:*", "b"), ("system:*",), ("zz",)))
waits = small((1, TTL_MS - 1, TTL_MS, TTL_MS + 1))

A_JOB: Final = NewJob(1, "a", 1, 0, max_attempts=2)
Submit = Callable[[Ref], Op]
SUBMITS: Final[tuple[Submit, ...]] = (
    lambda ref: ops.Complete(ref, 1),
    lambda ref: ops.CompleteMany(((ref, 1),)),
    lambda ref: ops.Fail(ref, "x"),
    lambda ref: ops.Extend("w", (ref,)),
    ops.Release,
)
"""Every way to present a token."""
AFTER_A_FAILURE: Final[tuple[Op, ...]] = (
    ops.Reopen(clean=True),
    ops.Reopen(clean=False),
    ops.Reap(),
    ops.Enqueue(NewJob(1, "a", 2, idempotency_key="k")),
)
