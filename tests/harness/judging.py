"""Judges what many callers were told by a queue whose process was killed again and again, with the model, job by job.

A run's directory holds the history (`tests.chaos.history`), with a note for each open (what the process said) and each
kill (the number of the life), and after each kill the rows as they were found: `rows-1.json` and so on, every family,
read without opening the database for writing. Each life lies between two such looks, of which each is the whole truth
about every job; what the callers of that life were told has to lead from one to the next (`telha_model.history`).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from rocksdict import ReadOptions

from telha_jobs.store.database import Database
from telha_jobs.store.port import Family
from telha_model import ops, replies
from telha_model.history import JOB, Asked, Found, agreed, explained
from telha_model.replies import Reply
from telha_model.state import Job, Queue
from telha_model.states import State, Transition
from telha_model.step import step
from telha_model.types import Backoff, Config, NewJob, Ref, Value
from tests.chaos.frame import FoundError, Run
from tests.chaos.history import Call
from tests.chaos.history import read as read_history
from tests.harness.decode import Decoder, Observed
from tests.harness.lives import Life, lives
from tests.harness.values import Names, packed, value_of

ROWS: Final = "rows-{}.json"


@dataclass(slots=True)
class Report:
    """What was judged, the four words, and a sentence for each thing that cannot be."""

    lives: int = 0
    calls: int = 0
    unanswered: int = 0
    jobs: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    recovered: int = 0
    sentences: list[str] = field(default_factory=list)


class Snapshot(NamedTuple):
    """The rows at one look, by job id in hex; `high_water_ms` is the newest commit's time."""

    jobs: dict[str, Job]
    high_water_ms: int
    problems: list[str]


class _Part(NamedTuple):
    """What a call was to one job."""

    job: str
    asked: Asked


# -- looking


def snapshot(path: Path, target: Path) -> None:
    """Write down every pair of the database at `path`, which nobody owns now. Opens it for reading only."""
    view = Database.open_view(path, Family)
    try:
        found = {}
        for family, handle in view._families.items():
            pairs = []
            iterator = handle.iter(ReadOptions())
            iterator.seek_to_first()
            while iterator.valid():
                pairs.append((iterator.key().hex(), iterator.value().hex()))
                iterator.next()
            iterator.status()
            found[family.value] = pairs
            del iterator, handle
    finally:
        view.close()
    target.write_text(json.dumps(found))


def look(path: Path) -> Snapshot:
    """What was written down, decoded; every job is number 1, as in its projection."""
    data = json.loads(path.read_text())
    raw = {family: [(bytes.fromhex(k), bytes.fromhex(v)) for k, v in pairs] for family, pairs in data.items()}
    names = Names()
    ids = sorted({key for key, _ in raw["ids"]} | {key[-16:] for key, _ in raw["jobs"]})
    for key in ids:
        names.created(UUID(bytes=key))
    seen: Observed = Decoder(names).observe(raw)
    jobs = {names.job_id(number).hex: row.job._replace(job_id=JOB) for number, row in seen.rows.items()}
    return Snapshot(jobs, seen.meta.get("commit", (0, 0))[1], seen.problems)


# -- judging


def judge(root: Path, config: Config) -> Report:
    """Judge a run's directory."""
    report = Report()
    before = Snapshot({}, 0, [])
    created: dict[str, str] = {}
    for life in lives(root / "history.ndjson"):
        after = look(root / ROWS.format(life.number))
        report.lives += 1
        report.calls += len(life.calls)
        report.unanswered += sum(call.told is None for call in life.calls)
        report.sentences += [f"life {life.number}: {problem}" for problem in after.problems]
        report.sentences += [f"life {life.number}: check: {problem}" for problem in life.opened["problems"]]
        _judge_life(config, life, before, after, report)
        for call in life.calls:
            created |= {one["job"]: call.id for one in _receipts(call) if one["created"]}
        for job in created.keys() - after.jobs.keys():
            report.lost += 1
            report.sentences.append(f"life {life.number}: job {job}, which {created[job]} was told of, is gone")
            created.pop(job)
        before = after
    report.jobs = len(before.jobs)
    _find_duplicates(root / "history.ndjson", before, report)
    return report


def _judge_life(config: Config, life: Life, before: Snapshot, after: Snapshot, report: Report) -> None:
    parts, together, limits = _parts(config, life, before, after)
    found: dict[str, Found] = {}
    for job in before.jobs.keys() | after.jobs.keys() | parts.keys():
        calls, old, new = parts.get(job, []), before.jobs.get(job), after.jobs.get(job)
        if not calls and old == new:
            continue
        start = _started(config, life, before, old)
        found[job] = explained(config, start, calls, new)
        if not found[job].happened:
            report.unexpected += new is not None
            told = ", ".join(call.name for call in calls) or "none"
            report.sentences.append(
                f"life {life.number}: no order of its calls ({told}) leads job {job} from"
                f" {_short(old)} to {_short(new)}"
            )
    nothing = Found(frozenset((frozenset(),)))
    known = {job: one if one.happened else nothing for job, one in found.items()}
    for jobs in together.values():
        known |= {job: nothing for job in jobs if job not in known}
    halves = agreed(known, together)
    report.unexpected += len(halves)
    report.sentences += [f"life {life.number}: {sentence}" for sentence in halves]
    happened = Counter(name for one in known.values() for name in frozenset.intersection(*one.happened) if one.happened)
    report.recovered += len(happened)
    for name, limit in limits.items():
        if happened[name] > limit:
            report.duplicated += 1
            report.sentences.append(f"life {life.number}: {name} asked for {limit} jobs and got {happened[name]}")


def _started(config: Config, life: Life, before: Snapshot, old: Job | None) -> Queue:
    """The projection on one job as the life found it."""
    jobs = () if old is None else (old,)
    queue = Queue(before.high_water_ms, life.opened["incarnation"], JOB + len(jobs), jobs, (), None)
    return step(config, queue, ops.Reopen(clean=True))[1]


def _find_duplicates(path: Path, rows: Snapshot, report: Report) -> None:
    """What no projection on one job shows, or not by its name: a token told twice, a key with two jobs."""
    tokens: Counter[tuple[str, int]] = Counter()
    for line in read_history(path):
        if isinstance(line, Call) and line.call == "lease" and isinstance(_told(line), list):
            tokens.update((one["job"], one["generation"]) for one in _told(line))
    keys = Counter((job.spec.scope, job.spec.idempotency_key) for job in rows.jobs.values() if job.spec.idempotency_key)
    twice = [f"generation {token[1]} of job {token[0]} was granted {n} times" for token, n in tokens.items() if n > 1]
    twice += [f"key {key[1]} of scope {key[0]} has {n} jobs" for key, n in keys.items() if n > 1]
    report.duplicated += len(twice)
    report.sentences += twice


# -- from calls to their parts


def _parts(
    config: Config, life: Life, before: Snapshot, after: Snapshot
) -> tuple[dict[str, list[Asked]], dict[str, list[str]], dict[str, int]]:
    """The calls of each job; the jobs of each unanswered call that happens to all or none; how many jobs each
    unanswered lease can have got.
    """
    by_payload = {job.spec.payload: name for name, job in after.jobs.items()}
    parts: dict[str, list[Asked]] = defaultdict(list)
    together: dict[str, list[str]] = {}
    limits: dict[str, int] = {}
    for call in life.calls:
        if call.told is None and call.call == "lease":
            limits[call.id] = call.given["limit"]
            found = _perhaps_granted(call, life, before, after)
        else:
            found = list(_of(config, call, life, by_payload))
        for part in found:
            parts[part.job].append(part.asked)
        if call.told is None and call.call in ("enqueue", "complete") and len(found) > 1:
            together[call.id] = [part.job for part in found]
    return parts, together, limits


def _asked(call: Call, life: Life, op: ops.Op, fits: Callable[[Reply], bool], at_ms: int | None = None) -> Asked:
    told = call.told is not None
    return Asked(
        call.id,
        op,
        fits if told else None,
        call.asked_at,
        call.told_at if call.told_at is not None else life.killed_at,
        at_ms,
    )


def _perhaps_granted(call: Call, life: Life, before: Snapshot, after: Snapshot) -> list[_Part]:
    """An unanswered lease may have got any job that this worker was granted in this life."""
    worker, found = call.given["worker"], []
    for name, job in after.jobs.items():
        old = before.jobs.get(name)
        new = job.events[0 if old is None else len(old.events) :]
        if any(one.transition is Transition.LEASED and dict(one.detail)["worker"] == worker for one in new):
            found.append(_Part(name, _asked(call, life, ops.Lease(worker), lambda _: True)))
    return found


def _of(config: Config, call: Call, life: Life, by_payload: Mapping[Value, str]) -> Iterator[_Part]:
    """The parts of any other call, and of an answered lease."""
    told, given, part = _told(call), call.given, partial(_asked, call, life)
    match call.call:
        case "enqueue":
            yield from _made(call, life, given["jobs"], told, by_payload)
        case "lease":
            for one in told:
                wanted = (one["generation"], one["attempt"], one["deadline_ms"])
                at_ms = one["deadline_ms"] - config.lease_ttl_ms
                yield _Part(one["job"], part(ops.Lease(given["worker"]), partial(_granted, wanted), at_ms))
        case "extend":
            for index, one in enumerate(given["leases"]):
                outcome = None if told is None else told[index]
                at_ms = None
                if outcome is not None and outcome["status"] == "extended":
                    at_ms = outcome["deadline_ms"] - config.lease_ttl_ms
                op = ops.Extend(given["worker"], (Ref(JOB, one["generation"]),))
                yield _Part(one["job"], part(op, partial(_extended, outcome), at_ms))
        case "complete":
            result = value_of(packed(given["result"]))
            yield _Part(given["job"], part(ops.Complete(_ref(given), result), partial(_ended, told)))
            if not isinstance(told, dict):
                yield from _made(call, life, given["jobs"], told, by_payload)
        case "fail":
            yield _Part(given["job"], part(ops.Fail(_ref(given), given["reason"]), partial(_ended, told)))
        case "release":
            yield _Part(given["job"], part(ops.Release(_ref(given)), partial(_ended, told)))
        case _:
            pass


def _made(
    call: Call, life: Life, jobs: Sequence[dict[str, Any]], told: Any, by_payload: Mapping[Value, str]
) -> Iterator[_Part]:
    for index, one in enumerate(jobs):
        payload = value_of(packed(one["payload"]))
        job = NewJob(one["scope"], one["kind"], payload, idempotency_key=one.get("key"))
        # A job that nobody was told of, and that is not there, was not made: its name is of no matter.
        name = by_payload.get(payload, f"payload {one['payload']}") if told is None else told[index]["job"]
        yield _Part(
            name, _asked(call, life, ops.Enqueue(job), partial(_received, None if told is None else told[index]))
        )


def _ref(given: Mapping[str, Any]) -> Ref:
    return Ref(JOB, given["generation"])


def _told(call: Call) -> Any:
    return None if call.told is None else call.told["told"]


def _receipts(call: Call) -> list[dict[str, Any]]:
    told = _told(call)
    return told if call.call in ("enqueue", "complete") and isinstance(told, list) else []


# -- whether a reply of the model is what was told


def _received(told: Any, reply: Reply) -> bool:
    if not isinstance(reply, replies.Enqueued):
        return False
    [receipt] = reply.receipts
    return (receipt.created, receipt.state) == (told["created"], State(told["state"]))


def _granted(wanted: tuple[int, int, int], reply: Reply) -> bool:
    if not isinstance(reply, replies.Leased) or not reply.grants:
        return False
    [grant] = reply.grants
    return (grant.generation, grant.attempt, grant.deadline_ms) == wanted


def _extended(told: Any, reply: Reply) -> bool:
    if not isinstance(reply, replies.Extended):
        return False
    [outcome] = reply.outcomes
    if outcome.error is not None or told["error"] is not None:
        return outcome.error is not None and told["error"] is not None and _refused(told["error"], outcome.error)
    return (outcome.status, outcome.deadline_ms) == (told["status"], told["deadline_ms"])


def _ended(told: Any, reply: Reply) -> bool:
    if isinstance(told, dict):
        return _refused(told, reply)
    match reply:
        case replies.Completed():
            return isinstance(told, list)
        case replies.Failed(state):
            return bool(told == state.value)
        case replies.Released():
            return told is None
        case _:
            return False


def _refused(told: Mapping[str, Any], reply: Reply) -> bool:
    match reply:
        case replies.StaleLease():
            wanted = ("StaleLeaseError", reply.why, reply.state.value, reply.current_generation)
            return (told["refused"], told.get("why"), told.get("state"), told.get("current")) == wanted
        case replies.NotFound():
            return bool(told["refused"] == "JobNotFoundError")
        case _:
            return False


def _short(job: Job | None) -> str:
    if job is None:
        return "no row"
    log = " ".join(str(one.transition) for one in job.events)
    return f"{job.state} (generation {job.generation}, attempts {job.attempts}, log: {log})"


def model_config(told: Mapping[str, Any]) -> Config:
    """The model's settings for those of the queue's process."""
    return Config(
        lease_ttl_ms=told["lease_ttl_ms"],
        max_attempts=told["max_attempts"],
        backoff=Backoff(**told["backoff"]),
        retention_completed_ms=None,
        retention_dead_ms=None,
    )


def judged(root: Path, config: Mapping[str, Any]) -> Report:
    """Judge a run's directory, whose process had these settings."""
    return judge(root, model_config(config))


# -- for lanes


def take(run: Run, report: Report) -> None:
    """Count a report in a run's tally; `FoundError` when something cannot be."""
    tally = run.tally
    tally.lost += report.lost
    tally.unexpected += report.unexpected
    tally.duplicated += report.duplicated
    tally.recovered += report.recovered
    tally.covered["calls"] += report.calls
    tally.covered["calls without an answer"] += report.unanswered
    tally.covered["jobs"] += report.jobs
    if report.sentences:
        raise FoundError(f"{len(report.sentences)} things cannot be: {'; '.join(report.sentences[:3])}")


def judge_kept(directory: Path, judge: Callable[[Path], Report]) -> str:
    """Judge a kept run, every database in it; what was judged. `FoundError` when something cannot be."""
    told = []
    for root in sorted(directory.glob("database-*")):
        report = judge(root)
        if report.sentences:
            raise FoundError("; ".join(report.sentences[:3]))
        told.append(f"{report.lives} lives, {report.calls} calls, {report.jobs} jobs")
    if not told:
        raise FoundError(f"{directory} holds no run of this lane")
    return "; ".join(told)
