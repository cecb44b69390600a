"""Statistics of claims by how good the draft is: a small panel for each claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.figures.drawing.styles import GREY, inches, ink, style
from analysis.figures.verdict_map import MARKS, keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analysis.stats import Estimate

_WIDE, _HIGH, _AROUND = 1.32, 0.98, 0.75  # inches: of a panel, and around all of them
_LETTERS = {"title": 6.0, "measure": 5.5, "ticks": 5.5}  # points
_LONGEST = 22  # characters of a title in letters of full size
_ALLOWED, _FLIPS = "#0072B2", "#C8C8C8"


class PanelPoint(NamedTuple):
    """What one draft says of a claim.

    Attributes:
        acceptance: of the draft.
        said: a key of `MARKS`, or anything else, which is not drawn.
        found: the statistic that decides it.
        flips: the same on coin flips; None where they were not asked.
    """

    acceptance: float
    said: str
    found: Estimate
    flips: Estimate | None


class ClaimPanel(NamedTuple):
    """One claim.

    Attributes:
        title: its name.
        measure: what kind of number the statistic is.
        allowed: the ends between which the claim holds, see `analysis.claims.verdict.Allowed`.
        points: of the drafts.
    """

    title: str
    measure: str
    allowed: tuple[float, float]
    points: Sequence[PanelPoint]


def claim_panels(of: Sequence[ClaimPanel], width: float | str | None = None) -> Figure:
    """A panel for each claim: its statistic, where it holds, and what coin flips give.

    Args:
        of: the claims.
        width: in inches, or "column", "text" or "page".
    """
    wide = inches(width)
    across = max(1, min(len(of), int(wide / _WIDE)))
    down = max(1, math.ceil(len(of) / across))
    with style(wide):
        fig = Figure(figsize=(wide, _HIGH * down + _AROUND), layout="constrained")
        axes = fig.subplots(down, across, squeeze=False).ravel()
        for k, (ax, one) in enumerate(zip(axes, of, strict=False)):
            _panel(ax, one)
            ax.tick_params(labelbottom=k + across >= len(of))
        for ax in axes[len(of) :]:
            ax.set_axis_off()
        fig.supxlabel("acceptance of the draft", fontsize=7)
        flips = Line2D([], [], color=_FLIPS, linewidth=4, label="on coin flips")
        allowed = Patch(facecolor=_ALLOWED, alpha=0.1, label="the claim holds here")
        handles = [*keys(), flips, allowed]
        fig.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=7)
    return fig


def _panel(ax: Axes, one: ClaimPanel) -> None:
    for point in one.points:
        if point.said in MARKS:
            _point(ax, point)
    low, high = _with_an_end(*ax.get_ylim(), one.allowed)
    ends = np.clip(one.allowed, low, high)
    ax.axhspan(*ends, color=_ALLOWED, alpha=0.1, linewidth=0, zorder=0)
    for end in one.allowed:
        if low < end < high:
            ax.axhline(end, color=ink(), linewidth=0.6, zorder=1)
    ax.set(ylim=(low, high), xlim=(0, 1), xticks=(0, 0.5, 1))
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(labelsize=_LETTERS["ticks"], length=2, pad=1)
    size = _LETTERS["title"] * min(1, _LONGEST / len(one.title))
    title = {"fontsize": size, "fontweight": "normal"}
    ax.set_title(one.title, title, pad=9, loc="left").set_in_layout(False)
    measure = {"fontsize": _LETTERS["measure"], "color": GREY, "va": "bottom"}
    first, more, _ = one.measure.partition(", ")
    words = ax.text(0, 1.02, first + (", …" if more else ""), transform=ax.transAxes, **measure)
    words.set_in_layout(False)


def _with_an_end(low: float, high: float, allowed: tuple[float, float]) -> tuple[float, float]:
    """An axis' ends, so far apart that what is allowed can be seen."""
    room = 0.15 * (high - low)
    if allowed[0] >= high:
        return low, allowed[0] + room
    return (allowed[1] - room, high) if allowed[1] <= low else (low, high)


def _point(ax: Axes, point: PanelPoint) -> None:
    x, y = point.acceptance, point.found.value
    if (flips := point.flips) is not None and flips.lo is not None and flips.hi is not None:
        ax.plot([x, x], [flips.lo, flips.hi], color=_FLIPS, linewidth=4, solid_capstyle="butt")
    mark, color, fill = MARKS[point.said]
    if point.found.lo is not None and point.found.hi is not None:
        ax.plot([x, x], [point.found.lo, point.found.hi], color=color, linewidth=0.8)
    if y is not None:
        ax.plot(x, y, mark, color=color, fillstyle=fill, markersize=3.5, zorder=3)
