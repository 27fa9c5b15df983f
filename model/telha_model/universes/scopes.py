"""The universes of who is next: scopes, jobs of a scope, and both after reopening."""

from typing import Final

from telha_model.alphabet import CURRENT, HELD, OLDER, Alphabet, ByQueue, ByToken, Fixed
from telha_model.ops import Cancel, Complete, Enqueue, Lease, Op, Release, Reopen
from telha_model.quotient import Quotient
from telha_model.types import Backoff, Config, NewJob, Ref
from telha_model.universe import Size, Universe
from telha_model.universes.common import CANCEL, COMPLETE_HELD, DISCARD, FORGED, JOB, LEASE, REAP, TICK, enqueue

FAIRNESS_REACHES: Final = (
    "the ring turns",
    "a filter passes the head of the ring over",
    "a batch serves several scopes",
    "two scopes join at once",
    "a poll comes back empty although work waits",
)

ORDER_REACHES: Final = (
    "an urgent job goes first",
    "an earlier due time goes first",
)

REOPEN_REACHES: Final = (
    "the incarnation makes a generation jump",
    "an unclean end with a lease out",
    "a clean reopening with a lease out",
    "reopening turns the ring",
    "a stale submit meets a higher generation's lease",
)

AGENDA_REACHES: Final = (
    "a released job is granted again",
    "an earlier due time goes first",
    "a clean reopening with a lease out",
    "a sweep purges",
)


def fairness(size: Size) -> Universe:
    """Whose turn it is."""
    jobs_max = 3 if size == "ci" else 4
    later = NewJob(2, "g:x", delay_ms=1)
    return Universe(
        "fairness",
        "who is served: the ring of scopes under filters, batches, joins and departures",
        f"{jobs_max} jobs, three scopes with the nil scope, a kind each",
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
                enqueue("system later", NewJob(0, "system:t", delay_ms=1)),
                enqueue("1 a", NewJob(1, "a")),
                enqueue("2 g later", later),
                Fixed("enqueue system elsewhere", Enqueue(NewJob(1, "system:t"))),
                LEASE,
                Fixed("lease 2", Lease("w", 2)),
                Fixed("lease scopes 1, 2", Lease("w", 1, (2, 1))),
                Fixed("lease kinds g", Lease("w", 1, None, ("g:*",))),
                Fixed("lease 2 of g in 0, 2 or system", Lease("w", 2, (0, 2), ("g:x", "system:*"))),
                Fixed("lease unknown kind", Lease("w", 1, None, ("a:*", "zz"))),
                Fixed("lease no scopes", Lease("w", 1, ())),
                Fixed("lease no kinds", Lease("w", 1, None, ())),
                Fixed("lease any kind by star", Lease("w", 1, None, ("*",))),
                TICK,
            ),
            (COMPLETE_HELD, *FORGED),
            (CANCEL, DISCARD),
        ),
        Quotient(tokens=False, revival=False, returns=False),
        FAIRNESS_REACHES,
    )


def order(size: Size) -> Universe:
    """Which job of a scope goes first."""
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
                enqueue("now", JOB),
                enqueue("in 1", NewJob(1, "a", delay_ms=1)),
                enqueue("in 2 of b", NewJob(1, "b", delay_ms=2)),
                enqueue("urgent in 1", NewJob(1, "a", priority=0, delay_ms=1)),
                Fixed("enqueue beyond the priorities", Enqueue(NewJob(1, "a", priority=256))),
                LEASE,
                Fixed("lease 3", Lease("w", 3)),
                Fixed("lease kind b", Lease("w", 1, None, ("b",))),
                TICK,
            ),
            (COMPLETE_HELD, *FORGED),
            (DISCARD,),
        ),
        Quotient(tokens=False, revival=False, returns=False),
        ORDER_REACHES,
    )


def reopen(size: Size) -> Universe:
    """Scopes, leases and generations over clean and unclean ends."""
    jobs_max = 2 if size == "ci" else 3
    return Universe(
        "reopen",
        "closing and opening: the incarnation's jump, the ring rebuilt, leases that outlive the process",
        f"{jobs_max} jobs, three scopes",
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
                enqueue("1", JOB),
                enqueue("2", NewJob(2, "a")),
                enqueue("3", NewJob(3, "a")),
                LEASE,
                TICK,
                REAP,
                Fixed("reopen", Reopen(clean=True)),
                Fixed("reopen after a crash", Reopen(clean=False)),
            ),
            (
                ByToken("complete", lambda ref: Complete(ref, 1), (CURRENT, OLDER)),
                ByToken("release", Release, (HELD,)),
            ),
            (DISCARD,),
            begin=Fixed("reopen after a crash", Reopen(clean=False)),
        ),
        Quotient(revival=False, reopens=True),
        REOPEN_REACHES,
    )


def _cancel_newest(refs: tuple[Ref, ...], _gone: int) -> Op | None:
    return Cancel(refs[-1].job_id) if refs else None


def agenda(size: Size) -> Universe:
    """One group of jobs that grows and shrinks at both ends, for a queue that keeps only its first rows in memory.

    The model has no such windows: it says what is right, and this leads the queue over their edges. Jobs join ahead of
    the others (due now, or given back), between them and behind them (due later), leave from the front (leased) or
    from where they stand (the newest cancelled), and every open begins with the first row alone.
    """
    jobs_max = 3 if size == "ci" else 4
    return Universe(
        "agenda",
        "rows that join and leave ahead of, within and behind what the queue keeps in memory of a group",
        f"{jobs_max} jobs, one scope, one kind",
        Config(
            lease_ttl_ms=1,
            max_attempts=1,
            backoff=Backoff(1, 1, 1),
            retention_completed_ms=0,
            retention_dead_ms=0,
            events_max=64,
        ),
        Alphabet(
            jobs_max,
            (
                enqueue("now", JOB),
                enqueue("in 1", NewJob(1, "a", delay_ms=1)),
                enqueue("in 2", NewJob(1, "a", delay_ms=2)),
                LEASE,
                TICK,
                REAP,
                Fixed("reopen", Reopen(clean=True)),
            ),
            (ByToken("release", Release, (HELD,)),),
            by_queue=(ByQueue("cancel the newest", _cancel_newest),),
        ),
        Quotient(tokens=False, revival=False, sweeps_in_part=False),
        AGENDA_REACHES,
    )
