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
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

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

# Okabe and Ito (2008), ordered by lightness so that neighbours also differ in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
GREY = "#666666"
WIDTH, HEIGHT = 6.4, 4.2  # inches
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
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
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "simkit",
}


class FigureError(UserError):
    """A figure that this trace cannot give."""


@contextmanager
def style() -> Iterator[None]:
    """The look of the figures; what was set before comes back."""
    with mpl.rc_context(_STYLE):
        yield


@dataclass(frozen=True, eq=False, repr=False)
class Drawn(Framed):
    """A figure.

    Attributes:
        name: of the function that drew it.
        frame: every number that is drawn, intervals and counts included.
        ax: the Axes.
        notes: what the caption says of missing intervals and left-out rows.
    """

    name: str
    frame: pl.DataFrame
    ax: Axes
    notes: tuple[str, ...] = ()

    @property
    def figure(self) -> Figure:
        """The matplotlib figure that holds the Axes."""
        found = self.ax.get_figure(root=True)
        assert isinstance(found, Figure)
        return found

    def save(self, folder: str | Path) -> list[Path]:
        """Write NAME.png, NAME.svg and the frame as NAME.parquet; gives their paths.

        Raises:
            TraceError: a file cannot be written; what was there is as it was.
        """
        png, svg, table = (io.BytesIO() for _ in range(3))
        with style():
            self.figure.savefig(png, format="png", dpi=110)
            self.figure.savefig(svg, format="svg", metadata={"Date": None})
        self.frame.write_parquet(table)
        made = {"png": png, "svg": svg, "parquet": table}
        contents = {Path(folder) / f"{self.name}.{end}": made[end].getvalue() for end in made}
        write_together(contents)
        return list(contents)

    def __repr__(self) -> str:
        return f"<Drawn {self.name}: {len(self.frame)} rows>"

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        with style():
            self.figure.savefig(out, format="png", dpi=100)
        return out.getvalue()


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

    def under(self, trace: AnyTrace | Study, cost: AnyCost | None) -> Drawn:
        """Draw it under a cost, if it takes one.

        Args:
            trace: or a study, where figures share replays and the first token's choice.
            cost: see `simkit.replay`.

        Raises:
            UserError: this trace cannot give it; the message says why.
        """
        takes = cost is not None and "cost" in inspect.signature(self.draw).parameters
        try:
            return self.draw(trace, **({"cost": cost} if takes else {}))
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
        replays = next(iter(inspect.signature(draw).parameters)) == "study"

        @wraps(draw)
        def drawn(trace: AnyTrace | Study, ax: Axes | None = None, **options: Any) -> Drawn:
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
            with style():
                if ax is None:
                    ax = _OwnFigure((WIDTH, HEIGHT), layout="constrained").subplots()
                found = draw(study if replays else study.trace, ax, **options)
                _spell_out(found.ax)
                return found

        name = draw.__name__
        what = (draw.__doc__ or "").split("\n")[0].rstrip(".")
        entry = FigureEntry(name, drawn, source, what, draft_model, drafters, trees)
        FIGURES.add(name, entry, draw)
        return drawn

    return made


class _OwnFigure(Figure):
    """One that was made here and not given, so that it may grow."""


def room_for(ax: Axes, lines: int) -> None:
    """Make the figure higher for so many lines along y, if it is one that was made here."""
    whole = ax.get_figure(root=True)
    if isinstance(whole, _OwnFigure):
        whole.set_figheight(HEIGHT + 0.2 * max(0, lines - 7))


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


def caption(ax: Axes, title: str, *lines: str) -> None:
    """A title, and below it what n is, what the intervals are, and what is missing."""
    given = [line for line in dict.fromkeys(lines) if line]
    labels = [line for t in ax.get_yticklabels() for line in t.get_text().split("\n")]
    beside = max((len(line) for line in labels), default=0)
    whole = ax.get_figure(root=True)
    width = max(30, int(15.5 * (whole.get_figwidth() if whole else WIDTH) - 1.1 * beside))
    text = "\n".join(part for line in given for part in textwrap.wrap(line, width))
    height = 10.2 * (text.count("\n") + 1) if text else 0
    ax.set_title(title, loc="left", pad=6 + height)
    ax.annotate(
        text,
        (0, 1),
        (0, 4),
        "axes fraction",
        "offset points",
        fontsize=7.5,
        color=GREY,
        va="bottom",
    )


def look(k: int) -> dict[str, Any]:
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
    if line:
        ax.plot(*((y, x) if sideways else (x, y)), linestyle=line, color=color, alpha=0.75)
    for some, face in ((has, color), (~has, "white")):
        if not some.any():
            continue
        both = (y[some], x[some]) if sideways else (x[some], y[some])
        bars: dict[str, Any] = (
            {"xerr" if sideways else "yerr": arms[:, some]} if face == color else {}
        )
        ax.errorbar(
            *both, **bars, fmt=marker, color=color, mfc=face, elinewidth=0.9, zorder=3, **how
        )
    ax.plot([], [], marker=marker, color=color, linestyle=line or "", label=label)


def band(
    ax: Axes, x: np.ndarray, found: Sequence[Estimate], label: str, k: int, every: int = 1
) -> None:
    """A line of estimates and a band of their intervals."""
    drawn = look(k)
    kept = [i for i, e in enumerate(found) if e.value is not None]
    y = [found[i].value or 0.0 for i in kept]
    ax.plot(x[kept], y, label=label, markevery=every, **drawn)
    has = [i for i in kept if found[i].lo is not None]
    lo, hi = np.array([(found[i].lo, found[i].hi) for i in has], float).reshape(-1, 2).T
    ax.fill_between(x[has], lo, hi, color=drawn["color"], alpha=0.18, linewidth=0)


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


def reach(e: Estimate) -> tuple[float, float]:
    """How far the interval reaches down and up from the value; 0 where there is none."""
    if e.value is None or e.lo is None or e.hi is None:
        return 0.0, 0.0
    return max(0.0, e.value - e.lo), max(0.0, e.hi - e.value)
