"""Facts about the universes: their sizes, that the promises hold in them, and that tours take every edge."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from telha_model.alphabet import offers, symbols
from telha_model.describe import semantics
from telha_model.explore import Report, explore
from telha_model.ops import Discard, Op
from telha_model.policy import config_problem
from telha_model.promises.evidence import changes
from telha_model.quotient import Classifier
from telha_model.replies import (
    Completed,
    CompletedMany,
    Enqueued,
    Extended,
    Leased,
    NotFound,
    Reaped,
    Reply,
    StaleLease,
    WrongState,
)
from telha_model.situations import SOMETIMES
from telha_model.state import Queue, new_queue
from telha_model.states import TABLE, State, Transition
from telha_model.step import RULES, step
from telha_model.tours import tour, walks
from telha_model.universes import universes

pytestmark = pytest.mark.xdist_group("universes")  # each is explored once for all of these

UNIVERSES = universes()
ROOT = Path(__file__).parents[3]

# States and edges of each universe. A change of meaning changes a number: say in the commit which rule moved it.
PINNED = {
    "protocol": (388, 20837),
    "death": (2021, 37955),
    "keys": (327, 8414),
    "fairness": (1632, 51031),
    "order": (1687, 36311),
    "sweep": (1178, 22997),
    "reopen": (3002, 40235),
    "bulk": (768, 17445),
    "agenda": (765, 5066),
}


@cache
def explored(name: str) -> Report:
    """One exploration per universe for all tests."""
    return explore(UNIVERSES[name])


@pytest.mark.parametrize("name", PINNED)
def test_the_promises_hold_and_every_situation_is_reached(name: str) -> None:
    """No predicate is broken in any state or on any edge, and no declared situation is missed."""
    report = explored(name)
    assert (report.violations, report.missed) == ((), ())


@pytest.mark.parametrize("name", PINNED)
def test_the_counts_are_pinned(name: str) -> None:
    """A universe has exactly these states and edges."""
    graph = explored(name).graph
    assert (len(graph.states), graph.edges()) == PINNED[name]


def test_every_universe_is_pinned_and_small() -> None:
    """CI's universes together stay under 400,000 edges."""
    assert set(UNIVERSES) == set(PINNED)
    assert sum(edges for _, edges in PINNED.values()) < 400_000


def test_every_situation_is_declared_somewhere() -> None:
    """No situation waits for a universe that never asks for it."""
    declared = {name for universe in UNIVERSES.values() for name in universe.sometimes}
    assert declared == set(SOMETIMES)


def test_every_universe_has_settings_that_pass() -> None:
    """Settings the queue would refuse explore nothing real."""
    of_all = [*UNIVERSES.values(), *universes("large").values()]
    assert [config_problem(universe.config) for universe in of_all] == [None] * len(of_all)


def test_every_operation_is_taken() -> None:
    """Each type of operation is offered by some universe."""
    offered = {
        type(op)
        for name, universe in UNIVERSES.items()
        for queue in explored(name).graph.states[:200]
        for op in offers(universe.alphabet)(queue)
    }
    assert offered == set(RULES)


def _steps(name: str) -> Iterator[tuple[Queue, Op, Reply, Queue]]:
    universe = UNIVERSES[name]
    offer = offers(universe.alphabet)
    for queue in explored(name).graph.states:
        for op in offer(queue):
            yield (queue, op, *step(universe.config, queue, op))


def _moves(before: Queue, op: Op, after: Queue, events_max: int) -> Iterator[tuple[State | None, Transition]]:
    for was, now in changes(before, after):
        if now is None and was is not None:
            yield was.state, Transition.DISCARDED if isinstance(op, Discard) else Transition.PURGED
            continue
        if now is None or (was is not None and len(now.events) == events_max):
            continue  # a log at its cap shows no longer what was appended; the promises replay it
        state = None if was is None else was.state
        for event in now.events[0 if was is None else len(was.events) :]:
            yield state, event.transition
            state = next(edge.target for edge in TABLE if (edge.source, edge.transition) == (state, event.transition))


def test_the_universes_take_exactly_the_edges_of_the_table() -> None:
    """Every line of the transition table is taken somewhere, and nothing else ever is."""
    taken = {
        move
        for name, universe in UNIVERSES.items()
        for before, op, _, after in _steps(name)
        if after is not before
        for move in _moves(before, op, after, universe.config.events_max)
    }
    assert taken == {(edge.source, edge.transition) for edge in TABLE}


def test_a_step_leaves_its_input_alone() -> None:
    """The state before a step hashes the same after it, whatever the operation."""
    universe = UNIVERSES["bulk"]
    offer = offers(universe.alphabet)
    for queue in explored("bulk").graph.states[::5]:
        before = hash(queue)
        for op in offer(queue):
            step(universe.config, queue, op)
        assert hash(queue) == before


def test_a_step_is_a_function() -> None:
    """The same step from an equal state gives an equal reply and an equal state."""
    for (_, _, reply, after), (_, _, again, after_again) in zip(_steps("keys"), _steps("keys"), strict=True):
        assert (type(reply), reply, after) == (type(again), again, after_again)


def told(reply: Reply) -> object:
    """What of a reply does not depend on numbers of jobs, generations and times."""
    match reply:
        case StaleLease():
            return (StaleLease, reply.state, reply.why)
        case WrongState():
            return (WrongState, reply.state, reply.needed)
        case NotFound():
            return NotFound
        case Enqueued(receipts) | Completed(receipts):
            return (type(reply), [(receipt.created, receipt.state) for receipt in receipts])
        case Leased(grants):
            return (Leased, [(grant.scope, grant.kind, grant.attempt) for grant in grants])
        case Extended(outcomes) | CompletedMany(outcomes):
            return (type(reply), [(item.status, None if item.error is None else told(item.error)) for item in outcomes])
        case _:
            return type(reply)


def _at_random(seed: int) -> Iterator[int]:
    """A fixed sequence of numbers (a linear congruence); enough to wander, and the same for ever."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


@pytest.mark.parametrize("name", PINNED)
def test_the_quotient_is_sound_on_a_sample(name: str) -> None:
    """Wherever a wandering queue meets the class of an explored one, both offer, answer and go on alike."""
    universe, graph = UNIVERSES[name], explored(name).graph
    classify = Classifier(universe.config, universe.quotient)
    place_of = {classify(queue): place for place, queue in enumerate(graph.states)}
    offer, named = offers(universe.alphabet), symbols(universe.alphabet)
    chance = _at_random(len(name))
    queue, compared = new_queue(universe.start_ms), 0
    for _ in range(400):
        twin = graph.states[place_of[classify(queue)]]
        assert named(queue) == named(twin)
        following = []
        for op, twin_op in zip(offer(queue), offer(twin), strict=True):
            reply, after = step(universe.config, queue, op)
            twin_reply, twin_after = step(universe.config, twin, twin_op)
            assert (told(reply), classify(after)) == (told(twin_reply), classify(twin_after))
            compared += 1
            if after is not queue:
                following.append(after)
        queue = following[next(chance) % len(following)]
    assert compared > 2_000


@pytest.mark.parametrize("name", ["protocol", "keys", "bulk"])
def test_a_tour_takes_every_edge_and_leads_where_the_graph_says(name: str) -> None:
    """The walks of a universe cover all its edges, each step leading to the class the graph promises.

    Of the others tests/stateful/test_tours.py sees the same, where the queue comes along.
    """
    universe, graph = UNIVERSES[name], explored(name).graph
    classify = Classifier(universe.config, universe.quotient)
    classes = [classify(queue) for queue in graph.states]
    taken: set[tuple[int, int]] = set()
    for walk, choices in zip(walks(graph), tour(universe, graph), strict=True):
        queue = new_queue(universe.start_ms)
        for index, (place, choice) in enumerate(zip(walk.places, choices, strict=False)):
            taken.add((place, choice.place))
            before = queue
            _, queue = step(universe.config, queue, choice.resolve(queue))
            assert queue is before or classify(queue) == classes[walk.places[index + 1]]
    assert taken == {(place, step) for place, row in enumerate(graph.targets) for step in range(len(row))}


def test_tours_are_short() -> None:
    """All tours together take fewer than two steps per edge."""
    steps = sum(len(walk.steps) for name in PINNED for walk in walks(explored(name).graph))
    assert steps < 2 * sum(edges for _, edges in PINNED.values())


def test_an_edge_keeps_the_same_symbol_in_a_class() -> None:
    """Symbols name roles, so they hold no job number, and there is one per operation."""
    universe = UNIVERSES["protocol"]
    for queue in explored("protocol").graph.states:
        names = symbols(universe.alphabet)(queue)
        assert len(names) == len(set(names)) == len(offers(universe.alphabet)(queue))


def test_the_sweep_offers_no_other_work_than_it_says() -> None:
    """What a sweep reports is what changed: nothing without a count, nothing counted twice."""
    for before, _, reply, after in _steps("sweep"):
        if isinstance(reply, Reaped):
            assert reply.requeued + reply.died + reply.promoted + reply.purged == len(changes(before, after))


def test_the_model_needs_only_the_standard_library() -> None:
    """An interpreter without site-packages imports and runs it."""
    program = "import sys; sys.path.insert(0, 'model'); import telha_model, telha_model.tours; print('ok')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], cwd=ROOT, env=dict(os.environ), capture_output=True, check=False
    )
    assert (done.stdout, done.returncode) == (b"ok\n", 0)


def test_the_generated_document_is_up_to_date() -> None:
    """docs/semantics.md is what the tables say (scripts/generate writes it)."""
    assert (ROOT / "docs/semantics.md").read_text("utf-8") == semantics()
