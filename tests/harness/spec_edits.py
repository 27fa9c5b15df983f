"""Variants of the specification as edits of it: the seed's version 0.1, and edits that look innocent.

An edit replaces a text that stands exactly once in its file, so a variant never silently equals what it was made from.
"""

import shutil
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.spec_versions import PACKAGE, ROOT


class Edit(NamedTuple):
    """In `file` (of the model, or of the tree that `variant` is told) the text `old` becomes `new`."""

    file: str
    old: str
    new: str


def variant(target: Path, edits: tuple[Edit, ...], *, source: Path = ROOT / "model", package: str = PACKAGE) -> Path:
    """A copy of a package under `target` with the edits made; the folder to import it from."""
    shutil.copytree(source / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        path = target / package / edit.file
        text = path.read_text("utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{edit.file}: stands {text.count(edit.old)} times, not once: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new), "utf-8")
    return target


V0_1: Final = (
    Edit("__init__.py", 'SPEC_VERSION: Final = "0.2"', 'SPEC_VERSION: Final = "0.1"'),
    # Seed §14: neither a job's own max_attempts nor a kind's own base of the back-off existed.
    Edit(
        "types.py",
        "    delay_ms: int | None = None\n    max_attempts: int | None = None\n",
        "    delay_ms: int | None = None\n",
    ),
    Edit("types.py", "    backoff_base_ms: int | None = None\n", ""),
    Edit("state.py", "    run_at_ms: int | None\n    max_attempts: int | None\n", "    run_at_ms: int | None\n"),
    Edit(
        "transitions/enqueue.py", "run_at_ms, new.max_attempts, new.idempotency_key", "run_at_ms, new.idempotency_key"
    ),
    Edit(
        "transitions/submit.py", "max_attempts(config, kind, job.spec.max_attempts)", "max_attempts(config, kind, None)"
    ),
    Edit(
        "transitions/sweep.py", "max_attempts(config, kind, job.spec.max_attempts)", "max_attempts(config, kind, None)"
    ),
    Edit(
        "rules.py",
        "    if new.max_attempts is not None and (\n"
        "        new.max_attempts < 1\n"
        "        or EVENTS_PER_ATTEMPT * max_attempts(config, new.kind, new.max_attempts) + EVENTS_PER_ATTEMPT\n"
        "        > config.events_max\n"
        "    ):\n"
        '        return "max_attempts"\n',
        "",
    ),
    Edit(
        "policy.py",
        "    if own.backoff_base_ms is None:\n"
        "        return min(cap, general.base_ms * int(factor ** (attempts - 1)))\n"
        "    return min(max(cap, own.backoff_base_ms), own.backoff_base_ms * int(factor ** (attempts - 1)))\n",
        "    return min(cap, general.base_ms * int(factor ** (attempts - 1)))\n",
    ),
    Edit("quotient.py", "spec.priority, spec.max_attempts, work)", "spec.priority, work)"),
)
"""From version 0.2 of the specification back to 0.1."""

BOUNDARY: Final = (
    Edit(
        "transitions/sweep.py", "if at_ms is not None and at_ms <= now_ms:", "if at_ms is not None and at_ms < now_ms:"
    ),
)
"""The sweep treats the deadline itself as not reached yet."""

GENERATION_RESET: Final = (
    Edit(
        "transitions/operator.py",
        "    new = waiting(\n        job,\n        PENDING,",
        "    new = waiting(\n        job._replace(generation=0),\n        PENDING,",
    ),
)
"""A retry starts the generations anew, along with the attempts."""

UNCOUNTED_EXPIRY: Final = (
    Edit(
        "transitions/sweep.py",
        "kind, attempts = job.spec.kind, job.attempts + 1",
        "kind, attempts = job.spec.kind, job.attempts",
    ),
)
"""A lease that runs out is given to the next worker without being counted."""

INNOCENT: Final = {"boundary": BOUNDARY, "generation": GENERATION_RESET, "uncounted": UNCOUNTED_EXPIRY}
