"""Speed against overhead of all policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import NARROW, height_of, width_of
from analysis.figures.drawing.legends import below
from analysis.figures.drawing.styles import GREY, ink, paper, small
from analysis.figures.rows import cells, text
from analysis.labelled_replays import HINDSIGHT, against_fixed, choices, chosen, held_for
from analysis.replays import FAMILIES
from analysis.series_styles import Look, SeriesStyle
from analysis.stats import waste
from simkit.simulator.arguments import AnyCost

LONGEST = 24  # characters of a name beside the axes
LEADER: Look = {"arrowstyle": "-", "shrinkA": 0, "shrinkB": 3}
LEADER |= {"color": GREY, "linewidth": 0.5}


@figure("new", compares=True)
def frontier(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speed of every policy, by the share of its time that emits no token."""
    found = plot.tuned(FAMILIES | HINDSIGHT, cost)
    speeds = against_fixed(found)
    rows: list[dict[str, Any]] = []
    for k, (name, one) in enumerate(found.items()):
        x = waste.overhead_share(one.counts, one.seconds)
        row = {"policy": name, "setting": one.spec, "hindsight": one.policy.needs_future}
        y = cells(speeds[name], "speed") if name in speeds else {"speed": 1.0}
        rows.append(row | cells(x, "overhead") | y | {"order": k})
    best = 0.0
    for row in sorted(rows, key=lambda r: (r["overhead"] or 0.0, -(r["speed"] or 0.0))):
        row["frontier"] = not row["hindsight"] and (row["speed"] or 0.0) > best
        best = row["speed"] if row["frontier"] else best
    _draw(plot.ax, rows, {row["policy"]: plot.look(row["policy"], row["setting"]) for row in rows})
    plot.rows += rows
    plot.missing(speeds.values())
    hindsight = [
        f"{name} {text(e, '.2f')}" for name, e in speeds.items() if found[name].policy.needs_future
    ]
    plot.caption(
        "Speed and overhead of all policies",
        f"{plot.prompts}; {chosen(plot.trace)}; line: policies that none with less overhead"
        f" beats; bars: 95% CI, paired; {held_for(speeds)}.",
        f"Not drawn, because they know the future: {', '.join(hindsight)}." if hindsight else "",
        f"{plot.cost_name(cost)}. Best fixed length: {choices(found['fixed'])}.",
    )


def _draw(ax: Axes, rows: list[dict[str, Any]], looks: dict[str, SeriesStyle]) -> None:
    edge = sorted((r["overhead"], r["speed"]) for r in rows if r["frontier"])
    ax.plot(*zip(*edge, strict=True), color=ink(), linewidth=0.8, linestyle="--", zorder=1)
    for row in rows:
        if row["hindsight"]:
            continue  # far above: named in the caption
        bars: Look = {}
        for axis, name in (("xerr", "overhead"), ("yerr", "speed")):
            lo, hi = row.get(f"{name}_lo"), row.get(f"{name}_hi")
            if lo is not None and hi is not None:
                bars[axis] = np.maximum(0, [[row[name] - lo], [hi - row[name]]])
        how: Look = {"fmt": "", "elinewidth": 0.7, "mec": paper(), **looks[row["policy"]].dots}
        how |= {"markersize": 6.5 if width_of(ax) >= NARROW else 4.5, "markeredgewidth": 0.4}
        ax.errorbar(row["overhead"] or 0.0, row["speed"], **bars, **how)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.margins(0.08)
    ax.set(ylabel="speed ÷ speed of the best fixed length")
    ax.set_xlabel("overhead: decisions, heads, drafts not accepted; share of the time")
    shown = [row for row in rows if not row["hindsight"]]
    if width_of(ax) < NARROW:
        ax.locator_params(axis="x", nbins=4)
        _legend(ax, shown, looks)
    else:
        _name(ax, shown, looks)


def _legend(ax: Axes, rows: list[dict[str, Any]], looks: dict[str, SeriesStyle]) -> None:
    """Names under the axes, from the fastest on."""
    for row in sorted(rows, key=lambda row: -row["speed"]):
        ax.plot([], [], label=row["policy"], **looks[row["policy"]].dots)
    below(ax)


def _name(ax: Axes, rows: list[dict[str, Any]], looks: dict[str, SeriesStyle]) -> None:
    """Names in a column beside the axes, each about as high as its point, with its mark."""
    high = 0.65 * 72 * height_of(ax)
    low, top = ax.get_ylim()
    ax.set_ylim(low, top)
    order = sorted(rows, key=lambda row: row["speed"])
    at = np.array([(row["speed"] - low) / (top - low) for row in order])
    line: Look = {"transform": ax.transAxes, "clip_on": False, "markersize": 5.0}
    for row, height in zip(order, spread(at, 1.35 * small() / high), strict=True):
        point = row["overhead"] or 0.0, row["speed"]
        ax.annotate("", point, (1.035, height), "data", "axes fraction", arrowprops=LEADER)
        ax.plot(1.05, height, **looks[row["policy"]].dots, **line)
        ax.text(
            1.075,
            height,
            _cut(row["policy"]),
            fontsize=small(),
            va="center",
            transform=line["transform"],
        )


def _cut(name: str) -> str:
    """A name that fits beside the axes; the frame has it whole."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def spread(at: np.ndarray, gap: float) -> np.ndarray:
    """Ascending heights that are at least `gap` apart, within 0 and 1, each near its own.

    Args:
        at: (N,) ascending.
        gap: made smaller where so many do not fit.
    """
    if len(at) < 2:
        return np.clip(at, 0, 1)
    gap = min(gap, 1 / (len(at) - 1))
    steps = gap * np.arange(len(at))
    groups: list[list[float]] = []  # neighbours that push each other: their mean, and how many
    for one in at - steps:
        groups.append([float(one), 1])
        while len(groups) > 1 and groups[-2][0] >= groups[-1][0]:
            (mine, n), (other, m) = groups.pop(), groups.pop()
            groups.append([(mine * n + other * m) / (n + m), n + m])
    base = np.concatenate([np.full(int(n), mean) for mean, n in groups])
    return np.clip(base, 0, 1 - steps[-1]) + steps
