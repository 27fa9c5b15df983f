"""The catalogue of mutants: deliberate bugs, each one change in one place.

Every entry says beforehand which promise it breaks and which lanes must notice (`tests.harness.lanes` has them all).
Here are those of the queue; those of the model, of the wire, and those that need a lane under fire, have modules of
their own.

The texts stand in the sources exactly once. When a refactoring moves one, the entry moves along, in the same commit.
What each is killed by is recorded in `mutants.json`: `scripts/mutants --record` writes it anew.
"""

from typing import Final

from tests.harness.catalogue import Mutant
from tests.harness.mutants_fire import UNDER_FIRE
from tests.harness.mutants_model import OF_MODEL
from tests.harness.mutants_wire import OF_WIRE

__all__ = ["MUTANTS", "Mutant", "mutant"]

_LEASES: Final = "telha_jobs.engine.leases"
_SUBMIT: Final = "telha_jobs.engine.submit"
_DECIDE: Final = "telha_jobs.core.decide"
_UNIT: Final = "telha_jobs.engine.unit"
_ROWS: Final = "telha_jobs.engine.rows"
_AGENDA: Final = "telha_jobs.agenda"
_OPENING: Final = "telha_jobs.store.opening"
_ROCKS: Final = "telha_jobs.store.rocks"
_SWEEP: Final = "telha_jobs.engine.sweep"

OF_QUEUE: Final[tuple[Mutant, ...]] = (
    Mutant(
        "complete is not fenced",
        "stale submit",
        "tours:protocol",
        _SUBMIT,
        '    require_current(unit, record, ref, "complete")\n    _end(unit, record, result, marked)\n',
        "    _end(unit, record, result, marked)\n",
    ),
    Mutant(
        "fail is not fenced",
        "stale submit",
        "tours:protocol",
        _SUBMIT,
        'return State(unpack_plain(repeated))\n    require_current(unit, record, ref, "fail")\n',
        "return State(unpack_plain(repeated))\n",
    ),
    Mutant(
        "extend is not fenced",
        "stale submit",
        "tours:protocol",
        _LEASES,
        '    if error is not None:\n        return outcome(ref.job_id, "stale", error=error)\n    extended,',
        "    if error is not None and record.deadline is None:\n"
        '        return outcome(ref.job_id, "stale", error=error)\n    extended,',
    ),
    Mutant(
        "release is not fenced",
        "stale submit",
        "tours:protocol",
        _LEASES,
        '    require_current(unit, record, ref, "release")\n    unit.move(ref.job_id, decide.released',
        "    unit.move(ref.job_id, decide.released",
    ),
    Mutant(
        "the fence asks for a worker, not for the generation",
        "exclusive lease",
        "tours:protocol",
        _DECIDE,
        "    if generation < record.generation:\n",
        "    if generation < record.generation and record.worker is None:\n",
    ),
    Mutant(
        "a heartbeat revives a reaped lease",
        "stale submit",
        "tours:protocol",
        _LEASES,
        '    error = stale_error(unit, record, ref, "extend")\n'
        '    if error is not None:\n        return outcome(ref.job_id, "stale"',
        '    error = None if record.lease_end == "reaped" else stale_error(unit, record, ref, "extend")\n'
        '    if error is not None:\n        return outcome(ref.job_id, "stale"',
    ),
    Mutant(
        "retry resets the generation",
        "exclusive lease",
        "tours:protocol",
        _DECIDE,
        "state=PENDING, attempts=0, due=due,",
        "state=PENDING, attempts=0, generation=0, due=due,",
    ),
    Mutant(
        "the generation ignores the incarnation",
        "exclusive lease",
        "tours:reopen",
        _DECIDE,
        "    if generation < incarnation << 32:\n        generation = incarnation << 32\n",
        "",
    ),
    Mutant(
        "an unclean end goes unnoticed",
        "exclusive lease",
        "tours:reopen",
        _OPENING,
        "        incarnation += 1\n",
        "        incarnation += 0\n",
        ("killpoints",),
    ),
    Mutant(
        "a repeat is known by its arguments alone",
        "stale submit",
        "tours:protocol",
        _SUBMIT,
        'digest("complete", ref.generation, result.value,',
        'digest("complete", result.value,',
    ),
    Mutant(
        "an expiry counts no attempt",
        "attempts are exact",
        "tours:sweep",
        _DECIDE,
        'the attempt counts, and the job waits out a back-off or is dead."""\n    attempts = record.attempts + 1\n',
        'the attempt counts, and the job waits out a back-off or is dead."""\n    attempts = record.attempts\n',
    ),
    Mutant(
        "dead one failure late",
        "attempts are exact",
        "tours:death",
        _DECIDE,
        "    if attempts >= _ceiling(record, policy):\n"
        '        return _died(record, now, policy, attempts=attempts, reason=reason, dead_reason="attempts"',
        "    if attempts > _ceiling(record, policy):\n"
        '        return _died(record, now, policy, attempts=attempts, reason=reason, dead_reason="attempts"',
    ),
    Mutant(
        "back-off ignores the cap",
        "no early run",
        "tours:protocol",
        "telha_jobs.core.backoff",
        "return min(backoff.cap_ms, delay)",
        "return delay",
    ),
    Mutant(
        "back-off ignores the kind's base",
        "no early run",
        "tours:death",
        "telha_jobs.config",
        "            base = own.backoff_base_ms\n            cap = max(cap, base)\n",
        "            cap = max(cap, own.backoff_base_ms)\n",
    ),
    Mutant(
        "the old row is left behind",
        "no job is lost",
        "tours:protocol",
        _ROWS,
        "        writes.append((JOBS, slot.key, None))\n",
        "        pass\n",
    ),
    Mutant(
        "two batches instead of one",
        "acknowledged is durable",
        "tours:protocol",
        _UNIT,
        "        answer = shared.commit(self._checks, writes, token, adds)\n",
        "        shared.commit(self._checks, writes[:1], token, adds)\n"
        "        self.sequence += 1\n"
        "        answer = shared.commit((), writes[1:], token)\n",
    ),
    Mutant(
        "a counter never goes down",
        "no job is lost",
        "tours:keys",
        _UNIT,
        "            counts[counter] = counts.get(counter, 0) - 1\n",
        "            counts[counter] = counts.get(counter, 0)\n",
    ),
    Mutant(
        "the sync is left out",
        "acknowledged is durable",
        "pytest:tests/contract/test_sync_trace.py",
        _ROCKS,
        "        if self.waits:\n            self._sync.wait(sequence)\n",
        "",
        ("powerloss",),
    ),
    Mutant(
        "the ring does not turn",
        "fair scopes",
        "tours:fairness",
        _AGENDA,
        "        if scope in self._tickets and len(self._tickets) > 1:\n",
        "        if scope in self._tickets and len(self._tickets) > 9:\n",
    ),
    Mutant(
        "the last served scope is not written",
        "fair scopes",
        "tours:fairness",
        _UNIT,
        "            writes.append((META, LAST_SERVED, self._served))\n",
        "            pass\n",
    ),
    Mutant(
        "recovery forgets where the ring stood",
        "fair scopes",
        "tours:reopen",
        _AGENDA,
        '        split = 0 if last_served is None else bisect_left(ready, last_served + b"\\0")\n',
        "        split = 0\n",
    ),
    Mutant(
        "what came due is not noticed",
        "progress",
        "tours:order",
        _AGENDA,
        "        if waking and waking[0][0] <= now:\n",
        "        if waking and waking[0][0] <= 0:\n",
    ),
    Mutant(
        "the window's edge is too high",
        "order",
        "narrow:order",
        _AGENDA,
        "        group.edge = group.window[rows]\n",
        "        group.edge = group.window[rows + 1]\n",
    ),
    Mutant(
        "an open takes the first rows of a group for all of them",
        "order",
        "narrow:agenda",
        _AGENDA,
        "_Group(group, window, None if whole else _behind(window[-1]))\n",
        "_Group(group, window, None)\n",
    ),
    Mutant(
        "the edge is a millisecond too high",
        "no job is lost",
        "narrow:agenda",
        _AGENDA,
        '    return place[0], place[1] + b"\\0"\n',
        "    return place[0] + 1, place[1]\n",
    ),
    Mutant(
        "an empty window is not refilled",
        "progress",
        "narrow:agenda",
        _AGENDA,
        "        if not group.window and group.edge is not None:\n",
        "        if not group.window and group.edge is None:\n",
    ),
    Mutant(
        "a stale alarm makes a group ready",
        "no early run",
        "narrow:agenda",
        _AGENDA,
        "not group.ready and group.wake == entry[0] else None\n",
        "not group.ready else None\n",
    ),
    Mutant(
        "a stale place in the ring counts",
        "fair scopes",
        "tours:fairness",
        _AGENDA,
        "        return self._tickets.get(scope) == ticket and",
        "        return self._tickets.get(scope, 0) >= ticket and",
    ),
    Mutant(
        "a served scope keeps its ticket",
        "fair scopes",
        "tours:fairness",
        _AGENDA,
        "            self._take_ticket(scope)\n\n    # -- looking",
        "            self._remember(scope)\n\n    # -- looking",
    ),
    Mutant(
        "of two jobs due at once the newer goes first",
        "order",
        "tours:agenda",
        _AGENDA,
        "            insort(group.window, place)\n",
        "            group.window.insert(bisect_left(group.window, (place[0],)), place)\n",
    ),
    Mutant(
        "a key is free once its job has ended",
        "one key, one job",
        "tours:keys",
        _ROWS,
        "    elif key != slot.key:\n",
        "    elif key != slot.key:\n"
        "        if new.key is not None and new.ended_at is not None:\n"
        "            writes.append((IDEM, idem_key(new.scope, new.key), None))\n",
    ),
    Mutant(
        "a retried job forgets what it was to wait for",
        "no early run",
        "stateful",
        _DECIDE,
        "    due = max(now, record.run_at or 0)\n",
        "    due = now\n",
    ),
    Mutant(
        "progress is not written",
        "no job is lost",
        "stateful",
        "telha_jobs.codec",
        "    fields = record[_IN_KEY:_SEQUENCE] + (sequence, token, record.events) + record.unknown",
        "    values = record._replace(progress=None)\n"
        "    fields = values[_IN_KEY:_SEQUENCE] + (sequence, token, record.events) + record.unknown",
    ),
    Mutant(
        "the log forgets how much it swallowed",
        "the event log tells the truth",
        "tours:death",
        "telha_jobs.core.log",
        'detail = {"count": swallowed + 1,',
        'detail = {"count": 2,',
    ),
    Mutant(
        "the generation is reset by an expiry",
        "exclusive lease",
        "tours:sweep",
        _DECIDE,
        "    return _unleased(record, policy, entry, end=end, state=state, attempts=attempts, due=due)\n",
        "    return _unleased(record, policy, entry, end=end, state=state, attempts=attempts, due=due, generation=0)\n",
    ),
    Mutant(
        "the sweep is a millisecond early",
        "attempts are exact",
        "tours:sweep",
        _SWEEP,
        "        self._end = u64(now + 1)\n",
        "        self._end = u64(now + 2)\n",
    ),
    Mutant(
        "the sweep is a millisecond late",
        "progress",
        "tours:sweep",
        _SWEEP,
        "        self._end = u64(now + 1)\n",
        "        self._end = u64(now)\n",
    ),
    Mutant(
        "the sweep skips the last",
        "progress",
        "tours:sweep",
        _SWEEP,
        "        for key in keys:\n            made.append(",
        "        for key in keys[:-1]:\n            made.append(",
    ),
    Mutant(
        "the sweep overwrites a completion",
        "no job is lost",
        "tours:sweep",
        _SWEEP,
        "        case State.COMPLETED | State.DEAD:\n",
        "        case State.COMPLETED:\n"
        '            return decide.reaped(record, unit.now, unit.policy(record.kind)), "requeued"\n'
        "        case State.DEAD:\n",
    ),
    Mutant(
        "recovery forgets leased rows",
        "progress",
        "tours:reopen",
        "telha_jobs.engine.shared",
        "        self.timers_floor = 0\n",
        "        self.timers_floor = store.now()\n",
    ),
    Mutant(
        "the sweep's floor is too high",
        "progress",
        "tours:sweep",
        _SWEEP,
        "            shared.timers_floor = self._now\n",
        "            shared.timers_floor = self._now + 2\n",
    ),
)

MUTANTS: Final = (*OF_QUEUE, *UNDER_FIRE, *OF_WIRE, *OF_MODEL)


def mutant(name: str) -> Mutant:
    """The entry of that name; KeyError when there is none."""
    return {one.name: one for one in MUTANTS}[name]
