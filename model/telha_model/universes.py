"""The named universes, one concern each. `ci` sizes run on every change and on the real queue; `large` ones in the long run.

Bounds are natural wherever they can be: jobs leave by discard and purge, attempts end at the budget, times are relative. What remains is
the number of jobs that exist at a time. A change of meaning changes a universe's pinned count of states and edges.
"""

from typing import Final, Literal

from telha_model.alphabet import CURRENT, HELD, NEVER_ISSUED, OLDER, Alphabet, ByJob, ByQueue, ByToken, Fixed
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


def _death(size: Size) -> Universe:
    attempts = 2 if size == "ci" else 3
    slow = NewJob(1, "slow")
    frail = NewJob(1, "a", max_attempts=1)
    return Universe(
        "death",
        "attempts, back-off, death and retry of one job, with a log at its cap",
        "1 job; kinds with the queue's and with a back-off of their own; a budget of the job's own",
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
                _enqueue("a", JOB),
                _enqueue("slow", slow),
                _enqueue("frail", frail),
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
        (
            "a lease expires and is granted again",
            "a due failed job is leased directly",
            "death by attempts",
            "death by expiry",
            "death by rejection",
            "a retry after death by expiry",
            "a full log swallows more",
            "a sweep promotes",
            "a sweep purges",
        ),
    )


def _keys(size: Size) -> Universe:
    keyed = NewJob(1, "a", 1, idempotency_key="k")
    payload = NewJob(1, "a", 2, idempotency_key="k")
    kind = NewJob(1, "b", 1, idempotency_key="k")
    version = NewJob(1, "a", 1, idempotency_key="k", payload_version=2)
    abroad = NewJob(2, "b", 1, idempotency_key="k")
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
                _enqueue("with the key", keyed),
                Fixed("enqueue another payload", Enqueue(payload), (payload,), meets=True),
                Fixed("enqueue another kind", Enqueue(kind), (kind,), meets=True),
                Fixed("enqueue another version", Enqueue(version), (version,), meets=True),
                _enqueue("in another scope", abroad),
                Fixed("enqueue with an empty key", Enqueue(NewJob(1, "a", idempotency_key=""))),
                Fixed("enqueue twice", EnqueueMany((keyed, keyed)), (keyed,)),
                Fixed("enqueue in conflict", EnqueueMany((abroad, keyed, payload)), (abroad, keyed)),
                LEASE,
                TICK,
                REAP,
            ),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (HELD,)),
                ByToken("fail", lambda ref: Fail(ref, "x"), (HELD,)),
            ),
            (ByJob("cancel", Cancel), ByJob("discard", Discard)),
        ),
        Quotient(revival=False, tokens=False),
        (
            "a key is met pending",
            "a key is met leased",
            "a key is met failed",
            "a key is met completed",
            "a key is met dead",
            "a key conflicts",
            "a sweep purges",
        ),
    )


def _fairness(size: Size) -> Universe:
    jobs_max = 3 if size == "ci" else 4
    later = NewJob(2, "g:x", delay_ms=1)
    return Universe(
        "fairness",
        "who is served: the ring of scopes under filters, batches, joins and departures",
        f"{jobs_max} jobs, three scopes with the nil scope, two kinds",
        Config(
            lease_ttl_ms=1,
            max_attempts=1,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                _enqueue("system", NewJob(0, "system:t")),
                _enqueue("1 a", NewJob(1, "a")),
                _enqueue("1 g later", NewJob(1, "g:x", delay_ms=1)),
                _enqueue("2 g later", later),
                Fixed("enqueue system elsewhere", Enqueue(NewJob(1, "system:t"))),
                LEASE,
                Fixed("lease 2", Lease("w", 2)),
                Fixed("lease scopes 1, 2", Lease("w", 1, (2, 1))),
                Fixed("lease kinds g", Lease("w", 1, None, ("g:*",))),
                Fixed("lease 2 of g in 0, 2 or system", Lease("w", 2, (0, 2), ("g:x", "system:*"))),
                Fixed("lease unknown kind", Lease("w", 1, None, ("zz",))),
                Fixed("lease no scopes", Lease("w", 1, ())),
                Fixed("lease no kinds", Lease("w", 1, None, ())),
                Fixed("lease any kind by star", Lease("w", 1, None, ("*",))),
                TICK,
            ),
            (ByToken("complete", lambda ref: Complete(ref, 1), (HELD,)),),
            (ByJob("cancel", Cancel), ByJob("discard", Discard)),
        ),
        Quotient(tokens=False, revival=False, returns=False),
        (
            "the ring turns",
            "a filter passes the head of the ring over",
            "a batch serves several scopes",
            "two scopes join at once",
            "a poll comes back empty although work waits",
        ),
    )


def _order(size: Size) -> Universe:
    jobs_max = 3 if size == "ci" else 4
    return Universe(
        "order",
        "which job of a scope goes first: priority, due time, job id",
        f"{jobs_max} jobs, one scope",
        Config(
            lease_ttl_ms=1,
            max_attempts=1,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                _enqueue("now", JOB),
                _enqueue("in 1", NewJob(1, "a", delay_ms=1)),
                _enqueue("urgent in 1", NewJob(1, "a", priority=0, delay_ms=1)),
                Fixed("enqueue beyond the priorities", Enqueue(NewJob(1, "a", priority=256))),
                LEASE,
                Fixed("lease 3", Lease("w", 3)),
                TICK,
                REAP,
            ),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (HELD,)),
                ByToken("release for 1", lambda ref: Release(ref, 1), (HELD,)),
            ),
            (ByJob("discard", Discard),),
        ),
        Quotient(tokens=False, revival=False),
        ("an urgent job goes first", "an earlier due time goes first", "a released job is granted again"),
    )


def _sweep(size: Size) -> Universe:
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
            (_enqueue("a", JOB), LEASE, TICK, REAP, Fixed("reap 1", Reap(1))),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (CURRENT,)),
                ByToken("fail", lambda ref: Fail(ref, "x"), (CURRENT,)),
                ByToken("extend", lambda ref: Extend("w", (ref,)), (CURRENT, OLDER)),
            ),
            (ByJob("discard", Discard),),
        ),
        Quotient(revival=False),
        (
            "a sweep finds nothing",
            "a sweep promotes",
            "a sweep purges",
            "a sweep leaves work behind",
            "a sweep does several kinds of work",
            "an extension at its limit",
            "death by expiry",
        ),
    )


def _reopen(size: Size) -> Universe:
    jobs_max = 2 if size == "ci" else 3
    return Universe(
        "reopen",
        "closing and opening: the incarnation's jump, the ring rebuilt, leases that outlive the process",
        f"{jobs_max} jobs, two scopes",
        Config(
            lease_ttl_ms=1,
            max_attempts=1,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=None,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                _enqueue("1", JOB),
                _enqueue("2", NewJob(2, "a")),
                LEASE,
                TICK,
                REAP,
                Fixed("reopen", Reopen(clean=True)),
                Fixed("reopen after a crash", Reopen(clean=False)),
            ),
            (ByToken("complete", lambda ref: Complete(ref, 1), (CURRENT, OLDER)), ByToken("release", Release, (HELD,))),
            (ByJob("discard", Discard),),
        ),
        Quotient(revival=False, reopens=True),
        (
            "the incarnation makes a generation jump",
            "an unclean end with a lease out",
            "a clean reopening with a lease out",
            "reopening turns the ring",
            "a stale submit meets a higher generation's lease",
        ),
    )


def _bulk(size: Size) -> Universe:
    jobs_max = 2 if size == "ci" else 3
    keyed = NewJob(1, "a", 1, idempotency_key="k")
    other = NewJob(1, "a", 2, idempotency_key="k")

    def complete_all(refs: tuple[Ref, ...], gone: int) -> Op:
        return CompleteMany(tuple([(ref, 1) for ref in (*refs, Ref(gone, 1), *refs)]))

    def complete_oversize(refs: tuple[Ref, ...], _gone: int) -> Op | None:
        return CompleteMany(((refs[0], 1), (refs[0], OVERSIZE))) if refs else None

    def extend_all(refs: tuple[Ref, ...], gone: int) -> Op:
        return Extend("w", (Ref(gone, 1), *refs, *refs), tuple([(ref.job_id, 5) for ref in refs]))

    def extend_unlisted(refs: tuple[Ref, ...], gone: int) -> Op | None:
        return Extend("w", refs, ((gone, 5),)) if refs else None

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
                _enqueue("with the key", keyed),
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
            (ByJob("discard", Discard),),
            (
                ByQueue("complete all twice", complete_all),
                ByQueue("complete oversize", complete_oversize),
                ByQueue("extend all twice", extend_all),
                ByQueue("extend with progress of another", extend_unlisted),
            ),
        ),
        Quotient(revival=False),
        (
            "a bulk call has several outcomes",
            "a follow-up meets a key",
            "a follow-up meets the completed job itself",
            "a follow-up conflicts",
            "a submit repeats",
        ),
    )


def universes(size: Size = "ci") -> dict[str, Universe]:
    """All universes of a size, by name."""
    builders = (_protocol, _death, _keys, _fairness, _order, _sweep, _reopen, _bulk)
    made = [build(size) for build in builders]
    return {universe.name: universe for universe in made}
