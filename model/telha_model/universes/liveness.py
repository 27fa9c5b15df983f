"""The universes of liveness: several jobs that know each other's company, and workers who may do what they like.

Every job has a key, so that at most one of its name exists at a time and a state says of each job where it is: nothing
is renamed on the way round a cycle. Ended jobs are purged and may come again, so that an endless stream of work in one
scope can try to keep the other waiting. All bounds are natural.
"""

from typing import Final

from telha_model.alphabet import HELD, Alphabet, ByToken, Fixed
from telha_model.ops import Extend, Lease, Release
from telha_model.quotient import Quotient
from telha_model.types import Backoff, Config, NewJob
from telha_model.universe import Universe
from telha_model.universes.common import COMPLETE_HELD, FAIL_HELD, LEASE, REAP, TICK, enqueue

NAMES: Final = ("A", "B", "C", "D")
JOBS_MAX: Final = len(NAMES)
SCOPES: Final = (1, 2, 1, 2)
ATTEMPTS: Final = {1: 2, 2: 1}
"""Attempts of a job by its scope: with two everywhere the universe doubles, and what is new is only a mirror image."""


def liveness(jobs_max: int, *, max_lease_age_ms: int | None) -> Universe:
    """Jobs A, B, ... in turn in scope 1 and in scope 2; leases of 1 ms, back-off of 1 ms."""
    jobs = [
        NewJob(scope, "a", idempotency_key=name, max_attempts=ATTEMPTS[scope])
        for name, scope in zip(NAMES, SCOPES, strict=True)
    ][:jobs_max]
    return Universe(
        "liveness",
        "whether every job ends, whatever fair workers do",
        f"{jobs_max} jobs, two scopes; leases of 1 ms, greatest age {max_lease_age_ms or 'unlimited'}",
        Config(
            lease_ttl_ms=1,
            max_attempts=2,
            backoff=Backoff(1, 1, 1),
            max_lease_age_ms=max_lease_age_ms,
            retention_completed_ms=0,
            retention_dead_ms=0,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                *[enqueue(name, job) for name, job in zip(NAMES, jobs, strict=False)],
                LEASE,
                Fixed("lease in scope 1", Lease("w", 1, (1,))),
                TICK,
                REAP,
            ),
            (
                COMPLETE_HELD,
                FAIL_HELD,
                ByToken("extend", lambda ref: Extend("w", (ref,)), (HELD,)),
                ByToken("release", Release, (HELD,)),
            ),
        ),
        Quotient(tokens=False, revival=False, sweeps_in_part=False),
        (),
    )
