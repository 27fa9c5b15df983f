"""Bits turn where the queue's data lies: in its entries, and in RocksDB's files.

A queue with jobs in every state is made once a round, and closed; nothing happens to that one, the twin. Each case is a
copy of it with one thing changed, and is held against the twin:

- *An entry*: a bit of a record, of an entry in `ids`, `idem`, `ready` or `timers`, of a counter or kind, in key or
  value, written with RocksDB's checksums all right; a payload that is gone; an older row beside a newer one of the same
  job. The queue opens (or refuses, and names the remedy); reads and leases of all other jobs go on; `check` tells;
  `check --repair` leaves every family as the twin's, but for a job whose own row was hit: that one is in quarantine.
- *A file*: a bit of a table, the manifest or CURRENT. The open refuses and names the file, or every answer is the
  twin's until a call meets the damage: that call refuses and names the file, and every call after it refuses. With the
  bit turned back everything is there: whatever ran meanwhile, wrote nothing over it.

What is silent is a finding: a database that differs from the twin without `check` saying so.
"""

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from telha_jobs import Job, JobQueue, JobUnreadableError, LeaseRef, ManualClock, QueueError, QueueUnavailableError
from telha_jobs import State as JobState
from telha_jobs.codec import decode_record, encode_record
from telha_jobs.consistency import repair_directory
from telha_jobs.keys import COUNT_PREFIX, ID_BYTES, KIND_PREFIX
from telha_jobs.store.database import Database
from telha_jobs.store.port import Delete, Family, Put
from telha_jobs.store.rocks import RocksStore
from tests.chaos.frame import FoundError, Lane, Run
from tests.chaos.history import History
from tests.chaos.populated import CONFIG, populate
from tests.chaos.states import State, differences, state_of, telling

CI_ROUNDS: Final = 1
ENTRIES_A_ROUND: Final = 3
"""Cases of each target."""
FILES_A_ROUND: Final = 24
_HEADS: Final = ("MANIFEST", "CURRENT")


class Twin(NamedTuple):
    """The queue to which nothing happens: where it is, its time, its jobs, every pair, and the leases held."""

    path: Path
    now_ms: int
    jobs: dict[UUID, Job]
    pairs: State
    held: list[LeaseRef]


class Harm(NamedTuple):
    """What one case changes: the entries, the jobs whose own row it hits, and those whose row or entry it hits.

    `keeps`: the row that is in quarantine afterwards, as it was found.
    """

    changes: list[Put | Delete]
    rows_of: frozenset[UUID]
    entries_of: frozenset[UUID]
    keeps: bytes | None = None


Pairs = list[tuple[bytes, bytes]]
Target = Callable[[random.Random, dict[Family, Pairs]], Harm]


def body(run: Run) -> None:
    """Rounds of the seed, one after another."""
    rounds = 0
    logging.disable(logging.CRITICAL)  # every case is one that the library would warn of
    try:
        with History(run.history, "corruption") as history:
            while run.goes_on(rounds, ci=CI_ROUNDS):
                _Round(run, history, rounds).play()
                rounds += 1
                run.say(f"{rounds} rounds")
    finally:
        logging.disable(logging.NOTSET)


class _Round:
    """A twin and its cases."""

    def __init__(self, run: Run, history: History, number: int) -> None:
        self._run = run
        self._history = history
        self._covered = run.tally.covered
        self._chance = random.Random(run.seed * 1_000 + number)
        self._home = run.room(f"round-{number}")
        self._twin = _twin(self._home / "twin", run.seed * 1_000 + number)
        self._cases = 0

    def play(self) -> None:
        """Every target, then files; what held is removed."""
        for name, target in TARGETS.items():
            for _ in range(ENTRIES_A_ROUND):
                self._entry(name, target)
        for _ in range(FILES_A_ROUND):
            self._file()
        shutil.rmtree(self._home)

    # -- entries

    def _entry(self, name: str, target: Target) -> None:
        harm = target(self._chance, _pairs(self._twin.path))
        self._history.note("harm", target=name, changes=[repr(one) for one in harm.changes])
        path = self._copied()
        _change(path, harm.changes)
        self._covered[f"{name}: turned"] += 1
        if self._opens(path, name):
            self._others_go_on(path, harm, name)
        else:
            self._covered["opens refused, the remedy named"] += 1
        path = self._copied()
        _change(path, harm.changes)
        self._repaired(path, harm, name)
        self._done(path)

    def _opens(self, path: Path, name: str) -> bool:
        try:
            self._open(path).close()
        except QueueUnavailableError as error:
            if not name.startswith("kind") or "check --repair" not in str(error):
                raise self._found(f"{name}: the open is refused without a remedy: {error}") from error
            return False
        return True

    def _others_go_on(self, path: Path, harm: Harm, name: str) -> None:
        hit = harm.rows_of | harm.entries_of
        with self._open(path) as queue:
            for job_id, job in self._twin.jobs.items():
                self._read(queue, job_id, job, may_fail=job_id in hit, name=name)
            report = queue.check()
            if not report.problems and not report.quarantined:
                raise self._found(f"{name}: the check sees nothing")
            for outcome in queue.extend("w", [one for one in self._twin.held if one.job_id not in hit]):
                if outcome.status != "extended":
                    raise self._lost(f"{name}: a lease of job {outcome.job_id} is {outcome.status}")
            due = {
                job_id
                for job_id, job in self._twin.jobs.items()
                if job.state in (JobState.PENDING, JobState.FAILED) and (job.due_ms or 0) <= self._twin.now_ms
            }
            granted = [lease.job_id for lease in queue.lease_batch("w", 1_000)]
            if len(granted) != len(set(granted)) or not set(granted) <= due | hit:
                self._run.tally.duplicated += len(granted) != len(set(granted))
                raise self._found(f"{name}: granted are {granted}, due were {sorted(map(str, due))}")
            if not due - hit <= set(granted):
                raise self._lost(f"{name}: not granted: {due - hit - set(granted)}")
            queue.reap()
        self._covered["jobs read beside damage"] += len(self._twin.jobs)
        self._covered["leases granted beside damage"] += len(granted)
        self._done(path)

    def _read(self, queue: JobQueue, job_id: UUID, job: Job, *, may_fail: bool, name: str) -> None:
        try:
            found = queue.get(job_id)
        except QueueError as error:
            if not may_fail:
                raise self._lost(f"{name}: job {job_id} is out of reach: {error}") from error
            return
        if found != job:
            self._run.tally.unexpected += 1
            raise self._found(f"{name}: job {job_id} reads as {found}, it is {job}")

    def _repaired(self, path: Path, harm: Harm, name: str) -> None:
        done = repair_directory(path, clock=ManualClock(self._twin.now_ms))
        if done.report.problems or not done.report.repaired:
            raise self._found(f"{name}: after a repair of {done.report.repaired} things: {done.report.problems}")
        if not harm.rows_of <= set(done.report.quarantined):
            raise self._lost(f"{name}: {harm.rows_of} should be in quarantine, {done.report.quarantined} are")
        after = _state(path)
        if harm.keeps is not None and harm.keeps.hex() not in after["quarantine"].values():
            raise self._lost(f"{name}: the row is not kept as it was found")
        differing = [one for one in differences(self._twin.pairs, after) if not _may_differ(one, harm)]
        if differing:
            raise self._found(f"{name}: after the repair: {telling(iter(differing))}")
        self._listed(path, harm, name)
        self._covered["things repaired"] += done.report.repaired

    def _listed(self, path: Path, harm: Harm, name: str) -> None:
        """Every job is in its state, or in quarantine and listed."""
        with self._open(path) as queue:
            listed = set(queue.check().quarantined)
            for job_id, job in self._twin.jobs.items():
                self._read(queue, job_id, job, may_fail=job_id in harm.rows_of and job_id in listed, name=name)
                self._covered["jobs with a row in quarantine, listed"] += job_id in listed

    # -- files

    def _file(self) -> None:
        path = self._copied()
        heads = self._chance.random() < 0.2
        names = sorted(one.name for one in path.iterdir() if one.name.startswith(_HEADS) == heads and _is_data(one))
        file = path / self._chance.choice(names)
        place = self._chance.randrange(file.stat().st_size)
        bit = 1 << self._chance.randrange(8)
        kind = "tables" if file.suffix == ".sst" else file.name.partition("-")[0]
        self._history.note("harm", file=file.name, place=place, bit=bit, size=file.stat().st_size)
        self._covered[f"{kind}: bits turned"] += 1
        _turn(file, place, bit)
        self._covered[self._under_damage(path, file.name)] += 1
        _turn(file, place, bit)
        differing = list(differences(self._twin.pairs, _state(path)))
        if differing:
            raise self._lost(f"{file.name}, byte {place}: turned back, and {telling(iter(differing))}")
        self._done(path)

    def _under_damage(self, path: Path, name: str) -> str:
        """What became of it, in the words of the tally."""
        try:
            queue = self._open(path)
        except QueueUnavailableError as error:
            self._named(error, name)
            return "opens refused, the file named"
        try:
            for job_id, job in self._twin.jobs.items():
                if queue.get(job_id) != job:
                    self._run.tally.unexpected += 1
                    raise self._found(f"{name}: job {job_id} reads as {queue.get(job_id)}")
            report = queue.check()
        except JobUnreadableError as error:
            raise self._found(f"{name}: RocksDB gave out damaged bytes: {error}") from error
        except QueueUnavailableError as error:
            self._named(error, name)
            if not _refuses_all(queue):
                raise self._found(f"{name}: after a refusal a call was answered") from error
            queue.close()
            return "calls refused, the file named"
        queue.close()
        if report.problems:
            raise self._found(f"{name}: no error of the storage, but {report.problems}")
        return "bits that mean nothing"

    def _named(self, error: QueueUnavailableError, name: str) -> None:
        if name not in str(error) or "restore a backup" not in str(error):
            raise self._found(f"{name} is not named: {error}")

    # -- small things

    def _open(self, path: Path) -> JobQueue:
        return JobQueue.open(path, clock=ManualClock(self._twin.now_ms), config=CONFIG)

    def _copied(self) -> Path:
        self._cases += 1
        path = self._home / f"case-{self._cases}"
        shutil.copytree(self._twin.path, path)
        return path

    def _done(self, path: Path) -> None:
        shutil.rmtree(path)

    def _found(self, sentence: str) -> FoundError:
        return FoundError(f"case {self._cases} of {self._home.name}: {sentence}")

    def _lost(self, sentence: str) -> FoundError:
        self._run.tally.lost += 1
        return self._found(sentence)


def _refuses_all(queue: JobQueue) -> bool:
    for call in (queue.counts, queue.reap, lambda: queue.lease_next("w")):
        try:
            call()
        except QueueUnavailableError:
            continue
        return False
    return True


# -- targets


def _entries(family: Family, prefix: bytes = b"", *, hits: str) -> Target:
    """A bit of one entry's key or value. `hits`: whose row ("row"), whose entry ("key", "value"), or nobody's ("")."""

    def turned(chance: random.Random, pairs: dict[Family, Pairs]) -> Harm:
        key, value = chance.choice([pair for pair in pairs[family] if pair[0].startswith(prefix)])
        hit = {UUID(bytes=value if hits == "value" else key[-ID_BYTES:])} if hits else set[UUID]()
        new_key, new_value = key, value
        if value and chance.random() < 0.7:
            new_value = _flipped(chance, value)
        else:
            new_key = _flipped(chance, key, len(prefix))
        changes: list[Put | Delete] = [Delete(family, key), Put(family, new_key, new_value)]
        if hits != "row":
            return Harm(changes, frozenset(), frozenset(hit))
        return Harm(changes, frozenset(hit), frozenset(hit), keeps=new_value)

    return turned


def _older_row(chance: random.Random, pairs: dict[Family, Pairs]) -> Harm:
    """A whole row of an earlier moment beside the one that a job has."""
    records = [decode_record(*pair) for pair in pairs[Family.JOBS]]
    record = chance.choice([one for one in records if one.generation and one.state is not JobState.PENDING])
    older = record._replace(state=JobState.PENDING, events=record.events[:1], generation=record.generation - 1)
    row = encode_record(older, sequence=max(1, record.sequence - 1), token=record.token)
    return Harm([Put(Family.JOBS, *row)], frozenset(), frozenset({UUID(bytes=record.job_id)}), keeps=row[1])


def _payload_gone(chance: random.Random, pairs: dict[Family, Pairs]) -> Harm:
    key, _ = chance.choice(pairs[Family.PAYLOADS])
    hit = frozenset({UUID(bytes=key)})
    [row] = [value for row_key, value in pairs[Family.JOBS] if row_key.endswith(key)]
    return Harm([Delete(Family.PAYLOADS, key)], hit, hit, keeps=row)


def _lost(family: Family, *, hits: str) -> Target:
    def gone(chance: random.Random, pairs: dict[Family, Pairs]) -> Harm:
        key, value = chance.choice(pairs[family])
        hit = UUID(bytes=value if hits == "value" else key[-ID_BYTES:])
        return Harm([Delete(family, key)], frozenset(), frozenset({hit}))

    return gone


TARGETS: Final[dict[str, Target]] = {
    "record": _entries(Family.JOBS, hits="row"),
    "ids": _entries(Family.IDS, hits="key"),
    "ids gone": _lost(Family.IDS, hits="key"),
    "idem": _entries(Family.IDEM, hits="value"),
    "ready": _entries(Family.READY, hits="key"),
    "timers": _entries(Family.TIMERS, hits="key"),
    "payload gone": _payload_gone,
    "counter": _entries(Family.META, COUNT_PREFIX, hits=""),
    "kind": _entries(Family.META, KIND_PREFIX, hits=""),
    "older row": _older_row,
}
"""What a case may hit. A payload's bits are the caller's own business where they still make a value: it only goes."""


def _flipped(chance: random.Random, data: bytes, start: int = 0) -> bytes:
    place = chance.randrange(start, len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _may_differ(difference: str, harm: Harm) -> bool:
    """What a repair cannot make as it was: what was hit is in quarantine then, and missing elsewhere."""
    if difference.startswith("quarantine"):
        return harm.keeps is not None
    return bool(harm.rows_of) and (difference.startswith("meta") or any(one.hex in difference for one in harm.rows_of))


def _is_data(file: Path) -> bool:
    return file.suffix == ".sst" or file.name.startswith(_HEADS)


def _turn(file: Path, place: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= bit
    file.write_bytes(content)


def _change(path: Path, changes: list[Put | Delete]) -> None:
    database = Database.open(path)
    database.write(database.batch(changes))
    database.close()


def _twin(path: Path, seed: int) -> Twin:
    now_ms, held = populate(path, seed)
    with JobQueue.open(path, clock=ManualClock(now_ms), config=CONFIG) as queue:
        jobs = {job.job_id: job for job in queue.list_jobs(limit=1_000).jobs}
    return Twin(path, now_ms, jobs, _state(path), held)


def _state(path: Path) -> State:
    store = RocksStore.open_read_only(path)
    try:
        return state_of(store)
    finally:
        store.close()


def _pairs(path: Path) -> dict[Family, Pairs]:
    store = RocksStore.open_read_only(path)
    try:
        return {family: store.scan(family, b"", None, 10_000) for family in Family}
    finally:
        store.close()


LANE: Final = Lane(
    name="corruption",
    proves="a turned bit is told, costs at most the job whose row it hits, and a repair undoes the rest",
    cannot="a bit in the store's own marks in meta, or in a payload that still makes a value: these have no checksum "
    "but RocksDB's; a disk that gives out other bytes at each read",
    body=body,
    repeats=True,
)
