"""Tasks in a picture: along an axis, and which of many are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from analysis.figures.drawing.axes import NARROW, width_of
from analysis.figures.drawing.captions import length, points_of
from analysis.figures.drawing.marks import COLORS

MOST = 7
"""Series that eyes tell apart in one picture, and names that stand side by side along an axis."""
MOST_NARROW = 4
"""The same in a figure that is narrower than `NARROW`."""


def tasks_on(ax: Axes, masks: Mapping[str, np.ndarray], *more: str) -> None:
    """Tasks along x, with their numbers of prompts; many are written aslant, in one line each.

    Args:
        ax: to draw on.
        masks: prompts of each task.
        more: what stands behind them.
    """
    longest = max(length(line, points_of("xtick.labelsize")) for line in (*masks, "n = 100"))
    many = len(masks) > MOST or longest > 0.7 * 72 * width_of(ax) / (len(masks) + len(more))
    between = ", {}" if many else "\nn = {}"
    names = [task + between.format(int(some.sum())) for task, some in masks.items()]
    names += more if many else [name.replace(" ", "\n", 1) for name in more]
    aslant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if many else {}
    ax.set_xticks(range(len(names)), names, **aslant)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.grid(axis="x", visible=False)
    for at in range(1, len(names)):
        ax.axvline(at - 0.5, color=COLORS[7], linewidth=0.5)


def beside(tasks: int, k: int, series: int, gap: float) -> np.ndarray:
    """Where the k-th of several series stands at each task, `gap` beside the one before."""
    return np.arange(tasks) + (k - (series - 1) / 2) * gap


def mark_size(ax: Axes, tasks: int, series: int) -> float:
    """The size of marks that stand side by side without hiding each other, points.

    Args:
        ax: that they are drawn on.
        tasks: along x.
        series: of each.
    """
    room = 0.8 * 72 * width_of(ax) / max(tasks * series, 1)
    return float(np.clip(room, 2.2, mpl.rcParams["lines.markersize"]))


def few_along(
    ax: Axes, values: Mapping[str, float | None], by: str = "task"
) -> tuple[list[str], str]:
    """Which of many tasks stand along x: all, but in a narrow figure `few` of them."""
    return few(ax, values, by) if width_of(ax) < NARROW else (list(values), "")


def few(ax: Axes, values: Mapping[str, float | None], by: str = "task") -> tuple[list[str], str]:
    """Which of many series are drawn: the last, and of the others evenly from high to low.

    Args:
        ax: that they are drawn on; a narrow one has fewer.
        values: by task, all together last; None and not a number count as lowest.
        by: what they are, if not tasks.

    Returns:
        Their names in the order of `values`, and what a caption says of it: nothing where all are
        drawn.
    """
    names, most = list(values), MOST_NARROW if width_of(ax) < NARROW else MOST
    if len(names) <= most:
        return names, ""
    *each, overall = names
    by_value = sorted(each, key=lambda name: _or_lowest(values[name]), reverse=True)
    places = np.linspace(0, len(each) - 1, most - 1).round().astype(int)
    kept = {*(by_value[i] for i in places), overall}
    said = f"Drawn are {len(kept) - 1} of {len(each)} {by}s, from the highest to the lowest."
    return [name for name in names if name in kept], said


def _or_lowest(value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else value
