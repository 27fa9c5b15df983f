"""Who waited for jobs over gRPC, and which jobs lay ready meanwhile, from a history of concurrent callers."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from telha_model.witness import Ready, Waited
from tests.harness.concurrent import answer
from tests.harness.lives import Life


def waits(life: Life) -> Iterator[Waited]:
    """Who waited for jobs, and for how long."""
    for said in life.calls:
        if said.call == "lease" and said.given["wait_ms"]:
            scopes, kinds = said.given["scopes"], said.given["kinds"]
            yield Waited(
                said.id,
                None if scopes is None else tuple(scopes),
                None if kinds is None else tuple(kinds),
                said.asked_at,
                life.killed_at if said.told_at is None else said.told_at,
            )


def ready(life: Life) -> Iterator[Ready]:
    """Jobs of which somebody was told that they are there, until somebody was told that he has them or ended them.

    Only what was enqueued in this life: of other jobs it is not known when they are due.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    made: dict[str, dict[str, Any]] = {}
    due: dict[str, float] = {}
    begun: list[tuple[str, float, float]] = []
    for said in life.calls:
        told, told_at = answer(said), said.told_at
        if told_at is None:
            continue
        match said.call:
            case "lease" if isinstance(told, list):
                for one in told:
                    taken[one["job"]].append(told_at)
            case "enqueue" | "complete" if isinstance(told, list):
                for asked, one in zip(said.given["jobs"], told, strict=True):
                    if one["created"]:
                        made[one["job"]] = asked
                        due[one["job"]] = told_at + asked.get("delay_ms", 0) / 1_000
                        begun.append((one["job"], said.asked_at, told_at))
            case "retry" if told is None:
                begun.append((said.given["job"], said.asked_at, told_at))
            case "cancel":
                taken[said.given["job"]].append(said.asked_at)
            case _:
                pass
    for job, asked_at, told_at in begun:
        if job in made:
            # It may be in a worker's hands before whoever made it hears of that.
            until = min((at for at in taken[job] if at >= asked_at), default=life.killed_at)
            yield Ready(job, made[job]["scope"], made[job]["kind"], max(told_at, due[job]), until)
