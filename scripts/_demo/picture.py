"""The picture: states of all jobs over time, from their event logs, with the kills in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scripts._demo.history import Samples, sampled
from scripts._demo.lives import Kill
from telha_jobs import Job, State

_INK: Final = "#26323d"
_FAINT: Final = "#8a97a3"
_KILL: Final = "#c8102e"
_EMBEDDED: Final = "#2a9d8f"
_INGESTED: Final = "#1d6f66"
_COLOURS: Final = {
    State.PENDING: "#cbd8e1",
    State.LEASED: "#f4a261",
    State.FAILED: "#9d4edd",
    State.DEAD: "#3d405b",
}
_MOMENTS: Final = 400
_RATE_BINS: Final = 60


def draw(jobs: Sequence[Job], kills: Sequence[Kill], met: Sequence[int], path: Path) -> None:
    """Write the picture to `path` (PNG or SVG, by its suffix). `met`: how many leases each kill met.

    Raises `ValueError` for logs that no job can have.
    """
    times = [event.at_ms for job in jobs for event in job.events]
    first, last = min(times), max(times)
    step = max(1, (last - first) // _MOMENTS)
    span = range(first, last + 2 * step, step)
    ingests = sampled((job for job in jobs if job.kind != "embed"), span)
    embeds = sampled((job for job in jobs if job.kind == "embed"), span)

    figure = Figure(figsize=(11, 8), dpi=120, facecolor="white", layout="constrained")
    states, hands, rate = figure.subplots(3, 1, sharex=True, height_ratios=(5, 2, 2))
    _draw_states(states, ingests, embeds)
    _draw_hands(hands, ingests, embeds, [(at - first) / 1_000 for at in _deaths(jobs)])
    _draw_rate(rate, ingests, embeds)
    for axes in (states, hands, rate):
        _dress(axes)
        for kill in kills:
            at, back = (kill.at_ms - first) / 1_000, (kill.reopened_ms - first) / 1_000
            axes.axvspan(at, back, color=_KILL, alpha=0.12, linewidth=0)
            axes.axvline(at, color=_KILL, linewidth=1.2, linestyle=(0, (4, 2)))
    for number, (kill, leases) in enumerate(zip(kills, met, strict=True), 1):
        states.annotate(
            f"kill {number}\n{leases} leases in hand",
            xy=((kill.at_ms - first) / 1_000, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-6, -8),
            textcoords="offset points",
            ha="right",
            va="top",
            color=_KILL,
            fontsize=9,
        )
    if kills:
        hands.annotate(
            "with the leases of the dead,\nuntil they expire",
            xy=((kills[0].reopened_ms - first) / 1_000, 0.95),
            xycoords=("data", "axes fraction"),
            xytext=(6, 0),
            textcoords="offset points",
            va="top",
            color=_INK,
            fontsize=9,
        )
    rate.set_xlabel("seconds since the first document was enqueued", color=_INK)
    rate.set_xlim(0, (last - first) / 1_000)
    title = f"{len(jobs):,} jobs through a queue whose process was killed {len(kills)} times"
    figure.suptitle(title, color=_INK, fontsize=14, fontweight="bold", x=0.01, ha="left")
    figure.savefig(path)


def _together(state: State, *samples: Samples) -> list[int]:
    return [sum(counts) for counts in zip(*(one.counts[state] for one in samples), strict=True)]


def _deaths(jobs: Sequence[Job]) -> Iterator[int]:
    return (event.at_ms for job in jobs for event in job.events if event.transition == "dead")


def _draw_states(axes: Axes, ingests: Samples, embeds: Samples) -> None:
    layers = [
        ("embeddings completed", _EMBEDDED, embeds.counts[State.COMPLETED]),
        ("documents completed", _INGESTED, ingests.counts[State.COMPLETED]),
        *((state.value, colour, _together(state, ingests, embeds)) for state, colour in reversed(_COLOURS.items())),
    ]
    top = max(map(sum, zip(*(counts for _, _, counts in layers), strict=True)))
    axes.stackplot(
        ingests.seconds,
        [counts for _, _, counts in layers],
        # A layer too thin to see has its own curve below, and an underscore keeps it out of the legend here.
        labels=[label if max(counts) * 100 > top else f"_{label}" for label, _, counts in layers],
        colors=[colour for _, colour, _ in layers],
        linewidth=0,
    )
    axes.set_ylabel("jobs in each state", color=_INK)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _explain(axes)


def _draw_hands(axes: Axes, ingests: Samples, embeds: Samples, deaths: Sequence[float]) -> None:
    for state, label in ((State.LEASED, "leased"), (State.FAILED, "failed, waiting out a back-off")):
        counts = _together(state, ingests, embeds)
        axes.fill_between(ingests.seconds, counts, step="post", color=_COLOURS[state], alpha=0.25, linewidth=0)
        axes.step(ingests.seconds, counts, where="post", color=_COLOURS[state], linewidth=1.2, label=label)
    axes.plot(
        deaths,
        [0] * len(deaths),
        linestyle="none",
        marker="X",
        markersize=8,
        color=_COLOURS[State.DEAD],
        label="given up: dead",
        clip_on=False,
        zorder=5,
    )
    axes.set_ylabel("in hand", color=_INK)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _explain(axes)


def _draw_rate(axes: Axes, ingests: Samples, embeds: Samples) -> None:
    ended = [
        sum(pair) for pair in zip(*(_together(s, ingests, embeds) for s in (State.COMPLETED, State.DEAD)), strict=True)
    ]
    stride = max(1, len(ended) // _RATE_BINS)
    places = range(0, len(ended) - stride, stride)
    width = ingests.seconds[stride] - ingests.seconds[0]
    axes.bar(
        [ingests.seconds[place] for place in places],
        [(ended[place + stride] - ended[place]) / width for place in places],
        width=width * 0.9,
        align="edge",
        color=_EMBEDDED,
        linewidth=0,
    )
    axes.set_ylabel("jobs done per second", color=_INK)


def _explain(axes: Axes) -> None:
    """The legend in one row above, where no kill can cross it."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=6, frameon=False, fontsize=9, labelcolor=_INK, borderpad=0
    )


def _dress(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.tick_params(colors=_FAINT, labelcolor=_INK, labelsize=9)
    axes.grid(axis="y", color=_FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
