"""From the history of concurrent callers over gRPC to the model's calls: one life of a server at a time.

A history (`tests.chaos.history`) holds what `tests.chaos.calls` asked and was told. Here every job gets the number of
its place among all job ids, which rise in creation order; a reply becomes the model's, field by field. Of what nobody
was told the rows know a part: leases that a worker was granted and never heard of are calls without an answer, and so
are the releases by which the server took leases back that it had not handed over.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from telha_model import ops, replies
from telha_model.linear import Call, Commit, Look
from telha_model.replies import Reply
from telha_model.state import Event, Job, Queue
from telha_model.states import State, Transition
from telha_model.types import Config, NewJob, Ref, matches
from tests.chaos.history import Call as Said
from tests.harness.lives import Life, begun
from tests.harness.public import viewed
from tests.harness.values import packed, value_of

Data = Mapping[str, Any]
_LOOKS: Final = ("get", "list", "counts")


class Trace(NamedTuple):
    """What is known of a job, whether or not it is still there."""

    scope: int
    kind: str
    log: tuple[Event, ...]


class Numbers:
    """Job numbers: the places of all ids that anybody ever saw, which rise as jobs are made."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = sorted(set(ids))
        self._numbers = {job: number for number, job in enumerate(self.ids, 1)}

    def number(self, job: str) -> int:
        """The number of a job; -1 for one that nobody saw."""
        return self._numbers.get(job, -1)

    def ref(self, told: Data) -> Ref:
        """A token."""
        return Ref(self.number(told["job"]), told["generation"])


def ids_of(said: Said) -> Iterator[str]:
    """The jobs that an answer knows; a refusal may name one that never was."""
    told = answer(said)
    if isinstance(told, dict) and "jobs" in told:
        told = told["jobs"]
    for one in told if isinstance(told, list) else [told]:
        if isinstance(one, dict) and one.keys() & {"created", "deadline_ms"} and one.get("error") is None:
            yield one["job"]


def answer(said: Said) -> Any:
    """What a call was told; None also when it was told nothing."""
    return None if said.told is None else said.told["told"]


def new_job(told: Data) -> NewJob:
    """A job to be made."""
    return NewJob(
        told["scope"],
        told["kind"],
        value_of(packed(told["payload"])),
        told.get("priority", 128),
        delay_ms=told.get("delay_ms"),
        max_attempts=told.get("max_attempts"),
        idempotency_key=told.get("key"),
    )


class Translator:
    """The calls of one life in the model's words. `rows`: as they were found after it; `before`: before it; `went`: the
    jobs that went meanwhile.
    """

    def __init__(
        self,
        config: Config,
        numbers: Numbers,
        life: Life,
        *,
        rows: Mapping[int, Job],
        before: Mapping[int, Job],
        went: Mapping[int, Trace],
    ) -> None:
        self._config = config
        self._numbers = numbers
        self._life = life
        self._rows = rows
        self._before = before
        self._traces = dict(went) | {
            number: Trace(row.spec.scope, row.spec.kind, row.events) for number, row in rows.items()
        }

    def calls(self) -> list[Call]:
        """Every call but sweeps, whose reports are counted elsewhere."""
        found = [call for said in self._life.calls if said.call != "reap" for call in self._of(said)]
        return self._in_place([*found, *self._unheard(found)])

    # -- one call

    def _of(self, said: Said) -> Iterator[Call]:
        told = answer(said)
        if said.call in _LOOKS:
            if said.told is not None:
                yield self._call(said, Look(partial(self._seen, said)), None)
        elif said.call == "lease":
            if said.told is not None:
                yield from self._leased(said, told)
        else:
            op = self._op(said)
            reply = None if said.told is None else self._reply(said, told)
            at_ms = self._extended_ms(said, told) if said.call == "extend" else None
            if said.call != "extend" or said.told is not None or at_ms is not None:
                yield self._call(said, op, reply, at_ms)

    def _call(self, said: Said, op: Any, reply: Reply | None, at_ms: int | None = None) -> Call:
        told_at = self._life.killed_at if said.told_at is None else said.told_at
        commit = None if said.told is None else said.told["commit"]
        return Call(said.id, op, reply, begun(said), told_at, None if commit is None else Commit(*commit), at_ms)

    def _op(self, said: Said) -> ops.Op:
        given, numbers = said.given, self._numbers
        match said.call:
            case "enqueue":
                jobs = tuple(map(new_job, given["jobs"]))
                return ops.Enqueue(jobs[0]) if len(jobs) == 1 else ops.EnqueueMany(jobs)
            case "extend":
                progress = [(numbers.number(job), value_of(packed(value))) for job, value in given["progress"].items()]
                return ops.Extend(given["worker"], tuple(map(numbers.ref, given["leases"])), tuple(progress))
            case "complete":
                follow_ups = tuple(map(new_job, given["jobs"]))
                return ops.Complete(numbers.ref(given), value_of(packed(given["result"])), follow_ups)
            case "complete_many":
                return ops.CompleteMany(
                    tuple([(numbers.ref(one), value_of(packed(one["result"]))) for one in given["items"]])
                )
            case "fail":
                return ops.Fail(numbers.ref(given), given["reason"], given["retryable"])
            case "release":
                return ops.Release(numbers.ref(given), given["delay_ms"])
            case "retry" | "cancel" | "discard" as name:
                make: Mapping[str, Callable[[int], ops.Op]] = {
                    "retry": ops.Retry,
                    "cancel": ops.Cancel,
                    "discard": ops.Discard,
                }
                return make[name](numbers.number(given["job"]))
            case other:
                raise ValueError(f"{other} is no call")

    def _reply(self, said: Said, told: Any) -> Reply:
        if isinstance(told, dict) and "refused" in told:
            return self._refusal(told)
        match said.call:
            case "enqueue":
                return replies.Enqueued(self._receipts(told))
            case "complete":
                return replies.Completed(self._receipts(told))
            case "complete_many":
                return replies.CompletedMany(tuple(map(self._outcome, told)))
            case "extend":
                return replies.Extended(tuple(map(self._outcome, told)))
            case "fail":
                return replies.Failed(State(told))
            case name:
                done: Mapping[str, Callable[[], Reply]] = {
                    "release": replies.Released,
                    "retry": replies.Retried,
                    "cancel": replies.Cancelled,
                    "discard": replies.Discarded,
                }
                return done[name]()

    def _extended_ms(self, said: Said, told: Any) -> int | None:
        """The queue's time of a heartbeat: what it extended ends a ttl later; without an answer the row tells."""
        ttl_ms = self._config.lease_ttl_ms
        if said.told is not None:
            deadlines = [one["deadline_ms"] for one in told if one["deadline_ms"] is not None]
            return deadlines[0] - ttl_ms if deadlines else None
        for one in said.given["leases"]:
            row = self._rows.get(self._numbers.number(one["job"]))
            if row is not None and row.deadline_ms is not None and row.generation == one["generation"]:
                return row.deadline_ms - ttl_ms
        return None

    # -- leases

    def _lease_op(self, given: Data) -> ops.Lease:
        scopes, kinds = given["scopes"], given["kinds"]
        return ops.Lease(
            given["worker"], 1, None if scopes is None else tuple(scopes), None if kinds is None else tuple(kinds)
        )

    def _leased(self, said: Said, told: Any) -> Iterator[Call]:
        """Each lease of an answer by itself: streams that wait share what one commit grants."""
        op = self._lease_op(said.given)
        if not told:
            if "since" not in said.given:
                yield self._call(said, op, replies.Leased(()))
            return
        before = None
        for index, one in enumerate(told):
            part = self._call(said, op, replies.Leased((self._grant(one),)), one["deadline_ms"] - self._ttl_ms)
            yield part._replace(name=f"{said.id}/{index}", after=before)
            before = f"{said.id}/{index}"

    @property
    def _ttl_ms(self) -> int:
        return self._config.lease_ttl_ms

    def _grant(self, one: Data) -> replies.Grant:
        return replies.Grant(
            self._numbers.number(one["job"]),
            one["generation"],
            one["scope"],
            one["kind"],
            value_of(packed(one["payload"])),
            one["payload_version"],
            tuple(one["headers"].items()),
            one["attempt"],
            one["deadline_ms"],
            one["worker"],
            value_of(packed(one["progress"])),
        )

    def _unheard(self, calls: Sequence[Call]) -> Iterator[Call]:
        """Leases in the rows that nobody was told of, of workers that had a poll without an answer; and what the server
        took back of them. Which of several such polls got one is not known, so only scope and kind of it are asked for.
        """
        told = {
            Ref(grant.job_id, grant.generation)
            for call in calls
            if isinstance(call.reply, replies.Leased)
            for grant in call.reply.grants
        }
        loose = self._left_behind()
        for number, trace in self._traces.items():
            known = self._before.get(number)
            for event in trace.log[0 if known is None else len(known.events) :]:
                detail = dict(event.detail)
                ref = Ref(number, _int(detail.get("generation")))
                name = f"{number}.{ref.generation} unheard"
                if event.transition is Transition.LEASED and ref not in told:
                    op = ops.Lease(str(detail["worker"]), 1, (trace.scope,), (trace.kind,))
                    asked = [begun(said) for said in self._lost_polls(op)]
                    if asked:
                        loose[ref] = name
                        yield Call(name, op, None, min(asked), self._life.killed_at, at_ms=event.at_ms)
                elif event.transition is Transition.RELEASED and ref in loose:
                    back = Call(
                        f"{number}.{ref.generation} given back", ops.Release(ref), None, 0.0, self._life.killed_at
                    )
                    yield back._replace(after=loose[ref])

    def _left_behind(self) -> dict[Ref, str | None]:
        """The leases of streams that their callers left, which the server may take back: it cannot know that a message
        that was on its way has arrived. None of them needs another call to come before that. A dead server takes back
        nothing: a stream that was still listened to after the kill counts for none.
        """
        streams = [said for said in self._life.calls if said.call == "lease" and "since" in said.given]
        lost = [said for said in streams if said.told is None and said.asked_at <= self._life.killed_at]
        left = {(said.given["worker"], said.given["since"]) for said in lost}
        return {
            self._numbers.ref(one): None
            for said in streams
            if (said.given["worker"], said.given["since"]) in left
            for one in answer(said) or ()
        }

    def _lost_polls(self, op: ops.Lease) -> Iterator[Said]:
        """The polls of a worker that were not answered, and that would have taken such a job."""
        for said in self._life.calls:
            if said.call == "lease" and said.told is None and said.given["worker"] == op.worker:
                scopes, kinds = said.given["scopes"], said.given["kinds"]
                fits = scopes is None or set(op.scopes or ()) <= set(scopes)
                if fits and (kinds is None or any(matches(kind, one) for kind in kinds for one in op.kinds or ())):
                    yield said

    def _in_place(self, calls: Sequence[Call]) -> list[Call]:
        """The leases of one commit have one place: which of them came first has to be searched for."""
        first: dict[int, int] = {}
        for call in calls:
            if call.commit is not None and call.commit.place is not None and _is_grant(call):
                place = first.get(call.commit.sequence, call.commit.place)
                first[call.commit.sequence] = min(place, call.commit.place)
        return [
            call._replace(commit=call.commit._replace(place=first[call.commit.sequence]))
            if call.commit is not None and _is_grant(call)
            else call
            for call in calls
        ]

    # -- parts of replies

    def _receipts(self, told: Any) -> tuple[replies.Receipt, ...]:
        return tuple(
            [replies.Receipt(self._numbers.number(one["job"]), one["created"], State(one["state"])) for one in told]
        )

    def _outcome(self, one: Data) -> replies.Outcome:
        error: Any = None if one["error"] is None else self._refusal(one["error"])
        return replies.Outcome(self._numbers.number(one["job"]), one["status"], one["deadline_ms"], error)

    def _refusal(self, told: Data) -> Reply:
        number = self._numbers.number(told["job"]) if "job" in told else 0
        match told["refused"]:
            case "InvalidArgumentError":
                return replies.BadArgument(told["field"])
            case "JobNotFoundError":
                return replies.NotFound(number)
            case "StaleLeaseError":
                state = State(told["state"])
                return replies.StaleLease(number, told["generation"], told["current"], state, told["why"])
            case "WrongStateError":
                return replies.WrongState(number, State(told["state"]), frozenset(map(State, told["needed"])))
            case "IdempotencyConflictError":
                return replies.KeyConflict(number, told["key"], told["index"])
            case other:
                raise ValueError(f"{other} is no refusal that the model has: {told}")

    # -- looks

    def _seen(self, said: Said, queue: Queue) -> bool:
        """Whether the queue is what a call saw."""
        told, numbers = answer(said), self._numbers
        match said.call:
            case "counts":
                wanted = Counter(job.state.value for job in queue.jobs)
                return all(wanted[state] == number for state, number in told.items())
            case "get":
                number = numbers.number(said.given["job"])
                job = next((job for job in queue.jobs if job.job_id == number), None)
                if "refused" in told:
                    return job is None and self._refusal(told) == replies.NotFound(number)
                return job is not None and viewed(job) == _told_view(numbers, told)
            case _:
                state, after = said.given["state"], said.given["after"]
                first = 0 if after is None else numbers.number(UUID(after).hex)
                jobs = [job for job in queue.jobs if job.job_id > first and state in (None, job.state.value)]
                shown = jobs[: said.given["limit"]]
                # A full page may say that there is more when there is not.
                end = None if told["after"] is None else numbers.number(UUID(told["after"]).hex)
                fits = shown == jobs if end is None else len(shown) == said.given["limit"] and shown[-1].job_id == end
                views = [_told_view(numbers, one) for one in told["jobs"]]
                return fits and [viewed(job) for job in shown] == views


def _told_view(numbers: Numbers, told: Data) -> dict[str, Any]:
    """What was seen of it."""
    found = dict(told) | {"job_id": numbers.number(told["job"])}
    del found["job"]
    found["events"] = [(at_ms, transition, detail) for at_ms, transition, detail in told["events"]]
    for carried in ("payload", "result", "progress"):
        found[carried] = value_of(packed(found[carried]))
    return found


def _is_grant(call: Call) -> bool:
    return isinstance(call.reply, replies.Leased) and bool(call.reply.grants)


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def gone(life: Life, numbers: Numbers) -> dict[int, Trace]:
    """The jobs that somebody wanted discarded in this life, as he saw them before."""
    found: dict[int, Trace] = {}
    wanted = {said.given["job"] for said in life.calls if said.call == "discard"}
    for said in life.calls:
        told = answer(said)
        if said.call == "get" and said.given["job"] in wanted and told is not None and "events" in told:
            log = [Event(at_ms, Transition(name), tuple(detail.items())) for at_ms, name, detail in told["events"]]
            trace = Trace(told["scope"], told["kind"], tuple(log))
            number = numbers.number(said.given["job"])
            found[number] = max(found.get(number, trace), trace, key=lambda one: len(one.log))
    return found
