"""What `scripts/soak` runs: the long form of every check, a command each.

A new lane is one entry: its command, and its weight in the budget. In the command `{seed}` is drawn afresh for each
round and recorded; `{minutes}` is what the lane may take, for commands that go on until told to end. A lane that
`repeats` runs round after round until its share is over, and needs one whole round; another is done when its command
is.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A command and its weight in the budget."""

    name: str
    command: tuple[str, ...]
    weight: int
    repeats: bool = False


def _lane(name: str, command: str, weight: int, *, repeats: bool = False) -> Lane:
    return Lane(name=name, command=tuple(command.split()), weight=weight, repeats=repeats)


LANES: Final = (
    _lane("contention", "scripts/contention --jobs 100000 --pollers 16 --seed {seed}", 3),
    _lane("mutants", "scripts/mutants", 6),
    _lane("longruns", "scripts/replay --selftest", 6),
    _lane("liveness", "scripts/explore --jobs 3 --liveness", 2),
    _lane("explore", "scripts/explore --size large", 8),
    _lane("upgrade", "scripts/spec-diff HEAD --upgrade --states all", 4),
    _lane("mutate", "scripts/mutate --sample 100 --seed {seed}", 8),
    _lane("chaos", "scripts/chaos --minutes {minutes} --seed {seed}", 10),
    _lane("grpc", "scripts/replay --lane tours --universe all --subject grpc-renewed", 8),
    _lane("fairness", "scripts/fairness", 2),
    _lane("bench", "scripts/bench --only long --long 5000000", 12),
    _lane("lines", "scripts/coverage-lines --all", 6),
    _lane(
        "machine",
        "scripts/test tests/stateful/test_machine.py --hypothesis-profile=soak --hypothesis-seed={seed}",
        10,
        repeats=True,
    ),
    _lane("remote", "scripts/replay --lane hypothesis --seed {seed} --subject grpc", 4, repeats=True),
)
