"""Event logs read back: the states a job went through, the leases it had, and all jobs' states over time.

Read from the rows alone: what the demo saw while it ran has no part in it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telha_jobs import Event, Job, State

_ANY_LIVE: Final = frozenset({State.PENDING, State.LEASED, State.FAILED})
_MOVES: Final[Mapping[str, tuple[frozenset[State | None], State]]] = {
    "enqueued": (frozenset({None}), State.PENDING),
    "leased": (frozenset({State.PENDING}), State.LEASED),
    "completed": (frozenset({State.LEASED}), State.COMPLETED),
    "failed": (frozenset({State.LEASED}), State.FAILED),
    "promoted": (frozenset({State.FAILED}), State.PENDING),
    "reaped": (frozenset({State.LEASED}), State.PENDING),
    "released": (frozenset({State.LEASED}), State.PENDING),
    "dead": (frozenset({State.LEASED}), State.DEAD),
    "cancelled": (_ANY_LIVE, State.DEAD),
    "retried": (frozenset({State.DEAD}), State.PENDING),
}


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One lease of one job, from the log: until when and how it ended; None while it is held."""

    job: Job
    generation: int
    at_ms: int
    end: Event | None

    @property
    def incarnation(self) -> int:
        """Which life of the queue granted it: every unclean end begins a new one."""
        return self.generation >> 32

    @property
    def expired(self) -> bool:
        """Whether it ended because nobody answered in time."""
        if self.end is None:
            return False
        return self.end.transition == "reaped" or self.end.detail.get("dead_reason") == "expired"


def moves(job: Job) -> Iterator[tuple[int, State | None, State]]:
    """Time, state before, state after, for each event. Raises `ValueError` on a move that no job can make."""
    state: State | None = None
    for event in job.events:
        if event.transition not in _MOVES:
            raise ValueError(f"an event {event.transition!r} has no place in a whole log")
        sources, after = _MOVES[event.transition]
        if state not in sources:
            raise ValueError(f"{event.transition!r} cannot follow the state {state.value if state else 'none'!r}")
        yield event.at_ms, state, after
        state = after


def end_of(job: Job) -> State:
    """The state a log ends in. Raises `ValueError` as `moves` does, and for an empty log."""
    states = [after for _, _, after in moves(job)]
    if not states:
        raise ValueError("the log is empty")
    return states[-1]


def grants(job: Job) -> list[Grant]:
    """The job's leases in the order of its log."""
    found: list[Grant] = []
    events = job.events
    for place, event in enumerate(events):
        if event.transition != "leased":
            continue
        after = events[place + 1] if place + 1 < len(events) else None
        found.append(Grant(job=job, generation=event.detail["generation"], at_ms=event.at_ms, end=after))
    return found


def held_at(jobs: Iterable[Job], number: int, reopened_ms: int) -> list[Grant]:
    """The leases that kill number `number` (from 0) left behind: granted before it, and not ended when the queue was
    open again.
    """
    return [
        grant
        for job in jobs
        for grant in grants(job)
        if grant.incarnation <= number and (grant.end is None or grant.end.at_ms >= reopened_ms)
    ]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """States over time: `seconds` since the first moment, and for each state one count per moment."""

    seconds: tuple[float, ...]
    counts: Mapping[State, tuple[int, ...]]


def sampled(jobs: Iterable[Job], span_ms: range) -> Samples:
    """How many jobs were in each state at each moment of `span_ms`. Raises `ValueError` as `moves` does."""
    changes = sorted((move for job in jobs for move in moves(job)), key=lambda move: move[0])
    now: Counter[State] = Counter()
    seconds: list[float] = []
    counts: dict[State, list[int]] = {state: [] for state in State}
    place = 0
    for moment in span_ms:
        while place < len(changes) and changes[place][0] <= moment:
            _, before, after = changes[place]
            if before is not None:
                now[before] -= 1
            now[after] += 1
            place += 1
        seconds.append((moment - span_ms.start) / 1_000)
        for state in State:
            counts[state].append(now[state])
    return Samples(seconds=tuple(seconds), counts={state: tuple(values) for state, values in counts.items()})


def by_kind(jobs: Sequence[Job]) -> dict[str, Counter[State]]:
    """Jobs in each state, for each kind, kinds in order."""
    counted: dict[str, Counter[State]] = {}
    for job in sorted(jobs, key=lambda job: job.kind):
        counted.setdefault(job.kind, Counter())[job.state] += 1
    return counted
