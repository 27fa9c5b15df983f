"""The gate of transition classes: what each lane declares that it hits, held against what it hit and what there is.

`required_classes.toml` has a section for each lane: the tests it runs, and patterns of classes with how often they must
be hit. In a pattern `*` stands for each word that is reachable there, so that one line can require many classes; `any`
stands for all of them together, so that their hits are added. Doubt is a finding: a lane that ran nothing, a pattern
that no reachable class fits, a class hit too rarely, a lane nobody declared, a class hit that no universe reaches.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_model.classes import TransitionClass
from telha_model.reachable import PROBES, Reachable
from tests.harness.classes import Hits

DECLARED: Final = Path(__file__).with_name("required_classes.toml")
EACH, ANY = "*", "any"
EVERYTHING, EDGES = "everything", "edges"
OF: Final = (EVERYTHING, EDGES, PROBES)
"""What the patterns of a lane are about: all reachable classes, those of edges, or those that only probes have."""

EMPTY: Final = "empty"
UNHIT: Final = "unhit"
UNREACHABLE: Final = "unreachable"
UNDECLARED: Final = "undeclared"
UNEXPLORED: Final = "unexplored"


class Required(NamedTuple):
    """A pattern of classes, and how often each that fits must be hit."""

    pattern: TransitionClass
    at_least: int


class Lane(NamedTuple):
    """What a lane declares; `tests` are pytest's words for what it runs, `of` is one of `OF`."""

    name: str
    about: str
    tests: tuple[str, ...]
    of: str
    required: tuple[Required, ...]

    def pool(self, reachable: Reachable) -> list[TransitionClass]:
        """The reachable classes that its patterns are about."""
        if self.of == EVERYTHING:
            return list(reachable)
        return [one for one, where in reachable.items() if (PROBES in where) is (self.of == PROBES)]


class Finding(NamedTuple):
    """One thing that is wrong: in which lane, its kind, and a sentence."""

    lane: str
    kind: str
    sentence: str


class DeclarationError(ValueError):
    """The file of declarations cannot be understood."""


def declared(path: Path = DECLARED) -> tuple[Lane, ...]:
    """The lanes of a file; `DeclarationError` naming the place."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DeclarationError(f"{path.name}: {error}") from error
    if not data:
        raise DeclarationError(f"{path.name}: no lane is declared")
    return tuple([_lane(name, section) for name, section in data.items()])


def _lane(name: str, section: Any) -> Lane:
    match section:
        case {"about": str(about), "tests": [*tests], "required": dict(required), **rest} if rest.keys() <= {"of"}:
            words, of = tuple([str(test) for test in tests]), rest.get("of", EVERYTHING)
        case _:
            raise DeclarationError(f"[{name}]: a lane has `about`, `tests`, a table `required`, and perhaps `of`")
    if not words or not required:
        raise DeclarationError(f"[{name}]: a lane runs tests, and requires something of them")
    if of not in OF:
        raise DeclarationError(f"[{name}]: `of` is one of {', '.join(OF)}, not {of!r}")
    return Lane(name, about, words, of, tuple([_required(name, *pair) for pair in required.items()]))


def _required(lane: str, text: str, at_least: Any) -> Required:
    words = [word.strip() for word in text.split(",")]
    if len(words) != len(TransitionClass._fields):
        raise DeclarationError(f"[{lane}] {text!r}: a pattern is {', '.join(TransitionClass._fields)}")
    if type(at_least) is not int or at_least < 1:
        raise DeclarationError(f"[{lane}] {text!r}: how often is a whole number of 1 or more, not {at_least!r}")
    return Required(TransitionClass(*words), at_least)


Groups = dict[TransitionClass, list[TransitionClass]]


def groups(pattern: TransitionClass, reachable: Iterable[TransitionClass]) -> Groups:
    """The reachable classes that fit a pattern; those that are counted together stand under one name."""
    found: Groups = {}
    for one in reachable:
        if all(asked in (EACH, ANY, word) for asked, word in zip(pattern, one, strict=True)):
            words = [ANY if asked == ANY else word for asked, word in zip(pattern, one, strict=True)]
            found.setdefault(TransitionClass(*words), []).append(one)
    return found


def judge(lanes: Sequence[Lane], hits: Mapping[str, Hits], reachable: Reachable) -> tuple[Finding, ...]:
    """Everything that is wrong with what the lanes hit; nothing only where there is no doubt."""
    found: list[Finding] = []
    for lane in lanes:
        ran = hits.get(lane.name)
        if ran is None or not ran.steps or not ran.counts.total():
            found.append(Finding(lane.name, EMPTY, "ran nothing"))
        found += _unmet(lane, None if ran is None else ran.counts, reachable)
    names = {lane.name for lane in lanes}
    for name, ran in sorted(hits.items()):
        if name not in names:
            found.append(Finding(name, UNDECLARED, "ran, but is not declared"))
        unknown = sorted(ran.counts.keys() - reachable.keys())
        found += [Finding(name, UNEXPLORED, f"{one}: hit, but no universe reaches it") for one in unknown]
    return tuple(found)


def _unmet(lane: Lane, counts: Counter[TransitionClass] | None, reachable: Reachable) -> Iterator[Finding]:
    """Patterns that fit nothing, and, of a lane that ran, what it hit too rarely."""
    pool = lane.pool(reachable)
    for pattern, at_least in lane.required:
        fitting = groups(pattern, pool)
        if not fitting:
            yield Finding(lane.name, UNREACHABLE, f"{pattern}: declared, but no universe reaches it")
        if counts is None:
            continue
        for name, members in sorted(fitting.items()):
            hit = sum([counts[one] for one in members])
            if hit < at_least:
                yield Finding(lane.name, UNHIT, f"{name}: hit {hit} of {at_least} times")
