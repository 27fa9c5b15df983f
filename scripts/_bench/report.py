"""What a run says: a table for people, JSON for programs, and docs/performance.md.

The document is written by hand but for the parts between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; a run fills
those it measured and leaves the others as they are.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts._bench.guard import Numbers
from scripts._bench.measure import Figure

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"


def number(value: float) -> str:
    """Three digits that count, or all before the point."""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def limit(figure: Figure) -> str:
    """The limit in words; empty when there is none."""
    sign = {"at most": "≤", "at least": "≥"}
    return "" if figure.limit is None else f"{sign[figure.limit.side]} {number(figure.limit.value)}"


def row(figure: Figure, *, by_cpu: bool) -> tuple[str, ...]:
    """Name, median, range, CPU median, unit, limit, whether it holds."""
    cpu = figure.cpu_median
    held = figure.holds(by_cpu=by_cpu)
    return (
        figure.name,
        number(figure.median),
        f"{number(min(figure.wall))} - {number(max(figure.wall))}" if len(figure.wall) > 1 else "",
        "" if cpu is None else number(cpu),
        figure.unit,
        limit(figure),
        {None: "", True: "holds", False: "MISSED"}[held],
    )


HEADER = ("", "median", "range", "by CPU", "unit", "limit", "")


def table(figures: Sequence[Figure], abouts: Mapping[str, str], *, by_cpu: bool) -> Iterator[str]:
    """Lines for a terminal."""
    for case in dict.fromkeys(figure.case for figure in figures):
        yield ""
        yield f"{case}: {abouts[case]}"
        lines = [HEADER, *(row(figure, by_cpu=by_cpu) for figure in figures if figure.case == case)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
            yield "  ".join(["", line[0].ljust(widths[0]), *cells[1:]]).rstrip()
    yield ""


def verdict(figures: Sequence[Figure], *, by_cpu: bool) -> tuple[int, str]:
    """Exit code and the last line."""
    held = {f"{one.case}: {one.name}": one.holds(by_cpu=by_cpu) for one in figures if one.limit is not None}
    missed = [name for name, holds in held.items() if not holds]
    if not missed:
        return 0, f"bench: all {len(held)} limits hold"
    return 1, f"bench: {len(missed)} of {len(held)} limits are missed: " + "; ".join(missed)


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "rocksdict": version("rocksdict"),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 1),
    }


# -- docs/performance.md


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column to the left, the others to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines)


def counts_section(found: Numbers) -> str:
    """What an operation asks the storage for, each divided by how often it was done."""
    columns = ("gets", "seeks", "keys", "graves", "batches", "puts", "deletes", "batch_bytes", "syncs")
    header = ("operation", "gets", "seeks", "keys read", "graves", "batches", "puts", "deletes", "bytes", "syncs")
    rows = [
        (name, *(number(counts.get(column, 0) / counts["times"]) for column in columns))
        for name, counts in found.items()
    ]
    return markdown_table(header, rows)


def figures_section(figures: Sequence[Figure], *, by_cpu: bool) -> str:
    """The figures of one case."""
    header = ("", "median", "range", "by CPU", "unit", "limit", " ")
    return markdown_table(header, (row(figure, by_cpu=by_cpu) for figure in figures))


def machine_section(facts: Mapping[str, Any], command: str) -> str:
    """One sentence."""
    return (
        f"Measured on {facts['at']} at commit {facts['commit']}, {facts['system']}, {facts['cpus']} processors, "
        f"Python {facts['python']}, rocksdict {facts['rocksdict']}, load {facts['load']} before the run: `{command}`."
    )


def filled(document: str, sections: Mapping[str, str]) -> str:
    """The document with these sections replaced; `ValueError` when it has no place for one."""
    for name, text in sections.items():
        begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        parts = re.split(f"{re.escape(begin)}.*?{re.escape(end)}", document, flags=re.DOTALL)
        if len(parts) != 2:
            raise ValueError(f"docs/performance.md has no section {begin} ... {end}, or two: put one where it belongs")
        document = f"{parts[0]}{begin}\n{text}\n{end}{parts[1]}"
    return document


def refresh(sections: Mapping[str, str]) -> None:
    """Write these sections into docs/performance.md."""
    DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8"), sections), "utf-8")
