"""What every unit of work of one open queue shares: the store, the configuration, and what was derived at open."""

import logging
import secrets
from collections.abc import Sequence
from uuid import UUID

from telha_jobs.agenda import Agenda, Row
from telha_jobs.codec import packing
from telha_jobs.config import Policy, QueueConfig
from telha_jobs.counters import Counters
from telha_jobs.engine.job_ids import JobIds
from telha_jobs.engine.known import Known
from telha_jobs.engine.observer import Observer
from telha_jobs.engine.reader import Source
from telha_jobs.keys import (
    LAST_ID,
    LAST_SERVED,
    JobKey,
    after,
    group_prefix,
    parse_ready_key,
    parse_timer_key,
    timer_key,
    u64,
)
from telha_jobs.kinds import Kinds
from telha_jobs.recovery import load_agenda, load_counters, load_kinds, pages
from telha_jobs.store.port import Adds, Committed, CommitUnknownError, Conflict, Family, Guard, Store, Write

_log = logging.getLogger("telha_jobs")


class Shared:
    """The state of one open queue. Everything but `store` and `config` can be derived from disk again."""

    def __init__(self, store: Store, config: QueueConfig) -> None:
        self.store = store
        self.config = config
        self.kinds: Kinds = load_kinds(store)
        self.counters: Counters = load_counters(store)
        last_id, last_served = store.read(((Family.META, LAST_ID), (Family.META, LAST_SERVED)))
        self.ids = JobIds(last_id.value)
        self.known = Known()
        self.pack = packing()
        self.agenda: Agenda = load_agenda(store, now=store.now(), last_served=last_served.value)
        self.observer: Observer | None = None
        self.timers_floor = 0
        self.orphans_dropped = 0
        self.policies: dict[str, Policy] = {}  # those that `policy` was asked for
        self._nonce = secrets.token_bytes(8)
        self._commits = 0

    def source(self) -> Source:
        """What reads need."""
        return Source(self.store, self.kinds, self.counters)

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` of the commits from now on, and first that it begins."""
        self.observer = observer
        if observer is not None:
            observer.derived(sum(1 for _ in pages(self.store, Family.QUARANTINE, b"", None)))

    def policy(self, kind: str) -> Policy:
        """The policy in force for a kind."""
        policy = self.policies.get(kind)
        if policy is None:
            policy = self.policies[kind] = self.config.policy_for(kind)
        return policy

    def next_token(self) -> bytes:
        """A commit token nobody else uses: the open's nonce and a count."""
        self._commits += 1
        return self._nonce + u64(self._commits)

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds
    ) -> Committed | Conflict:
        """Commit, and settle an unknown outcome where the store can."""
        try:
            return self.store.commit(checks, writes, token, adds)
        except CommitUnknownError as error:
            _log.error("the outcome of a commit is unknown: %s", error)
            return self.store.resolve(token, checks, writes)

    def ready_rows_of(self, place: JobKey, kind: int, due: int | None) -> list[Row]:
        """The `ready` entries of a job whose row cannot say when it is due; found the slow way if nobody knows."""
        if due is not None:
            return [(place.scope, kind, place.priority, due, place.job_id)]
        prefix = group_prefix(place.scope, kind, place.priority)
        keys = (parse_ready_key(key) for key, _ in pages(self.store, Family.READY, prefix, after(prefix)))
        return [key for key in keys if key.job_id == place.job_id]

    def timers_of(self, job_id: bytes, time: int | None) -> list[bytes]:
        """The `timers` keys of such a job."""
        if time is not None:
            return [timer_key(time, job_id)]
        keys = (key for key, _ in pages(self.store, Family.TIMERS, b"", None))
        return [key for key in keys if parse_timer_key(key).job_id == job_id]

    def count_orphan(self, family: Family, key: bytes) -> None:
        """A derived entry that no row explains was dropped."""
        self.orphans_dropped += 1
        _log.warning("dropped an entry of %s that no row explains: %s", family.value, key.hex())

    def log_quarantine(self, job_id: bytes) -> None:
        """A row went to quarantine."""
        _log.error("the row of job %s cannot be decoded: moved to quarantine", UUID(bytes=job_id))
