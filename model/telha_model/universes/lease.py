"""The universes of one lease: what its tokens do, and how its job lives and dies."""

from typing import Final

from telha_model.alphabet import CURRENT, OLDER, Alphabet, ByToken, Fixed
from telha_model.ops import Complete, Enqueue, Extend, Fail, Lease, Reap, Release
from telha_model.quotient import Quotient
from telha_model.types import OVERSIZE, Backoff, Config, KindPolicy, NewJob
from telha_model.universe import Size, Universe
from telha_model.universes.common import COMPLETE, FAIL, JOB, LEASE, OPERATOR, REAP, TICK, enqueue

PROTOCOL_REACHES: Final = (
    "a lease expires and is granted again",
    "a released job is granted again",
    "a due failed job is leased directly",
    "a stale submit meets a higher generation's lease",
    "a submit after reap is stale",
    "a submit after release is stale",
    "a submit after cancel is stale",
    "a token that was never issued",
    "a submit repeats",
    "a submit repeats under a new lease",
    "a release after the deadline",
    "a submit after the deadline, before the sweep",
    "an extension after the deadline, before the sweep",
    "death by attempts",
    "death by expiry",
    "death by rejection",
    "death by cancel",
    "an operator meets the wrong state",
)

DEATH_REACHES: Final = (
    "a lease expires and is granted again",
    "a due failed job is leased directly",
    "death by attempts",
    "death by expiry",
    "death by rejection",
    "a retry after death by expiry",
    "a full log swallows more",
    "a sweep promotes",
    "a sweep purges",
)


def protocol(size: Size) -> Universe:
    """One lease under every token."""
    ttl_ms, attempts, jobs_max = 2, 3, 1 if size == "ci" else 2
    return Universe(
        "protocol",
        "every operation on one lease, before, at and after its deadline, under every token in play",
        f"{jobs_max} job{'s' if jobs_max > 1 else ''}; leases of {ttl_ms} ms, {attempts} attempts",
        Config(
            lease_ttl_ms=ttl_ms,
            max_attempts=attempts,
            backoff=Backoff(1, 3, ttl_ms),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                enqueue("a", JOB),
                Fixed("enqueue oversize", Enqueue(NewJob(1, "a", OVERSIZE))),
                Fixed("enqueue with run_at and delay", Enqueue(NewJob(1, "a", run_at_ms=1, delay_ms=1))),
                LEASE,
                Fixed("lease without a worker", Lease("")),
                TICK,
                REAP,
                Fixed("reap 0", Reap(0)),
            ),
            (
                COMPLETE,
                ByToken("complete otherwise", lambda ref: Complete(ref, 2)),
                ByToken("complete oversize", lambda ref: Complete(ref, OVERSIZE)),
                FAIL,
                ByToken("fail otherwise", lambda ref: Fail(ref, "y")),
                ByToken("fail for good", lambda ref: Fail(ref, "x", retryable=False)),
                ByToken("extend", lambda ref: Extend("w", (ref,))),
                ByToken("extend with progress", lambda ref: Extend("v", (ref,), ((ref.job_id, 7),))),
                ByToken("release", Release),
                ByToken("release for 2", lambda ref: Release(ref, 2)),
                ByToken("release for -1", lambda ref: Release(ref, -1), (CURRENT,)),
            ),
            OPERATOR,
        ),
        Quotient(),
        PROTOCOL_REACHES,
    )


def death(size: Size) -> Universe:
    """One job from attempt to attempt until it dies, again and again."""
    attempts = 2 if size == "ci" else 3
    slow = NewJob(1, "slow")
    return Universe(
        "death",
        "attempts, back-off, death and retry of one job, with a log at its cap",
        "1 job; kinds with the queue's back-off and with one of its own",
        Config(
            lease_ttl_ms=1,
            max_attempts=attempts,
            backoff=Backoff(1, 3, 2),
            kinds=(("slow", KindPolicy(backoff_base_ms=3, backoff_factor=2)),),
            retention_completed_ms=0,
            events_max=4 * attempts + 4,
        ),
        Alphabet(
            1,
            (
                enqueue("a", JOB),
                enqueue("slow", slow),
                Fixed("enqueue with too many attempts", Enqueue(NewJob(1, "a", max_attempts=99))),
                LEASE,
                TICK,
                REAP,
            ),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (CURRENT,)),
                ByToken("fail", lambda ref: Fail(ref, "x"), (CURRENT, OLDER)),
                ByToken("fail for good", lambda ref: Fail(ref, "x", retryable=False), (CURRENT,)),
                ByToken("release", Release, (CURRENT,)),
            ),
            OPERATOR,
        ),
        Quotient(log_length=True),
        DEATH_REACHES,
    )
