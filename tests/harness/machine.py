"""The Hypothesis machine: long random runs in lock-step, for what tours cannot bound.

Many jobs, scopes and kinds; settings drawn for each run; restarts clean and unclean. A rule builds an operation and
hands it to both sides; `same` compares whole snapshots after each. Tokens are never consumed: whatever was granted once
may be presented at any later time. Draws are small choices, since large ones starve the run of steps. Preconditions
there are none: whatever is refused is refused by both.

`machine(subjects, seen)` makes the machine for a subject and counts in `seen` which situations the runs reached.
"""

from collections import Counter
from typing import ClassVar, Final

import hypothesis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from telha_model import ops
from telha_model.ops import Op
from telha_model.promises.evidence import Taken, changes
from telha_model.replies import Completed, Enqueued, Failed, Leased, Reply
from telha_model.situations import SOMETIMES
from telha_model.states import FAILED, LEASED
from telha_model.types import OVERSIZE, Config, NewJob, Ref, Value
from tests.harness.classes import Hits
from tests.harness.draws import (
    A_JOB,
    AFTER_A_FAILURE,
    LEASES,
    START_MS,
    SUBMITS,
    TTL_MS,
    Submit,
    any_jobs,
    configs,
    keyed_jobs,
    kinds,
    later_jobs,
    new_jobs,
    scopes,
    small,
    values,
    waits,
)
from tests.harness.lockstep import Keep, Lockstep, Subjects
from tests.harness.steady import make_steady

make_steady()
PUBLIC_EVERY: Final = 5
"""The public interface's view costs more than all else together; it is asked at every fifth step and at the end."""


class LockstepMachine(RuleBasedStateMachine):
    """Rules over `lockstep`; a subclass names the subject."""

    subjects: ClassVar[Subjects]
    seen: ClassVar[Counter[str]]
    keep: ClassVar[Keep | None] = None
    hits: ClassVar[Hits | None] = None

    jobs = Bundle("jobs")
    tokens = Bundle("tokens")
    submits = Bundle("submits")

    def __init__(self) -> None:
        super().__init__()
        self.lockstep: Lockstep | None = None

    @initialize(target=jobs, config=configs, news=st.lists(new_jobs | keyed_jobs, max_size=4).map(tuple))
    def open(self, config: Config, news: tuple[NewJob, ...]) -> MultipleResults[int]:
        self.seen["runs"] += 1
        own = type(self)
        self.lockstep = Lockstep(config, own.subjects, start_ms=START_MS, keep=own.keep, hits=own.hits)
        return _created(self.do(ops.EnqueueMany(news)))

    def do(self, op: Op) -> Reply:
        """One operation on both sides, compared; what it was a case of is counted."""
        lockstep = self._lockstep()
        before = lockstep.queue
        self.seen["steps"] += 1
        reply = lockstep.step(op)
        after = lockstep.queue
        taken = Taken(lockstep.config, before, op, reply, after, changes(before, after))
        for name, situation in SOMETIMES.items():
            if type(op) in situation.ops and situation.holds(taken):
                self.seen[name] += 1
        return reply

    def _lockstep(self) -> Lockstep:
        if self.lockstep is None:
            raise AssertionError("a rule ran before the first open")
        return self.lockstep

    # -- producers

    @rule(target=jobs, new=any_jobs)
    def enqueue(self, new: NewJob) -> MultipleResults[int]:
        return _created(self.do(ops.Enqueue(new)))

    @rule(target=jobs, news=st.lists(any_jobs, max_size=4).map(tuple))
    def enqueue_many(self, news: tuple[NewJob, ...]) -> MultipleResults[int]:
        return _created(self.do(ops.EnqueueMany(news)))

    # -- workers

    @rule(target=tokens, limit=small((1, 1, 2, 4)), scopes=scopes, kinds=kinds)
    def lease(self, limit: int, scopes: tuple[int, ...] | None, kinds: tuple[str, ...] | None) -> MultipleResults[Ref]:
        return _granted(self.do(ops.Lease("w", limit, scopes, kinds)))

    @rule(target=tokens, op=small(LEASES))
    def lease_any(self, op: ops.Lease) -> MultipleResults[Ref]:
        return _granted(self.do(op))

    @rule(refs=st.lists(tokens, max_size=3), progress=values | st.just(OVERSIZE))
    def extend(self, refs: list[Ref], progress: Value) -> None:
        told = () if progress is None else tuple(dict.fromkeys((ref.job_id, progress) for ref in refs))
        self.do(ops.Extend("v", tuple(refs), told))

    @rule(target=submits, ref=tokens, result=values | st.just(OVERSIZE))
    def complete(self, ref: Ref, result: Value) -> MultipleResults[Op]:
        return self._submitted(ops.Complete(ref, result))

    @rule(targets=(submits,), ref=tokens, news=st.lists(any_jobs, max_size=2).map(tuple))
    def complete_and_follow_up(self, ref: Ref, news: tuple[NewJob, ...]) -> MultipleResults[Op]:
        return self._submitted(ops.Complete(ref, 1, news))

    @rule(items=st.lists(st.tuples(tokens, values), max_size=4).map(tuple))
    def complete_many(self, items: tuple[tuple[Ref, Value], ...]) -> None:
        self.do(ops.CompleteMany(items))

    @rule(target=submits, ref=tokens, reason=small(("x", "", "longer than kept")), retryable=small((True, True, False)))
    def fail(self, ref: Ref, reason: str, retryable: bool) -> MultipleResults[Op]:
        return self._submitted(ops.Fail(ref, reason, retryable))

    @rule(ref=tokens, delay_ms=small((0, 0, 1, TTL_MS + 1, -1)))
    def release(self, ref: Ref, delay_ms: int) -> None:
        self.do(ops.Release(ref, delay_ms))

    @rule(submit=submits)
    def submit_again(self, submit: Op) -> None:
        self.do(submit)

    @rule(ref=tokens, ahead=small((1, 1 << 32)))
    def submit_forged(self, ref: Ref, ahead: int) -> None:
        self.do(ops.Complete(Ref(ref.job_id, ref.generation + ahead), 1))

    # -- the sweep and operators

    @rule(limit=small((None, None, 1, 2, 0)))
    def reap(self, limit: int | None) -> None:
        self.do(ops.Reap(limit))

    @rule(job_id=jobs)
    def retry(self, job_id: int) -> None:
        self.do(ops.Retry(job_id))

    @rule(job_id=jobs)
    def cancel(self, job_id: int) -> None:
        self.do(ops.Cancel(job_id))

    @rule(job_id=jobs)
    def discard(self, job_id: int) -> None:
        self.do(ops.Discard(job_id))

    # -- time, and what plain rules rarely bring together

    @rule(ms=waits)
    def advance(self, ms: int) -> None:
        self.do(ops.Advance(ms))

    @rule(limit=small((None, 1)), late_ms=small((0, 1)))
    def expire_and_reap(self, limit: int | None, late_ms: int) -> None:
        self._pass(LEASED, late_ms)
        self.do(ops.Reap(limit))

    @rule(target=tokens, late_ms=small((0, 1)))
    def back_off_and_lease(self, late_ms: int) -> MultipleResults[Ref]:
        self._pass(FAILED, late_ms)
        return _granted(self.do(ops.Lease("w", 2)))

    @rule(target=tokens, submit=small(SUBMITS), leased=small((True, True, False)))
    def submit_after_the_sweep(self, submit: Submit, leased: bool) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(A_JOB))
        old = _granted(self.do(ops.Lease("w", 2, (1,), ("a",)))).values
        self.do(ops.Advance(TTL_MS))
        self.do(ops.Reap())
        if leased:
            self.do(ops.Advance(TTL_MS + 1))
            again = _granted(self.do(ops.Lease("other", 4, (1,), ("a",))))
        else:
            again = multiple(*old)
        for ref in old:
            self.do(submit(ref))
        return again

    @rule(target=tokens, ms=waits, progress=small((None, 2)))
    def lease_and_extend(self, ms: int, progress: Value) -> MultipleResults[Ref]:
        granted = _granted(self.do(ops.Lease("w", 2)))
        self.do(ops.Advance(ms))
        refs = tuple(granted.values)
        self.do(ops.Extend("w", refs, () if progress is None else tuple([(ref.job_id, progress) for ref in refs])))
        return granted

    @rule(target=tokens, times=small((1, 7)))
    def lease_and_release(self, times: int) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(A_JOB))
        granted: list[Ref] = []
        for _ in range(times):
            granted += _granted(self.do(ops.Lease("w", 1, (1,)))).values
            self.do(ops.Release(granted[-1] if granted else Ref(0, 1)))
        for ref in granted[-1:]:
            self.do(ops.Complete(ref, 1))
        return multiple(*granted)

    @rule(target=tokens, again=small(SUBMITS), news=st.lists(keyed_jobs, max_size=2).map(tuple))
    def lease_and_complete(self, again: Submit, news: tuple[NewJob, ...]) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(A_JOB))
        granted = _granted(self.do(ops.Lease("w")))
        for ref in granted.values:
            self.do(ops.Complete(ref, 1, news))
            self.do(again(ref))
        return granted

    @rule(target=submits, retryable=small((True, False)))
    def lease_and_fail(self, retryable: bool) -> MultipleResults[Op]:
        granted = _granted(self.do(ops.Lease("w"))).values
        return self._submitted(ops.Fail(granted[0] if granted else Ref(0, 1), "x", retryable))

    @rule(target=tokens, end=small((ops.Complete, ops.Fail, ops.Cancel, None)))
    def meet_a_key(self, end: type[Op] | None) -> MultipleResults[Ref]:
        keyed = NewJob(1, "a", 1, 0, idempotency_key="k")
        self.do(ops.Enqueue(keyed))
        granted = _granted(self.do(ops.Lease("w", 1, (1,), ("a",))))
        for ref in granted.values:
            if end is ops.Complete:
                self.do(ops.Complete(ref, 1, (keyed,)))
            elif end is ops.Fail:
                self.do(ops.Fail(ref, "x"))
            elif end is ops.Cancel:
                self.do(ops.Cancel(ref.job_id))
        self.do(ops.Enqueue(keyed))
        return granted

    @rule(target=tokens, repeats=small((1, 2)))
    def fail_and_repeat_under_a_new_lease(self, repeats: int) -> MultipleResults[Ref]:
        granted = _granted(self.do(ops.Lease("w"))).values
        fails = [ops.Fail(ref, "x") for ref in granted]
        for op in fails:
            self.do(op)
        self._pass(FAILED, 0)
        again = _granted(self.do(ops.Lease("w", 4)))
        for op in fails * repeats:
            self.do(op)
        return again

    @rule(target=tokens, submit=small(SUBMITS), late_ms=small((0, 1)))
    def lease_and_submit_late(self, submit: Submit, late_ms: int) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(A_JOB))
        granted = _granted(self.do(ops.Lease("w")))
        self._pass(LEASED, late_ms)
        for ref in granted.values:
            self.do(submit(ref))
        return granted

    @rule(target=tokens, then=small(AFTER_A_FAILURE))
    def fail_a_new_job_and_then(self, then: Op) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(A_JOB._replace(idempotency_key="k")))
        granted = _granted(self.do(ops.Lease("w", 1, (1,), ("a",))))
        for ref in granted.values:
            self.do(ops.Fail(ref, "x"))
        if isinstance(then, ops.Reap):
            self._pass(FAILED, 0)
        self.do(then)
        return granted

    @rule(target=tokens, new=keyed_jobs | new_jobs)
    def enqueue_and_lease(self, new: NewJob) -> MultipleResults[Ref]:
        self.do(ops.Enqueue(new))
        return _granted(self.do(ops.Lease("w", 2)))

    @rule(target=jobs, new=later_jobs)
    def cancel_and_retry(self, new: NewJob) -> MultipleResults[int]:
        created = _created(self.do(ops.Enqueue(new)))
        for job_id in created.values:
            self.do(ops.Cancel(job_id))
            self.do(ops.Retry(job_id))
        return created

    @rule(target=tokens, clean=small((False, True)))
    def reopen_and_lease_again(self, clean: bool) -> MultipleResults[Ref]:
        granted = _granted(self.do(ops.Lease("w", 2))).values
        self.do(ops.Reopen(clean))
        for ref in granted[:1]:
            self.do(ops.Fail(ref, "x"))
        self._pass(FAILED, 0)
        return multiple(*granted, *_granted(self.do(ops.Lease("w", 4))).values)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.do(ops.Reopen(clean))

    # -- all the time

    @invariant()
    def same(self) -> None:
        """Whole snapshots agree."""
        if self.lockstep is not None:
            self.lockstep.compare(public=len(self.lockstep.ops) % PUBLIC_EVERY == 0)

    def teardown(self) -> None:
        if self.lockstep is None:
            return
        try:
            if not self.lockstep.disagreed:
                self.lockstep.compare(public=True)
        finally:
            self.lockstep.close()

    def _submitted(self, op: ops.Complete | ops.Fail) -> MultipleResults[Op]:
        return multiple(op) if isinstance(self.do(op), Completed | Failed) else multiple()

    def _pass(self, state: object, late_ms: int) -> None:
        """Let time pass to when the next job in a state is due, or `late_ms` more."""
        queue = self._lockstep().queue
        times = [job.deadline_ms if state is LEASED else job.due_ms for job in queue.jobs if job.state is state]
        waits = [at_ms - queue.now_ms for at_ms in times if at_ms is not None and at_ms > queue.now_ms]
        self.do(ops.Advance(min(waits, default=0) + late_ms))


def machine(
    subjects: Subjects, seen: Counter[str], *, seed: int, keep: Keep | None = None, hits: Hits | None = None
) -> type[LockstepMachine]:
    """The machine for a subject and a seed, on which its runs depend alone. `keep` is given every difference, `hits`
    every step that agrees.
    """
    kept = None if keep is None else staticmethod(keep)
    own = {"subjects": staticmethod(subjects), "seen": seen, "keep": kept, "hits": hits}
    made = type(f"Seed{seed}", (LockstepMachine,), own)
    return hypothesis.seed(seed)(made)


def settings_of(block: type[LockstepMachine]) -> settings:
    """The profile's settings, from the machine's own: fresh ones would bring a deadline back.

    The machine's own silence every health check, also those that find starved runs; the profile's choice is put back.
    Nothing is shrunk, and one difference is enough: the trace of the first one is minimised by our own tool, which asks
    the model first and does not cost a database for every guess.
    """
    profile = settings.default
    if profile is None:
        raise AssertionError("no profile is loaded")
    phases = tuple([phase for phase in profile.phases if phase is not Phase.shrink])
    return settings(
        block.TestCase.settings,
        suppress_health_check=profile.suppress_health_check,
        phases=phases,
        report_multiple_bugs=False,
    )


def _created(reply: Reply) -> MultipleResults[int]:
    return multiple(*[receipt.job_id for receipt in reply.receipts]) if isinstance(reply, Enqueued) else multiple()


def _granted(reply: Reply) -> MultipleResults[Ref]:
    grants = reply.grants if isinstance(reply, Leased) else ()
    return multiple(*[Ref(grant.job_id, grant.generation) for grant in grants])
