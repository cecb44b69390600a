"""A quick look at a result: points or lines with their intervals.

Figures for papers, with captions and their numbers, are those of `analysis.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkit.errors import UserError
from traces.registry import suggest

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

_WIDTH = 75  # letters of a note's line
_MOST = 40
"""Rows that are drawn; of more, those with the largest values."""


class Picture(NamedTuple):
    """How a result is drawn.

    Attributes:
        what: the column that is drawn by default.
        of: columns that name a row, those that the result has.
        along: the column along x, which makes a line of each name; None: names stand along y.
    """

    what: str
    of: tuple[str, ...]
    along: str | None = None


def draw(
    frame: pl.DataFrame,
    picture: Picture,
    what: str | None,
    ax: Axes | None,
    notes: Sequence[str] = (),
) -> Axes:
    """Draw a column of a result, with its interval if it has one.

    Args:
        frame: of the result.
        picture: of its kind.
        what: the column; None: the picture's.
        ax: to draw on; None: a new figure's.
        notes: what a reader of the numbers should know, drawn above them.

    Raises:
        UserError: there is no such column, or it holds no numbers.
    """
    from matplotlib import pyplot

    what = what or picture.what
    if what not in frame.columns or not frame[what].dtype.is_numeric():
        numbers = [name for name in frame.columns if frame[name].dtype.is_numeric()]
        raise UserError(f"no column {what!r} of numbers ({suggest(what, numbers)})")
    whole = frame.filter(frame[what].is_not_null())
    rows = whole
    if picture.along is None and len(whole) > _MOST:
        rows = whole.top_k(_MOST, by=what)
    names = _names(rows, picture.of)
    values, arms = rows[what].to_numpy(), _arms(rows, what)
    ax = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    cut = [f"{len(rows)} of {len(whole)}, the largest"] if len(rows) < len(whole) else []
    said = [line for note in [*cut, *notes] for line in wrap(note, _WIDTH)]
    ax.set_title("\n".join(said), loc="left", fontsize="x-small")
    if picture.along is None:
        at = np.arange(len(rows))[::-1]
        ax.errorbar(values, at, xerr=arms, fmt="o", capsize=2)
        ax.set_yticks(at, names)
        ax.set_xlabel(what)
        return ax
    along = rows[picture.along].to_numpy()
    for name in dict.fromkeys(names):
        mine = np.array([one == name for one in names])
        some = None if arms is None else arms[:, mine]
        ax.errorbar(along[mine], values[mine], yerr=some, marker="o", capsize=2, label=name)
    ax.set(xlabel=" or ".join(rows["load"].unique(maintain_order=True)), ylabel=what)
    ax.legend()
    return ax


def _names(rows: pl.DataFrame, of: Sequence[str]) -> list[str]:
    """What each row is of, in words."""
    there = [name for name in of if name in rows.columns]
    parts = zip(*(rows[name].to_list() for name in there), strict=True)
    return [", ".join(str(part) for part in some if part is not None) for some in parts]


def _arms(rows: pl.DataFrame, what: str) -> Any:
    """Distances to the ends of the intervals (2, n), 0 where there is none; None without any."""
    ends = [f"{what}_lo", f"{what}_hi"]
    if not set(ends) <= set(rows.columns):
        return None
    value = rows[what].to_numpy()
    low, high = (rows[end].fill_null(np.nan).to_numpy() for end in ends)
    return np.nan_to_num(np.array([value - low, high - value])).clip(0)
