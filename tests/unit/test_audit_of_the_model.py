"""The audit and the model know the same truth: it accuses no job of any reachable state, and some of a broken model."""

import pytest

from telha_model.universes import universes
from tests.harness.audited import findings
from tests.harness.walking import ci_graph

ACROSS_EVERY = 11


@pytest.mark.parametrize("name", sorted(universes("ci")))
def test_no_reachable_job_is_accused(name: str) -> None:
    """In every state of the universe: elided logs, jumps of the incarnation, back-offs and retries included."""
    seen: set[str] = set()
    for number, queue in enumerate(ci_graph(name).states):
        assert findings(queue, across=number % ACROSS_EVERY == 0) == []
        seen.update(event.transition for job in queue.jobs for event in job.events)
    assert seen


def test_a_job_that_no_history_reaches_is_accused() -> None:
    """A generation, an attempt or a due time moved by one is seen in nearly every state of the universe `death`."""
    states = [queue for queue in ci_graph("death").states if queue.jobs]
    for field in ("generation", "attempts", "due_ms"):
        wrong = [queue for queue in states if getattr(queue.jobs[0], field) is not None]
        caught = 0
        for queue in wrong:
            [job] = queue.jobs
            moved = job._replace(**{field: getattr(job, field) + 1})
            caught += bool(findings(queue._replace(jobs=(moved,)), across=False))
        assert caught > 0.9 * len(wrong) > 100
