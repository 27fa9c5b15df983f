"""Facts about granting and extending leases."""

import pytest

from telha_model.ops import Advance, Cancel, EnqueueMany, Extend, Fail, Lease, Release, Reopen, Retry
from telha_model.policy import config_problem
from telha_model.replies import BadArgument, Extended, Grant, Leased, NotFound, Outcome, StaleLease
from telha_model.states import LEASED
from telha_model.types import OVERSIZE, Config, KindPolicy, NewJob, Ref
from tests.unit.model.support import CONFIG, START_MS, Rig, leased


def test_a_grant_tells_what_the_worker_needs() -> None:
    """A grant carries token, work, attempt from 1, deadline and progress."""
    rig = Rig()
    rig.enqueue(payload=7, headers=(("h", "v"),), payload_version=2)
    grant = Grant(1, 1, 1, "a", 7, 2, (("h", "v"),), 1, START_MS + 10, "w", None)
    assert rig.do(Lease("w")) == Leased((grant,))
    job = rig.job()
    assert (job.state, job.worker, job.leased_at_ms, job.deadline_ms) == (LEASED, "w", START_MS, START_MS + 10)
    assert job.events[-1].detail == (("worker", "w"), ("generation", 1), ("attempt", 1))


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Lease(""), "worker"),
        (Lease("w" * 257), "worker"),
        (Lease("w", 0), "limit"),
        (Lease("w", 10_001), "limit"),
        (Lease("w", 1, ()), "scopes"),
        (Lease("w", 1, None, ()), "kinds"),
        (Lease("w", 1, None, ("*",)), "kinds"),
        (Lease("w", 1, None, ("a*",)), "kinds"),
    ],
)
def test_a_lease_with_a_wrong_argument_is_refused(op: Lease, field: str) -> None:
    """Worker, limit and filters have rules of their own."""
    rig = Rig()
    rig.enqueue()
    assert rig.refused(op) == BadArgument(field)


def test_nothing_is_leased_early() -> None:
    """A job is leased from the very millisecond it is due, not before."""
    rig = Rig()
    rig.enqueue(delay_ms=2)
    rig.do(Advance(1))
    assert rig.lease() == []
    rig.do(Advance(1))
    assert rig.lease() == [1]


def test_order_is_priority_then_due_then_number() -> None:
    """Within a scope the most urgent goes first, then the earliest due, then the earliest created."""
    rig = Rig()
    rig.do(
        EnqueueMany(
            (
                NewJob(1, "a", delay_ms=2),
                NewJob(1, "a", delay_ms=1),
                NewJob(1, "a", delay_ms=1),
                NewJob(1, "a", priority=0, delay_ms=3),
            )
        ),
        Advance(3),
    )
    assert rig.lease(9) == [4, 2, 3, 1]


def test_a_family_is_a_prefix_through_the_colon() -> None:
    """`g:*` takes what starts with `g:`, and nothing else."""
    rig = Rig()
    rig.do(EnqueueMany(tuple([NewJob(1, kind) for kind in ("g", "gx:a", "g:a", "g:a:b")])))
    reply = rig.do(Lease("w", 9, None, ("g:*",)))
    assert isinstance(reply, Leased)
    assert [grant.kind for grant in reply.grants] == ["g:a", "g:a:b"]


def test_a_due_failed_job_is_promoted_and_leased_at_once() -> None:
    """Leasing a due failed job writes both events and keeps the attempts."""
    rig = leased()
    rig.fail()
    rig.do(Advance(2))
    assert rig.lease() == [1]
    assert rig.log() == ["enqueued", "leased", "failed", "promoted", "leased"]
    assert rig.job().attempts == 1


def test_a_generation_never_goes_back() -> None:
    """Neither retry nor reopening resets the generation."""
    rig = leased()
    rig.do(Cancel(1), Retry(1), Reopen(clean=True))
    assert rig.lease() == [1]
    assert rig.job().generation == 2


def test_an_unclean_end_lifts_the_next_generation() -> None:
    """After an unclean end the next grant jumps into the new incarnation's range; old tokens stay superseded."""
    rig = leased()
    rig.do(Release(rig.ref()), Reopen(clean=False))
    assert rig.lease() == [1]
    assert rig.job().generation == 1 << 32
    assert rig.refused(Fail(Ref(1, 1), "x")) == StaleLease(1, 1, 1 << 32, LEASED, "superseded")


def test_a_lease_outlives_an_unclean_end() -> None:
    """A lease granted before a crash is current after it."""
    rig = leased()
    rig.do(Reopen(clean=False))
    rig.complete()
    assert rig.job().generation == 1


def test_the_policy_of_the_kind_decides() -> None:
    """An exact entry wins over a family, the longest family over others, an open field takes the queue's value."""
    kinds = (
        ("g:*", KindPolicy(lease_ttl_ms=3)),
        ("g:a:*", KindPolicy(lease_ttl_ms=4)),
        ("g:a:b", KindPolicy(max_attempts=2)),
    )
    for kind, ttl_ms in (("g:x", 3), ("g:a:x", 4), ("g:a:b", 10), ("h", 10)):
        rig = Rig(CONFIG._replace(kinds=kinds))
        rig.enqueue(kind=kind)
        rig.lease()
        assert rig.job().deadline_ms == START_MS + ttl_ms


def test_extend_moves_the_deadline_and_records_progress() -> None:
    """A heartbeat gives a full ttl from now and leaves no event."""
    rig = leased()
    rig.do(Advance(4))
    reply = rig.do(Extend("other", (Ref(1, 1),), ((1, "half"),)))
    assert reply == Extended((Outcome(1, "extended", START_MS + 14),))
    assert (rig.job().progress, rig.job().worker, rig.log()) == ("half", "w", ["enqueued", "leased"])


def test_extend_never_moves_a_deadline_back() -> None:
    """At the same millisecond a heartbeat changes nothing."""
    rig = leased()
    assert rig.refused(Extend("w", (Ref(1, 1),))) == Extended((Outcome(1, "extended", START_MS + 10),))


def test_an_expired_lease_may_be_extended_before_the_sweep() -> None:
    """The fence is the generation, not the clock."""
    rig = leased()
    rig.do(Advance(10))
    assert rig.do(Extend("w", (Ref(1, 1),))) == Extended((Outcome(1, "extended", START_MS + 20),))


def test_no_lease_outlives_its_greatest_age() -> None:
    """Beyond the age the deadline stays, and the answer says so; exactly at it the extension is an ordinary one."""
    rig = leased(CONFIG._replace(max_lease_age_ms=15))
    rig.do(Advance(5))
    assert rig.do(Extend("w", (Ref(1, 1),))) == Extended((Outcome(1, "extended", START_MS + 15),))
    rig.do(Advance(1))
    assert rig.refused(Extend("w", (Ref(1, 1),))) == Extended((Outcome(1, "at_limit", START_MS + 15),))


def test_extend_answers_per_lease() -> None:
    """Unknown and stale leases are answered each for itself, duplicates included."""
    rig = leased()
    rig.do(Advance(1))
    stale = StaleLease(1, 5, 1, LEASED, "never_leased")
    reply = rig.do(Extend("w", (Ref(9, 1), Ref(1, 5), Ref(1, 1), Ref(1, 1)), ((9, 0), (1, 1))))
    assert reply == Extended(
        (
            Outcome(9, "not_found", None, NotFound(9)),
            Outcome(1, "stale", None, stale),
            Outcome(1, "extended", START_MS + 11),
            Outcome(1, "extended", START_MS + 11),
        )
    )


@pytest.mark.parametrize("progress", [((2, 0),), ((1, OVERSIZE),)], ids=["unlisted", "oversize"])
def test_progress_must_belong_and_fit(progress: tuple[tuple[int, object], ...]) -> None:
    """Progress of a job that is not listed, or beyond the limit, refuses the whole call."""
    rig = leased()
    assert rig.refused(Extend("w", (Ref(1, 1),), progress)) == BadArgument("progress")


def test_progress_of_a_stale_lease_is_ignored() -> None:
    """A stale lease records nothing."""
    rig = leased()
    rig.refused(Extend("w", (Ref(1, 2),), ((1, "late"),)))
    assert rig.job().progress is None


def test_a_config_is_checked_for_what_its_fields_mean_together() -> None:
    """A ttl fits into the greatest age, and the log has room for every attempt, per kind too."""
    assert config_problem(Config()) is None
    assert config_problem(Config(lease_ttl_ms=2, max_lease_age_ms=1)) == "lease_ttl_ms"
    assert config_problem(Config(max_attempts=64)) == "events_max"
    assert config_problem(Config(kinds=(("a", KindPolicy(max_attempts=64)),))) == "kinds[a].max_attempts"
