"""`JobQueue`: the queue that people embed.

It checks arguments, runs one operation of the engine, and turns its answer into public values.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from telha_jobs import arguments
from telha_jobs.clock import Clock, SystemClock, subscribe
from telha_jobs.codec import kind_name
from telha_jobs.config import QueueConfig
from telha_jobs.consistency import check
from telha_jobs.consistency import repair as mend
from telha_jobs.engine import enqueue as enqueuing
from telha_jobs.engine import leases as leasing
from telha_jobs.engine import operator, reader, submit
from telha_jobs.engine.commands import CreatedJob, Filters
from telha_jobs.engine.engine import Engine
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rules import (
    DURATION_MAX_MS,
    ENQUEUE_MANY_MAX,
    FOLLOW_UPS_MAX,
    PAGE_MAX,
    VERSION_MAX,
    check_int,
    check_optional_int,
)
from telha_jobs.store.rocks import RocksStore
from telha_jobs.sweeper import Sweeper
from telha_jobs.types import (
    CheckReport,
    Job,
    Lease,
    LeaseRef,
    NewJob,
    Outcome,
    Page,
    ReapReport,
    Receipt,
    State,
    over_fields,
    uuid_of,
)

_DEFAULT_CONFIG = QueueConfig()
_log = logging.getLogger("telha_jobs")
_make_receipt = over_fields(Receipt)


class JobQueue:
    """A durable queue in one directory, owned by one process. Thread-safe; a context manager; open it with
    `JobQueue.open`.

    Every method may raise `QueueUnavailableError` (closed, forked, storage failed) and `InvalidArgumentError` (nothing
    was written); what else it raises is said with it. An answer is given when what it tells is as durable as
    `QueueConfig.durability` promises.
    """

    def __init__(self, store: RocksStore, config: QueueConfig, clock: Clock) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._engine = Engine(store, config, clock)
        self._sweeper: Sweeper | None = None
        self._starting = threading.Lock()
        self._unsubscribe = subscribe(clock, self._wake)

    # -- opening and closing

    @classmethod
    def open(
        cls, path: str | PathLike[str], *, config: QueueConfig = _DEFAULT_CONFIG, clock: Clock | None = None
    ) -> Self:
        """Open the queue in directory `path`, creating it (and its parents) if there is none.

        Raises `QueueLockedError` when another opener owns it, `FormatVersionError` when a newer version wrote it,
        `QueueUnavailableError` when it is foreign or cannot be written; then nothing was changed. `clock` is for tests
        (`ManualClock`).
        """
        where = arguments.path(path)
        if not isinstance(config, QueueConfig):
            raise InvalidArgumentError("config", f"must be a QueueConfig, not {kind_name(config)}")
        chosen = SystemClock() if clock is None else clock
        store = RocksStore.open(where, clock=chosen, durability=config.durability)
        try:
            return cls(store, config, chosen)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Let the operation at hand finish, refuse others, stop the reaper, make all durable and release the directory.

        A sweep ends after the commit at hand; what it did not get to is left to the next one.

        Does nothing the second time, and nothing in a forked child. Not for signal handlers: one may interrupt a call
        of this very thread; have it wake a thread that closes.
        """
        if self._store.forked:
            return
        self._engine.shut()
        if self._sweeper is not None:
            self._sweeper.stop()
        self._unsubscribe()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- producers

    def enqueue(
        self,
        scope: UUID,
        kind: str,
        payload: Any,
        *,
        priority: int = 128,
        run_at_ms: int | None = None,
        delay_ms: int | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        payload_version: int = 1,
    ) -> Receipt:
        """Add one job; `NewJob` describes the arguments.

        A key that names a job of this scope already: that job and its state, whatever it is (`created` False). Raises
        `IdempotencyConflictError` when that job has another kind, payload or payload version.
        """
        self._engine.require_open()
        draft = arguments.draft(
            "",
            self._config,
            scope,
            kind,
            payload,
            priority,
            run_at_ms,
            delay_ms,
            max_attempts,
            idempotency_key,
            headers,
            payload_version,
        )
        created = self._engine.write(lambda unit: enqueuing.enqueue_one(unit, draft))
        return _receipt(created)

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Receipt]:
        """Add up to 10,000 jobs in one commit, as the sequence of singles would.

        The first refusal refuses all and names its index.
        """
        self._engine.require_open()
        drafts = arguments.drafts("jobs", jobs, self._config, ENQUEUE_MANY_MAX)
        created = self._engine.write(lambda unit: enqueuing.enqueue(unit, drafts, field="jobs"))
        return [_receipt(one) for one in created]

    # -- workers

    def lease_next(
        self, worker: str, *, scopes: Iterable[UUID] | None = None, kinds: Iterable[str] | None = None, wait_ms: int = 0
    ) -> Lease | None:
        """Lease the next due job, or None when there is none within `wait_ms` of real time.

        The first eligible scope of the ring is served, within it the lowest (priority, due, job id). `kinds`: exact
        names and families (`ingest:*`); None: all. `worker`: 1-256 characters, recorded, never compared.
        """
        self._engine.require_open()
        name = arguments.worker(worker)
        granted = self._lease(name, 1, arguments.filters(scopes, kinds), wait_ms)
        return granted[0] if granted else None

    def lease_batch(
        self,
        worker: str,
        limit: int,
        *,
        scopes: Iterable[UUID] | None = None,
        kinds: Iterable[str] | None = None,
        wait_ms: int = 0,
    ) -> list[Lease]:
        """Lease up to `limit` jobs in one commit, as that many `lease_next` at one moment would; waits only while
        there is none.
        """
        self._engine.require_open()
        name = arguments.worker(worker)
        most = check_int("limit", limit, 1, self._config.lease_batch_max)
        return self._lease(name, most, arguments.filters(scopes, kinds), wait_ms)

    def extend(
        self, worker: str, leases: Sequence[LeaseRef], *, progress: Mapping[UUID, Any] | None = None
    ) -> list[Outcome]:
        """Heartbeat: move the deadlines of current leases to now + ttl, never back; one outcome per lease, in order.

        Statuses: extended, at_limit (held by `max_lease_age_ms`), stale, not_found. An expired lease that was not
        reaped yet may be extended.
        `progress`, by job id, is kept with the job and given to its next lease.
        """
        self._engine.require_open()
        arguments.worker(worker)
        refs = arguments.refs("leases", leases, self._items_max)
        kept = arguments.progress(progress, refs, self._config)
        return self._engine.write(lambda unit: leasing.extend(unit, refs, kept))

    def complete(self, lease: LeaseRef, result: Any = None, *, enqueue: Iterable[NewJob] = ()) -> list[Receipt]:
        """End the job as completed and create up to 1,000 follow-up jobs in the same commit; their receipts, in order.

        Raises `StaleLeaseError` (drop the result), `JobNotFoundError`, `JobUnreadableError`, `IdempotencyConflictError`
        for a follow-up (the lease stays current). The same call again is answered the same and changes nothing.
        """
        self._engine.require_open()
        ref = arguments.ref("lease", lease)
        packed = arguments.result("result", result, self._config)
        follow_ups = arguments.drafts("enqueue", enqueue, self._config, FOLLOW_UPS_MAX)
        created = self._engine.write(lambda unit: submit.complete(unit, ref, packed, follow_ups))
        return [_receipt(one) for one in created]

    def complete_many(self, items: Iterable[tuple[LeaseRef, Any]]) -> list[Outcome]:
        """Complete many leases in one commit; one outcome per item: completed, stale or not_found (`error` says
        more).
        """
        self._engine.require_open()
        pairs = arguments.completions(items, self._config, self._items_max)
        return self._engine.write(lambda unit: submit.complete_many(unit, pairs))

    def fail(self, lease: LeaseRef, reason: str, *, retryable: bool = True) -> State:
        """Record a failure: FAILED (waits out its back-off) or DEAD (attempts used up, or not retryable).

        The reason is cut at `reason_chars_max`, never refused. Raises like `complete`; the same call again is answered
        the same.
        """
        self._engine.require_open()
        ref = arguments.ref("lease", lease)
        kept = arguments.reason(reason, self._config)
        again = arguments.flag("retryable", retryable)
        return self._engine.write(lambda unit: submit.fail(unit, ref, kept, as_given=reason, retryable=again))

    def release(self, lease: LeaseRef, *, delay_ms: int = 0) -> None:
        """Give the job back untried: to its old place, or `delay_ms` from now if that is later. No attempt is counted.

        After the deadline it counts as an expiry. Raises `StaleLeaseError`, `JobNotFoundError`, `JobUnreadableError`.
        """
        self._engine.require_open()
        ref = arguments.ref("lease", lease)
        delay = check_int("delay_ms", delay_ms, 0, DURATION_MAX_MS)
        self._engine.write(lambda unit: leasing.release(unit, ref, delay))

    # -- the reaper and operators

    def reap(self, limit: int | None = None) -> ReapReport:
        """One sweep: expire leases, promote failed jobs whose back-off is over, purge ended jobs; oldest due first,
        at most `limit` of them.
        """
        self._engine.require_open()
        most = check_optional_int("limit", limit, 1, VERSION_MAX)
        return self._engine.reap(most)

    def start_reaper(self) -> None:
        """Sweep every `reaper_interval_ms` in a thread until `close`, the first time at once.

        Does nothing when it runs already.
        """
        self._engine.require_open()
        with self._starting:
            if self._sweeper is None:
                self._sweeper = Sweeper(self._engine, self._config.reaper_interval_ms, self._clock)
                self._sweeper.start()

    def retry(self, job_id: UUID) -> None:
        """Dead to pending with a fresh budget of attempts.

        Raises `WrongStateError`, `JobNotFoundError`, `JobUnreadableError`.
        """
        self._engine.require_open()
        job = arguments.id_bytes("job_id", job_id)
        self._engine.write(lambda unit: operator.retry(unit, job))

    def cancel(self, job_id: UUID) -> None:
        """Pending, failed or leased to dead; the lease, if any, is no longer current. Raises like `retry`."""
        self._engine.require_open()
        job = arguments.id_bytes("job_id", job_id)
        self._engine.write(lambda unit: operator.cancel(unit, job))

    def discard(self, job_id: UUID) -> None:
        """Remove a completed or dead job for good; its key is free. Raises like `retry`."""
        self._engine.require_open()
        job = arguments.id_bytes("job_id", job_id)
        self._engine.write(lambda unit: operator.discard(unit, job))

    # -- looking

    def get(self, job_id: UUID) -> Job:
        """The job as it is now. Raises `JobNotFoundError`, `JobUnreadableError`."""
        self._engine.require_open()
        job = arguments.id_bytes("job_id", job_id)
        return self._engine.read(lambda shared: reader.get(shared.source(), job))

    def list_jobs(
        self,
        *,
        state: State | None = None,
        scope: UUID | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """A page of jobs in job-id order, which never moves: whoever is there throughout is seen once. `after`: from
        the page before.
        """
        self._engine.require_open()
        wanted = arguments.job_filter(state, scope, kind)
        most = check_int("limit", limit, 1, PAGE_MAX)
        return reader.page(self._look, wanted, arguments.cursor(after), most)

    def counts(self, *, scope: UUID | None = None, kind: str | None = None) -> dict[State, int]:
        """How many jobs are in each of the five states, without a scan. Quarantined jobs are not counted."""
        self._engine.require_open()
        wanted = arguments.job_filter(None, scope, kind)
        return self._engine.read(lambda shared: reader.counts(shared.source(), wanted))

    def check(self, *, repair: bool = False) -> CheckReport:
        """Prove that everything derived follows from the rows; reads the whole database while every other call waits.

        With `repair` everything derived is made to follow from them again, of two rows of one job the weaker one goes
        to quarantine, and so does what cannot be read; what can be read again comes back from there. The report is of
        the database as it is then, and `repaired` counts what was put right; a sound database is not written to. Leases
        stay what they are, but no heartbeat gets through meanwhile. After `QueueUnavailableError` repair again.
        """
        self._engine.require_open()
        if arguments.flag("repair", repair):
            return self._engine.rewrite(
                lambda store: mend(store, proceed=self._engine.require_open, tell=_tell_repaired)
            ).report
        return self._engine.read(lambda shared: check(shared.store))

    def now_ms(self) -> int:
        """The queue's time in ms since the epoch; never goes backwards, whatever happens to the wall clock."""
        self._engine.require_open()
        return self._store.now()

    def clock_ahead_ms(self) -> int:
        """How far the queue's time is ahead of the wall clock; while it is, queue time runs at half speed."""
        self._engine.require_open()
        return self._store.clock_ahead_ms()

    # -- inside

    @property
    def engine(self) -> Engine:
        """For the server, which runs the calls of many clients in one commit."""
        return self._engine

    @property
    def config(self) -> QueueConfig:
        """What this queue was opened with."""
        return self._config

    @property
    def _items_max(self) -> int:
        return max(ENQUEUE_MANY_MAX, self._config.lease_batch_max)

    def _lease(self, worker: str, limit: int, wanted: Filters, wait_ms: int) -> list[Lease]:
        wait = check_int("wait_ms", wait_ms, 0, DURATION_MAX_MS)
        return self._engine.poll(lambda unit: leasing.grant(unit, worker, limit, wanted), wait)

    def _look(self, question: Callable[[reader.Source], reader.Look]) -> reader.Look:
        return self._engine.read(lambda shared: question(shared.source()))

    def _wake(self) -> None:
        self._engine.wake()
        if self._sweeper is not None:
            self._sweeper.wake()


def _tell_repaired(sentence: str) -> None:
    _log.warning("repair: %s", sentence)


def _receipt(created: CreatedJob) -> Receipt:
    job_id, fresh, state = created
    return _make_receipt({"job_id": uuid_of(job_id), "created": fresh, "state": state})
