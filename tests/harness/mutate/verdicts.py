"""What a run of machine-made changes is held to: nine in ten killed, and every survivor listed with its reason."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.mutate.forge import Tried

LISTED: Final = Path(__file__).with_name("survivors.json")
KILLED_MIN: Final = 0.9


class Verdict(NamedTuple):
    """What was killed, what survived, and a sentence for each thing that is not as it should be."""

    killed: list[Tried]
    survived: list[Tried]
    problems: list[str]
    good: bool
    sentence: str


def listed(path: Path = LISTED) -> dict[str, str]:
    """The survivors that are known, and why nothing can, or why nothing here does, notice them."""
    data: dict[str, str] = json.loads(path.read_text("utf-8"))
    return data


def judged(
    tried: Sequence[Tried],
    known: Mapping[str, str],
    whole: Sequence[str],
    *,
    least: float = KILLED_MIN,
    every: int | None = None,
) -> Verdict:
    """The verdict. `whole`: modules of which every change was tried, so that an entry for another change is stale;
    `least`: the share that must be killed; `every`: how many changes there are, of which no more may be listed.

    A sample is not held to the share, which chance would miss: all its survivors are listed, and the list is short.
    """
    killed = [one for one in tried if one.killed]
    survived = [one for one in tried if not one.killed]
    share = len(killed) / len(tried) if tried else 0.0
    problems = [f"survived, and is not listed: {one.key}" for one in survived if one.key not in known]
    problems += [f"listed as a survivor, but killed by {one.stage}: {one.key}" for one in killed if one.key in known]
    keys = {one.key for one in tried}
    modules = tuple(f"{module}." for module in whole)
    problems += [
        f"listed as a survivor, but no such change can be made: {key}"
        for key in known
        if key.startswith(modules) and key not in keys
    ]
    problems += [f"listed without a reason: {key}" for key, reason in known.items() if not reason.strip()]
    if every is not None and every - len(known) < KILLED_MIN * every:
        problems.append(f"{len(known)} survivors are listed: {KILLED_MIN:.0%} of the {every} changes must be killed")
    good = bool(tried) and share >= least and not problems
    sentence = f"{len(killed)} of {len(tried)} changes killed ({share:.1%}), {len(survived)} survivors"
    sentence += ", each listed with its reason" if not problems else f", {len(problems)} PROBLEMS"
    if share < least:
        sentence += f", and at least {least:.0%} must be killed"
    return Verdict(killed, survived, problems, good, sentence)


def shares(verdict: Verdict, modules: Sequence[str]) -> list[tuple[str, int, int]]:
    """Of each module of which anything was tried: how many changes were, and how many of them were killed."""
    found: list[tuple[str, int, int]] = []
    for module in modules:
        killed, survived = (
            sum(one.key.startswith(f"{module}.") for one in some) for some in (verdict.killed, verdict.survived)
        )
        if killed or survived:
            found.append((module, killed + survived, killed))
    return found
