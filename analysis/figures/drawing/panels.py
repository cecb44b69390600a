"""Figures of several panels above each other, along the same x."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter


def panels(ax: Axes, xlabel: str, ylabels: Sequence[str]) -> list[Axes]:
    """Divide an Axes into panels, from top to bottom; it keeps the title and the legend.

    Args:
        ax: its own spines and ticks are hidden.
        xlabel: of the lowest panel.
        ylabels: of each.
    """
    n, gap = len(ylabels), 0.07  # between two, as a share of the height
    height = (1 - gap * (n - 1)) / n
    found = []
    for k, ylabel in enumerate(ylabels):
        low = (n - 1 - k) * (height + gap)
        one = ax.inset_axes((0, low, 1, height), sharex=found[0] if found else None)
        one.set_ylabel(ylabel)
        one.tick_params(labelbottom=k == n - 1)
        found.append(one)
    found[-1].set_xlabel(xlabel)
    ax.set(xlabel=xlabel, xticks=[], yticks=[])  # read by what places the legend
    ax.set_axis_off()
    return found


def doubling(ax: Axes, which: str, ticks: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers at some of its values."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    ax.set(**{f"{which}scale": "log"})
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(FixedLocator([]))


def round_ticks(lo: float, hi: float, most: int = 8) -> list[float]:
    """Values 1, 2 and 5 times a power of ten from lo to hi; fewer of them if they are many."""
    if not (0 < lo <= hi):
        return []
    powers = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**p for p in powers for m in steps if lo <= m * 10.0**p <= hi]
        if len(found) <= most:
            break
    return found or [lo]


def _plain(value: float, _: int) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
