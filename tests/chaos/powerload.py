"""The program that the lane `powerloss` runs to its death: a seeded load on one queue, every write told outside it.

    python -m tests.chaos.powerload DATABASE HISTORY '{"seed": 7, "durability": "sync", ...}'

At chosen syncs a second thread is let in, and waited for: its commit is in the log when the first is told of its own.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from telha_jobs import JobQueue, ManualClock, QueueConfig
from tests.chaos.history import History
from tests.chaos.seeded import ALL_SIZES, SMALL_SIZES, START_MS, Load, Recorder, fixed_ids

BESIDE: Final = 0.3
"""How many syncs let the second thread make a call."""


def main(arguments: Sequence[str]) -> None:
    """Load a new queue, close it, load it again and die by SIGKILL: within a call, or between two."""
    path, told, given = Path(arguments[0]), Path(arguments[1]), json.loads(arguments[2])
    history = History(told, "load")
    recorder = Recorder(history)
    clock = ManualClock(START_MS)
    load = Load(given["seed"], history, recorder, clock, sizes=ALL_SIZES if given["large"] else SMALL_SIZES)
    config = QueueConfig(
        lease_ttl_ms=1_000, retention_completed_ms=10_000, retention_dead_ms=10_000, durability=given["durability"]
    )
    with fixed_ids(given["seed"]):
        for calls, last in ((given["before"], False), (given["calls"], True)):
            store = recorder.store().open(
                path, clock=clock, durability=given["durability"], database=recorder.database()
            )
            load.opened(store, JobQueue(store, config, clock))
            history.note("opened", incarnation=store.incarnation)
            _play(load, recorder, calls, last=last)
            load.queue.close()


def _play(load: Load, recorder: Recorder, calls: int, *, last: bool) -> None:
    chance = load.chance
    within = chance.random() < 0.5
    first = threading.current_thread()
    for number in range(calls):
        ending = last and number == calls - 1

        def at_sync(sync: Callable[[], None], ending: bool = ending) -> None:
            if ending and within:
                _die()
            if threading.current_thread() is not first or chance.random() >= BESIDE:
                sync()
            elif chance.random() < 0.5:
                # Written before the sync, which covers it although the one who waits for it does not know.
                recorder.second.run(partial(load.step, beside=True))
                sync()
            else:
                # Written after the sync, before anybody was told that it is over.
                sync()
                recorder.second.run(partial(load.step, beside=True))

        recorder.at_sync = at_sync
        load.step()
        recorder.second.join()
        load.settle()
        if ending:
            _die()
    recorder.at_sync = lambda sync: sync()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
