"""Two versions of the specification in one process, and values that cross between them by name.

The versions' types are different types with (mostly) the same names. A `Translator` says a value of either in the words
of one; a `Projector` reduces values of both to what both have a word for, so that they can be compared.
"""

import re
from collections.abc import Mapping
from enum import Enum
from types import ModuleType
from typing import Any, Final, NamedTuple

Values = Any
"""Values of either version: of types that only the version knows."""

MODULES: Final = ("types", "ops", "replies", "state", "states", "step")
"""What every version has."""
MODULES_OF_NEWER: Final = ("alphabet", "universes", "quotient")
"""What is needed besides of the version whose universes are explored."""
OMITTED: Final = frozenset(
    {
        *("job_id", "generation", "current_generation", "scope", "kind", "payload", "payload_version", "headers"),
        *("attempt", "worker", "progress", "item", "key"),
    }
)
"""Fields of replies that tell values rather than what happened; a difference in them is told by name."""
SHARED: Final = frozenset({"Job", "Spec"})
"""Queues one step apart share all of these but one, so what they are projected to is remembered."""
WHOLE: Final = ("events", "ring")
"""Fields that are one place, however they differ."""
UNTOLD: Final = frozenset({"Digest"})
"""Words whose annotations do not tell that they hold others."""
KEPT_MAX: Final = 1_000_000


class Version(NamedTuple):
    """A loaded specification: a name for people, and its modules by their last name."""

    name: str
    modules: Mapping[str, ModuleType]

    def words(self) -> dict[str, type]:
        """Its named tuples, by name."""
        return {
            word: value
            for name in ("types", "ops", "replies", "state")
            for word, value in vars(self.modules[name]).items()
            if isinstance(value, type) and hasattr(value, "_fields")
        }


class Unspeakable(Exception):  # noqa: N818  an answer, not a failure
    """The version has no word for this."""


class Translator:
    """Says values in the words of one version, whichever version they come from."""

    def __init__(self, version: Version) -> None:
        self._words = version.words()
        self._oversize = getattr(version.modules["types"], "OVERSIZE", None)
        self._known: dict[tuple[type, Values], tuple[Values, frozenset[str]] | None] = {}

    def said(self, value: Values) -> tuple[Values, frozenset[str]]:
        """The value, and the fields that had to be dropped (`NewJob.max_attempts`). Raises `Unspeakable`."""
        dropped: set[str] = set()
        return self._said(value, dropped), frozenset(dropped)

    def op(self, op: Values) -> tuple[Values, frozenset[str]] | None:
        """The same for an operation, remembered; None when there is no word for it."""
        key = (type(op), op)
        if key not in self._known:
            try:
                self._known[key] = self.said(op)
            except Unspeakable:
                self._known[key] = None
        return self._known[key]

    def _said(self, value: Values, dropped: set[str]) -> Values:
        if isinstance(value, Enum):
            return self._oversize if value.name == "OVERSIZE" else value
        if not isinstance(value, tuple):
            return value
        names = getattr(value, "_fields", None)
        if names is None:
            return tuple([self._said(part, dropped) for part in value])
        word = self._words.get(type(value).__name__)
        if word is None:
            raise Unspeakable(type(value).__name__)
        known, defaults = word._fields, getattr(type(value), "_field_defaults", {})  # type: ignore[attr-defined]  # a named tuple
        given = {}
        for name, part in zip(names, value, strict=True):
            if name in known:
                given[name] = self._said(part, dropped)
            elif name not in defaults or defaults[name] != part:
                dropped.add(f"{type(value).__name__}.{name}")
        try:
            return word(**given)
        except TypeError:
            raise Unspeakable(type(value).__name__) from None


class _Plan(NamedTuple):
    """How a word is projected: its name, the common fields, their places, and whether one may hold what differs."""

    name: str
    fields: tuple[str, ...]
    places: tuple[tuple[int, bool], ...]


class Projector:
    """Values of two versions as plain tuples of what both have a word for, so that they can be compared.

    Words that have the same fields in both versions, and hold none that has not, stay as they are: equal tuples.
    """

    def __init__(self, head: Version, base: Version) -> None:
        ours, theirs = head.words(), base.words()
        shared = {name for name in ours.keys() & theirs.keys() if _fields(ours[name]) == _fields(theirs[name])}
        self._changed = _holders((ours.keys() | theirs.keys()) - shared, (ours, theirs))
        self.same = shared == ours.keys() | theirs.keys()
        self._plans: dict[type, _Plan] = {}
        for mine, other in ((ours, theirs), (theirs, ours)):
            for name, word in mine.items():
                kept = sorted([field for field in _fields(word) if name not in other or field in _fields(other[name])])
                places = [(_fields(word).index(field), self._may_differ(word, field)) for field in kept]
                self._plans[word] = _Plan(name, tuple(kept), tuple(places))
        self._kept: dict[int, tuple[Values, Values]] = {}

    def _may_differ(self, word: type, field: str) -> bool:
        return bool(_named(word.__annotations__[field]) & self._changed) or word.__name__ in UNTOLD

    def __call__(self, value: Values) -> Values:
        """The value as tuples; a named tuple becomes its name, then its common fields by their names' order."""
        plan = self._plans.get(type(value))
        if plan is None:
            return tuple([self(part) for part in value]) if isinstance(value, tuple) else value
        if plan.name not in self._changed:
            return value
        if plan.name not in SHARED:
            return self._projected(value, plan)
        known = self._kept.get(id(value))
        if known is None or known[0] is not value:
            if len(self._kept) > KEPT_MAX:
                self._kept.clear()
            known = self._kept[id(value)] = (value, self._projected(value, plan))
        return known[1]

    def _projected(self, value: Values, plan: _Plan) -> Values:
        return (plan.name, *[self(value[place]) if deep else value[place] for place, deep in plan.places])

    def fields(self, value: Values) -> dict[str, Values] | None:
        """The common fields of a named tuple, by name; None for anything else."""
        plan = self._plans.get(type(value))
        if plan is None:
            return None
        return {name: value[place] for name, (place, _) in zip(plan.fields, plan.places, strict=True)}

    def differing(self, head: Values, base: Values) -> tuple[Values, Values]:
        """What happened on each side, by `shape`; of two replies of one type only the fields that differ."""
        ours, theirs = self.fields(head), self.fields(base)
        if ours is None or theirs is None or type(head).__name__ != type(base).__name__:
            return shape(head), shape(base)
        kept = {name for name in ours if self(ours[name]) != self(theirs[name])}
        return shape(head, kept), shape(base, kept)

    def paths(self, head: Values, base: Values, path: str = "") -> dict[str, tuple[Values, Values]]:
        """Where two values differ, and how at the first such place: `jobs[].attempts`. A log is one place."""
        if self(head) == self(base):
            return {}
        ours, theirs = self.fields(head), self.fields(base)
        pairs: list[tuple[str, Values, Values]] = []
        if ours is not None and theirs is not None and type(head).__name__ == type(base).__name__:
            dot = "." if path else ""
            pairs = [(f"{path}{dot}{name}", ours[name], theirs[name]) for name in ours]
        elif not path.endswith(WHOLE) and _alike(head, base):
            pairs = [(f"{path}[]", one, other) for one, other in zip(head, base, strict=True)]
        found: dict[str, tuple[Values, Values]] = {} if pairs else {path: (head, base)}
        for where, one, other in pairs:
            found = {**self.paths(one, other, where), **found}
        return found


def _alike(head: Values, base: Values) -> bool:
    """Whether two values are sequences of as many parts."""
    return type(head) is tuple and type(base) is tuple and len(head) == len(base)


def _fields(word: Any) -> tuple[str, ...]:
    return tuple(word._fields)


def _named(annotation: Any) -> set[str]:
    """The words that an annotation names."""
    return set(re.findall(r"\w+", annotation.__name__ if isinstance(annotation, type) else repr(annotation)))


def _holders(changed: set[str], vocabularies: tuple[dict[str, type], dict[str, type]]) -> set[str]:
    """The changed words, and all that may hold one of them, however deep."""
    if not changed:
        return changed
    found = changed | UNTOLD
    while True:
        more = {
            name
            for words in vocabularies
            for name, word in words.items()
            if any(_named(annotation) & found for annotation in word.__annotations__.values())
        }
        if more <= found:
            return found
        found |= more


def told(value: Values) -> str:
    """A value of either version for people: `Failed(state=dead)`."""
    names = getattr(value, "_fields", None)
    if names is not None:
        parts = zip(names, value, strict=True)
        defaults = getattr(value, "_field_defaults", {})
        shown = [f"{n}={told(part)}" for n, part in parts if n not in defaults or defaults[n] != part]
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(told, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(told, value))) + "}"
    return str(value.value) if isinstance(value, Enum) else repr(value)


def shape(reply: Values, only: set[str] | None = None) -> str:
    """What happened, without the values: `Leased(grants=(Grant))`, `Reaped(died, more)`, `StaleLease(why=reaped)`.

    `only`: of these fields.
    """
    names = getattr(reply, "_fields", None)
    if names is not None:
        parts = [
            _part(name, part)
            for name, part in zip(names, reply, strict=True)
            if name not in OMITTED and not name.endswith("_ms") and (only is None or name in only)
        ]
        kept = [part for part in parts if part]
        return f"{type(reply).__name__}({', '.join(kept)})" if kept else type(reply).__name__
    if isinstance(reply, tuple):
        return f"({', '.join(map(shape, reply))})"
    return re.sub(r"\[\d+\]", "[]", told(reply)).strip("'")


def _part(name: str, part: Values) -> str:
    """A count or flag stands by its name where it is not zero: what matters is whether something happened."""
    if part is None or part == 0:
        return ""
    return name if isinstance(part, int) else f"{name}={shape(part)}"


def situation(queue: Values, op: Values) -> str:
    """The class of a step, as far as it is about one job: its state, the token, the deadline, attempts."""
    ref = getattr(op, "ref", None)
    number = getattr(op, "job_id", None) if ref is None else ref.job_id
    if number is None:
        return ""
    job = next((job for job in queue.jobs if job.job_id == number), None)
    if job is None:
        return "no job"
    said = [str(job.state.value)]
    if ref is not None:
        order = (ref.generation > job.generation) - (ref.generation < job.generation)
        said.append(("older token", "current token", "token never issued")[order + 1])
    if job.deadline_ms is not None:
        order = (queue.now_ms > job.deadline_ms) - (queue.now_ms < job.deadline_ms)
        said.append(("before", "at", "after")[order + 1] + " the deadline")
    return ", ".join(said)
