"""What all figures share: the object they return, their registry, the style, marks and captions.

A figure is a function `(trace, ax=None, …) -> Drawn`; one that replays calls its first argument
`study`, is given one, and takes `first_token` too. It asks `analysis.stats` and `simkit` for
numbers, puts every one that it draws into a frame, and draws. `@figure` adds what is the same for
all: the trace may be a name or a folder, columns that it needs are looked for first, and an Axes is
made where none is given.
"""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

from analysis.drafters import warned
from analysis.figures.captions import caption, left_out, put_first, wrap_labels
from analysis.figures.marks import COLORS, MARKERS, band, look, points, reach
from analysis.figures.styles import (
    DEFAULT_FORMATS,
    DPI,
    GREY,
    WIDTH,
    FigureError,
    check_dpi,
    height_of,
    inches,
    ink,
    metadata_of,
    paper,
    small,
    style,
)
from analysis.series_styles import HATCHES, LINES
from analysis.stats import Estimate
from analysis.study import Study, study_of
from analysis.trees import tree_study
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.surface import Framed
from traces.errors import UserError
from traces.outputs import write_together
from traces.registry import Registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLORS",
    "FIGURES",
    "GREY",
    "HATCHES",
    "LINES",
    "MARKERS",
    "Drawn",
    "FigureEntry",
    "FigureError",
    "band",
    "bars_high",
    "caption",
    "cells",
    "columns",
    "figure",
    "finished",
    "frame",
    "ink",
    "look",
    "missing",
    "on",
    "paper",
    "points",
    "reach",
    "room_for",
    "small",
    "style",
    "text",
]


@dataclass(frozen=True, eq=False, repr=False)
class Drawn(Framed):
    """A figure.

    Attributes:
        name: of the function that drew it.
        frame: every number that is drawn, intervals and counts included.
        ax: the Axes.
        notes: what the picture does not say: missing intervals, left-out rows, and what the
            caption had no room for.
        sheet: the style that it was drawn with, see `style`.
        costs: under which some of it was drawn, beside the one that was asked for.
    """

    name: str
    frame: pl.DataFrame
    ax: Axes
    notes: tuple[str, ...] = ()
    sheet: str | Path | None = None
    costs: tuple[AnyCost, ...] = ()

    @property
    def figure(self) -> Figure:
        """The matplotlib figure that holds the Axes."""
        found = self.ax.get_figure(root=True)
        assert isinstance(found, Figure)
        return found

    def picture(self, form: str = "png", dpi: float = DPI) -> bytes:
        """The contents of a picture's file.

        Args:
            form: png, svg or pdf; words stay words in the last two.
            dpi: dots an inch, of png.

        Raises:
            FigureError: there is no such format, or the dots are too few or too many.
        """
        out, how = io.BytesIO(), {"metadata": metadata_of(form), "dpi": check_dpi(dpi)}
        with style(_width_of(self.ax), self.sheet):
            self.figure.savefig(out, format=form, **how)
        return out.getvalue()

    def save(
        self, folder: str | Path, formats: Sequence[str] = DEFAULT_FORMATS, dpi: float = DPI
    ) -> list[Path]:
        """Write NAME.png and so on, and the frame as NAME.parquet; gives their paths.

        The frame's metadata have the notes, as JSON under the key "simkit".

        Args:
            folder: that they are written into.
            formats: see `picture`; none writes the frame alone.
            dpi: see `picture`.

        Raises:
            FigureError: see `picture`.
            TraceError: a file cannot be written; what was there is as it was.
        """
        made = {form: self.picture(form, dpi) for form in dict.fromkeys(formats)}
        made["parquet"] = self._table()
        contents = {Path(folder) / f"{self.name}.{end}": made[end] for end in made}
        write_together(contents)
        return list(contents)

    def _table(self) -> bytes:
        facts = {"figure": self.name, "title": self.ax.get_title(loc="left"), "notes": self.notes}
        said = {"simkit": json.dumps(facts, ensure_ascii=False)}
        sink = pa.BufferOutputStream()
        pq.write_table(self.frame.to_arrow().replace_schema_metadata(said), sink)
        return sink.getvalue().to_pybytes()

    def __repr__(self) -> str:
        return f"<Drawn {self.name}: {len(self.frame)} rows>"

    def _repr_png_(self) -> bytes:
        return self.picture("png", 100)


class FigureEntry(NamedTuple):
    """A figure in the registry.

    Attributes:
        name: of its function.
        draw: the function.
        source: what it reproduces, or "new".
        what: its docstring's first line.
        draft_model: whether it needs one of its own, see `Study.need_draft_model`.
        drafters: whether it compares drafters, attached to a recording or trained for it.
        trees: whether it shows draft trees.
    """

    name: str
    draw: Callable[..., Drawn]
    source: str
    what: str
    draft_model: bool = False
    drafters: bool = False
    trees: bool = False

    def under(self, trace: AnyTrace | Study, cost: AnyCost | None, **look: Any) -> Drawn:
        """Draw it under a cost, if it takes one.

        Args:
            trace: or a study, where figures share replays and the first token's choice.
            cost: see `simkit.replay`.
            look: `width` and `style`, see `figure`.

        Raises:
            UserError: this trace cannot give it; the message says why.
        """
        takes = cost is not None and "cost" in inspect.signature(self.draw).parameters
        try:
            return self.draw(trace, **({"cost": cost} if takes else {}), **look)
        except UserError as error:
            raise type(error)(str(error).removeprefix(f"{self.name}: ")) from None


FIGURES: Registry[FigureEntry] = Registry("figure", FigureError, "simkit.figures", lambda *_: False)
"""Figures by the names of their functions, which the decorator `figure` registers."""


def figure(
    source: str,
    *needs: str,
    draft_model: bool = False,
    drafters: bool = False,
    trees: bool = False,
) -> Callable[[Callable[..., Drawn]], Callable[..., Drawn]]:
    """Make a function a figure (decorator).

    The figure then also takes `width` (inches or "column", "text", "page"; of a figure that is made
    here) and `style` (see there).

    Args:
        source: paper and number, or "new".
        needs: columns of `positions` without which there is nothing to draw.
        draft_model: whether it means a draft model of its own, see `Study.need_draft_model`; of
            another program's data it is then refused with that reason.
        drafters: whether it compares drafters; a recording that has one alone is refused.
        trees: whether it shows draft trees, those of a drafter that was attached to a recording
            among them, see `analysis.trees.tree_study`; what has none is refused.
    """

    def made(draw: Callable[..., Drawn]) -> Callable[..., Drawn]:
        takes = inspect.signature(draw).parameters
        replays = next(iter(takes)) == "study"

        @wraps(draw)
        def drawn(
            trace: AnyTrace | Study,
            ax: Axes | None = None,
            *,
            width: float | str | None = None,
            style: str | Path | None = None,
            **options: Any,
        ) -> Drawn:
            first = options.pop("first_token", "draft") if replays else "draft"
            study = study_of(trace, first)
            trace = study.trace
            if draft_model:
                study.need_draft_model()
            missing = [name for name in needs if not trace.has("positions", name)]
            if missing and not (kind := trace.manifest.drafter).can("path"):
                raise FigureError(f"{name}: {kind.lacks['path']}")
            if missing:
                raise FigureError(f"{name}: the trace has no column {', '.join(missing)}")
            if trace.n_positions == 0:
                raise FigureError(f"{name}: the trace is empty")
            study = tree_study(study) if trees else study
            study.make_room(replays=True)
            with on(ax, width, style) as ax:
                found = draw(study if replays else study.trace, ax, **options)
                own = takes["cost"].default if "cost" in takes else None
                asked = [options.get("cost") or own] if "cost" in takes else []
                return finished(found, style, warned(study, [*asked, *found.costs], drafters))

        name = draw.__name__
        what = (draw.__doc__ or "").split("\n")[0].rstrip(".")
        entry = FigureEntry(name, drawn, source, what, draft_model, drafters, trees)
        FIGURES.add(name, entry, draw)
        return drawn

    return made


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
            ax = _OwnFigure((wide, height_of(wide)), layout="constrained").subplots()
        yield ax


def finished(found: Drawn, sheet: str | Path | None = None, warnings: Sequence[str] = ()) -> Drawn:
    """A figure as it leaves: warnings of its times begin its caption, and its notes."""
    put_first(found.ax, warnings)
    wrap_labels(found.ax)
    _spell_out(found.ax)
    notes = tuple(dict.fromkeys((*warnings, *left_out(found.ax), *found.notes)))
    return replace(found, notes=notes, sheet=sheet)


def _width_of(ax: Axes) -> float:
    """The width that fonts were chosen for: that of a figure that was made here."""
    whole = ax.get_figure(root=True)
    return whole.get_figwidth() if isinstance(whole, _OwnFigure) else WIDTH


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


def _spell_out(ax: Axes) -> None:
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


def columns(found: Iterable[Estimate], name: str = "value") -> dict[str, list[Any]]:
    """Estimates as columns of a frame: NAME, NAME_lo, NAME_hi, NAME_n (prompts)."""
    found = list(found)
    return {
        name: [e.value for e in found],
        f"{name}_lo": [e.lo for e in found],
        f"{name}_hi": [e.hi for e in found],
        f"{name}_n": [e.n_prompts for e in found],
    }


def cells(found: Estimate, name: str = "value") -> dict[str, Any]:
    """One estimate as entries of a row; see `columns`."""
    return {key: values[0] for key, values in columns([found], name).items()}


def frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a frame; what a row lacks is null."""
    return pl.DataFrame(list(rows), infer_schema_length=None)


def missing(found: Iterable[Estimate], of: Iterable[object] | None = None) -> list[str]:
    """What to say of estimates without an interval, or with a weak one, each reason once.

    Args:
        found: the estimates.
        of: what each is of; then the reason names them.
    """
    reasons: dict[str, list[str]] = {}
    found = list(found)
    for name, e in zip(of or [""] * len(found), found, strict=True):
        if e.note:
            reasons.setdefault(e.note, []).append(str(name))
    said = []
    for note, names in reasons.items():
        names = list(dict.fromkeys(name for name in names if name))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        said.append(f"{shown}: {note}." if shown else f"No interval, or a weak one: {note}.")
    return said


def text(e: Estimate, form: str = ".3f") -> str:
    """An estimate in words: 1.234 [1.1, 1.3]."""
    if e.value is None:
        return f"not defined ({e.note})"
    if e.lo is None or e.hi is None:
        return f"{e.value:{form}} ({e.note})"
    return f"{e.value:{form}} [{e.lo:{form}}, {e.hi:{form}}]"
