"""Power loss: the log of a killed queue cut at every edge of a record and between, and what an open makes of it.

A seeded load is run to its death under strace. The trace tells, for every answer that was given, how far the log had
been synced when it left. Then the log is cut; whoever was answered while no more than the cut leaves was synced must
find what the answer told. So the recovered state has to be

- the state after some commit, of every column family, byte for byte: never a part of a batch, no family without another
- and that commit must be no older than the newest which such an answer may have seen.

The load's queue runs at durability "sync". A second one at "os" shows how many answered calls a cut takes back, and
that no lease which was lost is accepted afterwards, whatever is granted then.
"""

import random
import shutil
from collections.abc import Iterable
from typing import Final

from telha_jobs import JobNotFoundError, JobQueue, ManualClock, QueueConfig, QueueUnavailableError, StaleLeaseError
from telha_jobs.store.rocks import Durability
from tests.chaos import wal
from tests.chaos.cutting import Cut, every_byte, make_image, sampled
from tests.chaos.frame import FoundError, Lane, Run
from tests.chaos.powertrace import Granted, Killed, killed
from tests.chaos.seeded import START_MS
from tests.chaos.states import differences, state_of, telling

_LATER_MS: Final = 3_600_000
_GO_ON_EVERY: Final[dict[Durability, int]] = {"sync": 8, "os": 2}
"""After every so many images the queue is used, closed and opened once more."""
_CONFIG: Final = QueueConfig(retention_completed_ms=None, lease_ttl_ms=1_000_000)


def body(run: Run) -> None:
    """In CI a log at each durability, sampled; in a long run each byte of a small one, and then more logs."""
    rounds = 0
    while run.goes_on(rounds, ci=1):
        seed = run.seed * 1_000 + rounds
        if rounds == 1:
            _every_byte(run, seed)
        else:
            sampled_log(run, seed, "sync")
            sampled_log(run, seed, "os")
        rounds += 1


def sampled_log(run: Run, seed: int, durability: Durability) -> None:
    """A log of that seed, cut at the edges of its records and at sampled bytes."""
    calls, more = (45, 20) if durability == "sync" else (22, 5)
    room = run.room(f"{durability}-{seed}")
    died = killed(room, seed=seed, durability=durability, before=15, calls=calls, large=True)
    cuts = sampled(_records(run, died), died.first, len(died.content), random.Random(seed), bytes_more=more)
    _judge(run, died, cuts, durability, total=len(cuts))
    shutil.rmtree(room)


def _every_byte(run: Run, seed: int) -> None:
    died = killed(run.room(f"bytes-{seed}"), seed=seed, durability="sync", before=5, calls=20, large=False)
    _records(run, died)
    cuts = list(every_byte(died.first, len(died.content)))
    random.Random(seed).shuffle(cuts)  # time may run out
    _judge(run, died, cuts, "sync", total=len(cuts))
    shutil.rmtree(died.directory.parent)


def _records(run: Run, died: Killed) -> list[wal.Record]:
    records = wal.parse(died.content)
    run.tally.covered["logs"] += 1
    run.tally.covered["records"] += len(records)
    run.tally.covered["answers"] += len(died.answers)
    return records


def _judge(run: Run, died: Killed, cuts: Iterable[Cut], durability: Durability, *, total: int) -> None:
    covered = run.tally.covered
    for number, cut in enumerate(cuts):
        if run.seconds is not None and run.elapsed_s > run.seconds:
            covered["images that time did not allow"] += total - number
            return
        sequence = _opened(run, died, cut, goes_on=number % _GO_ON_EVERY[durability] == 0)
        covered["images"] += 1
        covered[f"images: {cut.how}"] += 1
        if durability == "os":
            back = sum(one.sequence > sequence for one in died.answers)
            covered["os: most answers taken back"] = max(back, covered["os: most answers taken back"])
        if number % 50 == 0:
            run.say(f"{durability}: image {number} of {total}, {cut.how} at byte {cut.at}")


def _opened(run: Run, died: Killed, cut: Cut, *, goes_on: bool) -> int:
    """Judge one image; the commit that it was recovered to."""
    image = run.root / "image"
    make_image(died.directory, image, died.log, cut.apply(died.content))
    where = f"{died.log} of {died.directory.parent.name}, {cut.how} at byte {cut.at} (bit {cut.bit})"
    clock = ManualClock(START_MS + _LATER_MS)
    try:
        queue = JobQueue.open(image, config=_CONFIG, clock=clock)
    except QueueUnavailableError as error:
        run.tally.lost += died.floor(cut.at)
        raise FoundError(f"{where}: the queue does not open: {error}") from error
    try:
        sequence = queue._store.sequence
        _judge_state(run, died, cut, queue, where)
        lost = [one for one in died.leases if one.sequence > sequence]
        if goes_on:
            _go_on(run, queue, lost, clock, where)
    finally:
        queue.close()
    if goes_on:
        with JobQueue.open(image, config=_CONFIG, clock=clock) as again:
            _healthy(run, again, f"{where}, used and opened again")
    shutil.rmtree(image)
    return sequence


def _judge_state(run: Run, died: Killed, cut: Cut, queue: JobQueue, where: str) -> None:
    sequence, floor = queue._store.sequence, died.floor(cut.at)
    if sequence >= len(died.states):
        run.tally.unexpected += 1
        raise FoundError(f"{where}: commit {sequence} was never made, the newest is {len(died.states) - 1}")
    differing = telling(differences(died.states[sequence], state_of(queue._store)))
    if differing:
        run.tally.unexpected += 1
        raise FoundError(f"{where}: this is not the state after commit {sequence}: {differing}")
    if sequence < floor:
        run.tally.lost += floor - sequence
        raise FoundError(f"{where}: commit {floor} was answered for and is gone, the state is that of {sequence}")
    _healthy(run, queue, where)
    run.tally.recovered += sequence > died.answered
    run.tally.covered["commits behind an answer"] += floor


def _healthy(run: Run, queue: JobQueue, where: str) -> None:
    report = queue.check()
    if not report:
        run.tally.unexpected += len(report.problems)
        raise FoundError(f"{where}: check: {'; '.join(report.problems)}")


def _go_on(run: Run, queue: JobQueue, lost: list[Granted], clock: ManualClock, where: str) -> None:
    """Use the queue: no lost lease is accepted, neither before nor after its job is leased anew."""
    _refuse(run, queue, lost, where)
    newest = dict[object, int]()
    for one in lost:
        newest[one.ref.job_id] = max(one.ref.generation, newest.get(one.ref.job_id, 0))
    queue.reap()
    clock.advance(_LATER_MS)
    queue.reap()
    for lease in queue.lease_batch("after", 1_000):
        run.tally.covered["leases of jobs whose lease was lost"] += lease.job_id in newest
        if lease.generation <= newest.get(lease.job_id, 0):
            run.tally.duplicated += 1
            raise FoundError(f"{where}: job {lease.job_id} is leased again at generation {lease.generation}")
    _refuse(run, queue, lost, where)
    _healthy(run, queue, where)


def _refuse(run: Run, queue: JobQueue, lost: list[Granted], where: str) -> None:
    for one in lost:
        try:
            queue.complete(one.ref)
        except (StaleLeaseError, JobNotFoundError):
            run.tally.covered["lost leases refused"] += 1
        else:
            run.tally.duplicated += 1
            raise FoundError(f"{where}: {one.ref} was lost with its commit {one.sequence}, and is accepted")


LANE: Final = Lane(
    name="powerloss",
    proves="of a log cut anywhere an exact prefix of the commits is left, no shorter than what was answered",
    cannot="directory entries, tables and the MANIFEST are not cut; that the disk keeps what fdatasync said it kept",
    body=body,
    repeats=True,
    weight=2,
)
