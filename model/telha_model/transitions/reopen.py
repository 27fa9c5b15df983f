"""What happens to the queue as a whole: time passes, or it is closed and opened again."""

from typing import Final

from telha_model.ops import Advance, Reopen
from telha_model.replies import Advanced, BadArgument, Reopened, Reply, Ruling
from telha_model.rules import Rule, rule
from telha_model.state import Job, Queue, is_ready, joined
from telha_model.types import Config, add_ms, make


def _argument(_config: Config, _queue: Queue, op: Advance, _job: Job | None) -> Reply | None:
    return BadArgument("ms") if op.ms < 0 else None


def _advance(_config: Config, queue: Queue, op: Advance, _job: Job | None) -> tuple[Reply, Queue]:
    _, incarnation, next_job_id, jobs, ring, last_served = queue
    now_ms = add_ms(queue.now_ms, op.ms)
    ring = joined(ring, jobs, now_ms)
    return make(Advanced, (now_ms,)), make(Queue, (now_ms, incarnation, next_job_id, jobs, ring, last_served))


def _reopen(_config: Config, queue: Queue, op: Reopen, _job: Job | None) -> tuple[Reply, Queue]:
    """Every open rebuilds the ring, cyclic after the last served; an unclean end raises the incarnation."""
    now_ms, incarnation, next_job_id, jobs, _, last_served = queue
    scopes = sorted({other.spec.scope for other in jobs if is_ready(other, now_ms)})
    if last_served is not None:
        scopes = [s for s in scopes if s > last_served] + [s for s in scopes if s <= last_served]
    if not op.clean:
        incarnation += 1
    return make(Reopened, (incarnation,)), make(
        Queue, (now_ms, incarnation, next_job_id, jobs, tuple(scopes), last_served)
    )


ADVANCE: Final[Rule[Advance]] = rule(_advance, [(Ruling.ARGUMENT, _argument)])
REOPEN: Final[Rule[Reopen]] = rule(_reopen, [])
