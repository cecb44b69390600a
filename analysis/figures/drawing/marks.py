"""Marks of series: points with their intervals, bands, and looks of what is no policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.drawing.styles import paper
from analysis.series_styles import LINES, Look
from analysis.stats import Estimate

# Okabe and Ito (2008), ordered by lightness so that neighbours also differ in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def look(k: int) -> Look:
    """Colour, marker and line of the k-th series, which differ in grey as well."""
    return {
        "color": COLORS[k % len(COLORS)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": LINES[k % len(LINES)],
    }


def points(
    ax: Axes,
    at: Sequence[float] | np.ndarray,
    found: Sequence[Estimate],
    sideways: bool = False,
    **how: Any,
) -> None:
    """Estimates with their intervals; a hollow mark has none. Values that are not there are left.

    Args:
        ax: to draw on.
        at: where, along the other axis.
        found: as many estimates.
        sideways: whether values run along x.
        how: for `Axes.errorbar`.
    """
    kept = [(x, e) for x, e in zip(at, found, strict=True) if e.value is not None]
    x = np.array([x for x, _ in kept], float)
    y = np.array([e.value for _, e in kept], float)
    has = np.array([e.lo is not None for _, e in kept], bool)
    arms = np.array([reach(e) for _, e in kept], float).reshape(-1, 2).T
    marker, color = how.pop("marker", "o"), how.pop("color", COLORS[0])
    label, line = how.pop("label", None), how.pop("linestyle", "")
    drawn: Look = {"elinewidth": 0.9, "zorder": 3, **how}
    if line:
        ax.plot(*((y, x) if sideways else (x, y)), linestyle=line, color=color, alpha=0.75)
    for some, face in ((has, color), (~has, paper())):
        if not some.any():
            continue
        both = (y[some], x[some]) if sideways else (x[some], y[some])
        bars: Look = {"xerr" if sideways else "yerr": arms[:, some]} if face == color else {}
        ax.errorbar(*both, **bars, marker=marker, linestyle="", color=color, mfc=face, **drawn)
    if kept:  # a legend holds what is drawn
        ax.plot([], [], marker=marker, color=color, linestyle=line or "", label=label)


def band(
    ax: Axes, x: np.ndarray, found: Sequence[Estimate], label: str, k: int, every: int = 1
) -> None:
    """A line of estimates and a band of their intervals."""
    drawn = look(k)
    kept = [i for i, e in enumerate(found) if e.value is not None]
    if not kept:
        return
    y = [found[i].value or 0.0 for i in kept]
    ax.plot(x[kept], y, label=label, markevery=every, **drawn)
    has = [i for i in kept if found[i].lo is not None]
    lo, hi = np.array([(found[i].lo, found[i].hi) for i in has], float).reshape(-1, 2).T
    ax.fill_between(x[has], lo, hi, color=drawn["color"], alpha=0.18, linewidth=0)


def reach(e: Estimate) -> tuple[float, float]:
    """How far the interval reaches down and up from the value; 0 where there is none."""
    if e.value is None or e.lo is None or e.hi is None:
        return 0.0, 0.0
    return max(0.0, e.value - e.lo), max(0.0, e.hi - e.value)
