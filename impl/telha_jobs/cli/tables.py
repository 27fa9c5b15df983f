"""Tables and timelines for people: a listing, one job with its log, counts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from rich.table import Table
from rich.text import Text

from telha_jobs.cli import output
from telha_jobs.cli.access import Look
from telha_jobs.cli.output import safe
from telha_jobs.cli.times import absolute, brief, relative
from telha_jobs.json_form import to_json
from telha_jobs.types import Event, Job, State

LISTING_ROWS = 1_000
_VALUE_LINES_MAX = 40
_VALUE_CHARS_MAX = 4_000
_REASON_CHARS_MAX = 500
_WIDE_COLUMNS = 100
_SHORT_SCOPE = 8
_SHORT_ID_MIN = 13
_ID_CHARS = 36
_KIND_MIN = 12
_GAP = 2
_DETAIL_ORDER = ("dead_reason", "attempt", "attempts", "worker", "generation", "count", "state", "due")
_STYLES = {
    State.PENDING: "",
    State.LEASED: "cyan",
    State.FAILED: "yellow",
    State.COMPLETED: "green",
    State.DEAD: "red",
}
_TRANSITION_STYLES = {"leased": "cyan", "failed": "yellow", "reaped": "yellow", "completed": "green", "dead": "red"}


class _Column(NamedTuple):
    title: str
    cells: list[str]
    right: bool = False

    @property
    def width(self) -> int:
        return max(len(self.title), *(len(cell) for cell in self.cells))


class _Form(NamedTuple):
    """One way to fit a listing into a terminal."""

    ids: bool
    scopes: bool
    columns: tuple[str, ...]


_FORMS = (
    _Form(ids=True, scopes=True, columns=("ID", "STATE", "KIND", "SCOPE", "PRI", "ATT", "TIME")),
    _Form(ids=True, scopes=False, columns=("ID", "STATE", "KIND", "SCOPE", "PRI", "ATT", "TIME")),
    _Form(ids=False, scopes=False, columns=("ID", "STATE", "KIND", "SCOPE", "PRI", "ATT", "TIME")),
    _Form(ids=False, scopes=False, columns=("ID", "STATE", "KIND", "SCOPE", "ATT", "TIME")),
    _Form(ids=False, scopes=False, columns=("ID", "STATE", "KIND", "ATT", "TIME")),
    _Form(ids=False, scopes=False, columns=("ID", "STATE", "TIME")),
)
"""From the whole story to the least; `ids` and `scopes` say whether these are shown in full."""


class Listing:
    """A listing that is printed a chunk at a time: the header once, in the form that fitted the first chunk."""

    def __init__(self, view: Look) -> None:
        self._view = view
        self._forms = list(_FORMS)
        self._widths: dict[str, int] = {}

    def print(self, jobs: Sequence[Job]) -> None:
        """Print some jobs, in the first form that fits the terminal; kinds may be cut for that, to a point."""
        columns = self._columns(jobs, self._forms[0])
        while len(self._forms) > 1 and not self._widths and _total(columns, kind_max=_KIND_MIN) > output.width():
            self._forms.pop(0)
            columns = self._columns(jobs, self._forms[0])
        self._print(columns, [job.state for job in jobs])

    def _columns(self, jobs: Sequence[Job], form: _Form) -> list[_Column]:
        now = self._view.now_ms()
        length = _ID_CHARS if form.ids else self._short_id(jobs)
        columns = (
            _Column("ID", [str(job.job_id)[:length] for job in jobs]),
            _Column("STATE", [_state(job) for job in jobs]),
            _Column("KIND", [safe(job.kind) for job in jobs]),
            _Column("SCOPE", [_scope(job.scope, short=not form.scopes) for job in jobs]),
            _Column("PRI", [str(job.priority) for job in jobs], right=True),
            _Column("ATT", [str(job.attempts) for job in jobs], right=True),
            _Column("TIME", [_time(job, now) for job in jobs]),
        )
        return [column for column in columns if column.title in form.columns]

    def _short_id(self, jobs: Sequence[Job]) -> int:
        """How many characters tell every job of the chunk from every other in the database."""
        length = _SHORT_ID_MIN
        for job in jobs:
            while len(self._view.ids_with_prefix(str(job.job_id)[:length], 2)) > 1:
                length += 1
        return length

    def _print(self, columns: Sequence[_Column], states: Sequence[State]) -> None:
        # Not a rich table: that takes 0.8 ms for a row, and a listing may have a million.
        text = Text(no_wrap=True, overflow="ignore")
        first = not self._widths
        for column in columns:
            self._widths[column.title] = max(column.width, self._widths.get(column.title, 0))
        if "KIND" in self._widths:
            # Kinds alone can be long, so they give way.
            spare = output.width() - sum(width + _GAP for width in self._widths.values()) + _GAP
            self._widths["KIND"] = max(len("KIND"), self._widths["KIND"] + min(0, spare))
        if first:
            titles = (self._padded(column, column.title) for column in columns)
            text.append((" " * _GAP).join(titles) + "\n", "bold")
        for number, state in enumerate(states):
            for column in columns:
                gap = "" if column.title == "TIME" else " " * _GAP
                style = _STYLES[state] if column.title == "STATE" else ""
                text.append(self._padded(column, column.cells[number]) + gap, style or None)
            text.append("\n")
        text.right_crop()
        output.show(text)

    def _padded(self, column: _Column, cell: str) -> str:
        width = self._widths[column.title]
        cut = cell if len(cell) <= width else f"{cell[: width - 1]}…"
        return cut.rjust(width) if column.right else cut.ljust(width)


def print_counts(counts: Mapping[State, int]) -> None:
    """The five states and their sum."""
    table = _table(header=False)
    table.add_column()
    table.add_column(justify="right")
    for state, number in counts.items():
        table.add_row(Text(state.value, _STYLES[state]), f"{number:,}")
    table.add_row(Text("total"), f"{sum(counts.values()):,}")
    output.show(table)


def print_job(job: Job, now_ms: int) -> None:
    """One job: its fields, then its log."""
    fields = _table(header=False)
    fields.add_column(style="dim", no_wrap=True)
    fields.add_column(overflow="fold")
    for name, text in _fields(job, now_ms):
        fields.add_row(name, text)
    log = _table(header=True)
    wide = output.width() >= _WIDE_COLUMNS
    for title in ("AT (UTC)", "AGE", *(("AFTER",) if wide else ()), "EVENT"):
        log.add_column(title, no_wrap=True)
    log.add_column("DETAIL", overflow="fold")
    previous = None
    for event in job.events:
        after = "" if previous is None else f"+{brief(max(event.at_ms - previous, 0))}"
        name = safe(event.transition)
        log.add_row(
            absolute(event.at_ms, precise=wide),
            relative(event.at_ms, now_ms),
            *((after,) if wide else ()),
            Text(name, _TRANSITION_STYLES.get(name, "")),
            Text(_detail(event)),
        )
        previous = event.at_ms
    output.show(Text(str(job.job_id), "bold"), fields, Text(), log)


def _fields(job: Job, now_ms: int) -> Iterable[tuple[str, Text]]:
    yield "state", Text(_state(job), _STYLES[job.state])
    yield "kind", Text(safe(job.kind))
    yield "scope", Text(str(job.scope))
    yield "priority", Text(str(job.priority))
    yield "attempts", Text(str(job.attempts) if job.max_attempts is None else f"{job.attempts} of {job.max_attempts}")
    yield "generation", Text(str(job.generation))
    times = (
        ("created", job.created_at_ms),
        ("run at", job.run_at_ms),
        ("due", job.due_ms),
        ("deadline", job.deadline_ms),
        ("ended", job.ended_at_ms),
    )
    for name, at_ms in times:
        if at_ms is not None:
            yield name, Text(f"{absolute(at_ms)}  ({relative(at_ms, now_ms)})")
    for name, text in (("worker", job.worker), ("key", job.idempotency_key)):
        if text is not None:
            yield name, Text(safe(text))
    if job.headers:
        yield "headers", Text("\n".join(f"{safe(name)}={safe(text)}" for name, text in job.headers.items()))
    version = "" if job.payload_version == 1 else f" v{job.payload_version}"
    yield f"payload{version}", Text(_value(job.payload))
    for name, value in (("result", job.result), ("progress", job.progress)):
        if value is not None:
            yield name, Text(_value(value))


def _value(value: Any) -> str:
    """A carried value as JSON over some lines, cut where it gets long."""
    text = json.dumps(to_json(value), ensure_ascii=False)
    if len(text) > output.width() // 2:
        text = json.dumps(to_json(value), ensure_ascii=False, indent=2)
    cut = text[:_VALUE_CHARS_MAX].split("\n")[:_VALUE_LINES_MAX]
    shown = "\n".join(safe(one) for one in cut)
    return shown if len("\n".join(cut)) == len(text) else f"{shown}\n… (cut: --json shows all)"


def _detail(event: Event) -> str:
    """What an event says: its reason first, the facts behind it."""
    detail = dict(event.detail)
    reason = detail.pop("reason", None)
    if reason is not None and reason == detail.get("dead_reason"):
        del detail["dead_reason"]
    facts = ", ".join(_part(name, value, event.at_ms) for name, value in sorted(detail.items(), key=_detail_order))
    if reason is None:
        return facts
    text = safe(str(reason))
    if len(text) > _REASON_CHARS_MAX:
        text = f"{text[:_REASON_CHARS_MAX]}… cut: --json shows all"
    return f"{text} ({facts})" if facts else text


def _detail_order(item: tuple[str, Any]) -> int:
    return _DETAIL_ORDER.index(item[0]) if item[0] in _DETAIL_ORDER else len(_DETAIL_ORDER)


def _part(name: str, value: Any, at_ms: int) -> str:
    match name:
        case "dead_reason":
            return safe(str(value))
        case "worker":
            return f"by {safe(str(value))}"
        case "due" if isinstance(value, int):
            return f"due {brief(value - at_ms)} later" if value > at_ms else "due at once"
        case "count":
            return f"{value} events left out"
        case "state":
            return f"ending {safe(str(value))}"
        case _:
            return f"{safe(name)} {safe(str(value))}"


def _total(columns: Iterable[_Column], *, kind_max: int | None = None) -> int:
    """The width of a line, with kinds cut to `kind_max`."""
    widths = (
        column.width if kind_max is None or column.title != "KIND" else min(column.width, kind_max)
        for column in columns
    )
    return sum(width + _GAP for width in widths) - _GAP


def _state(job: Job) -> str:
    return job.state.value if job.dead_reason is None else f"{job.state.value} ({safe(job.dead_reason)})"


def _scope(scope: UUID, *, short: bool) -> str:
    if scope.int == 0:
        return "nil"
    return f"{str(scope)[:_SHORT_SCOPE]}…" if short else str(scope)


def _time(job: Job, now_ms: int) -> str:
    """What the job waits for, or when it ended."""
    match job.state:
        case State.PENDING | State.FAILED:
            return f"due {relative(job.due_ms or 0, now_ms)}"
        case State.LEASED:
            left = (job.deadline_ms or 0) > now_ms
            return f"{'expires' if left else 'expired'} {relative(job.deadline_ms or 0, now_ms)}"
        case State.COMPLETED | State.DEAD:
            return f"ended {relative(job.ended_at_ms or 0, now_ms)}"


def _table(*, header: bool) -> Table:
    return Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
