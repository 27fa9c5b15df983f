"""Two writers on one store: what an engine knows of its own commits is worth nothing once the other has committed."""

import pytest

from telha_jobs import ManualClock, StaleLeaseError
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from tests.contract.rigs import START_MS
from tests.field_failures.seam import Seam, at_commit, queue_on
from tests.unit.api.support import A, leased, refusal


@pytest.mark.parametrize("between", [True, False], ids=["in the middle of a commit", "between two calls"])
def test_a_lease_that_another_writer_ended_is_not_remembered_as_held(*, between: bool) -> None:
    """It completes a job whose row I know, while or before I complete another one: my own submit of it is stale."""
    clock = ManualClock(START_MS)
    store = MemoryStore.open(MemoryDisk(), clock=clock)
    seam = Seam(store)
    mine = queue_on(seam, clock)
    first, second = leased(mine, A), leased(mine, A)
    other = queue_on(store, clock)

    def theirs() -> None:
        other.complete(second, "theirs")

    if between:
        seam.hook = at_commit(theirs)
    else:
        theirs()
    mine.complete(first, "mine")
    assert refusal(StaleLeaseError, lambda: mine.complete(second, "mine")).why == "completed"
    assert [mine.get(one.job_id).result for one in (first, second)] == ["mine", "theirs"]
