"""Speed against overhead of all policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    GREY,
    MARKERS,
    Drawn,
    caption,
    cells,
    figure,
    frame,
    look,
    missing,
    text,
)
from analysis.replays import FAMILIES
from analysis.shown import HINDSIGHT, against_fixed, choices, chosen, cost_name, tuned
from analysis.stats import waste
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

SHAPES = (*MARKERS, "<", ">", "p", "h", "d", "H", "8")
LEADER: dict[str, Any] = {"arrowstyle": "-", "relpos": (0, 0.5), "shrinkB": 3}
LEADER |= {"color": GREY, "linewidth": 0.5}


@figure("new")
def frontier(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of every policy against the share of its time that emits nothing.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    found, gone = tuned(study, FAMILIES | HINDSIGHT, cost)
    speeds = against_fixed(found)
    rows = []
    for k, (name, one) in enumerate(found.items()):
        x = waste.overhead_share(one.counts, one.seconds)
        row = {"policy": name, "setting": one.spec, "hindsight": name in HINDSIGHT}
        y = cells(speeds[name], "speed") if name in speeds else {"speed": 1.0}
        rows.append(row | cells(x, "overhead") | y | {"order": k})
    best = 0.0
    for row in sorted(rows, key=lambda r: (r["overhead"] or 0.0, -(r["speed"] or 0.0))):
        row["frontier"] = not row["hindsight"] and (row["speed"] or 0.0) > best
        best = row["speed"] if row["frontier"] else best
    _draw(ax, rows)
    said = missing(speeds.values())
    hindsight = [f"{name} {text(e, '.2f')}" for name, e in speeds.items() if name in HINDSIGHT]
    above = f"Above the axes, with the future known: {', '.join(hindsight)}." if hindsight else ""
    caption(
        ax,
        "Speed and overhead of all policies",
        f"{trace.n_sequences} prompts, {chosen(trace)}; {cost_name(study, cost)};"
        f" bars: 95%, up and down for all {len(speeds)} at once, those with the future"
        " known among them, paired. Line: no policy with less overhead is faster."
        f" Best fixed length: {choices(found['fixed'])}.",
        above,
        *said,
        *gone,
    )
    return Drawn("frontier", frame(rows), ax, tuple(said + gone))


def _draw(ax: Axes, rows: list[dict[str, Any]]) -> None:
    edge = sorted((r["overhead"], r["speed"]) for r in rows if r["frontier"])
    ax.plot(*zip(*edge, strict=True), color="black", linewidth=0.8, linestyle="--", zorder=1)
    for row in rows:
        if row["hindsight"]:
            continue  # far above: named in the caption
        bars: dict[str, Any] = {}
        for axis, name in (("xerr", "overhead"), ("yerr", "speed")):
            lo, hi = row.get(f"{name}_lo"), row.get(f"{name}_hi")
            if lo is not None and hi is not None:
                bars[axis] = np.maximum(0, [[row[name] - lo], [hi - row[name]]])
        color, marker = look(row["order"])["color"], SHAPES[row["order"] % len(SHAPES)]
        how: dict[str, Any] = {"fmt": marker, "color": color, "elinewidth": 0.7, "mec": "white"}
        how |= {"markersize": 6.5, "markeredgewidth": 0.4}
        ax.errorbar(row["overhead"] or 0.0, row["speed"], **bars, **how)
    _name(ax, [row for row in rows if not row["hindsight"]])
    ax.axhline(1, color="black", linewidth=0.8)
    ax.set(ylabel="speed ÷ speed of the best fixed length")
    ax.set_xlabel("overhead: decisions, heads, drafts not accepted; share of the time")


def _name(ax: Axes, rows: list[dict[str, Any]]) -> None:
    """Names in a column beside the axes, in the order of the points' heights, with leaders."""
    order = sorted(rows, key=lambda row: row["speed"])
    heights = np.linspace(0.03, 0.97, len(order)) if len(order) > 1 else [0.5]
    for row, height in zip(order, heights, strict=True):
        point = row["overhead"] or 0.0, row["speed"]
        how: dict[str, Any] = {"fontsize": 7.5, "va": "center", "arrowprops": LEADER}
        ax.annotate(row["policy"], point, (1.03, height), "data", "axes fraction", **how)
