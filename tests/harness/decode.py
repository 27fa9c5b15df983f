"""A second reader of the database: raw keys and values to the model's terms, sharing no code with the queue.

Written from the layouts that `telha_jobs.keys`, `telha_jobs.codec` and `telha_jobs.store.layout` document, so that a
mistake in the code there shows here. Every pair of every family is read; what cannot be understood is a problem, never
passed over. A pair is decoded once: pairs that were there at the last look are known by their bytes.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

import google_crc32c
import msgpack

from telha_model.replies import Receipt
from telha_model.state import Event, Job, Spec
from telha_model.states import State, Transition
from telha_model.types import Value
from tests.harness.values import Names, scope_number, value_of

Raw = Mapping[str, list[tuple[bytes, bytes]]]
"""The pairs of every family, by the family's name."""

Entry = tuple[str, Any, Any]
"""What a pair says: the part of `Observed` it belongs to, its name there, and the item (None in a set)."""

FAMILIES: Final = ("jobs", "ready", "timers", "ids", "idem", "payloads", "quarantine", "meta")
_STATES: Final = {1: State.PENDING, 2: State.LEASED, 3: State.FAILED, 4: State.COMPLETED, 5: State.DEAD}
_TRANSITIONS: Final = (
    Transition.ENQUEUED,
    Transition.LEASED,
    Transition.COMPLETED,
    Transition.FAILED,
    Transition.PROMOTED,
    Transition.REAPED,
    Transition.RELEASED,
    Transition.RETRIED,
    Transition.CANCELLED,
    Transition.DEAD,
    Transition.ELIDED,
)
"""By their code on disk."""
_CACHED_MAX: Final = 20_000

_JOB_KEY = struct.Struct(">16sBBQ16s")
_READY_KEY = struct.Struct(">16sQBQ16s")
_TIMER_KEY = struct.Struct(">Q16s")
_IDS_VALUE = struct.Struct(">42sQ")
_COUNT_KEY = struct.Struct(">16sQB")
_COMMIT = struct.Struct(">QQ")


class Ready(NamedTuple):
    """An entry of `ready`, its kind as a number."""

    scope: int
    kind: int
    priority: int
    due_ms: int
    job: int


class Timer(NamedTuple):
    """An entry of `timers`."""

    at_ms: int
    job: int


class Named(NamedTuple):
    """An entry of `idem`: where a key's hash points."""

    scope: int
    digest: bytes
    job: int


class Place(NamedTuple):
    """A job's key in `jobs` and the number of its kind, which is what `ids` tells."""

    scope: int
    state: State
    priority: int
    created_at_ms: int
    kind: int


class CountOf(NamedTuple):
    """What a counter counts."""

    scope: int
    kind: int
    state: State


class Row(NamedTuple):
    """A row of `jobs`: the model's job without the submit, which is told apart, and the row's own marks."""

    job: Job
    digest: bytes | None
    reply: tuple[Receipt, ...] | State | None
    has_result: bool
    sequence: int
    token: bytes


class Elsewhere(Enum):
    """Stands in a spec for a payload that is not kept in the row."""

    ELSEWHERE = "elsewhere"


@dataclass(slots=True)
class Observed:
    """The whole database, decoded."""

    rows: dict[int, Row] = field(default_factory=dict)
    ready: set[Ready] = field(default_factory=set)
    timers: set[Timer] = field(default_factory=set)
    places: dict[int, Place] = field(default_factory=dict)
    named: set[Named] = field(default_factory=set)
    payloads: dict[int, Value] = field(default_factory=dict)
    counts: dict[CountOf, int] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    fresh: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Decoder:
    """Decodes one database again and again."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[tuple[str, bytes, bytes], Entry] = {}
        self._last_rows: dict[bytes, bytes] = {}
        self._seen: Observed | None = None
        self._entries: dict[tuple[str, bytes], Entry] = {}

    def observe(self, raw: Raw) -> Observed:
        """Decode everything; `fresh` are the rows that were not there, byte for byte, at the last look."""
        seen = Observed()
        entries: dict[tuple[str, bytes], Entry] = {}
        if len(self._known) > _CACHED_MAX:
            self._known.clear()
        for family, pairs in raw.items():
            for key, value in pairs:
                part, name, item = entry = self._entry(family, key, value)
                if part == "problems":
                    seen.problems.append(name)
                    continue
                if part == "rows" and self._last_rows.get(key) != value:
                    seen.fresh.append(item)
                _put(seen, part, name, item)
                entries[family, key] = entry
        self._last_rows = dict(raw["jobs"])
        self._seen, self._entries = seen, entries
        return seen

    def amend(self, changes: Iterable[tuple[str, bytes, bytes | None]]) -> Observed | None:
        """What the last look saw, with some pairs changed since (value None: gone). None when only a look at everything
        can tell: a pair is not understood, or two of them claim the same place.
        """
        seen, self._seen = self._seen, None
        if seen is None or seen.problems:
            return None
        seen.fresh = []
        came = []
        for family, key, value in changes:
            gone = self._entries.pop((family, key), None)
            if gone is not None:
                _take(seen, gone)
            before = self._last_rows.pop(key, None) if family == "jobs" else None
            if value is not None:
                came.append((family, key, value, before))
        for family, key, value, before in came:
            entry = self._entry(family, key, value)
            if entry[0] == "problems":
                return None
            self._entries[family, key] = entry
            _put(seen, *entry)
            if family == "jobs":
                self._last_rows[key] = value
                if before != value:
                    seen.fresh.append(entry[2])
        if seen.problems:
            return None
        self._seen = seen
        return seen

    def _entry(self, family: str, key: bytes, value: bytes) -> Entry:
        """What a pair says, decoded once if it can be."""
        entry = self._known.get((family, key, value))
        if entry is None:
            entry = self._decoded(family, key, value)
            if entry[0] != "problems":
                self._known[family, key, value] = entry
        return entry

    def _decoded(self, family: str, key: bytes, value: bytes) -> Entry:
        """The part of `Observed` the pair belongs to, and what to put there."""
        try:
            return self._understood(family, key, value)
        except (ValueError, KeyError, IndexError, TypeError, struct.error, msgpack.UnpackException) as error:
            return "problems", f"{family} {key.hex()}: {value.hex()}: {type(error).__name__}: {error}", None

    def _understood(self, family: str, key: bytes, value: bytes) -> Entry:
        match family:
            case "jobs":
                row = self._row(key, value)
                return "rows", row.job.job_id, row
            case "ready":
                scope, kind, priority, due_ms, job_id = _READY_KEY.unpack(key)
                self._empty(value)
                return "ready", Ready(scope_number(scope), kind, priority, due_ms, self._number(job_id)), None
            case "timers":
                at_ms, job_id = _TIMER_KEY.unpack(key)
                self._empty(value)
                return "timers", Timer(at_ms, self._number(job_id)), None
            case "ids":
                return "places", self._number(key), self._place(key, value)
            case "idem":
                return "named", Named(scope_number(key[:16]), key[16:], self._number(value)), None
            case "payloads":
                return "payloads", self._number(key), _carried(value)
            case "meta":
                return self._meta(key, value)
            case _:
                raise ValueError("nothing belongs here")

    def _number(self, job_id: bytes) -> int:
        number = self._names.number(job_id)
        if number < 1:
            raise ValueError(f"no receipt ever named job {job_id.hex()}")
        return number

    @staticmethod
    def _empty(value: bytes) -> None:
        if value:
            raise ValueError("the value should be empty")

    def _place(self, job_id: bytes, value: bytes) -> Place:
        row_key, kind = _IDS_VALUE.unpack(value)
        scope, state, priority, created_at_ms, same_id = _JOB_KEY.unpack(row_key)
        if same_id != job_id:
            raise ValueError("the row's key is that of another job")
        return Place(scope_number(scope), _STATES[state], priority, created_at_ms, kind)

    def _meta(self, key: bytes, value: bytes) -> Entry:
        if key.startswith(b"kind/"):
            return "kinds", int.from_bytes(_sized(key[5:], 8), "big"), value.decode()
        if key.startswith(b"count/"):
            scope, kind, state = _COUNT_KEY.unpack(key[6:])
            number = int.from_bytes(_sized(value, 8), "big", signed=True)
            return "counts", CountOf(scope_number(scope), kind, _STATES[state]), number
        match key:
            case b"last_id":
                return "meta", "last_id", self._number(value)
            case b"last_served":
                return "meta", "last_served", scope_number(_sized(value, 16))
            case b"store/format":
                return "meta", "format", value.hex()
            case b"store/open":
                return "meta", "open", value.hex()
            case b"store/incarnation":
                return "meta", "incarnation", int.from_bytes(_sized(value, 4), "big")
            case b"store/commit":
                return "meta", "commit", _COMMIT.unpack(value)
            case _:
                raise ValueError("no such key")

    def _row(self, key: bytes, value: bytes) -> Row:
        body, checksum = value[:-4], value[-4:]
        if int.from_bytes(_sized(checksum, 4), "big") != google_crc32c.value(key + body):
            raise ValueError("the checksum does not match")
        if body[:1] != b"\x01":
            raise ValueError("not record version 1")
        fields = msgpack.unpackb(body[1:], strict_map_key=False)
        scope, state_byte, priority, created_at_ms, job_id = _JOB_KEY.unpack(key)
        if len(fields) != 24:
            raise ValueError(f"{len(fields)} fields, record version 1.0 has 24")
        numbered = dict(enumerate(fields, 1))
        get = numbered.pop
        spec = Spec(
            scope_number(scope),
            get(1),
            priority,
            _payload(get(2)),
            get(3),
            tuple(get(4).items()),
            created_at_ms,
            get(5),
            get(8),
            get(21),
        )
        state = _STATES[state_byte]
        due_ms = get(6)
        result, submit_reply = get(19), get(18)
        job = Job(
            self._number(job_id),
            spec,
            state,
            None if state in (State.COMPLETED, State.DEAD) else due_ms,
            get(7),
            get(9),
            get(11),
            get(12),
            get(13),
            get(14),
            get(15),
            get(16),
            _optional(result),
            _optional(get(20)),
            get(10),
            None,
            tuple([Event(at, _TRANSITIONS[code], tuple(detail.items())) for at, code, detail in get(24)]),
        )
        row = Row(
            job,
            get(17),
            None if submit_reply is None else self._reply(submit_reply),
            result is not None,
            get(22),
            get(23),
        )
        if numbered:
            raise ValueError(f"fields that nothing was made of: {sorted(numbered)}")
        return row

    def _reply(self, encoded: bytes) -> tuple[Receipt, ...] | State:
        answer = msgpack.unpackb(encoded)
        if isinstance(answer, str):
            return State(answer)
        return tuple([Receipt(self._number(job_id), created, State(state)) for job_id, created, state in answer])


def _put(seen: Observed, part: str, name: Any, item: Any) -> None:
    held = getattr(seen, part)
    if isinstance(held, set):
        held.add(name)
    elif name in held:
        seen.problems.append(f"{part}: two entries for {name}: {held[name]} and {item}")
    else:
        held[name] = item


def _take(seen: Observed, entry: Entry) -> None:
    part, name, item = entry
    held = getattr(seen, part)
    if isinstance(held, set):
        held.discard(name)
    elif held.pop(name, item) is not item:
        seen.problems.append(f"{part}: another entry stood for {name}")


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{value.hex()} should have {size} bytes")
    return value


def _carried(value: bytes) -> Value:
    """A carried value: a version byte, then msgpack."""
    if value[:1] != b"\x01":
        raise ValueError("not value version 1")
    return value_of(value[1:])


def _payload(value: bytes | None) -> Value:
    return Elsewhere.ELSEWHERE if value is None else _carried(value)


def _optional(value: bytes | None) -> Any:
    return None if value is None else _carried(value)
