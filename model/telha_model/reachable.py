"""Which transition classes there are: those of the steps that the explored states of CI's universes allow.

A universe offers what its concern needs, so its edges are not every step that its states allow. The states of a few
universes are therefore *probed* too: operations on each job under every token and by its number, on its key, and on the
queue as a whole are taken and classified, and what they lead to is forgotten. A probe starts from a state that is
reachable, so its class is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from telha_model.alphabet import offers, older_generation
from telha_model.classes import TransitionClass, classes
from telha_model.explore import Graph, explore
from telha_model.ops import (
    Advance,
    Cancel,
    Complete,
    CompleteMany,
    Discard,
    Enqueue,
    EnqueueMany,
    Extend,
    Fail,
    Lease,
    Op,
    Reap,
    Release,
    Reopen,
    Retry,
)
from telha_model.state import Job, Queue
from telha_model.step import step
from telha_model.types import OVERSIZE, NewJob, Ref
from telha_model.universe import Universe
from telha_model.universes import universes

Progress = Callable[[str, int, int], None]
"""Told the universe, how many of its states are done, and how many there are."""


class Found(NamedTuple):
    """How many steps have a class, and the first state in which one has it."""

    steps: int
    place: int


Reachable = dict[TransitionClass, dict[str, int]]
"""Of each class the steps that have it, by universe; `PROBES` in place of one for those that only a probe takes."""

PROGRESS_EVERY: Final = 256
PROBES: Final = "probes"
PROBED: Final = ("protocol", "keys", "agenda")
"""Between them they have jobs in every state, under every token, with and without a key, queues that have been reopened
and those that have not. A test holds that probes of the other universes find nothing else.
"""

FAULTY: Final = (
    NewJob(1, ""),
    NewJob(1, "a", OVERSIZE),
    NewJob(1, "a", priority=-1),
    NewJob(1, "a", run_at_ms=-1),
    NewJob(1, "a", delay_ms=-1),
    NewJob(1, "a", max_attempts=0),
    NewJob(1, "a", idempotency_key=""),
    NewJob(1, "a", headers=(("h", "x" * 20_000),)),
    NewJob(1, "a", payload_version=-1),
)
"""A job with each field wrong in turn. No number of a scope is wrong that stands for a real one."""

QUEUE_PROBES: Final[tuple[Op, ...]] = (
    *[Enqueue(new) for new in FAULTY],
    EnqueueMany(()),
    EnqueueMany(FAULTY[:1]),
    Lease("w"),
    Lease("w", 4),
    Lease("w", 0),
    Lease(""),
    Lease("w", 1, ()),
    Lease("w", 1, None, ()),
    Extend("w", ()),
    Extend("", ()),
    Extend("w", (), ((1, 1),)),
    CompleteMany(()),
    Reap(),
    Reap(1),
    Reap(0),
    Advance(1),
    Advance(-1),
    Reopen(clean=True),
    Reopen(clean=False),
)
NOBODY: Final = Ref(0, 1)
"""A token of a job that never was."""


def by_token(ref: Ref) -> Iterator[Op]:
    """Every way to present a token."""
    yield Complete(ref, 1)
    yield Complete(ref, OVERSIZE)
    yield Complete(ref, 1, FAULTY[:1])
    yield CompleteMany(((ref, 1),))
    yield CompleteMany(((ref, OVERSIZE),))
    yield Fail(ref, "x")
    yield Fail(ref, "x", retryable=False)
    yield Release(ref)
    yield Release(ref, -1)
    yield Extend("w", (ref,))
    yield Extend("", (ref,))
    yield Extend("w", (ref,), ((ref.job_id, OVERSIZE),))


def by_number(job_id: int) -> Iterator[Op]:
    """Every way to name a job."""
    yield Retry(job_id)
    yield Cancel(job_id)
    yield Discard(job_id)


def probes(queue: Queue) -> Iterator[Op]:
    """What is tried in a state besides what its universe offers."""
    yield from QUEUE_PROBES
    yield from by_token(NOBODY)
    yield from by_number(NOBODY.job_id)
    for job in queue.jobs:
        for generation in (job.generation, older_generation(job), job.generation + 1):
            if generation is not None:
                yield from by_token(Ref(job.job_id, generation))
        yield from by_number(job.job_id)
        yield from _by_key(job, queue.jobs)


def _by_key(job: Job, jobs: Sequence[Job]) -> Iterator[Op]:
    """The job's key for the same work, and for other work; also in what its own or another's completion creates."""
    spec = job.spec
    if spec.idempotency_key is None:
        return
    same = NewJob(spec.scope, spec.kind, spec.payload, idempotency_key=spec.idempotency_key)
    for new in (same._replace(payload_version=spec.payload_version + more) for more in (0, 1)):
        yield Enqueue(new)
        yield EnqueueMany((new,))
        for one in jobs:
            yield Complete(Ref(one.job_id, one.generation), 1, (new,))


def of_edges(graph: Graph, on_progress: Progress | None = None) -> dict[TransitionClass, Found]:
    """The classes of a universe's edges."""
    return _taken(graph, offers(graph.universe.alphabet), 1, on_progress)


def of_probes(graph: Graph, on_progress: Progress | None = None, *, every: int = 1) -> dict[TransitionClass, Found]:
    """The classes of the probes of a universe's states, or of one state in `every`."""
    return _taken(graph, probes, every, on_progress)


def _taken(
    graph: Graph, offer: Callable[[Queue], Iterable[Op]], every: int, on_progress: Progress | None
) -> dict[TransitionClass, Found]:
    config, states = graph.universe.config, graph.states
    steps: dict[TransitionClass, int] = {}
    places: dict[TransitionClass, int] = {}
    for place in range(0, len(states), every):
        if on_progress is not None and place % PROGRESS_EVERY == 0:
            on_progress(graph.universe.name, place, len(states))
        queue = states[place]
        for op in offer(queue):
            reply, after = step(config, queue, op)
            for one in classes(config, queue, op, reply, after):
                if one in steps:
                    steps[one] += 1
                else:
                    steps[one], places[one] = 1, place
    return {one: Found(number, places[one]) for one, number in steps.items()}


def reachable(
    graph_of: Callable[[str, Universe], Graph] = lambda _, universe: explore(universe).graph,
    on_progress: Progress | None = None,
) -> Reachable:
    """Every class that CI's universes reach, in order. `graph_of` may know their graphs already."""
    found: Reachable = {}
    probed: dict[TransitionClass, int] = {}
    for name, universe in universes("ci").items():
        graph = graph_of(name, universe)
        for one, edges in of_edges(graph, on_progress).items():
            found.setdefault(one, {})[name] = edges.steps
        if name in PROBED:
            for one, tried in of_probes(graph, on_progress).items():
                probed[one] = probed.get(one, 0) + tried.steps
    for one, number in probed.items():
        if one not in found:
            found[one] = {PROBES: number}
    return dict(sorted(found.items()))
