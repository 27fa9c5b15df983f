"""Facts about transition classes: each word of them by a step of the model, and how many there are."""

from collections.abc import Callable

import pytest

from telha_model.classes import ABSENT, NAMES, NONE, TransitionClass, classes
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
from telha_model.step import RULES, step
from telha_model.types import OVERSIZE, NewJob, Ref
from tests.unit.model.support import CONFIG, Rig, leased

TTL_MS = CONFIG.lease_ttl_ms
KEYED = NewJob(1, "a", 1, idempotency_key="k")
OTHER = NewJob(1, "a", 2, idempotency_key="k")
Build = Callable[[], Rig]


def told(rig: Rig, op: Op) -> list[str]:
    """The classes of a step, as the declarations spell them."""
    reply, after = step(rig.config, rig.queue, op)
    return [str(one) for one in classes(rig.config, rig.queue, op, reply, after)]


def after(*ops: Op) -> Build:
    """A queue after some steps."""

    def build() -> Rig:
        rig = Rig()
        if ops:
            rig.do(*ops)
        return rig

    return build


def on_lease(*ops: Op) -> Build:
    """A queue with job 1 leased under generation 1, after some more steps."""

    def build() -> Rig:
        rig = leased()
        if ops:
            rig.do(*ops)
        return rig

    return build


REAPED = (Advance(TTL_MS), Reap())
AGAIN = (*REAPED, Advance(2), Lease("w"))
"""Reaped and granted again, under generation 2."""
MINE, NEW = Ref(1, 1), Ref(1, 2)

CASES: list[tuple[Build, Op, list[str]]] = [
    # The token.
    (on_lease(), Complete(MINE), ["complete, completed, leased, current, before, below max"]),
    (on_lease(*AGAIN), Complete(MINE), ["complete, stale superseded, leased, older, before, below max"]),
    (on_lease(), Complete(NEW), ["complete, stale never_leased, leased, never issued, before, below max"]),
    (on_lease(), Complete(Ref(1, 0)), ["complete, stale never_leased, leased, never issued, before, below max"]),
    (on_lease(*REAPED), Fail(MINE, "x"), ["fail, stale reaped, pending, current, -, below max"]),
    (on_lease(), Release(Ref(9, 1)), ["release, not found, absent, -, -, -"]),
    # The deadline.
    (on_lease(Advance(TTL_MS - 1)), Release(MINE), ["release, released, leased, current, before, below max"]),
    (on_lease(Advance(TTL_MS)), Release(MINE), ["release, reaped, leased, current, at, below max"]),
    (on_lease(Advance(TTL_MS + 1)), Complete(MINE), ["complete, completed, leased, current, after, below max"]),
    # Attempts: three leases may fail, and the third is the last.
    (on_lease(Fail(MINE, "x")), Cancel(1), ["cancel, cancelled, failed, -, -, below max"]),
    (
        on_lease(Fail(MINE, "x"), Advance(9), Lease("w"), Fail(NEW, "x"), Advance(9), Lease("w")),
        Fail(Ref(1, 3), "x"),
        ["fail, dead attempts, leased, current, before, at max"],
    ),
    (on_lease(Cancel(1)), Retry(1), ["retry, retried, dead, -, -, below max"]),
    # What became of a submit.
    (on_lease(), Fail(MINE, "x"), ["fail, failed, leased, current, before, below max"]),
    (on_lease(), Fail(MINE, "x", retryable=False), ["fail, dead rejected, leased, current, before, below max"]),
    (on_lease(Complete(MINE)), Complete(MINE), ["complete, repeat, completed, current, -, below max"]),
    (
        on_lease(Fail(MINE, "x"), Advance(9), Lease("w")),
        Fail(MINE, "x"),
        ["fail, repeat, leased, older, before, below max"],
    ),
    (on_lease(), Complete(MINE, OVERSIZE), ["complete, argument result, leased, current, -, -"]),
    # Several at once: each item meets the job as the one before left it.
    (
        on_lease(),
        CompleteMany(((NEW, 1), (MINE, 1), (MINE, 1), (MINE, 2), (Ref(9, 1), 1))),
        [
            "complete_many, stale never_leased, leased, never issued, before, below max",
            "complete_many, completed, leased, current, before, below max",
            "complete_many, repeat, completed, current, -, below max",
            "complete_many, stale completed, completed, current, -, below max",
            "complete_many, not found, absent, -, -, -",
        ],
    ),
    (
        on_lease(Advance(TTL_MS)),
        Extend("w", (MINE, MINE, NEW)),
        [
            "extend, extended, leased, current, at, below max",
            "extend, extended, leased, current, before, below max",
            "extend, stale never_leased, leased, never issued, before, below max",
        ],
    ),
    (on_lease(), Extend("", (MINE,)), ["extend, argument worker, leased, current, -, -"]),
    (on_lease(), CompleteMany(((MINE, OVERSIZE),)), ["complete_many, argument items[], leased, current, -, -"]),
    # Keys, and what a completion creates.
    (
        after(),
        EnqueueMany((KEYED, KEYED)),
        ["enqueue_many, created, absent, -, -, -", "enqueue_many, met, pending, -, -, -"],
    ),
    (after(), EnqueueMany((KEYED, OTHER)), ["enqueue_many, key conflict, absent, -, -, -"]),
    (after(Enqueue(KEYED), Lease("w")), Enqueue(KEYED), ["enqueue, met, leased, -, -, -"]),
    (after(Enqueue(KEYED), Cancel(1)), Enqueue(OTHER), ["enqueue, key conflict, dead, -, -, -"]),
    (after(), EnqueueMany((KEYED, NewJob(1, ""))), ["enqueue_many, argument jobs[], -, -, -, -"]),
    (
        after(Enqueue(KEYED), Lease("w")),
        Complete(MINE, 1, (KEYED, NewJob(1, "b"))),
        [
            "complete, completed, leased, current, before, below max",
            "follow_up, met, completed, -, -, -",
            "follow_up, created, absent, -, -, -",
        ],
    ),
    # Grants, by the due time.
    (after(Enqueue(KEYED)), Lease("w"), ["lease, granted, pending, -, at, below max"]),
    (after(Enqueue(KEYED), Advance(1)), Lease("w"), ["lease, granted, pending, -, after, below max"]),
    (on_lease(Fail(MINE, "x"), Advance(2)), Lease("w"), ["lease, granted, failed, -, at, below max"]),
    (after(), Lease("w"), ["lease, nothing, -, -, -, -"]),
    (after(Enqueue(KEYED)), Lease("w", 1, (2,)), ["lease, nothing for these filters, -, -, -, -"]),
    # The sweep.
    (on_lease(Advance(TTL_MS)), Reap(), ["reap, requeued, leased, -, at, below max"]),
    (on_lease(Advance(TTL_MS - 1)), Reap(), ["reap, nothing, -, -, -, -"]),
    (on_lease(Fail(MINE, "x"), Advance(3)), Reap(), ["reap, promoted, failed, -, after, below max"]),
    (on_lease(Complete(MINE), Advance(100)), Reap(), ["reap, purged, completed, -, at, below max"]),
    (
        after(Enqueue(KEYED), Enqueue(NewJob(1, "a", max_attempts=1)), Lease("w", 2), Advance(TTL_MS)),
        Reap(),
        ["reap, requeued, leased, -, at, below max", "reap, dead expired, leased, -, at, at max"],
    ),
    (
        after(Enqueue(KEYED), Enqueue(NewJob(1, "a", max_attempts=1)), Lease("w", 2), Advance(TTL_MS)),
        Reap(1),
        ["reap, requeued, leased, -, at, below max", "reap, left, leased, -, at, at max"],
    ),
    # Operators, time, and reopening.
    (on_lease(), Retry(1), ["retry, wrong state, leased, -, before, below max"]),
    (after(), Discard(1), ["discard, not found, absent, -, -, -"]),
    (after(), Advance(1), ["advance, advanced, -, -, -, -"]),
    (after(), Advance(-1), ["advance, argument ms, -, -, -, -"]),
    (after(), Reopen(clean=True), ["reopen, clean, -, -, -, -"]),
    (
        on_lease(Enqueue(KEYED), Advance(TTL_MS)),
        Reopen(clean=False),
        ["reopen, unclean, leased, -, at, below max", "reopen, unclean, pending, -, -, below max"],
    ),
]


IDS = [f"{number}-{type(op).__name__}" for number, (_, op, _) in enumerate(CASES)]


@pytest.mark.parametrize(("build", "op", "expected"), CASES, ids=IDS)
def test_a_step_has_these_classes(build: Build, op: Op, expected: list[str]) -> None:
    """The classes of one step, in the order of what it was about."""
    assert told(build(), op) == expected


def test_every_operation_has_a_name() -> None:
    """No operation is without classes."""
    assert NAMES.keys() == RULES.keys()


def test_a_stale_submit_under_a_higher_lease_has_a_class_of_its_own() -> None:
    """The same refused submit is another class while another worker holds the job than when nobody does."""
    op = Complete(MINE)
    assert told(on_lease(*AGAIN)(), op) != told(on_lease(*AGAIN, Release(NEW))(), op)


def test_a_class_is_made_of_words() -> None:
    """Absence is a word too, so that a declaration can ask for it."""
    assert (
        str(TransitionClass("discard", "not found", ABSENT, NONE, NONE, NONE)) == "discard, not found, absent, -, -, -"
    )
