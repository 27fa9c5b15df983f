"""A store between the engine and the real one, so that something else can happen in the middle of an operation."""

from collections.abc import Callable, Sequence
from typing import cast

from telha_jobs import JobQueue, ManualClock, QueueConfig
from telha_jobs.store.memory import MemoryStore
from telha_jobs.store.port import NO_ADDS, Adds, Committed, Conflict, Family, Guard, Limits, Versioned, Write
from telha_jobs.store.rocks import RocksStore

Hook = Callable[[str], None]
"""Called before each read, scan and commit with its name."""


class Seam:
    """A store that calls `hook` before it passes a call on. With `hook` None it is the store behind it.

    `coarse`: any commit since the caller last asked for the sequence is a conflict, as a store with one version for
    everything may have it.
    """

    forked = False

    def __init__(self, inner: RocksStore | MemoryStore) -> None:
        self.inner = inner
        self.hook: Hook | None = None
        self.coarse = False
        self._told = 0

    @property
    def incarnation(self) -> int:
        """As the store behind it has it."""
        return self.inner.incarnation

    @property
    def waits(self) -> bool:
        """As the store behind it."""
        return self.inner.waits

    def require_usable(self) -> None:
        """Pass on."""
        self.inner.require_usable()

    @property
    def sequence(self) -> int:
        """As the store behind it has it."""
        self._told = self.inner.sequence
        return self._told

    def moment(self) -> tuple[int, int]:
        """As the store behind it has it."""
        self._told, now = self.inner.moment()
        return self._told, now

    @property
    def limits(self) -> Limits:
        """As the store behind it has them."""
        return self.inner.limits

    def read(self, keys: Sequence[tuple[Family, bytes]]) -> list[Versioned]:
        """Pass on, after the hook."""
        self._meet("read")
        return self.inner.read(keys)

    def scan(
        self, family: Family, start: bytes, end: bytes | None, limit: int, *, claim: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Pass on, after the hook."""
        self._meet("scan")
        return self.inner.scan(family, start, end, limit, claim=claim)

    def scan_counters(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        """Pass on, after the hook."""
        self._meet("scan")
        return self.inner.scan_counters(start, end, limit)

    def commit(
        self, checks: Sequence[Guard], writes: Sequence[Write], token: bytes, adds: Adds = NO_ADDS
    ) -> Committed | Conflict:
        """Pass on, after the hook."""
        self._meet("commit")
        if self.coarse and self._told != self.inner.sequence:
            return Conflict()
        return self.inner.commit(checks, writes, token, adds)

    def resolve(self, token: bytes, checks: Sequence[Guard], writes: Sequence[Write]) -> Committed | Conflict:
        """Pass on."""
        return self.inner.resolve(token, checks, writes)

    def forget(self) -> None:
        """Pass on."""
        self.inner.forget()

    def wait(self, sequence: int) -> None:
        """Pass on."""
        self.inner.wait(sequence)

    def now(self) -> int:
        """As the store behind it has it."""
        return self.inner.now()

    def clock_ahead_ms(self) -> int:
        """As the store behind it has it."""
        return self.inner.clock_ahead_ms()

    def close(self) -> None:
        """Pass on."""
        self.inner.close()

    def _meet(self, call: str) -> None:
        if self.hook is not None:
            self.hook(call)


def queue_on(store: Seam | MemoryStore | RocksStore, clock: ManualClock, config: QueueConfig | None = None) -> JobQueue:
    """A queue on any store. Two on one store are two writers that know nothing of each other."""
    return JobQueue(cast(RocksStore, store), config or QueueConfig(), clock)


def at_call(number: int, act: Callable[[], object]) -> tuple[Hook, list[str]]:
    """A hook that acts once, before the `number`-th call of the store; and the calls that it saw."""
    seen: list[str] = []

    def hook(call: str) -> None:
        seen.append(call)
        if len(seen) == number:
            act()

    return hook, seen


def at_commit(act: Callable[[], object]) -> Hook:
    """A hook that acts once, before the first commit."""
    acted: list[bool] = []

    def hook(call: str) -> None:
        if call == "commit" and not acted:
            acted.append(True)
            act()

    return hook
