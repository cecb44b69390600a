"""What makes a function a figure: its registry, and the decorator that puts it there.

A figure is a function `(plot, …)` that draws on a `Plot`: it asks `analysis.stats` and `simkit`
for numbers, puts every one that it draws into the plot's rows, and writes a caption. `@figure` does
what is the same for all: for its users it is `NAME(trace, ax=None, …) -> Drawn`, where the trace
may be a name or a folder; columns that it needs are looked for first, and an Axes is made where
none is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from analysis.figures.drawing.axes import on, spell_out
from analysis.figures.drawing.captions import left_out, warn, wrap_labels
from analysis.figures.drawing.styles import FigureError
from analysis.figures.drawn import Drawn
from analysis.figures.index import places
from analysis.figures.plot import Plot
from analysis.groups import By
from analysis.labelled_replays import labelled
from analysis.priced import Priced
from analysis.study import FirstToken, Study, study_of
from analysis.trees import tree_study
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.errors import UserError
from traces.registry import Registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FIGURES", "FigureEntry", "Plot", "figure"]

Draw = Callable[..., pl.DataFrame | None]


class FigureEntry(NamedTuple):
    """A figure in the registry.

    Attributes:
        name: of its function.
        draw: the function.
        source: what it reproduces, or "new".
        what: its docstring's first line.
        needs: columns of `positions` without which there is nothing to draw.
        draft_model: whether it needs one of its own, see `Study.need_draft_model`.
        drafters: whether it compares drafters, attached to a recording or trained for it.
        trees: whether it shows draft trees.
        grouped: whether it shows tasks one by one, and so can show spans.
        compares: whether it compares policies, and so can show more of them.

    >>> analysis.figures.FIGURES["entropy_bound"].source
    'SVIP Fig. 4 and appendix B'
    """

    name: str
    draw: Callable[..., Drawn]
    source: str
    what: str
    needs: tuple[str, ...] = ()
    draft_model: bool = False
    drafters: bool = False
    trees: bool = False
    grouped: bool = False
    compares: bool = False

    def under(
        self,
        trace: AnyTrace | Study,
        cost: AnyCost | None,
        width: float | str | None = None,
        style: str | Path | None = None,
        by: By = "task",
        policies: Sequence[str] = (),
    ) -> Drawn:
        """Draw it under a cost, if it takes one.

        Args:
            trace: or a study, where figures share replays and the first token's choice.
            cost: see `simkit.replay`.
            width: see `figure`.
            style: see `figure`.
            by: see `figure`.
            policies: see `figure`.

        Raises:
            UserError: this trace cannot give it; the message says why.
        """
        takes = cost is not None and "cost" in inspect.signature(self.draw).parameters
        options: dict[str, Any] = {"cost": cost} if takes else {}
        options |= {"by": by} if by != "task" else {}
        options |= {"policies": policies} if policies else {}
        try:
            return self.draw(trace, width=width, style=style, **options)
        except UserError as error:
            raise type(error)(str(error).removeprefix(f"{self.name}: ")) from None

    def unasked(self, study: Study, cost: AnyCost | None, *how: Any, **more: Any) -> Drawn:
        """`under`, for one of all figures: nobody asked for it by its name.

        Raises:
            UserError: it says nothing of the trace, its prices are others', or as `under` does.
        """
        try:
            self.of(study)
        except UserError as error:
            raise type(error)(str(error).removeprefix(f"{self.name}: ")) from None
        takes = inspect.signature(self.draw).parameters.get("cost")
        if cost is None and takes is not None and takes.default is not None:
            raise FigureError(
                f"no cost was given, and its default, {takes.default}, is not of this trace"
                " (give one, or ask for the figure by name)"
            )
        found = self.under(study, cost, *how, **more)
        if found.nothing:
            raise FigureError(f"{found.nothing} (drawn if asked for by name)")
        return found

    def labels(self, by: By, policies: Iterable[str]) -> dict[str, str]:
        """Specs by how they are called; one that the trace cannot give is left out later.

        Raises:
            FigureError: it compares no tasks, or no policies.
            PolicyError: a spec cannot be read.
        """
        if by != "task" and not self.grouped:
            raise FigureError(f"{self.name}: does not compare tasks, so it cannot show {by}s")
        if policies and not self.compares:
            raise FigureError(f"{self.name}: does not compare policies, so it cannot show more")
        return labelled(policies)

    def called(self, by: By) -> str:
        """The name of its files, which says what is shown side by side if not tasks."""
        return self.name if by == "task" else f"{self.name.removesuffix('_by_task')}_by_{by}"

    def of(self, study: Study) -> Study:
        """The study that it draws: of trees that of a recording's drafter of trees.

        Raises:
            UserError: the trace lacks a draft model, a column, trees, or any row.
        """
        trace = study.trace
        if self.draft_model:
            study.need_draft_model()
        lacking = [name for name in self.needs if not trace.has("positions", name)]
        if lacking and not (kind := trace.manifest.drafter).can("path"):
            raise FigureError(f"{self.name}: {kind.lacks['path']}")
        if lacking:
            raise FigureError(f"{self.name}: the trace has no column {', '.join(lacking)}")
        if trace.n_positions == 0:
            raise FigureError(f"{self.name}: the trace is empty")
        return tree_study(study) if self.trees else study


FIGURES: Registry[FigureEntry] = Registry(
    "figure", FigureError, "simkit.figures", lambda *_: False, places()
)
"""Figures by name; `analysis.figures.index` says where each is drawn."""


def figure(source: str, *needs: str, **facts: bool) -> Callable[[Draw], Callable[..., Drawn]]:
    """Make a function a figure (decorator).

    The function takes a `Plot` and its options, and gives its frame, or None for the plot's. For
    its users it also has the arguments of `_SHARED`.

    Args:
        source: see `FigureEntry`.
        needs: columns.
        facts: those of `FigureEntry`: `grouped`, it draws `Plot.groups`, and so takes `by`;
            `compares`, it draws all that `Plot.tuned` gives, and so takes `policies`; ….
    """

    def made(draw: Draw) -> Callable[..., Drawn]:
        name, takes = draw.__name__, inspect.signature(draw).parameters

        @wraps(draw, ("__module__", "__name__", "__qualname__"))
        def drawn(
            trace: AnyTrace | Study,
            ax: Axes | None = None,
            *,
            width: float | str | None = None,
            style: str | Path | None = None,
            first_token: FirstToken = "draft",
            by: By = "task",
            policies: Sequence[str] = (),
            **options: Any,
        ) -> Drawn:
            named = entry.labels(by, policies)
            study = entry.of(study_of(trace, first_token))
            study.make_room(replays=True)
            times = Priced(own="cost" in takes)
            with on(ax, width, style) as ax, times.watching():
                plot = Plot(study, ax, by, named)
                table = draw(plot, **options)
                notes = _finish(plot, times)
                table = plot.frame if table is None else table
                return Drawn(entry.called(by), table, ax, notes, style, plot.nothing)

        what = (draw.__doc__ or "").split("\n")[0].rstrip(".")
        entry = FigureEntry(name, drawn, source, what, needs, **facts)
        FIGURES.add(name, entry, draw)
        _for_users(entry, draw)
        return drawn

    return made


def _finish(plot: Plot, times: Priced) -> tuple[str, ...]:
    """Let warnings of its times end a figure's caption; its notes, which they begin."""
    warnings = times.sentences()
    warn(plot.ax, warnings, times.sentences(short=True))
    wrap_labels(plot.ax)
    spell_out(plot.ax)
    nothing = [f"{plot.nothing[0].upper()}{plot.nothing[1:]}."] if plot.nothing else []
    every = (*warnings, *nothing, *left_out(plot.ax), *plot.notes, *plot.gone)
    return tuple(dict.fromkeys(every))


_SHARED = {
    "trace": "a trace, its folder, a bundled one's name, or a `Study`.",
    "ax": "an Axes to draw on; None makes one.",
    "cost": "see `simkit.replay`; None: the trace's own times.",
    "width": 'width of a new figure: inches, or "column", "text" or "page".',
    "style": "the name of a matplotlib style, or a file of its settings.",
    "first_token": "see `simkit.replay`; a study brings its own.",
    "by": 'what is shown side by side: "task", or "span", which `simkit spans` has written.',
    "policies": "specs to show beside the figure's own policies; one with ranges is tuned.",
}
"""What the arguments are that figures share."""

_EXAMPLE = """

>>> drawn = analysis.figures.{name}("{trace}")
>>> [path.name for path in drawn.save("pictures")]
['{name}.png', '{name}.svg', '{name}.parquet']
"""


def _for_users(entry: FigureEntry, draw: Draw) -> None:
    """Give a figure the docstring and the signature of what its users call."""
    drawn = entry.draw
    doc, takes = inspect.cleandoc(draw.__doc__ or ""), inspect.signature(draw).parameters
    head, _, rest = doc.partition("\n\nRaises:")
    head, _, own = head.partition("\n\nArgs:\n")
    there = {"cost": "cost" in takes, "by": entry.grouped, "policies": entry.compares}
    kept = [name for name in _SHARED if there.get(name, True)]
    shared = [f"    {name}: {_SHARED[name]}" for name in kept if f"    {name}: " not in own]
    lines = [f"{head}\n\nArgs:", *shared[:2], *([own] if own else []), *shared[2:]]
    shown = "reference-trees" if entry.trees else "reference"
    example = _EXAMPLE.format(name=entry.name, trace=shown) if entry.name in places() else ""
    drawn.__doc__ = "\n".join(lines) + (f"\n\nRaises:{rest}" if rest else "") + example
    whole = inspect.signature(drawn, follow_wrapped=False)
    trace, ax, *others = [p for p in whole.parameters.values() if p.kind != p.VAR_KEYWORD]
    mine = [p.replace(kind=p.KEYWORD_ONLY) for p in list(takes.values())[1:]]
    others = [p for p in others if there.get(p.name, True)]
    parameters = [trace, ax, *mine, *others]
    drawn.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
