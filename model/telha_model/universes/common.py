"""What the universes share."""

from typing import Final

from telha_model.alphabet import HELD, NEVER_ISSUED, ByJob, ByToken, Fixed
from telha_model.ops import Advance, Cancel, Complete, Discard, Enqueue, Extend, Fail, Lease, Reap, Release, Retry
from telha_model.types import NewJob

JOB: Final = NewJob(1, "a")
REAP: Final = Fixed("reap", Reap())
LEASE: Final = Fixed("lease", Lease("w"))
TICK: Final = Fixed("advance 1", Advance(1))
CANCEL: Final = ByJob("cancel", Cancel)
DISCARD: Final = ByJob("discard", Discard)
OPERATOR: Final = (ByJob("retry", Retry), CANCEL, DISCARD)
COMPLETE: Final = ByToken("complete", lambda ref: Complete(ref, 1))
COMPLETE_HELD: Final = COMPLETE._replace(tokens=(HELD,))
FAIL: Final = ByToken("fail", lambda ref: Fail(ref, "x"))
FAIL_HELD: Final = FAIL._replace(tokens=(HELD,))
FORGED: Final = (
    ByToken("complete forged", lambda ref: Complete(ref, 1), (NEVER_ISSUED,)),
    ByToken("fail forged", lambda ref: Fail(ref, "x"), (NEVER_ISSUED,)),
    ByToken("extend forged", lambda ref: Extend("w", (ref,)), (NEVER_ISSUED,)),
    ByToken("release forged", Release, (NEVER_ISSUED,)),
)
"""Every way to use a token that was never issued: refused in every state of every job, and nothing may move."""


def enqueue(name: str, job: NewJob) -> Fixed:
    """One new job, where there is room for it."""
    return Fixed(f"enqueue {name}", Enqueue(job), (job,))
