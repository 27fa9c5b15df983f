"""Trace files: reading, writing, and keeping what a lane found before it raises.

A file is checked against `docs/traces.schema.json` and against the model's types, whether it is read or written. Its
text is one step a line, so that a change of a trace can be read in a diff.
"""

import hashlib
import json
import os
import re
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from telha_model.replies import Released, Reply
from telha_model.trace import Differs, Origin, Trace, TraceError, recorded
from telha_model.trace_data import check_versions, from_data, to_data, write
from tests.harness.lockstep import DisagreementError
from tests.harness.mutants import MUTANTS
from tests.harness.replay import shortest
from tests.harness.subjects import SUBJECTS, plain, subjects

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

ROOT: Final = Path(__file__).parents[2]
SCHEMA: Final = ROOT / "docs" / "traces.schema.json"
FOLDER_VARIABLE: Final = "TELHA_TRACES"
"""Where traces of failures go; out/traces unless set."""
BUDGET_S: Final = 20.0
"""For minimising one run: seconds of computing, so that a busy machine does not leave traces long."""


# -- files


def load(path: Path, *, draft: bool = False) -> Trace:
    """The trace in a file; `TraceError` naming the file when there is none. `draft`: see `parse`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    try:
        return parse(text, draft=draft)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error


def parse(text: str, *, draft: bool = False) -> Trace:
    """The trace that a text holds; `TraceError` when it holds none. Of a draft times and replies may be missing."""
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise TraceError(f"this is no JSON: {error}") from error
    check_versions(data)
    if draft:
        _filled(data)
    trace = from_data(data)
    check(data)
    return trace


def _filled(data: Any) -> None:
    """Put something where a draft has no time or reply: whoever reads drafts records them anew."""
    for step in data.get("steps", ()):
        if isinstance(step, dict):
            step.setdefault("at_ms", 0)
            step.setdefault("reply", write(Reply, Released()))


def check(data: Any) -> None:
    """Hold data against the schema; `TraceError` naming the worst place."""
    from jsonschema.exceptions import best_match  # here: most processes of the harness never see a trace

    error = best_match(_validator().iter_errors(data))
    if error is not None:
        raise TraceError(f"{error.json_path}: {error.message[:200]}")


def dump(trace: Trace) -> str:
    """The text of a trace file, checked."""
    data = to_data(trace)
    check(data)
    lines = [f'  "{name}": {json.dumps(value, ensure_ascii=False)},' for name, value in data.items() if name != "steps"]
    steps = [f"    {json.dumps(step, ensure_ascii=False)}" for step in data["steps"]]
    return "\n".join(["{", *lines, '  "steps": [', ",\n".join(steps), "  ]", "}"]) + "\n"


def save(trace: Trace, path: Path) -> None:
    """Write a trace file, whole or not at all."""
    text = dump(trace)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise TraceError(f"the field {name!r} is there twice")
    return dict(pairs)


def _no_number(word: str) -> Any:
    raise TraceError(f"{word} is no whole number")


@cache
def _validator() -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))


# -- what a lane finds


class Keeper:
    """Writes the first difference of a lane's run as a trace, minimised, before the lane raises it.

    Called with each `DisagreementError` that is about to be raised: the first is minimised and written, and every one
    is told where the trace is and which commands repeat it. Hypothesis raises one difference several times.
    """

    def __init__(self, lane: str, subject: str, *, seed: int | None = None, repeat: str, title: str = "") -> None:
        self.lane = lane
        self.subject = subject
        self.seed = seed
        self.repeat = repeat
        self.title = title
        self.path: Path | None = None
        self.trace: Trace | None = None

    def __call__(self, error: DisagreementError) -> None:
        """Keep the difference if it is the first, and add where it is to the error."""
        if self.path is None:
            self.keep(error)
            print(self.told())
        error.add_note(self.told())

    def keep(self, error: DisagreementError) -> Path:
        """Minimise and write."""
        end = time.process_time() + BUDGET_S
        try:
            found = shortest(
                error.config,
                error.start_ms,
                error.ops,
                subjects(self.subject),
                goes_on=lambda: time.process_time() < end,
            )
        except ValueError:  # what cannot be seen a second time is kept as it was
            found = error
        return self.write(found)

    def write(self, found: DisagreementError) -> Path:
        """Write a difference as it is."""
        self.trace = recorded(
            found.config,
            found.start_ms,
            found.ops,
            title=self.title or f"{self.lane} found: {found.sentences[0]}"[:200],
            origin=Origin(self.lane, self.seed, commit(), active_mutant()),
            verdict=Differs(plain(self.subject), len(found.ops), tuple(found.sentences)),
        )
        self.path = store(self.trace)
        return self.path

    def told(self) -> str:
        """Where the trace is, and the commands that repeat it and the run it comes from."""
        return f"trace: {shown(self.path)}\nreplay it: {self.command()}\nrepeat the run: {self.repeat}"

    def command(self) -> str:
        """The command that replays the trace."""
        subject = f" --subject {self.subject}" if self.subject in SUBJECTS else ""
        return f"scripts/replay {shown(self.path)}{subject}{for_mutant()}"


def store(trace: Trace) -> Path:
    """Write the trace of a failure under a name of its own: lane, seed, and what it holds."""
    origin = trace.origin
    text = dump(trace)
    holds = hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]
    words = [origin.lane, *([] if origin.mutant is None else [origin.mutant])]
    words += [] if origin.seed is None else [str(origin.seed)]
    name = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    path = folder() / f"{name}-{holds}.json"
    save(trace, path)
    return path


def folder() -> Path:
    """Where traces of failures go."""
    told = os.environ.get(FOLDER_VARIABLE)
    return ROOT / "out" / "traces" if told is None else Path(told)


def shown(path: Path | None) -> str:
    """A path as a command from the root takes it."""
    if path is None:
        return "none"
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def for_mutant() -> str:
    """What a command needs to run with the mutant that this process runs with."""
    mutant = active_mutant()
    return "" if mutant is None else f' --mutant "{mutant}"'


@cache
def commit() -> str | None:
    """The commit of the working tree, with `+` when tracked files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty=+"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def active_mutant() -> str | None:
    """The name of the mutant that this process runs with."""
    told = os.environ.get("TELHA_MUTANT")
    if told is None:
        return None
    change = json.loads(told)
    wanted = (change["module"], change["old"], change["new"])
    return next((one.name for one in MUTANTS if (one.module, one.old, one.new) == wanted), "unnamed")
