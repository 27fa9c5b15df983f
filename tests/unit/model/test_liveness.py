"""Facts about the search for endless behaviour: it finds what is there, and nothing in the queue as it is."""

import gc
import json
from array import array
from collections.abc import Iterator

import pytest

from scripts._lib import explore as command
from telha_model.alphabet import offers, symbols
from telha_model.components import Edges, components
from telha_model.liveness import GIVING_BACK_ENDS, HEARTBEATS_END, Lasso, lassos, net_of
from telha_model.ops import Op, Reap
from telha_model.quotient import Classifier
from telha_model.replies import Reply
from telha_model.state import Queue, new_queue
from telha_model.states import LEASED
from telha_model.step import step
from telha_model.trials import BOTH, TRIALS, Outcome, tried, without_reaper
from telha_model.types import Config
from telha_model.universes.liveness import liveness


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """Every trial with two jobs."""
    return {outcome.trial.name: outcome for outcome in tried(TRIALS, 2)}


@pytest.fixture
def _collector_back_on() -> Iterator[None]:
    """The command switches the collector off for its own process."""
    yield
    gc.enable()


def test_every_trial_of_two_jobs_ends_as_expected(outcomes: dict[str, Outcome]) -> None:
    """Nothing in the queue as it is, heartbeats for ever without a greatest age, and a lasso in each broken model."""
    assert {name: outcome.as_expected for name, outcome in outcomes.items()} == dict.fromkeys(outcomes, True)
    assert [name for name, outcome in outcomes.items() if not outcome.found] == ["as it is", "max_lease_age"]


def test_two_jobs_have_these_states_and_edges(outcomes: dict[str, Outcome]) -> None:
    """The counts are pinned: a change of meaning changes them."""
    counts = {name: (len(outcomes[name].net.states), len(outcomes[name].net.sources)) for name in outcomes}
    assert counts["as it is"] == (232, 2024)
    assert counts["max_lease_age"] == (362, 3556)


@pytest.mark.slow
@pytest.mark.usefixtures("_collector_back_on")
def test_the_command_with_three_jobs_is_green(capsys: pytest.CaptureFixture[str]) -> None:
    """With three jobs in two scopes every job ends, but for the one lasso that is known."""
    code = command.main(["--jobs", "3", "--liveness", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (code, said["ok"]) == (0, True)
    assert {(trial["states"], trial["edges"]) for trial in said["trials"] if trial["jobs"] == 3} == {
        (10_538, 117_738),
        (22_012, 286_192),
    }
    assert said["verdict"].endswith("3 of 3 broken models caught")


def _round(outcome: Outcome, lasso: Lasso, times: int) -> Iterator[Queue]:
    """The queues on the way along a lasso's prefix and `times` round, by its own operations the first time only."""
    config, take = outcome.net.universe.config, outcome.trial.take
    queue = new_queue(outcome.net.universe.start_ms)
    offer, named = offers(outcome.net.universe.alphabet), symbols(outcome.net.universe.alphabet)
    for op in lasso.prefix:
        queue = take(config, queue, op)[1]
    way = []
    for op in lasso.loop:
        way.append(named(queue)[offer(queue).index(op)])
        yield queue
        queue = take(config, queue, op)[1]
    for _ in range(times - 1):
        for name in way:
            yield queue
            queue = take(config, queue, offer(queue)[named(queue).index(name)])[1]


@pytest.mark.parametrize("name", ["heartbeats for ever", "no reaper", "no promotion", "a rotation that skips"])
def test_a_lasso_can_be_walked_round_and_round(outcomes: dict[str, Outcome], name: str) -> None:
    """Five times round, by symbols, the job is still alive, and the state is the same at the same place each time."""
    outcome = outcomes[name]
    for lasso in outcome.found:
        classify = Classifier(outcome.net.universe.config, outcome.net.universe.quotient)
        queues = list(_round(outcome, lasso, 5))
        size = len(lasso.loop)
        classes = [classify(queue) for queue in queues]
        assert [classes[i : i + size] for i in range(0, 5 * size, size)] == [classes[:size]] * 5
        for queue in queues:
            states = [job.state.value for job in queue.jobs if job.spec.idempotency_key == lasso.job]
            assert len(states) == 1
            assert states[0] in lasso.among


def forgets_to_count(config: Config, queue: Queue, op: Op) -> tuple[Reply, Queue]:
    """A sweep that requeues expired leases for nothing."""
    reply, after = step(config, queue, op)
    if not isinstance(op, Reap) or after is queue:
        return reply, after
    was = {job.job_id: job.attempts for job in queue.jobs if job.state is LEASED}
    return reply, after._replace(
        jobs=tuple([job._replace(attempts=was.get(job.job_id, job.attempts)) for job in after.jobs])
    )


def test_a_sweep_that_forgets_to_count_is_found() -> None:
    """Where silence costs nothing, a job is leased and reaped for ever."""
    net = net_of(liveness(1, max_lease_age_ms=None), forgets_to_count)
    assert [lasso.among for lasso in lassos(net, BOTH)] == [("leased", "pending")]


def test_giving_back_for_ever_is_no_answer() -> None:
    """A job that is released each time never ends, unless workers promise not to; then heartbeats remain."""
    net = net_of(liveness(1, max_lease_age_ms=None), step)
    assert [lasso.among for lasso in lassos(net, [HEARTBEATS_END])] == [("leased", "pending")] * 2
    assert [lasso.extends for lasso in lassos(net, [GIVING_BACK_ENDS])] == [True] * 2
    assert list(lassos(net, BOTH)) == []


def test_a_surprise_is_a_finding() -> None:
    """A model expected to be whole that is not, and a broken one that shows nothing, are both told."""
    whole, known, *_, broken = TRIALS
    surprises = [
        whole._replace(take=without_reaper),
        known._replace(take=without_reaper),
        broken._replace(take=step),
    ]
    assert [outcome.as_expected for outcome in tried(surprises, 1)] == [False, False, False]


@pytest.mark.parametrize(
    "arguments", [["--jobs", "3"], ["--liveness", "--jobs", "0"], ["--liveness", "--universe", "keys"]]
)
def test_a_usage_error_is_two(arguments: list[str]) -> None:
    """Arguments that do not go together end in exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2


def test_components_of_a_graph_drawn_by_hand() -> None:
    """0 -> 1 <-> 2 -> 3 with a loop on 3, and 4 alone: two components, one when the marked edge is removed."""
    edges = Edges(array("q", [0, 1, 2, 4, 5, 5]), array("q", [1, 2, 1, 3, 3]), array("q", [1, 2, 4, 8, 16]))
    found = [(sorted(part.places), part.seen) for part in components(edges, [0, 1, 2, 3, 4], 0)]
    assert found == [([3], 16), ([1, 2], 6)]
    assert [sorted(part.places) for part in components(edges, [0, 1, 2, 3, 4], 4)] == [[3]]
    assert [sorted(part.places) for part in components(edges, [0, 1, 3], 0)] == [[3]]


@pytest.mark.parametrize("max_lease_age_ms", [None, 2])
def test_the_quotient_of_whole_sweeps_is_sound(max_lease_age_ms: int | None) -> None:
    """Every representative and every queue one step further offer the same symbols and go on to the same classes."""
    universe = liveness(2, max_lease_age_ms=max_lease_age_ms)
    net = net_of(universe, step)
    classify = Classifier(universe.config, universe.quotient)
    place_of = {classify(queue): place for place, queue in enumerate(net.states)}
    offer, named = offers(universe.alphabet), symbols(universe.alphabet)
    for queue in net.states:
        for op in offer(queue):
            after = step(universe.config, queue, op)[1]
            twin = net.states[place_of[classify(after)]]
            assert named(after) == named(twin)
            for next_op, twin_op in zip(offer(after), offer(twin), strict=True):
                there, here = step(universe.config, after, next_op)[1], step(universe.config, twin, twin_op)[1]
                assert classify(there) == classify(here)
