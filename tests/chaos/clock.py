"""The wall clock lies: stepped by hours and days while leases live, and set back while nobody looks.

Two ways. A seeded world with a true time of its own, a wall clock that is set, and machines that start anew: the queue
runs on the real `telha_jobs.clock`, and after every event the world knows what may be. And a process on the real clocks
of the system whose wall is moved under it by libfaketime, with the real reaper and waiting polls (`tests.chaos.faked`).

What must hold, whatever the wall does:

- while the queue is open its time passes as fast as true time; half as fast while it is ahead of where the wall of its
  open would be now
- it never goes back, and after a kill not behind anything that was written; nor do ids and the events of a job
- no lease ends before its time to live has truly passed, and each has ended one sweep after twice that time
- `clock_ahead_ms` is the difference to what the wall says now.

A wall that is set forward while the queue is closed cannot be told from downtime: then leases may end early.
"""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

from telha_jobs import Clock, JobQueue, Lease, QueueConfig, StaleLeaseError, State
from tests.chaos.faked import faked_run
from tests.chaos.frame import FoundError, Lane, Run
from tests.harness.subject import copy_while_open

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
START_MS: Final = 1_700_000_000_000
TTL_MS: Final = 300_000
INTERVAL_MS: Final = 30_000
STEPS_MS: Final = (-DAY_MS, -HOUR_MS, -1, 1, HOUR_MS, DAY_MS)
BACK_MS: Final = (-DAY_MS, -HOUR_MS, -1, 0, 0)
PASSES_MS: Final = (0, 1, 999, 10_000, 29_999, 30_000, 150_000)
SCOPE: Final = UUID(int=0xC)
CI_WORLDS: Final = 6
EVENTS: Final = 250
_TICK_MS: Final = 1_000


class World(Clock):
    """True time, and what the clocks of a machine make of it."""

    def __init__(self) -> None:
        self.true_ms = 0
        self.set_by_ms = 0
        self.started_ms = 0

    def wall_ms(self) -> int:
        return START_MS + self.true_ms + self.set_by_ms

    def boot_ms(self) -> int:
        return self.true_ms - self.started_ms


class Held:
    """A lease as the world sees it. `lived_ms`: true time since it was granted or extended, without what an open could
    not tell from downtime; `open_ms`: how much of its own time the queue has certainly let pass, doubled.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.lived_ms = 0
        self.open_ms = 0


class Sky:
    """One world's queue, its events, and the judgement after each."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run = run
        self._covered = run.tally.covered
        self._chance = random.Random(seed)
        self._world = World()
        self._root = run.room(f"world-{seed}")
        self._where = f"world {seed}"
        self._opens = 0
        self._path = self._root / "0"
        self._held: list[Held] = []
        self._ids: list[UUID] = []
        self._told_ms = 0
        self._written_ms = 0
        self._swept_ms = 0
        self._sequence = 0
        self._queue = self._open()

    def play(self, events: int) -> None:
        """Let so many things happen, then close."""
        happenings: list[Callable[[], None]] = [
            *[self._pass] * 8,
            *[self._step] * 3,
            *[self._work] * 6,
            self._reopen,
        ]
        for _ in range(events):
            self._chance.choice(happenings)()
            self._judge()
        self._queue.close()

    # -- what happens

    def _pass(self) -> None:
        """True time passes, and the queue is swept whenever its interval is over."""
        left = self._chance.choice(PASSES_MS)
        while left:
            piece = min(left, _TICK_MS)
            left -= piece
            self._world.true_ms += piece
            for held in self._held:
                held.lived_ms += piece
                held.open_ms += piece
            if self._queue.now_ms() >= self._swept_ms + INTERVAL_MS:
                self._sweep()

    def _step(self) -> None:
        """Somebody sets the wall clock while the queue is open."""
        before = self._queue.now_ms()
        by = self._chance.choice(STEPS_MS)
        self._world.set_by_ms += by
        self._covered[f"steps {'forward' if by > 0 else 'back'}"] += 1
        if self._queue.now_ms() != before:
            raise self._broken(f"the wall was set by {by} ms, and the queue's time went by {self._now() - before} ms")

    def _work(self) -> None:
        queue, chance = self._queue, self._chance
        match chance.choice(("enqueue", "enqueue", "lease", "lease", "extend", "complete", "fail")):
            case "enqueue":
                self._ids.append(queue.enqueue(SCOPE, "tick", None).job_id)
            case "lease":
                for lease in queue.lease_batch("w", chance.choice((1, 3))):
                    if lease.deadline_ms != self._now() + TTL_MS:
                        raise self._broken(f"a lease of {TTL_MS} ms until {lease.deadline_ms}, it is {self._now()}")
                    self._held.append(Held(lease))
            case "extend" if self._held:
                held = chance.choice(self._held)
                status = queue.extend("w", [held.lease])[0].status
                self._truly(held, ended=status != "extended")
                if status == "extended":
                    held.lived_ms = held.open_ms = 0
            case "complete" | "fail" as call if self._held:
                held = self._held.pop(chance.randrange(len(self._held)))
                try:
                    queue.complete(held.lease) if call == "complete" else queue.fail(held.lease, "rain")
                except StaleLeaseError:
                    self._truly(held, ended=True)
            case _:
                pass
        self._note_written()

    def _sweep(self) -> None:
        self._swept_ms = self._now()
        self._queue.reap()
        self._note_written()
        self._covered["sweeps"] += 1
        for held in tuple(self._held):
            job = self._queue.get(held.lease.job_id)
            ended = job.state is not State.LEASED or job.generation != held.lease.generation
            self._truly(held, ended=ended)
            if ended:
                self._held.remove(held)

    def _note_written(self) -> None:
        """After a commit its time is on disk."""
        sequence = self._queue._store.sequence
        if sequence != self._sequence:
            self._sequence, self._written_ms = sequence, self._now()

    def _truly(self, held: Held, *, ended: bool) -> None:
        """A lease is seen to have ended, or not."""
        if ended:
            self._covered["leases that ended"] += 1
            if held.lived_ms < TTL_MS:
                raise self._broken(f"a lease ended {held.lived_ms} ms after it was given for {TTL_MS}")
        elif held.open_ms > 2 * (TTL_MS + INTERVAL_MS + _TICK_MS):
            raise self._broken(f"a lease of {TTL_MS} ms has not ended after {held.open_ms} ms")

    def _reopen(self) -> None:
        """The queue closes, or is killed; time passes, the wall is set back or not; the machine may start anew."""
        chance, world = self._chance, self._world
        clean = chance.random() < 0.5
        before = self._now()
        if clean:
            self._queue.close()
        else:
            copied = self._root / str(self._opens)
            copy_while_open(self._path, copied)
            self._queue.close()
            self._path = copied
        down = chance.choice((0, 1, 5_000, HOUR_MS))
        world.true_ms += down
        if chance.random() < 0.3:
            world.started_ms = world.true_ms
        world.set_by_ms += chance.choice(BACK_MS)
        # What the wall ran ahead by, and was never set back by, looks like downtime now.
        unseen = max(down, world.wall_ms() - before)
        self._queue = self._open()
        now = self._now()
        floor = before if clean else self._written_ms
        if not floor <= now <= max(before, world.wall_ms()):
            raise self._broken(
                f"opened at {now}; {'told' if clean else 'written'} before was {floor}, the wall says {world.wall_ms()}"
            )
        for held in self._held:
            held.lived_ms += unseen
            held.open_ms -= 2 * max(0, before - now)  # what a kill takes back of the queue's time
        self._told_ms = now
        self._covered["opens"] += 1
        self._covered["opens with the wall behind"] += world.wall_ms() < now
        self._sweep()

    def _open(self) -> JobQueue:
        self._opens += 1
        config = QueueConfig(lease_ttl_ms=TTL_MS, reaper_interval_ms=INTERVAL_MS, max_attempts=20, durability="os")
        queue = JobQueue.open(self._path, config=config, clock=self._world)
        self._opened_true_ms, self._opened_ms = self._world.true_ms, queue.now_ms()
        self._wall_at_open_ms = self._world.wall_ms()
        return queue

    # -- what must hold

    def _judge(self) -> None:
        now, passed = self._now(), self._world.true_ms - self._opened_true_ms
        promised = max(self._opened_ms + passed // 2, self._wall_at_open_ms + passed)
        self._covered["events"] += 1
        if now < self._told_ms:
            raise self._broken(f"time went back from {self._told_ms} to {now}")
        self._told_ms = now
        if now != promised:
            raise self._broken(f"{passed} ms after the open it is {now}, and should be {promised}")
        ahead = max(0, now - self._world.wall_ms())
        if self._queue.clock_ahead_ms() != ahead:
            raise self._broken(f"it is {ahead} ms ahead of the wall and tells {self._queue.clock_ahead_ms()}")
        if self._ids != sorted(self._ids, key=lambda job_id: job_id.int):
            raise self._broken("ids are not in the order of their commits")
        if self._ids:
            events = self._queue.get(self._chance.choice(self._ids)).events
            times = [event.at_ms for event in events]
            if times != sorted(times) or times[-1] > now:
                raise self._broken(f"the events of a job are told at {times}, it is {now}")

    def _now(self) -> int:
        return self._queue.now_ms()

    def _broken(self, sentence: str) -> FoundError:
        return FoundError(f"{self._where}, event {self._covered['events']}: {sentence}")


def worlds(run: Run) -> None:
    """Worlds of the seed, one after another."""
    rounds = 0
    while run.goes_on(rounds, ci=CI_WORLDS):
        Sky(run, run.seed * 1_000 + rounds).play(EVENTS)
        run.tally.covered["worlds"] += 1
        run.say(f"{rounds + 1} worlds")
        rounds += 1


def body(run: Run) -> None:
    """The process on the system's clocks, then worlds."""
    faked_run(run)
    worlds(run)


LANE: Final = Lane(
    name="clock",
    proves="wall clocks set by days move no lease, no order and no time; a queue ahead of the wall runs at half speed",
    cannot="a wall set forward while the queue is closed, which looks like downtime; clocks of several machines",
    body=body,
    repeats=True,
)
