"""Damage, for tests of repair: a queue with jobs of every sort in memory, and what can befall its families."""

import copy
import random
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from telha_jobs import JobQueue, ManualClock, NewJob, QueueConfig, State
from telha_jobs.codec import decode_record, encode_record
from telha_jobs.keys import COUNT_PREFIX, KIND_PREFIX, LAST_ID, idem_key, ready_key, timer_key
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Delete, Family, Put
from tests.field_failures.seam import Seam, queue_on

START_MS = 1_700_000_000_000
A, B = UUID(int=0xA), UUID(int=0xB)
MISSING = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
"""A job id that nobody ever got."""
KINDS = ("embed", "ingest:pdf", "index")
CONFIG = QueueConfig(max_attempts=2, lease_ttl_ms=60_000, retention_dead_ms=5_000)
Pairs = dict[Family, dict[bytes, bytes]]


class Disk(NamedTuple):
    """A disk, and the time on it."""

    disk: MemoryDisk
    now_ms: int

    def copied(self) -> "Disk":
        """The same, apart."""
        return Disk(copy.deepcopy(self.disk), self.now_ms)

    def opened(self) -> JobQueue:
        """The queue on it."""
        clock = ManualClock(self.now_ms)
        return queue_on(Seam(MemoryStore.open(self.disk, clock=clock)), clock, CONFIG)

    def pairs(self) -> Pairs:
        """Every pair of every family; the memory store keeps its own records elsewhere."""
        return {family: dict(self.disk.values[family]) for family in Family}


def populated(seed: int, jobs: int) -> Disk:
    """A closed queue with jobs in every state, of several scopes and kinds, some with keys and large payloads.

    The newest job is there, so that `last_id` follows from the rows.
    """
    chance, clock, disk = random.Random(seed), ManualClock(START_MS), MemoryDisk()
    with queue_on(Seam(MemoryStore.open(disk, clock=clock)), clock, CONFIG) as queue:
        for kind in KINDS:
            queue.enqueue(A, kind, None)
        for number in range(jobs):
            queue.enqueue(
                chance.choice((A, B)),
                chance.choice(KINDS),
                "x" * chance.choice((3, 700)),
                priority=chance.choice((1, 128)),
                delay_ms=chance.choice((0, 0, 90_000)),
                idempotency_key=chance.choice((None, f"key-{number}")),
            )
            clock.advance(chance.choice((0, 1, 700)))
            for lease in queue.lease_batch("w", chance.choice((1, 2))) if chance.random() < 0.6 else ():
                end = chance.randrange(5)
                if end == 0:
                    queue.complete(lease, "done")
                elif end == 1:
                    queue.fail(lease, "no", retryable=chance.random() < 0.6)
                elif end == 2:
                    queue.release(lease)
                elif end == 3:
                    queue.extend("w", [lease], progress={lease.job_id: {"page": number}})
        queue.enqueue_many([NewJob(scope=B, kind="index", payload="y" * 600, idempotency_key="newest")])
    return Disk(disk, clock.wall_ms())


def flipped(chance: random.Random, data: bytes, start: int = 0) -> bytes:
    """The bytes with one bit turned, from `start` on."""
    place = chance.randrange(start, len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


Change = Put | Delete


def _entries(disk: MemoryDisk, family: Family, prefix: bytes = b"") -> list[bytes]:
    return [key for key in disk.keys[family] if key.startswith(prefix) and len(key) > len(prefix)]


def _delete(family: Family, prefix: bytes = b"") -> Callable[[random.Random, MemoryDisk], list[Change]]:
    def act(chance: random.Random, disk: MemoryDisk) -> list[Change]:
        return [Delete(family, key) for key in _some(chance, _entries(disk, family, prefix))]

    return act


def _turn_value(family: Family, prefix: bytes = b"") -> Callable[[random.Random, MemoryDisk], list[Change]]:
    def act(chance: random.Random, disk: MemoryDisk) -> list[Change]:
        changes: list[Change] = []
        for key in _some(chance, _entries(disk, family, prefix)):
            value = disk.values[family][key]
            changes.append(Put(family, key, flipped(chance, value) if value else b"?"))
        return changes

    return act


def _cut_value(family: Family, prefix: bytes = b"") -> Callable[[random.Random, MemoryDisk], list[Change]]:
    def act(chance: random.Random, disk: MemoryDisk) -> list[Change]:
        return [
            Put(family, key, disk.values[family][key][: chance.randrange(8)])
            for key in _some(chance, _entries(disk, family, prefix))
        ]

    return act


def _turn_key(family: Family, prefix: bytes = b"") -> Callable[[random.Random, MemoryDisk], list[Change]]:
    def act(chance: random.Random, disk: MemoryDisk) -> list[Change]:
        changes: list[Change] = []
        for key in _some(chance, _entries(disk, family, prefix)):
            changes += [Delete(family, key), Put(family, flipped(chance, key, len(prefix)), disk.values[family][key])]
        return changes

    return act


def _some(chance: random.Random, keys: list[bytes]) -> list[bytes]:
    return chance.sample(keys, min(len(keys), chance.choice((1, 1, 2, len(keys)))))


def _add(family: Family, *keys: bytes, value: bytes = b"") -> Callable[[random.Random, MemoryDisk], list[Change]]:
    return lambda chance, _: [Put(family, keys[chance.randrange(len(keys))], value)]


_COUNTED = COUNT_PREFIX + UUID(int=0xC).bytes + b"\0" * 7 + b"\x01\x01"
DAMAGE: dict[str, Callable[[random.Random, MemoryDisk], list[Change]]] = {
    **{f"{family.value} lost": _delete(family) for family in (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM)},
    **{f"{family.value} value": _turn_value(family) for family in (Family.READY, Family.TIMERS)},
    **{f"{family.value} value": _turn_value(family) for family in (Family.IDS, Family.IDEM)},
    **{f"{family.value} value cut": _cut_value(family) for family in (Family.IDS, Family.IDEM)},
    **{f"{family.value} key": _turn_key(family) for family in (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM)},
    "ready added": _add(Family.READY, b"", b"\xff" * 60, ready_key(B.bytes, 1, 1, 5, MISSING.bytes)),
    "timers added": _add(Family.TIMERS, b"\0", b"\xff" * 24, timer_key(START_MS, MISSING.bytes)),
    "ids added": _add(Family.IDS, b"", b"\0" * 16, MISSING.bytes, b"\xff" * 40, value=b"nonsense"),
    "idem added": _add(Family.IDEM, b"", idem_key(A.bytes, "nobody"), b"\xff" * 33, value=MISSING.bytes),
    "payloads added": _add(Family.PAYLOADS, b"", MISSING.bytes, b"\xff" * 17, value=b"\x01\xc0"),
    "counter lost": _delete(Family.META, COUNT_PREFIX),
    "counter value": _turn_value(Family.META, COUNT_PREFIX),
    "counter value cut": _cut_value(Family.META, COUNT_PREFIX),
    "counter key": _turn_key(Family.META, COUNT_PREFIX),
    "counter added": _add(Family.META, _COUNTED, COUNT_PREFIX, value=b"\0" * 7 + b"\x05"),
    "counter of zero": _add(Family.META, _COUNTED, value=b"\0" * 8),
    "last_id lost": lambda _, __: [Delete(Family.META, LAST_ID)],
    "last_id old": lambda _, __: [Put(Family.META, LAST_ID, MISSING.bytes)],
    "last_id ahead": lambda _, __: [Put(Family.META, LAST_ID, b"\xef" + MISSING.bytes[1:])],
    "last_id cut": lambda _, __: [Put(Family.META, LAST_ID, b"\xff\xff")],
}
"""What can befall the derived families, each such that the rows tell how it was."""
KIND_DAMAGE: dict[str, Callable[[random.Random, MemoryDisk], list[Change]]] = {
    "kind lost": _delete(Family.META, KIND_PREFIX),
    "kind value": _turn_value(Family.META, KIND_PREFIX),
    "kind value cut": _cut_value(Family.META, KIND_PREFIX),
    "kind named twice": lambda _, disk: [
        Put(Family.META, _entries(disk, Family.META, KIND_PREFIX)[1], KINDS[0].encode())
    ],
    "kind of no number": _add(Family.META, KIND_PREFIX, KIND_PREFIX + b"\0" * 8, value=b"embed"),
}
"""The same for kinds, whose numbers are found again where `ids` is sound."""


def bytes_wrong(chance: random.Random, disk: MemoryDisk) -> list[Change]:
    """Rows that cannot be read any more, in value or key."""
    changes: list[Change] = []
    for key in _some(chance, _entries(disk, Family.JOBS)):
        value = disk.values[Family.JOBS][key]
        if chance.random() < 0.7:
            changes.append(Put(Family.JOBS, key, flipped(chance, value)))
        else:
            changes += [Delete(Family.JOBS, key), Put(Family.JOBS, flipped(chance, key), value)]
    return changes


def rows_gone(chance: random.Random, disk: MemoryDisk) -> list[Change]:
    """Rows that are not there any more."""
    return [Delete(Family.JOBS, key) for key in _some(chance, _entries(disk, Family.JOBS))]


def second_rows(chance: random.Random, disk: MemoryDisk) -> list[Change]:
    """An older or newer row of a job beside the one it has, whole and with a right checksum."""
    changes: list[Change] = []
    for key in _some(chance, _entries(disk, Family.JOBS)):
        record = decode_record(key, disk.values[Family.JOBS][key])
        state = chance.choice([state for state in State if state is not record.state])
        generation = max(0, record.generation + chance.choice((-1, 0, 1)))
        events = record.events[: chance.randrange(1, len(record.events) + 1)]
        other = record._replace(state=state, generation=generation, events=events, purge_at=None, deadline=None)
        sequence = max(1, record.sequence + chance.choice((-1, 1)))
        changes.append(Put(Family.JOBS, *encode_record(other, sequence=sequence, token=record.token)))
    return changes


def payloads_wrong(chance: random.Random, disk: MemoryDisk) -> list[Change]:
    """Payloads that are gone, or make no sense."""
    keys = _some(chance, _entries(disk, Family.PAYLOADS))
    return [Delete(Family.PAYLOADS, key) if chance.random() < 0.5 else Put(Family.PAYLOADS, key, b"?") for key in keys]


ROW_DAMAGE: dict[str, Callable[[random.Random, MemoryDisk], list[Change]]] = {
    "rows wrong": bytes_wrong,
    "rows gone": rows_gone,
    "second rows": second_rows,
    "payloads wrong": payloads_wrong,
}
"""What can befall the rows themselves."""


ALL: Final = DAMAGE | KIND_DAMAGE | ROW_DAMAGE


def damage(disk: MemoryDisk, names: list[str], seed: int) -> None:
    """Let it all befall the disk."""
    chance = random.Random(seed)
    for name in names:
        disk.apply(ALL[name](chance, disk))
