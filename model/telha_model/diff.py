"""Two versions of the specification in lock-step: where do they answer differently, and by which shortest way?

Values cross from one version to the other by name (`versions`). The search is breadth first over pairs of queues, in
the universes of the newer version. A step where the two differ, in the reply or in the state after it, is a divergence;
the search does not go on from there, since all that follows is a consequence. Pairs that agree are visited once per
pair of classes.

What the older version has no word for is left out of what it is told: a new field of an operation or setting is
dropped, an operation of a new type is not offered. A universe that uses new fields is explored twice, without them and
with them. So `additive` can be read off: nothing differs where nothing new is used.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from telha_model.versions import Projector, Translator, Values, Version, situation, told

Progress = Callable[[int, int, int], None]
PROGRESS_EVERY: Final = 256
FOLLOWING: Final = frozenset({"jobs[].events", "ring"})


class Signature(NamedTuple):
    """What makes two divergences the same: operation, situation, what happened on each side, and, where that is the
    same, the values that differ.
    """

    op: str
    situation: str
    head: str
    base: str
    differs: tuple[str, ...]


class Divergence(NamedTuple):
    """A signature, how many steps have it, and a shortest way there: operations, and both replies to the last."""

    signature: Signature
    steps: int
    universe: str
    config: Values
    start_ms: int
    trace: tuple[Values, ...]
    head: Values
    base: Values
    values: tuple[str, ...]
    """Sentences about the values that differ, where the replies are of one shape."""


class Explored(NamedTuple):
    """One universe: how much was compared, what was dropped or not offered, and the divergences."""

    universe: str
    bounds: str
    states: int
    edges: int
    news: frozenset[str]
    """Fields the older version lacks: left out when `plain`, else dropped."""
    plain: bool
    unspoken: frozenset[str]
    divergences: tuple[Divergence, ...]


class Pair:
    """Two versions and the step of both: what a comparison needs, whoever walks."""

    def __init__(self, head: Version, base: Version) -> None:
        self.head, self.base = head, base
        self.to_base = Translator(base)
        self.project = Projector(head, base)
        self.step_head: Callable[..., Any] = head.modules["step"].step
        self.step_base: Callable[..., Any] = base.modules["step"].step

    def answered(self, config: Values, queue: Values, op: Values) -> tuple[Values, Values]:
        """The older version's step. Whatever it raises is its answer: it is under test, not in use."""
        try:
            reply, after = self.step_base(config, queue, op)
        except Exception as error:  # noqa: BLE001  as said
            return f"raises {type(error).__name__}", queue
        return reply, after

    def agree(self, head: Values, base: Values) -> bool:
        """Whether two values say the same, in what both versions have a word for."""
        if self.project.same and type(head).__name__ == type(base).__name__:
            return bool(head == base)
        return bool(self.project(head) == self.project(base))

    def judge(
        self, before: Values, op: Values, heads: tuple[Values, Values], bases: tuple[Values, Values]
    ) -> tuple[Signature, tuple[str, ...]]:
        """The signature of a step that differs, and sentences with the values; each side is reply and queue after."""
        ours, theirs = self.project.differing(heads[0], bases[0])
        values: dict[str, tuple[Values, Values]] = {}
        if ours == theirs:
            values = {f"reply.{path}": pair for path, pair in self.project.paths(heads[0], bases[0]).items()}
            values = values or _telling(self.project.paths(heads[1], bases[1]))
        signature = Signature(type(op).__name__, situation(before, op), ours, theirs, tuple(sorted(values)))
        told_apart = [f"{path}: head {told(one)}, base {told(other)}" for path, (one, other) in sorted(values.items())]
        return signature, tuple(told_apart)


def _telling(values: dict[str, tuple[Values, Values]]) -> dict[str, tuple[Values, Values]]:
    """The log and the ring follow: they are named only where nothing else differs."""
    return {path: pair for path, pair in values.items() if path not in FOLLOWING} or values


class _Search:
    """One breadth-first search over pairs; the mutable part of `explored`."""

    def __init__(self, pair: Pair, universe: Values, *, plain: bool) -> None:
        self.pair, self.universe, self.plain = pair, universe, plain
        head, base = pair.head, pair.base
        self.config = universe.config
        self.base_config, self.news = pair.to_base.said(universe.config)
        # There and back again: the newer version is told as little as the older one.
        self.to_head = Translator(head)
        if plain and self.news:
            self.config = self.to_head.said(self.base_config)[0]
        self.offer = head.modules["alphabet"].offers(universe.alphabet)
        self.classify = head.modules["quotient"].Classifier(self.config, universe.quotient)
        quotient = base.modules.get("quotient")
        self.classify_base: Any = None
        if quotient is not None:
            kept = {n: v for n, v in universe.quotient._asdict().items() if n in quotient.Quotient._fields}
            self.classify_base = quotient.Classifier(self.base_config, quotient.Quotient(**kept))
        start = universe.start_ms
        self.pairs = [(head.modules["state"].new_queue(start), base.modules["state"].new_queue(start))]
        self.parents: list[tuple[int, Values] | None] = [None]
        self.places = {self.key(*self.pairs[0]): 0}
        self.edges = 0
        self.unspoken: set[str] = set()
        self.found: dict[Signature, Divergence] = {}

    def key(self, ours: Values, theirs: Values) -> Values:
        """The class of a pair: that of each version, by its own judgement of what counts."""
        return self.classify(ours), None if self.classify_base is None else self.classify_base(theirs)

    def expand(self, place: int) -> None:
        """Take every operation offered in one pair."""
        ours, theirs = self.pairs[place]
        pair = self.pair
        self.classify.focus(ours)
        if self.classify_base is not None:
            self.classify_base.focus(theirs)
        for offered in self.offer(ours):
            said = pair.to_base.op(offered)
            if said is None:
                self.unspoken.add(type(offered).__name__)
                continue
            base_op, dropped = said
            op = offered
            if dropped:
                self.news |= dropped
                if self.plain:
                    if type(pair.step_head(self.config, ours, op)[0]).__name__ == "BadArgument":
                        # Refused for what is new in it. Without that it would be one more operation, with no bounds.
                        continue
                    op = self.to_head.said(base_op)[0]
            self.take(place, op, base_op)

    def take(self, place: int, op: Values, base_op: Values) -> None:
        """Take one operation on both sides."""
        ours, theirs = self.pairs[place]
        pair = self.pair
        self.edges += 1
        reply, after = pair.step_head(self.config, ours, op)
        base_reply, base_after = pair.answered(self.base_config, theirs, base_op)
        same = pair.agree(reply, base_reply)
        if same and after is ours and base_after is theirs:
            return
        if same and pair.agree(after, base_after):
            self.arrive(place, op, after, base_after)
        else:
            self.diverge(place, op, (reply, after), (base_reply, base_after))

    def arrive(self, place: int, op: Values, after: Values, base_after: Values) -> None:
        """Find or make the pair a step leads to."""
        fresh = len(self.pairs)
        if self.places.setdefault(self.key(after, base_after), fresh) == fresh:
            self.pairs.append((after, base_after))
            self.parents.append((place, op))

    def diverge(self, place: int, op: Values, heads: tuple[Values, Values], bases: tuple[Values, Values]) -> None:
        """Count a divergence; the first of its signature has the shortest way."""
        signature, values = self.pair.judge(self.pairs[place][0], op, heads, bases)
        known = self.found.get(signature)
        if known is None:
            name, start_ms = self.universe.name, self.universe.start_ms
            way = (*self.trace(place), op)
            known = Divergence(signature, 0, name, self.config, start_ms, way, heads[0], bases[0], values)
        self.found[signature] = known._replace(steps=known.steps + 1)

    def trace(self, place: int) -> tuple[Values, ...]:
        """The shortest way to a pair."""
        ops: list[Values] = []
        came = self.parents[place]
        while came is not None:
            ops.append(came[1])
            came = self.parents[came[0]]
        return tuple(reversed(ops))


def explored(pair: Pair, universe: Values, *, plain: bool, on_progress: Progress | None = None) -> Explored:
    """Compare the two versions over one universe of the newer one. `plain`: neither uses what the older one lacks."""
    search = _Search(pair, universe, plain=plain)
    place = 0
    while place < len(search.pairs):
        search.expand(place)
        place += 1
        if on_progress is not None and place % PROGRESS_EVERY == 0:
            on_progress(place, len(search.pairs), search.edges)
    return Explored(
        universe.name,
        universe.bounds,
        len(search.pairs),
        search.edges,
        frozenset(search.news),
        plain,
        frozenset(search.unspoken),
        tuple(search.found.values()),
    )


def compared(
    head: Version, base: Version, universes: Iterable[Values], on_universe: Callable[[str], Progress | None]
) -> list[Explored]:
    """Every universe: without what the older version lacks, and once more with it where it is used."""
    pair = Pair(head, base)
    runs = []
    for universe in universes:
        run = explored(pair, universe, plain=True, on_progress=on_universe(universe.name))
        runs.append(run)
        if run.news:
            runs.append(explored(pair, universe, plain=False, on_progress=on_universe(universe.name)))
    return runs


def additive(runs: Iterable[Explored]) -> bool:
    """Whether nothing differs where nothing is used that the older version lacks."""
    return not any(run.divergences for run in runs if run.plain)


def distinct(runs: Iterable[Explored]) -> list[Divergence]:
    """The divergences of all universes, one for each signature: the shortest way, and all counts together."""
    found: dict[Signature, Divergence] = {}
    for divergence in [divergence for run in runs for divergence in run.divergences]:
        known = found.get(divergence.signature)
        if known is None:
            found[divergence.signature] = divergence
            continue
        shorter = min((known, divergence), key=lambda one: len(one.trace))
        found[divergence.signature] = shorter._replace(steps=known.steps + divergence.steps)
    return sorted(found.values(), key=lambda one: (len(one.trace), one.signature))


def program(pair: Pair, divergence: Divergence) -> list[str]:
    """The shortest way as a program, a line per operation with the newer version's reply; the last with both."""
    queue = pair.head.modules["state"].new_queue(divergence.start_ms)
    lines = []
    for op in divergence.trace:
        at_ms = queue.now_ms
        reply, queue = pair.step_head(divergence.config, queue, op)
        lines.append(f"{at_ms:>8}  {told(op)}  ->  {told(reply)}")
    lines[-1] = lines[-1].partition("  ->  ")[0]
    lines.append(f"{'':8}    head  ->  {told(divergence.head)}")
    lines.append(f"{'':8}    base  ->  {told(divergence.base)}")
    return lines


class Declaration(NamedTuple):
    """A change of meaning, as its author declares it: the signatures it must have, and why."""

    name: str
    why: str
    expected: frozenset[Signature]


def declared(name: str, data: Values) -> Declaration:
    """The declaration that JSON data stands for; ValueError when it stands for none."""
    if not isinstance(data, dict) or set(data) != {"why", "expected"}:
        raise ValueError(f"{name}: a declaration has the fields why and expected")
    if not isinstance(data["why"], str) or not data["why"].strip():
        raise ValueError(f"{name}: a declaration says why")
    try:
        expected = [Signature(**{**one, "differs": tuple(one["differs"])}) for one in data["expected"]]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name}: a signature has the fields {', '.join(Signature._fields)}: {error}") from None
    return Declaration(name, data["why"], frozenset(expected))


def undeclared(
    signatures: AbstractSet[Signature], declarations: Sequence[Declaration]
) -> tuple[list[Signature], list[str]]:
    """The signatures found that no declaration expects, and a sentence for each that is expected and was not found."""
    expected = {signature for declaration in declarations for signature in declaration.expected}
    missing = [
        f"{declaration.name} expects what was not found: {told(signature)}"
        for declaration in declarations
        for signature in sorted(declaration.expected - signatures)
    ]
    return sorted(signatures - expected), missing
