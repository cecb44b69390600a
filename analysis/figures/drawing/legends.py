"""Legends: under the axes, of what is drawn, in as many columns as there is room for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figures.drawing.axes import room_for
from analysis.figures.drawing.captions import length, points_of, room_of, wrap_labels

_HANDLE = 4.2  # of the font's size: a handle, and the gaps beside it


def below(ax: Axes, columns: int = 3, handles: Sequence[Artist] | None = None) -> None:
    """The legend under the axes and what is written there, where it hides nothing.

    Args:
        ax: whose labelled artists it names, once each.
        columns: at most; fewer where labels are long or the figure is narrow.
        handles: instead of the labelled artists.
    """
    handles = _labelled(ax) if handles is None else list(handles)
    if not handles:
        return
    wrap_labels(ax)
    size = points_of("legend.fontsize")
    ncols = _columns([str(one.get_label()) for one in handles], columns, room_of(ax), size)
    rows = math.ceil(len(handles) / ncols)
    room_for(ax, 0.9 * rows, 1.8)
    words = float(mpl.rcParams["font.size"])
    away = 6 + 1.28 * words * (_lines(ax) + len(ax.get_xlabel().splitlines()))
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=away / size,
        ncols=ncols,
        columnspacing=1.4,
    )


def _labelled(ax: Axes) -> list[Artist]:
    """What has a label, once for each."""
    found: dict[str, Artist] = {}
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        found.setdefault(label, handle)
    return list(found.values())


def _columns(labels: Sequence[str], most: int, room: float, size: float) -> int:
    """As many columns as fit side by side, each as wide as its longest label."""
    wide = np.array([max(length(line, size) for line in label.split("\n")) for label in labels])
    for n in range(min(most, len(labels)), 1, -1):
        each = [float(column.max()) for column in np.array_split(wide, n)]
        if sum(each) + len(each) * _HANDLE * size <= room:
            return n
    return 1


def _lines(ax: Axes) -> float:
    """How many lines of text the labels along x are high; aslant, half a line for each letter."""
    labels = ax.get_xticklabels()
    aslant = math.sin(math.radians(labels[0].get_rotation())) if labels else 0.0
    return max(
        (1 + t.get_text().count("\n") + 0.45 * aslant * len(t.get_text()) for t in labels),
        default=1,
    )
