"""The pictures of docs/performance.md: docs/performance-*.svg."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from scripts._bench.measure import Figure
from scripts._bench.report import ROOT

FOLDER = ROOT / "docs"
_INK, _MARK, _LIMIT = "#1f4e79", "#7f9db9", "#b03a2e"


def _saved(canvas: Canvas, path: Path) -> Path:
    """Written so that equal figures give equal files, with text as text."""
    with mpl.rc_context({"svg.hashsalt": "telha", "svg.fonttype": "none"}):
        canvas.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return path


def bars(name: str, title: str, unit: str, figures: Sequence[Figure]) -> Path:
    """A bar for each median, a line over it for its range, and a mark at its limit."""
    canvas = Canvas(figsize=(8, 0.45 * len(figures) + 1.0))
    axes = canvas.subplots()
    places = range(len(figures), 0, -1)
    medians = [one.median for one in figures]
    axes.barh(places, medians, color=_MARK, height=0.6)
    for place, one in zip(places, figures, strict=True):
        axes.plot([min(one.wall), max(one.wall)], [place, place], color=_INK, linewidth=1.5)
        if one.limit is not None:
            axes.plot([one.limit.value] * 2, [place - 0.4, place + 0.4], color=_LIMIT, linewidth=2)
    axes.set_yticks(list(places), [one.name for one in figures], fontsize=8)
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    _plain(axes)
    return _saved(canvas, document(name))


def document(name: str) -> Path:
    """Where the picture of a case stands."""
    return FOLDER / f"performance-{name}.svg"


def run(path: Path, parts: Sequence[dict[str, Any]]) -> Path:
    """Rate, disk, memory, open time and the cost of a poll over a long run."""
    canvas = Canvas(figsize=(8, 8))
    done, total = list[float](), 0
    for part in parts:
        total += part["jobs"]
        done.append(total / 1_000)
    panels = (
        ("jobs a second", [one["jobs"] / one["seconds"] for one in parts]),
        ("disk, MB", [one["disk"] / 1e6 for one in parts]),
        ("memory of the process, MB", [one["rss"] / 1e6 for one in parts]),
        ("open after a kill, s of CPU", [one["open_cpu_s"] for one in parts]),
        ("a poll, µs", [one["poll_us"] for one in parts]),
        ("jobs in the database", [one["kept"] for one in parts]),
    )
    grid = canvas.subplots(3, 2, sharex=True)
    for (label, values), axes in zip(panels, grid.flat, strict=True):
        axes.plot(done, values, color=_INK, marker=".")
        axes.set_ylim(bottom=0, top=1.15 * max(values))
        axes.set_title(label, fontsize=9)
        _plain(axes)
    for axes in grid[-1]:
        axes.set_xlabel("thousand jobs done")
    canvas.tight_layout()
    return _saved(canvas, path)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
