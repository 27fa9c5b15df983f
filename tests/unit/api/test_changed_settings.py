"""Settings that differ from those under which a lease was granted: what holds for it then."""

from telha_jobs import ManualClock, State
from tests.unit.api.conftest import Open
from tests.unit.api.support import START_MS, lease, leased

HOUR_MS = 3_600_000


def test_a_shorter_time_to_live_moves_no_deadline_back(opened: Open, clock: ManualClock) -> None:
    """An extension under a ttl that was cut since the grant leaves the deadline where it was promised."""
    queue = opened(lease_ttl_ms=100)
    lease = leased(queue)
    queue.close()
    queue = opened(lease_ttl_ms=10)
    [outcome] = queue.extend("w", [lease])
    assert (outcome.status, outcome.deadline_ms) == ("extended", START_MS + 100)
    clock.advance(95)
    [outcome] = queue.extend("w", [lease])
    assert (outcome.status, outcome.deadline_ms) == ("extended", START_MS + 105)


def test_a_shorter_greatest_age_moves_no_deadline_back(opened: Open) -> None:
    """The limit that came later holds every further extension, not what was granted before."""
    queue = opened(lease_ttl_ms=100)
    lease = leased(queue)
    queue.close()
    queue = opened(lease_ttl_ms=10, max_lease_age_ms=10)
    [outcome] = queue.extend("w", [lease])
    assert (outcome.status, outcome.deadline_ms) == ("extended", START_MS + 100)


def test_fewer_attempts_count_from_the_next_end(opened: Open, clock: ManualClock) -> None:
    """A budget that was cut does not end the job at once; the next failure is held against it."""
    queue = opened(max_attempts=5)
    job_id = leased(queue).job_id
    queue.cancel(job_id)
    queue.retry(job_id)
    for _ in range(2):
        queue.fail(lease(queue), "x")
        clock.advance(HOUR_MS)
    queue.close()
    queue = opened(max_attempts=1)
    assert queue.get(job_id).state is State.FAILED
    assert queue.fail(lease(queue), "x") is State.DEAD
    assert (queue.get(job_id).attempts, queue.get(job_id).dead_reason) == (3, "attempts")
