"""The named universes, one concern each. `ci` sizes run on every change and on the real queue; `large` ones in the long run.

Bounds are natural wherever they can be: jobs leave by discard and purge, attempts end at the budget, times are relative. What remains is
the number of jobs that exist at a time. A change of meaning changes a universe's pinned count of states and edges.
"""

from typing import Final, Literal

from telha_model.alphabet import CURRENT, NEVER_ISSUED, OLDER, Alphabet, ByJob, ByQueue, ByToken, Fixed
from telha_model.ops import (
    Advance,
    Cancel,
    Complete,
    CompleteMany,
    Discard,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
    Retry,
)
from telha_model.quotient import Quotient
from telha_model.types import OVERSIZE, Backoff, Config, KindPolicy, NewJob, Ref
from telha_model.universe import Universe

Size = Literal["ci", "large"]

JOB: Final = NewJob(1, "a")
REAP: Final = Fixed("reap", Reap())
LEASE: Final = Fixed("lease", Lease("w"))
TICK: Final = Fixed("advance 1", Advance(1))
OPERATOR: Final = (ByJob("retry", Retry), ByJob("cancel", Cancel), ByJob("discard", Discard))
FULL: Final = (CURRENT, OLDER, NEVER_ISSUED)
COMPLETE: Final = ByToken("complete", lambda ref: Complete(ref, 1))
FAIL: Final = ByToken("fail", lambda ref: Fail(ref, "x"))


def _enqueue(name: str, job: NewJob) -> Fixed:
    return Fixed(f"enqueue {name}", Enqueue(job), (job,))


def _protocol(size: Size) -> Universe:
    jobs_max = 1 if size == "ci" else 2
    return Universe(
        "protocol",
        "every operation on one lease, before, at and after its deadline, under every token in play",
        f"{jobs_max} job(s), one scope, one kind",
        Config(
            lease_ttl_ms=2,
            max_attempts=3,
            backoff=Backoff(1, 2, 2),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                _enqueue("a", JOB),
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
        (
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
        ),
    )


def universes(size: Size = "ci") -> dict[str, Universe]:
    """All universes of a size, by name."""
    made = [_protocol(size)]
    return {universe.name: universe for universe in made}
