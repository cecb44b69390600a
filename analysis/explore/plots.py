"""The explorer's plots, and what is sent to them when something moves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, Range1d, Span
from bokeh.plotting import figure
from bokeh.transform import factor_cmap

from analysis.explore.model import Point
from analysis.explore.text import COLOURS, Spell, spelled
from analysis.explore.tokens import TokenText

SIDES = ("A", "B")
LOOKS = {"A": ("#0072b2", "circle"), "B": ("#d55e00", "triangle")}
TRAIL = 12  # earlier places of a point that stay, faint
GREY = "#777777"
_POINT = ("x", "y", "policy", "tokens_per_step")


class Frontier:
    """Speedup by mean draft length: fixed lengths as a line, two policies as points.

    Attributes:
        figure: bokeh's.
        line: the fixed lengths.
        now: of each side, its place.
        trail: of each side, its places before.
    """

    def __init__(self) -> None:
        self.figure: Any = figure(
            height=330,
            sizing_mode="stretch_width",
            x_axis_label="tokens drafted in a step, mean",
            y_axis_label="speedup over the target alone",
            tools="pan,wheel_zoom,reset,save",
            toolbar_location="above",
            x_range=Range1d(start=-0.5, end=1),
            y_range=Range1d(start=0.9, end=1.1),
        )
        self.figure.toolbar.logo = None
        self.line = _source((*_POINT, "length"))
        self.figure.line(
            "x", "y", source=self.line, color=GREY, legend_label="fixed(0), fixed(1) …"
        )
        fixed = self.figure.scatter("x", "y", source=self.line, color=GREY, size=5)
        self.figure.text("x", "y", "length", source=self.line, color=GREY, **_SMALL)
        self.figure.add_layout(Span(location=1, dimension="width", line_dash="dotted"))
        self.now = {side: _source((*_POINT, "now")) for side in SIDES}
        self.trail = {side: _source(_POINT) for side in SIDES}
        points = [fixed]
        for side, (color, marker) in LOOKS.items():
            how: dict[str, Any] = {"color": color, "marker": marker}
            self.figure.scatter("x", "y", source=self.trail[side], size=8, alpha=0.25, **how)
            points.append(
                self.figure.scatter(
                    "x", "y", source=self.now[side], size=13, legend_label=side, **how
                )
            )
        self.figure.legend.location = "top_right"
        tips = [("", "@policy"), ("speedup", "@y{0.000}"), ("τ", "@tokens_per_step{0.000}")]
        self.figure.add_tools(HoverTool(renderers=points, tooltips=tips))

    def draw_line(self, points: list[Point]) -> None:
        """Put the fixed lengths where they are."""
        data = _columns(points)
        self._show(points)
        self.line.data = data | {"length": [f" {k}" for k in range(len(data["x"]))]}

    def draw(self, side: str, point: Point, keep: bool) -> None:
        """Move a side's point.

        Args:
            side: A or B.
            point: where it is now.
            keep: whether its last place stays to be seen; not after another cost.
        """
        self._show([point])
        before: dict[str, Any] = dict(self.now[side].data)
        old: dict[str, Any] = dict(self.trail[side].data)
        self.trail[side].data = {
            name: [*old[name], *before[name]][-TRAIL:] if keep else [] for name in _POINT
        }
        self.now[side].data = _columns([point]) | {"now": [side][: point.speedup is not None]}

    def _show(self, points: list[Point]) -> None:
        """Widen the axes where points are beyond them.

        Ranges that follow the data have all of the figure laid out anew whenever a point moves.
        """
        found = _columns(points)
        for name, axis in (("x", self.figure.x_range), ("y", self.figure.y_range)):
            step = _GRID[name]
            low, high = min(found[name], default=1.0), max(found[name], default=1.0)
            if low < axis.start:
                axis.start = step * math.floor(low / step)
            if high > axis.end - step / 5:
                axis.end = step * math.ceil((high + step / 5) / step)


_GRID = {"x": 2.0, "y": 0.2}  # at which the axes end
_SMALL: dict[str, Any] = {"text_font_size": "10px", "text_baseline": "bottom"}


class Signals:
    """What the draft said of each position of the output, under one policy.

    Attributes:
        figures: the entropies, and the probabilities below them.
        source: drafted tokens, one row each.

    Args:
        side: A or B.
        positions: what the plots of both sides show.
        most: the greatest entropy, nats.
    """

    def __init__(self, side: str, positions: Range1d, most: float) -> None:
        self.source = _source(("x", *_LABELS, "kind", "word"))
        heads: dict[str, tuple[str, ...]] = {f"{side}: entropy of the draft, nats": ("entropy",)}
        heads[f"{side}: draft probability ●, overlap of draft and target ×"] = (
            "probability",
            "acceptance",
        )
        self.figures = [self._figure(head, names, positions) for head, names in heads.items()]
        self.figures[0].y_range = Range1d(start=-0.05 * most, end=1.05 * most)
        self.figures[1].y_range = Range1d(start=-0.05, end=1.05)

    def _figure(self, head: str, names: tuple[str, ...], positions: Range1d) -> Any:
        made: Any = figure(
            height=150,
            sizing_mode="stretch_width",
            x_range=positions,
            title=head,
            tools="xpan,xwheel_zoom,reset",
            toolbar_location=None,
        )
        made.yaxis.ticker.desired_num_ticks = 4
        made.yaxis.ticker.num_minor_ticks = 0
        made.xaxis.axis_label = "position in the output"
        colours = factor_cmap("kind", list(_KINDS.values()), list(_KINDS))
        for name, marker in zip(names, ("circle", "x"), strict=False):
            line = GREY if marker == "circle" else "#222222"
            how: dict[str, Any] = {"line_color": line, "fill_color": colours, "line_width": 0.6}
            made.scatter("x", name, source=self.source, marker=marker, size=6, **how)
        tips = [("", "@word"), ("position", "@x")]
        tips += [(name, f"@{name}{{0.000}}") for name in names]
        made.add_tools(HoverTool(tooltips=tips))
        return made

    def draw(self, text: TokenText, spell: Spell) -> None:
        """Show the drafted tokens of a text."""
        tokens = [token for token in text.tokens if token.depth]
        signals = np.array([token.signals for token in tokens], np.float32).reshape(
            -1, len(_LABELS)
        )
        data: dict[str, Any] = dict(zip(_LABELS, signals.T.copy(), strict=True))
        data["x"] = np.array([token.position for token in tokens], np.int32)
        data["kind"] = [token.kind[0] for token in tokens]
        data["word"] = [spelled(token, spell) for token in tokens]
        self.source.data = data


_KINDS = {kind[0]: colour for kind, colour in COLOURS.items()}
_LABELS = ("entropy", "probability", "acceptance")


def _source(names: Iterable[str]) -> Any:
    return ColumnDataSource(data={name: [] for name in names})


def _columns(points: list[Point]) -> dict[str, Any]:
    there = [point for point in points if point.speedup is not None]
    return {
        "x": [point.draft_length for point in there],
        "y": [point.speedup for point in there],
        "policy": [point.policy for point in there],
        "tokens_per_step": [point.tokens_per_step for point in there],
    }
