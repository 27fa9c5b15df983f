"""A queue of at most one job in the terms of model/tla/Telha.tla, so that two state graphs can be laid on each other.

`view` gives a state the values of that module's variables, `action` gives a symbol the name it has in Protocol.tla.
Both sides keep one state for everything the quotient of the universe "protocol" keeps apart, so states, and labelled
edges, must map one to one; `labelled` refuses a view that merges two states.
"""

from typing import Final

from telha_model.alphabet import symbols
from telha_model.explore import Graph
from telha_model.state import Job, Queue, Submit
from telha_model.states import State
from telha_model.types import Config

NEVER: Final = 1_000
PAST: Final = -1
GENERATION_MAX: Final = 2

_WHAT: Final[dict[tuple[str, tuple[object, ...]], str]] = {
    ("complete", (1, ())): "complete",
    ("complete", (2, ())): "complete otherwise",
    ("fail", ("x", True)): "fail",
    ("fail", ("y", True)): "fail otherwise",
    ("fail", ("x", False)): "fail for good",
}

View = tuple[tuple[str, object], ...]
"""Pairs of variable and value, by name; a record is such pairs again."""

Edge = tuple[View, str, View]


def pairs(values: dict[str, object]) -> View:
    """Values by name as a view."""
    return tuple(sorted(values.items()))


NOTHING: Final = pairs({"what": "none", "generation": 0, "reply": "none"})
ABSENT: Final = pairs({
    "state": "absent", "attempts": 0, "generation": 0, "due": NEVER, "deadline": NEVER, "room": NEVER,
    "lastEnd": "none", "record": NOTHING, "ends": 0, "landed": False,
})  # fmt: skip


def constants(config: Config) -> dict[str, int]:
    """The settings under the names of the module's constants."""
    return {
        "Ttl": config.lease_ttl_ms,
        "MaxAttempts": config.max_attempts,
        "BackoffBase": config.backoff.base_ms,
        "BackoffFactor": config.backoff.factor,
        "BackoffCap": config.backoff.cap_ms,
        "MaxAge": config.max_lease_age_ms or 0,
    }


def view(queue: Queue) -> View:
    """The state of a queue with one job or none; the history variables are off."""
    if not queue.jobs:
        return ABSENT
    (job,) = queue.jobs
    return pairs({
        "state": job.state.value,
        "attempts": job.attempts,
        "generation": min(job.generation, GENERATION_MAX),
        "due": _ahead(queue, job.due_ms),
        "deadline": _ahead(queue, job.deadline_ms),
        "room": NEVER,
        "lastEnd": job.lease_end or "none",
        "record": NOTHING if job.submit is None else _record(job, job.submit),
        "ends": 0,
        "landed": False,
    })  # fmt: skip


def _ahead(queue: Queue, at_ms: int | None) -> int:
    return NEVER if at_ms is None else max(at_ms - queue.now_ms, PAST)


def _record(job: Job, submit: Submit) -> View:
    verb, own, arguments = submit.digest
    generation = min(own, GENERATION_MAX) if own == job.generation else 1
    reply = submit.reply.value if isinstance(submit.reply, State) else "completed"
    return pairs({"what": _WHAT[verb, arguments], "generation": generation, "reply": reply})


def action(symbol: str) -> str:
    """The name of an operation in Protocol.tla: "fail for good, job 1, older" is FailForGood_Older."""
    name, *role = symbol.split(", ")
    words = name.replace("-1", "minus1").replace("_", " ").split()
    match role:
        case []:
            suffix = "Call"
        case ["gone"]:
            suffix = "Gone"
        case ["job 1"]:
            suffix = "Job"
        case ["job 1", token]:
            suffix = token.capitalize()
        case _:
            raise ValueError(f"no name in Protocol.tla for {symbol!r}")
    return "".join(word.capitalize() for word in words) + "_" + suffix


def labelled(graph: Graph) -> set[Edge]:
    """The edges of an explored universe of one job, states as views, symbols as actions."""
    views = [view(queue) for queue in graph.states]
    if len(set(views)) != len(views):
        raise ValueError("two states of the explorer look the same in TLA+")
    named = symbols(graph.universe.alphabet)
    return {
        (views[place], action(symbol), views[target])
        for place, queue in enumerate(graph.states)
        for symbol, target in zip(named(queue), graph.targets[place], strict=True)
    }
