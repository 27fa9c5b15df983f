"""What the database must hold, derived from the model's state, and the differences between that and what it holds.

Every family follows from the model's jobs: an entry too many is a difference like one too few. The digest of a submit
is opaque, but equal digests must stand for equal submits and different ones for different submits.
"""

from collections.abc import Hashable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from telha_model.state import Digest, Job, Queue
from telha_model.states import COMPLETED, FAILED, PENDING, State
from telha_model.transitions.sweep import work_due_ms
from tests.harness.decode import CountOf, Elsewhere, Named, Observed, Place, Ready, Row, Timer
from tests.harness.values import LARGE, scope_uuid

_CACHED_MAX: Final = 20_000
FORMAT: Final = "00010000"


class Follows(NamedTuple):
    """Everything that one job of the model puts into the database."""

    job: Job
    place: Place
    ready: Ready | None
    timer: Timer | None
    named: Named | None


class Expectations:
    """Knows what came before: which kinds were met, in which order, and which digest stands for which submit."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self._jobs_seen = 0
        self._follows: dict[int, tuple[Job, Follows]] = {}
        self._digests: dict[Digest, bytes] = {}
        self._submits: dict[bytes, Digest] = {}

    def meet(self, queue: Queue) -> None:
        """Learn the kinds of the jobs that are new here; `differences` does it for the state it is given."""
        for job in queue.jobs:
            if job.job_id > self._jobs_seen:
                self._jobs_seen = job.job_id
                self.kinds.setdefault(job.spec.kind, len(self.kinds) + 1)

    def differences(self, queue: Queue, seen: Observed) -> Iterator[str]:
        """One sentence for each difference between the model's state and the database."""
        self.meet(queue)
        follows = [self._of(job) for job in queue.jobs]
        yield from seen.problems
        yield from self._rows(follows, queue, seen)
        counts: dict[Hashable, int] = {}
        for one in follows:
            place = one.place
            counted = CountOf(place.scope, place.kind, place.state)
            counts[counted] = counts.get(counted, 0) + 1
        numbers = [one.job.job_id for one in follows]
        yield from _sets("ready", {one.ready for one in follows if one.ready is not None}, seen.ready)
        yield from _sets("timers", {one.timer for one in follows if one.timer is not None}, seen.timers)
        yield from _sets("idem", {one.named for one in follows if one.named is not None}, seen.named)
        yield from _maps("ids", dict(zip(numbers, [one.place for one in follows], strict=True)), seen.places)
        large = {one.job.job_id: LARGE for one in follows if one.job.spec.payload is Elsewhere.ELSEWHERE}
        yield from _maps("payloads", large, seen.payloads)
        yield from _maps("counters", counts, seen.counts)
        yield from _maps("kinds", {number: kind for kind, number in self.kinds.items()}, seen.kinds)
        yield from self._meta(queue, seen)

    def _of(self, job: Job) -> Follows:
        known = self._follows.get(id(job))
        if known is not None and known[0] is job:
            return known[1]
        if len(self._follows) > _CACHED_MAX:
            self._follows.clear()
        follows = self._worked_out(job)
        self._follows[id(job)] = (job, follows)
        return follows

    def _worked_out(self, job: Job) -> Follows:
        spec = job.spec
        kind = self.kinds[spec.kind]
        ready = None
        if job.state in (PENDING, FAILED) and job.due_ms is not None:
            ready = Ready(spec.scope, kind, spec.priority, job.due_ms, job.job_id)
        at_ms = work_due_ms(job) if job.state is not PENDING else None
        key = spec.idempotency_key
        named = None if key is None else Named(spec.scope, sha256(key.encode()).digest()[:16], job.job_id)
        if spec.payload == LARGE:
            spec = spec._replace(payload=Elsewhere.ELSEWHERE)
        return Follows(
            job._replace(spec=spec),
            Place(spec.scope, job.state, spec.priority, spec.created_at_ms, kind),
            ready,
            None if at_ms is None else Timer(at_ms, job.job_id),
            named,
        )

    def _rows(self, follows: list[Follows], queue: Queue, seen: Observed) -> Iterator[str]:
        rows = seen.rows
        if len(rows) != len(follows):
            for number in rows.keys() - {one.job.job_id for one in follows}:
                yield f"job {number}: has a row, but the model has no such job"
        for one in follows:
            row = rows.get(one.job.job_id)
            if row is None:
                yield f"job {one.job.job_id}: has no row"
                continue
            yield from self._row(one.job, row)
        sequence, high_water_ms = seen.meta.get("commit", (0, 0))
        for row in seen.fresh:
            if row.sequence != sequence:
                yield f"job {row.job.job_id}: its row says commit {row.sequence}, the newest is {sequence}"
            if high_water_ms != queue.now_ms:
                yield f"high water: the newest commit says {high_water_ms}, it was written at {queue.now_ms}"

    def _row(self, job: Job, row: Row) -> Iterator[str]:
        submit = job.submit
        wanted = job if submit is None else job._replace(submit=None)
        if wanted != row.job:
            yield from _fields(wanted, row.job)
        name = f"job {job.job_id}"
        if (job.state is COMPLETED) is not row.has_result:
            yield f"{name}: {'has a' if row.has_result else 'lacks its'} result although {job.state}"
        if submit is None or row.digest is None:
            if submit is not None or row.digest is not None:
                yield f"{name}: submit: model {submit}, queue {row.digest!r}"
            return
        if submit.reply != row.reply:
            yield f"{name}: recorded reply: model {submit.reply}, queue {row.reply}"
        if self._digests.setdefault(submit.digest, row.digest) != row.digest:
            yield f"{name}: digest: {submit.digest} had another digest before"
        if self._submits.setdefault(row.digest, submit.digest) != submit.digest:
            yield f"{name}: digest: {submit.digest} has the digest of {self._submits[row.digest]}"

    def _meta(self, queue: Queue, seen: Observed) -> Iterator[str]:
        meta = {"format": FORMAT, "incarnation": queue.incarnation, "open": "01"}
        if queue.next_job_id > 1:
            meta["last_id"] = queue.next_job_id - 1
        if queue.last_served is not None:
            meta["last_served"] = queue.last_served
        found = {name: value for name, value in seen.meta.items() if name != "commit"}
        yield from _maps("meta", meta, found)


def ring_difference(queue: Queue, ring: list[bytes], *, settled: bool) -> str | None:
    """The ring in memory against the model's; before the next operation, who only came due may not have joined yet."""
    wanted = [scope_uuid(scope).bytes for scope in queue.ring]
    if ring == wanted or (not settled and ring == wanted[: len(ring)]):
        return None
    return f"ring: model {[scope[0] for scope in wanted]}, queue {[scope[0] for scope in ring]}"


def _sets(name: str, wanted: set[Any], found: set[Any]) -> Iterator[str]:
    if wanted == found:
        return
    for entry in sorted(wanted - found):
        yield f"{name}: lacks {_shown(entry)}"
    for entry in sorted(found - wanted):
        yield f"{name}: has {_shown(entry)} too many"


def _maps(name: str, wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> Iterator[str]:
    if wanted == found:
        return
    for key in sorted(wanted.keys() | found.keys(), key=repr):
        if wanted.get(key) != found.get(key):
            yield f"{name}: {_shown(key)}: model {_shown(wanted.get(key))}, queue {_shown(found.get(key))}"


def _fields(wanted: Job, found: Job) -> Iterator[str]:
    before = f"job {wanted.job_id}"
    for field in Job._fields:
        ours, theirs = getattr(wanted, field), getattr(found, field)
        if ours == theirs:
            continue
        if field == "spec":
            for part in ours._fields:
                if getattr(ours, part) != getattr(theirs, part):
                    yield f"{before}: {part}: model {getattr(ours, part)!r}, queue {getattr(theirs, part)!r}"
        elif field == "events":
            yield from _logs(before, ours, theirs)
        else:
            yield f"{before}: {field}: model {_shown(ours)}, queue {_shown(theirs)}"


def _logs(before: str, wanted: tuple[Any, ...], found: tuple[Any, ...]) -> Iterator[str]:
    if len(wanted) != len(found):
        yield f"{before}: events: model has {len(wanted)}, queue {len(found)}"
    for index, (ours, theirs) in enumerate(zip(wanted, found, strict=False)):
        if (ours.at_ms, ours.transition, dict(ours.detail)) != (theirs.at_ms, theirs.transition, dict(theirs.detail)):
            yield f"{before}: event {index}: model {_shown(ours)}, queue {_shown(theirs)}"
            return


def _shown(value: Any) -> str:
    """A value as a person reads it: states by their name."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = ", ".join(f"{name}={_shown(part)}" for name, part in zip(value._fields, value, strict=True))
        return f"{type(value).__name__}({inner})"
    return str(value) if isinstance(value, State) else repr(value)
