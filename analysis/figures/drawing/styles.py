"""How pictures look as a whole: sizes, fonts, style sheets, and the formats of their files."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style as sheets
import numpy as np

from traces import reading
from traces.errors import UserError, first_line

WIDTH, HEIGHT = 6.4, 4.2  # inches
WIDTHS = {"column": 3.3, "text": 5.5, "page": 6.75}
"""Inches: a column of two, a page of one column, a page across two columns."""
NARROWEST, WIDEST = 2.5, 20.0
FORMATS = ("png", "svg", "pdf")
DEFAULT_FORMATS, DPI = ("png", "svg"), 110
LEAST_DPI, MOST_DPI = 30, 1200
GREY = "#666666"
_METADATA: dict[str, dict[str, None]] = {  # no dates: the same picture is the same bytes
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
_STYLE: dict[Any, Any] = {
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "errorbar.capsize": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "simkit",
    "pdf.fonttype": 42,
}


class FigureError(UserError):
    """A figure that this trace cannot give, or a look that there is not."""


@contextmanager
def style(width: float = WIDTH, sheet: str | Path | None = None) -> Iterator[None]:
    """The look of the figures; what was set before comes back.

    Args:
        width: of the figure, inches; fonts are smaller in narrow ones.
        sheet: a style of matplotlib's by name, or a file of its settings, on top of ours.

    Raises:
        FigureError: there is no such style, or it cannot be read.

    >>> from matplotlib import rcParams
    >>> with analysis.figures.style(width=3.3):
    ...     rcParams["font.size"]
    7.0
    """
    size = float(np.interp(width, (WIDTHS["column"], WIDTH), (7.0, 9.0)))
    sizes: dict[Any, Any] = {
        "font.size": size,
        "axes.titlesize": size * 10 / 9,
        "legend.fontsize": size * 8 / 9,
        "lines.markersize": size / 2,
    }
    with mpl.rc_context(_STYLE | sizes | settings_of(sheet)):
        yield


def settings_of(sheet: str | Path | None) -> dict[Any, Any]:
    """The settings of a style sheet.

    Args:
        sheet: a style of matplotlib's by name, or a file; None has no settings.

    Raises:
        FigureError: there is no such style, or it cannot be read.
    """
    if sheet is None:
        return {}
    if str(sheet) in sheets.library:
        return _ours(sheets.library[str(sheet)])
    if not Path(sheet).is_file():
        reading.refuse_url(sheet, FigureError)
        raise FigureError(f"style {str(sheet)!r} is neither a style of matplotlib nor a file")
    said = BufferingHandler(sys.maxsize)  # instead of lines among a command's own
    log = logging.getLogger("matplotlib")
    log.addHandler(said)
    kept, log.propagate = log.propagate, False
    try:
        found = mpl.rc_params_from_file(str(sheet), fail_on_error=True, use_default_template=False)
    except Exception as error:  # whatever a setting's own check raises
        raise FigureError(f"style {sheet}: {first_line(error)}") from None
    finally:
        log.removeHandler(said)
        log.propagate = kept
    lines = "\n".join(record.getMessage() for record in said.buffer).splitlines()
    reasons = [line for line in lines if line.strip()]
    if reasons or not found:
        reason = reasons[0] if reasons else "it holds no setting of matplotlib"
        raise FigureError(f"style {sheet}: {reason}")
    return _ours(found)


def _ours(settings: Any) -> dict[Any, Any]:
    """Without what is no look, as the window that pictures open in."""
    others = (
        "backend",
        "interactive",
        "toolbar",
        "timezone",
        "savefig.directory",
        "figure.figsize",
    )
    names = [name for name in settings if not str(name).startswith(others)]
    return {name: settings[name] for name in names}


def inches(width: float | str | None) -> float:
    """A figure's width.

    Args:
        width: inches, or one of `WIDTHS`; None is `WIDTH`.

    Raises:
        FigureError: it is neither, or too narrow or too wide.
    """
    if width is None:
        return WIDTH
    named = ", ".join(f"{name} ({size:g})" for name, size in WIDTHS.items())
    try:
        found = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        raise FigureError(f"width {width!r} is neither inches nor one of {named}") from None
    if not NARROWEST <= found <= WIDEST:
        raise FigureError(f"width {width}: give {NARROWEST:g} to {WIDEST:g} inches, or {named}")
    return found


def high_for(width: float) -> float:
    """The height of a figure of a width, inches: narrow ones are higher in proportion."""
    return HEIGHT * (width / WIDTH) ** 0.4 if width < WIDTH else HEIGHT


def check_dpi(dpi: float) -> float:
    """Dots per inch that pictures of dots can have.

    Raises:
        FigureError: they are too few or too many.
    """
    if not (math.isfinite(dpi) and LEAST_DPI <= dpi <= MOST_DPI):
        raise FigureError(f"dpi {dpi:g}: give {LEAST_DPI} to {MOST_DPI}")
    return dpi


def metadata_of(form: str) -> dict[str, None]:
    """What a picture's file says of itself.

    Raises:
        FigureError: there is no such format.
    """
    if form not in _METADATA:
        raise FigureError(f"format {form!r} is none of {', '.join(FORMATS)}")
    return _METADATA[form]


def small() -> float:
    """The size of the smallest words in a picture, points."""
    return max(6.0, 0.8 * float(mpl.rcParams["font.size"]))


def ink() -> str:
    """The colour of lines and words that are no series: black, unless a style has another."""
    return mpl.rcParams["text.color"]


def paper() -> str:
    """The colour behind them."""
    return mpl.rcParams["axes.facecolor"]
