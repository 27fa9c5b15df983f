"""From an operation of the model to a call of the queue, and from what the queue says back to a reply of the model.

Only the public interface is called, which an embedded queue and the client of a server share: what a reply has to be is
stated here once for both. An answer or error that no reply of the model stands for is passed on as it is: the
comparison fails on it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, assert_never

import telha_jobs as jobs
from telha_jobs import QueueConfig
from telha_jobs.protocol import Queue
from telha_model import ops, replies
from telha_model.replies import Reply
from telha_model.states import State
from telha_model.types import Config, NewJob, Ref
from tests.harness.values import VALUE_BYTES_MAX, Names, packed, scope_number, scope_uuid, value_of

_INDEXED: Final = re.compile(r"(kinds|scopes|progress)\[.*\]")
"""The queue names the item, the model only the argument."""

DirectOp = (
    ops.Enqueue
    | ops.EnqueueMany
    | ops.Lease
    | ops.Extend
    | ops.Complete
    | ops.CompleteMany
    | ops.Fail
    | ops.Release
    | ops.Reap
    | ops.Retry
    | ops.Cancel
    | ops.Discard
)
"""The operations that are one call; time and reopening belong to whoever owns clock and directory."""

_STATES: Final = {state: State(state.value) for state in jobs.State}


def queue_config(config: Config) -> QueueConfig:
    """The queue's settings for the model's, with small values and answers that wait for no disk."""
    general = config.backoff
    return QueueConfig(
        lease_ttl_ms=config.lease_ttl_ms,
        max_attempts=config.max_attempts,
        backoff=jobs.Backoff(base_ms=general.base_ms, factor=general.factor, cap_ms=general.cap_ms),
        kinds={kind: jobs.KindPolicy(**entry._asdict()) for kind, entry in config.kinds},
        max_lease_age_ms=config.max_lease_age_ms,
        retention_completed_ms=config.retention_completed_ms,
        retention_dead_ms=config.retention_dead_ms,
        durability="os",
        payload_bytes_max=VALUE_BYTES_MAX,
        result_bytes_max=VALUE_BYTES_MAX,
        reason_chars_max=config.reason_chars_max,
        events_max=config.events_max,
        lease_batch_max=config.lease_batch_max,
    )


class Translator:
    """Speaks for the model to one queue after another (a reopened queue is another object)."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def call(self, queue: Queue, op: DirectOp) -> Reply:
        """Make the call and translate the answer, refusals included."""
        try:
            return self._called(queue, op)
        except jobs.QueueError as error:
            refusal = self.refusal(error)
            if refusal is None:
                raise
            return refusal

    def _called(self, queue: Queue, op: DirectOp) -> Reply:
        match op:
            case ops.Enqueue(new):
                return replies.Enqueued((self._enqueue(queue, new),))
            case ops.EnqueueMany(several):
                return replies.Enqueued(self._receipts(queue.enqueue_many(map(self._new_job, several))))
            case ops.Lease():
                return replies.Leased(tuple(map(self._grant, _leases(queue, op))))
            case ops.Extend(worker, refs, progress):
                kept = {self.names.job_id(number): self.names.value(value) for number, value in progress}
                outcomes = queue.extend(worker, self._refs(refs), progress=kept or None)
                return replies.Extended(tuple(map(self._outcome, outcomes)))
            case ops.Complete(ref, result, follow_ups):
                value = self.names.value(result)
                receipts = queue.complete(self._ref(ref), value, enqueue=map(self._new_job, follow_ups))
                return replies.Completed(self._receipts(receipts))
            case ops.CompleteMany(items):
                pairs = [(self._ref(ref), self.names.value(result)) for ref, result in items]
                return replies.CompletedMany(tuple(map(self._outcome, queue.complete_many(pairs))))
            case ops.Fail(ref, reason, retryable):
                return replies.Failed(_STATES[queue.fail(self._ref(ref), reason, retryable=retryable)])
            case ops.Release(ref, delay_ms):
                queue.release(self._ref(ref), delay_ms=delay_ms)
                return replies.Released()
            case ops.Reap(limit):
                return _swept(queue.reap(limit))
            case ops.Retry(number):
                queue.retry(self.names.job_id(number))
                return replies.Retried()
            case ops.Cancel(number):
                queue.cancel(self.names.job_id(number))
                return replies.Cancelled()
            case ops.Discard(number):
                queue.discard(self.names.job_id(number))
                return replies.Discarded()
            case _:
                assert_never(op)

    # -- towards the queue

    def _enqueue(self, queue: Queue, new: NewJob) -> replies.Receipt:
        asked = self._new_job(new)
        receipt = queue.enqueue(
            asked.scope,
            asked.kind,
            asked.payload,
            priority=asked.priority,
            run_at_ms=asked.run_at_ms,
            delay_ms=asked.delay_ms,
            max_attempts=asked.max_attempts,
            idempotency_key=asked.idempotency_key,
            headers=asked.headers,
            payload_version=asked.payload_version,
        )
        return self._receipt(receipt)

    def _new_job(self, new: NewJob) -> jobs.NewJob:
        return jobs.NewJob(
            scope=scope_uuid(new.scope),
            kind=new.kind,
            payload=self.names.value(new.payload),
            priority=new.priority,
            run_at_ms=new.run_at_ms,
            delay_ms=new.delay_ms,
            max_attempts=new.max_attempts,
            idempotency_key=new.idempotency_key,
            headers=dict(new.headers) or None,
            payload_version=new.payload_version,
        )

    def _ref(self, ref: Ref) -> jobs.LeaseRef:
        return jobs.LeaseRef(self.names.job_id(ref.job_id), ref.generation)

    def _refs(self, refs: Iterable[Ref]) -> list[jobs.LeaseRef]:
        return [self._ref(ref) for ref in refs]

    # -- towards the model

    def _receipt(self, receipt: jobs.Receipt) -> replies.Receipt:
        names, job_id = self.names, receipt.job_id
        number = names.created(job_id) if receipt.created else names.number(job_id.bytes)
        return replies.Receipt(number, receipt.created, _STATES[receipt.state])

    def _receipts(self, receipts: Iterable[jobs.Receipt]) -> tuple[replies.Receipt, ...]:
        return tuple([self._receipt(receipt) for receipt in receipts])

    def _grant(self, lease: jobs.Lease) -> replies.Grant:
        return replies.Grant(
            self.names.number(lease.job_id.bytes),
            lease.generation,
            scope_number(lease.scope.bytes),
            lease.kind,
            value_of(packed(lease.payload)),
            lease.payload_version,
            tuple(lease.headers.items()),
            lease.attempt,
            lease.deadline_ms,
            lease.worker,
            value_of(packed(lease.progress)),
        )

    def _outcome(self, outcome: jobs.Outcome) -> Any:
        error = None if outcome.error is None else self.refusal(outcome.error)
        if error is None and outcome.error is not None:
            raise outcome.error
        return replies.Outcome(
            self.names.number(outcome.job_id.bytes),
            outcome.status,  # type: ignore[arg-type]  # the queue's literal has a word more; the comparison sees it
            outcome.deadline_ms,
            error,  # type: ignore[arg-type]  # as above: any refusal may come, two are right
        )

    def refusal(self, error: jobs.QueueError) -> replies.Refusal | None:
        """The model's word for an error; None for one the model does not have."""
        number = self.names.number
        match error:
            case jobs.InvalidArgumentError():
                indexed = _INDEXED.fullmatch(error.field)
                return replies.BadArgument(error.field if indexed is None else indexed[1])
            case jobs.JobNotFoundError():
                return replies.NotFound(number(error.job_id.bytes))
            case jobs.StaleLeaseError():
                return replies.StaleLease(
                    number(error.job_id.bytes),
                    error.generation,
                    error.current_generation,
                    _STATES[error.state],
                    error.why,
                )
            case jobs.WrongStateError():
                needed = frozenset([_STATES[state] for state in error.needed])
                return replies.WrongState(number(error.job_id.bytes), _STATES[error.state], needed)
            case jobs.IdempotencyConflictError():
                return replies.KeyConflict(number(error.job_id.bytes), error.key, error.index)
            case _:
                return None


def expected_reply(reply: Reply, newest: int) -> Reply:
    """The model's reply as far as the queue can tell it.

    A conflict with a job that the same refused call would have created names an id nobody will ever see again.
    """
    match reply:
        case replies.KeyConflict(job_id, key, item) if job_id > newest:
            return replies.KeyConflict(-1, key, item)
        case _:
            return reply


def _leases(queue: Queue, op: ops.Lease) -> Sequence[jobs.Lease]:
    scopes = None if op.scopes is None else list(map(scope_uuid, op.scopes))
    if op.limit != 1:
        return queue.lease_batch(op.worker, op.limit, scopes=scopes, kinds=op.kinds)
    lease = queue.lease_next(op.worker, scopes=scopes, kinds=op.kinds)
    return () if lease is None else (lease,)


def _swept(report: jobs.ReapReport) -> replies.Reply:
    if report.quarantined:
        raise AssertionError(f"the sweep met a row it cannot read: {report}")
    return replies.Reaped(report.requeued, report.died, report.promoted, report.purged, report.more)
