"""The Axes that a figure draws on: one that is given, or that of a figure that is made here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, LogFormatter, NullLocator

from analysis.figures.drawing.styles import HEIGHT, WIDTH, FigureError, high_for, inches, style

NARROW = 5.0  # inches, below which figures show fewer series, and names stand under the axes


class _OwnFigure(Figure):
    """One that was made here and not given, so that it may grow."""


@contextmanager
def on(
    ax: Axes | None, width: float | str | None = None, sheet: str | Path | None = None
) -> Iterator[Axes]:
    """An Axes to draw on, in our style: the one that is given, or that of a new figure.

    Raises:
        FigureError: see `inches` and `style`; or there is an Axes and a width.
    """
    if ax is not None and width is not None:
        raise FigureError("width is that of a new figure: give an Axes or a width")
    wide = inches(width)
    with style(wide, sheet):
        if ax is None:
            ax = _OwnFigure((wide, high_for(wide)), layout="constrained").subplots()
        yield ax


def width_of(ax: Axes) -> float:
    """Its figure's width, inches."""
    whole = ax.get_figure(root=True)
    return whole.get_figwidth() if whole else WIDTH


def height_of(ax: Axes) -> float:
    """Its figure's height, inches."""
    whole = ax.get_figure(root=True)
    return whole.get_figheight() if whole else HEIGHT


def width_of_fonts(ax: Axes) -> float:
    """The width that fonts were chosen for: that of a figure that was made here."""
    return width_of(ax) if isinstance(ax.get_figure(root=True), _OwnFigure) else WIDTH


def bars_high(ax: Axes, bars: int, each: float = 0.42) -> None:
    """Make a figure that was made here as high as its bars along y need, so that few are not fat.

    In a wide figure one bar takes `each` inches.
    """
    whole = ax.get_figure(root=True)
    if isinstance(whole, _OwnFigure):
        whole.set_figheight((1.7 + each * bars) * float(mpl.rcParams["font.size"]) / 9)


def room_for(ax: Axes, lines: float, fit: float = 7) -> None:
    """Make the figure higher for so many lines along y, if it is one that was made here.

    Args:
        ax: on it.
        lines: that are needed.
        fit: that there is room for.
    """
    whole = ax.get_figure(root=True)
    if isinstance(whole, _OwnFigure):
        size = float(mpl.rcParams["font.size"]) / 45  # 0.2 inches in a wide figure
        whole.set_figheight(whole.get_figheight() + size * max(0.0, lines - fit))


_FAR = 2.5
"""Values of which the largest is so many times the least are drawn on a logarithmic axis."""
_TICKS = (0.2, 0.3, 0.5, 0.7, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0)


def spread_ratios(ax: Axes) -> None:
    """Give ratios along y a logarithmic axis where one of them would flatten all others."""
    low, high = ax.dataLim.intervaly
    if not (0 < low < high / _FAR < np.inf):
        return
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if low / 1.1 < tick < high]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")


def spell_out(ax: Axes) -> None:
    """Show all words as they are: a task's name may hold a $, which would begin a formula."""
    powers = []  # these are formulas, and no names
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_formatter(), LogFormatter):
            powers += axis.get_majorticklabels()
        if isinstance(axis.get_minor_formatter(), LogFormatter):
            powers += axis.get_minorticklabels()
    for text in ax.findobj(Text):
        if isinstance(text, Text) and text not in powers:
            text.set_parse_math(False)
