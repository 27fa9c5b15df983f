"""The matrix of transition classes and lanes: for a terminal, as a page, as data."""

from collections.abc import Iterator, Mapping
from html import escape
from math import log10
from typing import Any, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from telha_model.classes import NONE, TransitionClass
from telha_model.reachable import PROBES, Reachable
from tests.harness.classes import Hits
from tests.harness.classes_gate import Finding, Lane, groups

COLUMNS: Final = TransitionClass._fields
REQUIRED, MISSING, BY_THE_WAY = "required", "missing", "by the way"


class Cell(NamedTuple):
    """How often a lane hit a class; whether it had to, and did."""

    hits: int
    kind: str


class Matrix(NamedTuple):
    """The lanes, what they hit, what is reachable, and what is wrong."""

    lanes: tuple[Lane, ...]
    hits: Mapping[str, Hits]
    reachable: Reachable
    findings: tuple[Finding, ...]

    def counts(self, lane: str, one: TransitionClass) -> int:
        """How often a lane hit a class."""
        found = self.hits.get(lane)
        return 0 if found is None else found.counts[one]

    def kinds(self) -> dict[str, dict[TransitionClass, str]]:
        """Which classes each lane has to hit, and whether it did."""
        return {lane.name: dict(self._kinds(lane)) for lane in self.lanes}

    def _kinds(self, lane: Lane) -> Iterator[tuple[TransitionClass, str]]:
        missing: set[TransitionClass] = set()
        for pattern, at_least in lane.required:
            for members in groups(pattern, lane.pool(self.reachable)).values():
                if sum(self.counts(lane.name, one) for one in members) < at_least:
                    missing.update(members)
                yield from ((one, MISSING if one in missing else REQUIRED) for one in members)

    def rows(self) -> Iterator[tuple[TransitionClass, int, list[Cell]]]:
        """Each class: in how many edges it is, and a cell for each lane."""
        kinds = self.kinds()
        unexplored = {one for found in self.hits.values() for one in found.counts} - self.reachable.keys()
        for one in sorted([*self.reachable, *unexplored]):
            where = self.reachable.get(one, {})
            edges = sum(number for name, number in where.items() if name != PROBES)
            yield (
                one,
                edges,
                [Cell(self.counts(lane.name, one), kinds[lane.name].get(one, BY_THE_WAY)) for lane in self.lanes],
            )

    def as_data(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "lanes": {lane.name: self._lane_data(lane) for lane in self.lanes},
            "classes": [
                {
                    **one._asdict(),
                    "reached": self.reachable.get(one, {}),
                    "hits": {lane.name: cell.hits for lane, cell in zip(self.lanes, cells, strict=True)},
                }
                for one, _, cells in self.rows()
            ],
            "findings": [finding._asdict() for finding in self.findings],
        }

    def _lane_data(self, lane: Lane) -> dict[str, Any]:
        found = self.hits.get(lane.name)
        return {
            "about": lane.about,
            "steps": 0 if found is None else found.steps,
            "classes": 0 if found is None else len(+found.counts),
            "required": len(self.kinds()[lane.name]),
            "tests": list(lane.tests),
        }


def table(matrix: Matrix) -> Table:
    """The matrix for a terminal. Words that the line above has, too, are left out."""
    found = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", caption=LEGEND, caption_justify="left")
    for name in COLUMNS:
        found.add_column(name, no_wrap=True)
    for name in ("edges", *[lane.name for lane in matrix.lanes]):
        found.add_column(name, justify="right", no_wrap=True)
    above: tuple[str, ...] = ()
    for one, edges, cells in matrix.rows():
        if above and above[0] != one.op:
            found.add_section()
            found.add_row()
        found.add_row(*_words(one, above), Text(f"{edges:,}" if edges else "probed", style="dim"), *map(_shown, cells))
        above = tuple(one)
    return found


LEGEND: Final = "bold: required of the lane; red: required and missing; edges: how many the universes have; ·: not hit"
_STYLES: Final = {REQUIRED: "bold green", MISSING: "bold red", BY_THE_WAY: ""}


def _words(one: TransitionClass, above: tuple[str, ...]) -> Iterator[Text]:
    same = True
    for place, word in enumerate(one):
        same = same and above[place : place + 1] == (word,)
        yield Text("" if same else word, style="dim" if word == NONE else "")


def _shown(cell: Cell) -> Text:
    if not cell.hits and cell.kind != MISSING:
        return Text("·", style="dim")
    return Text(f"{cell.hits:,}", style=_STYLES[cell.kind])


def summary(matrix: Matrix) -> Table:
    """One line for each lane."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("lane", "steps", "classes", "required", "about"):
        found.add_column(name, justify="left" if name in ("lane", "about") else "right", no_wrap=True)
    for name, data in matrix.as_data()["lanes"].items():
        found.add_row(name, f"{data['steps']:,}", f"{data['classes']:,}", f"{data['required']:,}", data["about"])
    return found


# -- the page

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Transition classes</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th {{ position: sticky; top: 0; background: #fff; text-align: left; padding: 4px 8px; border-bottom: 2px solid #888; }}
td {{ padding: 1px 8px; white-space: nowrap; }}
td.n, th.n {{ text-align: right; }}
tr.first td {{ border-top: 1px solid #ccc; }}
.again, .none {{ color: #bbb; }}
.required {{ font-weight: 600; }}
.missing {{ font-weight: 700; color: #fff; background: #c0392b !important; }}
.findings {{ color: #c0392b; }}
</style>
<h1>Transition classes</h1>
<p><strong>{verdict}</strong></p>
{findings}
<p>A row is a class of steps, a column a lane; a cell says how often the lane took such a step on the real queue with
model and queue agreed. The deeper the blue, the more often. Bold: the lane declares that it hits the class. Red: it
declares so, and did not. <em>edges</em>: how many edges of the universes are of the class; <em>probed</em>: no universe
offers such a step, its states allow it.</p>
<table><tr>{head}</tr>
{rows}
</table></html>
"""
_DEEPEST: Final = 6.0


def page(matrix: Matrix, verdict: str) -> str:
    """The matrix as an HTML page of its own."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    head += '<th class="n">edges</th>' + "".join(f'<th class="n">{escape(lane.name)}</th>' for lane in matrix.lanes)
    findings = "".join(
        f"<li>{escape(one.kind)}: {escape(one.lane)}: {escape(one.sentence)}</li>" for one in matrix.findings
    )
    return _PAGE.format(
        verdict=escape(verdict),
        findings=f'<ul class="findings">{findings}</ul>' if findings else "",
        head=head,
        rows="\n".join(_rows(matrix)),
    )


def _rows(matrix: Matrix) -> Iterator[str]:
    above: tuple[str, ...] = ()
    for one, edges, cells in matrix.rows():
        same, words = True, []
        for place, word in enumerate(one):
            same = same and above[place : place + 1] == (word,)
            mark = ' class="again"' if same else ' class="none"' if word == NONE else ""
            words.append(f"<td{mark}>{escape(word)}</td>")
        first = ' class="first"' if above[:1] != (one.op,) else ""
        reached = f"{edges:,}" if edges else '<span class="none">probed</span>'
        yield f'<tr{first}>{"".join(words)}<td class="n">{reached}</td>{"".join(map(_cell, cells))}</tr>'
        above = tuple(one)


def _cell(cell: Cell) -> str:
    depth = min(log10(cell.hits + 1) / _DEEPEST, 1.0)
    colour = f' style="background: rgba(52, 120, 200, {depth:.2f})"' if cell.hits else ""
    words = f"{cell.hits:,}" if cell.hits or cell.kind == MISSING else '<span class="none">·</span>'
    return f'<td class="n {cell.kind.replace(" ", "-")}"{colour}>{words}</td>'
