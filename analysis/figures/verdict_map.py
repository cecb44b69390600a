"""Verdicts by how good the draft is: a row for each claim, a column for each draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.drawing.styles import GREY, inches, style

if TYPE_CHECKING:
    from matplotlib.typing import FillStyleType

_ROW, _AROUND = 0.165, 0.95  # inches: of a claim, and above and below all of them
_SLANTED = 0.35  # inches: what slanted names need more
_PER_INCH = 10  # characters that level names may have together, an inch of the figure's width
MARKS: dict[str, tuple[str, str, FillStyleType]] = {
    "holds": ("o", "#0072B2", "full"),
    "holds, also on coin flips": ("o", "#0072B2", "none"),
    "does not hold": ("x", "#D55E00", "full"),
    "not distinguishable": (".", "#BBBBBB", "full"),
}


def verdict_map(
    rows: Mapping[str, Sequence[str]], columns: Sequence[str], width: float | str | None = None
) -> Figure:
    """A mark for each verdict.

    Args:
        rows: by claim, what each draft says: "holds", "holds, also on coin flips", "does not hold",
            "not distinguishable", or anything else, which has no mark.
        columns: names of the drafts, the least accepted one first.
        width: in inches, or "column", "text" or "page".
    """
    wide = inches(width)
    longest = max((len(line) for name in columns for line in name.split("\n")), default=0)
    slanted = longest * len(columns) > _PER_INCH * wide
    high = _ROW * max(len(rows), 1) + _AROUND + slanted * _SLANTED
    with style(wide):
        fig = Figure(figsize=(wide, high), layout="constrained")
        ax = fig.add_subplot()
        for y, row in enumerate(rows.values()):
            for x, said in enumerate(row):
                if said in MARKS:
                    mark, color, fill = MARKS[said]
                    ax.plot(x, y, mark, color=color, fillstyle=fill, ms=4.5)
        ax.set_yticks(range(len(rows)), list(rows))
        names = [name.replace("\n", ", ") for name in columns] if slanted else list(columns)
        aside = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if slanted else {}
        ax.set_xticks(range(len(columns)), names, **aside)
        ax.set_xlim(-0.5, len(columns) - 0.5)
        ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        ax.set_xlabel("acceptance of the draft")
        ax.xaxis.set_ticks_position("top")
        ax.xaxis.set_label_position("top")
        ax.tick_params(length=0, colors=GREY, labelcolor="black")
        ax.spines[["left", "bottom"]].set_visible(False)
        fig.legend(handles=keys(), loc="outside lower center", ncols=2)
    return fig


def keys() -> list[Line2D]:
    """The marks, for a legend."""
    return [
        Line2D([], [], marker=mark, color=color, fillstyle=fill, ls="", ms=4.5, label=name)
        for name, (mark, color, fill) in MARKS.items()
    ]
