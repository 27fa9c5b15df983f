"""The universes of several jobs: keys, the sweep, calls in bulk."""

from typing import Final

from telha_model.alphabet import CURRENT, HELD, OLDER, Alphabet, ByQueue, ByToken, Fixed
from telha_model.ops import Complete, CompleteMany, Enqueue, EnqueueMany, Extend, Lease, Op, Reap, Release
from telha_model.quotient import Quotient
from telha_model.types import OVERSIZE, Backoff, Config, NewJob, Ref
from telha_model.universe import Size, Universe
from telha_model.universes.common import (
    CANCEL,
    COMPLETE_HELD,
    DISCARD,
    FAIL_HELD,
    FORGED,
    JOB,
    LEASE,
    REAP,
    TICK,
    enqueue,
)

KEYS_REACHES: Final = (
    "a key is met pending",
    "a key is met leased",
    "a key is met failed",
    "a key is met completed",
    "a key is met dead",
    "a key conflicts",
    "a sweep purges",
)

SWEEP_REACHES: Final = (
    "a sweep finds nothing",
    "a sweep promotes",
    "a sweep purges",
    "a sweep leaves work behind",
    "a sweep does several kinds of work",
    "an extension at its limit",
    "a release after the deadline",
    "death by expiry",
)

BULK_REACHES: Final = (
    "a bulk call has several outcomes",
    "a follow-up meets a key",
    "a follow-up meets the completed job itself",
    "a follow-up conflicts",
    "a submit repeats",
)


def keys(size: Size) -> Universe:
    """One key in two scopes."""
    keyed = NewJob(1, "a", 1, idempotency_key="k")
    payload = NewJob(1, "a", 2, idempotency_key="k")
    kind = NewJob(1, "b", 1, idempotency_key="k")
    version = NewJob(1, "a", 1, idempotency_key="k", payload_version=2)
    abroad = NewJob(2, "b", 1, max_attempts=1, idempotency_key="k")
    jobs_max = 2 if size == "ci" else 3
    return Universe(
        "keys",
        "an idempotency key met in every state, in conflict, abroad, and free again after purge and discard",
        f"{jobs_max} jobs, two scopes, one key",
        Config(
            lease_ttl_ms=1,
            max_attempts=2,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=1,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                enqueue("with the key", keyed),
                Fixed("enqueue another payload", Enqueue(payload), (payload,), meets=True),
                Fixed("enqueue another kind", Enqueue(kind), (kind,), meets=True),
                Fixed("enqueue another version", Enqueue(version), (version,), meets=True),
                enqueue("in another scope", abroad),
                *([] if size == "ci" else [enqueue("without a key", NewJob(2, "a"))]),
                Fixed("enqueue with an empty key", Enqueue(NewJob(1, "a", idempotency_key=""))),
                Fixed("enqueue twice", EnqueueMany((keyed, keyed)), (keyed,)),
                Fixed("enqueue in conflict", EnqueueMany((abroad, keyed, payload)), (abroad, keyed)),
                LEASE,
                TICK,
                REAP,
            ),
            (
                COMPLETE_HELD,
                FAIL_HELD,
                *FORGED,
            ),
            (CANCEL, DISCARD),
        ),
        Quotient(revival=False, tokens=False),
        KEYS_REACHES,
    )


def sweep(size: Size) -> Universe:
    """What is due first."""
    jobs_max = 2 if size == "ci" else 3
    return Universe(
        "sweep",
        "what the sweep does first, in bits; retention; a lease's greatest age",
        f"{jobs_max} jobs, one scope",
        Config(
            lease_ttl_ms=2,
            max_attempts=2,
            backoff=Backoff(1, 1, 1),
            max_lease_age_ms=3,
            retention_completed_ms=1,
            retention_dead_ms=0,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (enqueue("a", JOB), LEASE, TICK, REAP, Fixed("reap 1", Reap(1))),
            (
                COMPLETE_HELD,
                FAIL_HELD,
                *FORGED,
                ByToken("release for 1", lambda ref: Release(ref, 1), (HELD,)),
                ByToken("extend", lambda ref: Extend("w", (ref,)), (HELD,)),
            ),
            (DISCARD,),
        ),
        Quotient(tokens=False, revival=False),
        SWEEP_REACHES,
    )


def _complete_all(refs: tuple[Ref, ...], gone: int) -> Op:
    return CompleteMany(tuple([(ref, 1) for ref in (*refs, Ref(gone, 1), *refs)]))


def _complete_oversize(refs: tuple[Ref, ...], _gone: int) -> Op | None:
    return CompleteMany(((refs[0], 1), (refs[0], OVERSIZE))) if refs else None


def _extend_all(refs: tuple[Ref, ...], gone: int) -> Op:
    return Extend("w", (Ref(gone, 1), *refs, *refs), tuple([(ref.job_id, 5) for ref in refs]))


def _extend_unlisted(refs: tuple[Ref, ...], gone: int) -> Op | None:
    return Extend("w", refs, ((gone, 5),)) if refs else None


def bulk(size: Size) -> Universe:
    """Calls about several jobs, and completions that create."""
    jobs_max = 2 if size == "ci" else 3
    keyed = NewJob(1, "a", 1, idempotency_key="k")
    other = NewJob(1, "a", 2, idempotency_key="k")

    return Universe(
        "bulk",
        "several at once: enqueue_many, batches, extend, complete_many, and follow-ups of a completion",
        f"{jobs_max} jobs, one scope, one key",
        Config(
            lease_ttl_ms=2,
            max_attempts=2,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                enqueue("with the key", keyed),
                Fixed("enqueue two", EnqueueMany((JOB, keyed)), (JOB, keyed)),
                Fixed("enqueue none", EnqueueMany(())),
                Fixed("enqueue two, one wrong", EnqueueMany((JOB, NewJob(1, "no blanks"))), (JOB,)),
                LEASE,
                Fixed("lease 2", Lease("w", 2)),
                Fixed("lease 0", Lease("w", 0)),
                TICK,
                REAP,
            ),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (CURRENT, OLDER)),
                ByToken(
                    "complete and follow up", lambda ref: Complete(ref, 1, (keyed, JOB)), (CURRENT, OLDER), (keyed, JOB)
                ),
                ByToken("complete and meet", lambda ref: Complete(ref, 1, (keyed,)), (CURRENT,), (keyed,)),
                ByToken("complete and conflict", lambda ref: Complete(ref, 1, (JOB, other)), (CURRENT,), (JOB, other)),
                ByToken("complete and err", lambda ref: Complete(ref, 1, (NewJob(1, ""),)), (CURRENT,)),
            ),
            (DISCARD,),
            (
                ByQueue("complete all twice", _complete_all),
                ByQueue("complete oversize", _complete_oversize),
                ByQueue("extend all twice", _extend_all),
                ByQueue("extend with progress of another", _extend_unlisted),
            ),
        ),
        Quotient(revival=False),
        BULK_REACHES,
    )
