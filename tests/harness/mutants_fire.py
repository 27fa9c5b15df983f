"""Mutants that only lanes under fire (`tests/chaos`), the clock's tests or waiting threads can show."""

from typing import Final

from tests.harness.catalogue import Mutant

_OPENING: Final = "telha_jobs.store.opening"
_ROCKS: Final = "telha_jobs.store.rocks"
_GROUPING: Final = "telha_jobs.store.grouping"
_ENGINE: Final = "telha_jobs.engine.engine"

UNDER_FIRE: Final[tuple[Mutant, ...]] = (
    Mutant(
        "the log is written out, not synced",
        "acknowledged is durable",
        "powerloss",
        "telha_jobs.store.database",
        "self._opened().flush_wal(True)",
        "self._opened().flush_wal(False)",
    ),
    Mutant(
        "the reply leaves before its sync",
        "acknowledged is durable",
        "pytest:tests/contract/test_reply_rule.py",
        _ENGINE,
        "                self.store.wait(sequence)\n            except QueueUnavailableError:\n",
        "                self.store.wait(0)\n            except QueueUnavailableError:\n",
        ("powerloss",),
    ),
    Mutant(
        "a leader answers before the sync",
        "acknowledged is durable",
        "pytest:tests/unit/engine/test_turns.py",
        _ENGINE,
        "            self.store.wait(sequence)\n            for call, answer in zip(",
        "            self.store.wait(0)\n            for call, answer in zip(",
    ),
    Mutant(
        "a leader mixes the answers up",
        "exclusive lease",
        "pytest:tests/unit/engine/test_turns.py",
        _ENGINE,
        "for call, answer in zip(calls, answers, strict=True):",
        "for call, answer in zip(calls, answers[::-1], strict=True):",
    ),
    Mutant(
        "the reply is a commit ahead of the sync",
        "acknowledged is durable",
        "powerloss",
        _GROUPING,
        "        if self._synced >= sequence:\n            return  # it only ever rises\n",
        "        if self._synced >= sequence - 1:\n            return  # it only ever rises\n",
    ),
    Mutant(
        "a sync counts for what was written while it ran",
        "acknowledged is durable",
        "powerloss",
        _GROUPING,
        "        self._settle(synced=target, failure=None)",
        "        self._settle(synced=self._written(), failure=None)",
    ),
    Mutant(
        "a commit is two batches",
        "acknowledged is durable",
        "powerloss",
        _ROCKS,
        "                self._database.write(batch)\n                self._sequence = sequence\n",
        "                for part in (changes[: len(changes) // 2], changes[len(changes) // 2 :]):\n"
        "                    self._database.write(self._database.batch(part))\n"
        "                self._sequence = sequence\n",
    ),
    Mutant(
        "the open mark is not synced",
        "exclusive lease",
        "powerloss",
        _OPENING,
        "    database.flush()\n    return incarnation",
        "    return incarnation",
    ),
    Mutant(
        "a write error is swallowed",
        "acknowledged is durable",
        "faults",
        _ROCKS,
        '                failure = self._fail("write", error)\n'
        "                if isinstance(error, Exception):\n"
        "                    raise CommitUnknownError(str(failure)) from error\n"
        "                raise\n",
        "                if not isinstance(error, Exception):\n                    raise\n"
        "                self._sequence = sequence\n",
    ),
    Mutant(
        "the store goes on after an error",
        "acknowledged is durable",
        "faults",
        _ROCKS,
        "        self._refusal = self._refusal or reason\n",
        "",
    ),
    Mutant(
        "a sync error is swallowed",
        "acknowledged is durable",
        "faults",
        _GROUPING,
        "            self._settle(synced=None, failure=failure)\n"
        '            raise QueueUnavailableError(failure, outcome="unknown") from error\n',
        "            del error, failure\n",
    ),
    Mutant(
        "nobody looks for room",
        "acknowledged is durable",
        "faults",
        "telha_jobs.store.opening",
        "    if free < needed:\n",
        "    if free < 0:\n",
    ),
    Mutant(
        "a wall clock that is set moves the queue's time",
        "exclusive lease",
        "pytest:tests/unit/test_clock.py",
        "telha_jobs.clock",
        "            running = self._wall_at_open_ms + elapsed\n",
        "            running = max(self._wall_at_open_ms + elapsed, self._clock.wall_ms())\n",
        ("clock",),
    ),
    Mutant(
        "a queue ahead of the wall runs at full speed",
        "no early run",
        "clock",
        "telha_jobs.clock",
        "            running = self._base_ms + elapsed // 2\n",
        "            running = self._base_ms + elapsed\n",
    ),
    Mutant(
        "the newest time of the database is forgotten",
        "the event log tells the truth",
        "clock",
        "telha_jobs.clock",
        "        self._base_ms = max(self._wall_at_open_ms, high_water_ms)\n",
        "        self._base_ms = max(self._wall_at_open_ms, min(high_water_ms, 0))\n",
    ),
    Mutant(
        "new work wakes nobody",
        "progress",
        "pytest:tests/unit/api/test_waiting.py",
        _ENGINE,
        "    def _notify(self) -> None:\n        self._work.notify_all()\n",
        "    def _notify(self) -> None:\n",
    ),
    Mutant(
        "a record's checksum is not compared",
        "the event log tells the truth",
        "corruption",
        "telha_jobs.codec",
        "    if len(value) < 6 or _CRC.unpack(value[-4:])[0] != google_crc32c.value(key + body):\n",
        "    if len(value) < 6:\n",
    ),
    Mutant(
        "a repair drops what it cannot read",
        "no job is lost",
        "corruption",
        "telha_jobs.consistency.rows",
        ", Put(Family.QUARANTINE, quarantine_key(key, superseded=superseded), value)]\n",
        "]\n",
    ),
    Mutant(
        "of two rows the weaker one stands",
        "no job is lost",
        "corruption",
        "telha_jobs.consistency.rows",
        "            if strength(record) <= strength(rival.record):\n",
        "            if strength(record) >= strength(rival.record):\n",
    ),
    Mutant(
        "a repair leaves the counters",
        "no job is lost",
        "corruption",
        "telha_jobs.consistency.repair",
        "    mend_counters(store, writer, mender.totals)\n",
        "",
    ),
)
