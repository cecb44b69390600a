"""What a user gets against what a device gives, by batch size."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from analysis import serving
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import reach
from analysis.figures.drawing.panels import doubling, round_ticks
from analysis.figures.drawing.styles import FigureError, ink, paper, small
from analysis.figures.rows import Row, cells
from analysis.series_styles import LINES, SeriesStyle, drafters_of, of_controller
from analysis.serving import ALONE, COST, LoadCurve, closed, curves, of_kinds, priced_as
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError
from traces.messages import how_many

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTROLLERS = ("static(3)", "by_batch")


@figure("PARD-2 Fig. 1")
def load_frontier(
    plot: Plot,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    batches: tuple[int, ...] = BATCHES,
    seeds: int = 5,
) -> None:
    """Tokens a second per user and per device, by batch size.

    Of a recording with drafters one of each kind is drawn.

    Args:
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: of each drafter.
        batches: requests in flight, ascending.
        seeds: runs of each.
    """
    traces = of_kinds(plot.study)
    drawn: list[tuple[str, LoadCurve]] = []
    for name, trace in traces.items():
        try:
            asked = controllers if drawn else (ALONE, *controllers)
            found = curves(plot.study, asked, closed(batches), cost, seeds, trace=trace)
        except UserError as error:
            plot.gone.append(f"Without {name}: {error}")
            continue
        drawn += [("" if one == ALONE else name, curve) for one, curve in found.of.items()]
        plot.gone += [f"{name}: {line}" for line in found.gone]
    if not drawn:
        raise FigureError(plot.gone[0].partition(": ")[2])
    plot.rows = [row for name, one in drawn for row in _rows(name, one)]
    if all(row["user_tokens_s"] is None for row in plot.rows):
        raise FigureError("load_frontier: outputs are too short for a time between tokens")
    _draw(plot.ax, drawn, drafters_of(plot.trace), controllers)
    plot.below(3)
    plot.caption(
        "Tokens a second for a user and of the device",
        f"Numbers: requests in flight. {how_many(seeds, 'run')},"
        f" {how_many(serving.EACH, 'request')} for each one; bars: 95% CI;"
        f" outcomes are exact, the schedule is simulated. {priced_as(traces, cost)}",
    )


def _rows(name: str, one: LoadCurve) -> list[Row]:
    mine, whole = one.estimates("user_tokens_s"), one.estimates("steady_tokens_s")
    return [
        {"drafter": name or None, "controller": one.label, "batch": int(at)}
        | cells(user, "user_tokens_s")
        | cells(tokens_s, "steady_tokens_s")
        for at, user, tokens_s in zip(one.at, mine, whole, strict=True)
    ]


def _draw(
    ax: Axes,
    drawn: list[tuple[str, LoadCurve]],
    looks: dict[str, SeriesStyle],
    controllers: tuple[str, ...],
) -> None:
    seen, outline = [], [withStroke(linewidth=2, foreground=paper())]
    for name, one in drawn:
        mine, whole = one.estimates("user_tokens_s"), one.estimates("steady_tokens_s")
        kept = [k for k, e in enumerate(mine) if e.value]
        x, y = ([found[k].value or 0.0 for k in kept] for found in (mine, whole))
        look = looks[name] if name else of_controller(ALONE)
        line = LINES[controllers.index(one.label) % len(LINES)] if name else "-"
        bars = {
            f"{axis}err": np.array([reach(found[i]) for i in kept]).reshape(-1, 2).T
            for axis, found in (("x", mine), ("y", whole))
        }
        how = look.line | {"linestyle": line, "color": look.color if name else ink()}
        if line != "-":  # hollow: colours of some drafters are alike
            how |= {"markerfacecolor": paper()}
        label = f"{name}, {one.label}" if name else f"{one.label}: the target alone"
        ax.errorbar(x, y, **bars, label=label, elinewidth=0.5, capsize=0, **how)  # type: ignore[arg-type]
        seen += y
        if not name:
            for i, at in enumerate(kept):
                shown = str(int(one.at[at]))
                how = {"fontsize": small(), "color": ink(), "path_effects": outline, "zorder": 5}
                how |= {"ha": "right", "va": "center", "textcoords": "offset points"}
                ax.annotate(shown, (x[i], y[i]), (-5, 0), **how)
    doubling(ax, "y", round_ticks(0.8 * min(seen), 1.25 * max(seen)))
    ax.set(xlim=(0, None), xlabel="tokens/s for a user", ylabel="tokens/s of the device")
