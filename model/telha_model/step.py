"""The specification: `step(config, queue, op) -> (reply, queue)`, a pure and total function.

No clock, no randomness, no I/O, no mutation. A refusal, a repeat and an operation that finds nothing to do give back
the very queue they were given. The order in which a call's faults are judged is `replies.Ruling`.
"""

from typing import Any, Final

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
from telha_model.replies import Reply
from telha_model.rules import Rule
from telha_model.state import Queue
from telha_model.transitions.enqueue import ENQUEUE, ENQUEUE_MANY
from telha_model.transitions.lease import EXTEND, LEASE
from telha_model.transitions.operator import CANCEL, DISCARD, RETRY
from telha_model.transitions.reopen import ADVANCE, REOPEN
from telha_model.transitions.submit import COMPLETE, COMPLETE_MANY, FAIL, RELEASE
from telha_model.transitions.sweep import REAP
from telha_model.types import Config

RULES: Final[dict[type[Op], Rule[Any]]] = {
    Enqueue: ENQUEUE,
    EnqueueMany: ENQUEUE_MANY,
    Lease: LEASE,
    Extend: EXTEND,
    Complete: COMPLETE,
    CompleteMany: COMPLETE_MANY,
    Fail: FAIL,
    Release: RELEASE,
    Reap: REAP,
    Retry: RETRY,
    Cancel: CANCEL,
    Discard: DISCARD,
    Advance: ADVANCE,
    Reopen: REOPEN,
}

# Plain tuples: taking one apart costs half of what it costs for a named one, and every step does it.
_PARTS: Final = {op: (rule.subject, rule.checks, rule.apply) for op, rule in RULES.items()}


def step(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """The reply to one operation and the queue after it."""
    subject, checks, apply = _PARTS[type(op)]
    job = None if subject is None else subject(queue, op)
    for check in checks:
        reply = check(config, queue, op, job)
        if reply is not None:
            return reply, queue
    return apply(config, queue, op, job)
