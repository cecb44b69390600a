"""Speed and accepted tokens a step of dynamic draft lengths."""

from __future__ import annotations

import numpy as np

from analysis import outside_loops
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import reach
from analysis.figures.drawing.styles import FigureError, ink
from analysis.figures.measures import Counts, tau_cells, taus
from analysis.figures.rows import Row, cells
from analysis.labelled_replays import against_fixed, choices, chosen, held_for
from analysis.papers.pacer import TABLE_3
from analysis.replays import FAMILIES
from analysis.series_styles import SeriesStyle
from analysis.stats import Estimate, clusters
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "SVIP", "AdaEDL", "SpecDec++", "acceptance head", "PACER")


@figure("PACER Table 3", compares=True)
def dynamic_policies(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speed and τ of dynamic policies, each relative to the best fixed draft length.

    τ of all steps, and of those outside of verbatim loops of the output; speeds of whole outputs.
    """
    ax, found = plot.ax, plot.tuned({name: FAMILIES[name] for name in SHOWN}, cost)
    speeds = against_fixed(found)
    base = found.pop("fixed")
    if not base.counts["accepted"].any():
        raise FigureError("dynamic_policies: the best fixed length accepts no token")
    free = outside_loops.if_any(plot.under(cost), {"fixed": base, **found})
    plain: Row = {"policy": "fixed", "setting": base.spec}
    plot.rows = [plain | tau_cells(base.counts, free.get("fixed"))]
    ratios = {name: _ratio(one.counts, base.counts) for name, one in found.items()}
    plot.missing([*speeds.values(), *ratios.values()])
    for name, one in found.items():
        look, x, y = plot.look(name, one.spec), ratios[name], speeds[name]
        row: Row = {"policy": name, "setting": one.spec} | _mark(plot, look, name, x, y)
        row |= cells(y, "speed") | cells(x, "tau_ratio") | tau_cells(one.counts, free.get(name))
        if free:
            apart = _ratio(free[name], free["fixed"])
            row |= cells(apart, "tau_ratio_outside")
            if apart.value is not None:
                ax.plot(apart.value, y.value or 0.0, "x", color=look.color)
        plot.rows.append(row)
    plot.line_at_1()
    ax.axvline(1, color=ink(), linewidth=0.8)
    ax.margins(0.08)
    ax.set(xlabel="τ ÷ τ of the best fixed length", ylabel="speed ÷ speed of the best fixed length")
    plot.below(4)
    printed = " hollow: PACER Table 3;" if TABLE_3.rows.keys() & found.keys() else ""
    plot.caption(
        "Dynamic draft lengths against the best fixed one",
        f"Filled: this trace, {plot.prompts}; {chosen(plot.trace)};{printed}"
        f" bars: 95% CI, paired; {held_for(speeds)}.",
        "×: τ outside of verbatim loops ÷ that of the best fixed length there." if free else "",
        f"{plot.cost_name(cost)}. Best fixed length: {choices(base)}.",
    )


def _mark(plot: Plot, look: SeriesStyle, name: str, x: Estimate, y: Estimate) -> Row:
    """A policy with its bars, and hollow what the paper has of it, which is given for its row."""
    ends = zip(("xerr", "yerr"), (x, y), strict=True)
    bars = {end: np.reshape(reach(e), (2, 1)) for end, e in ends if e.lo is not None}
    how = {"fmt": "", "label": name, **look.dots}
    plot.ax.errorbar(x.value or 0.0, y.value or 0.0, **bars, **how)
    if name not in TABLE_3.rows:
        return {}
    tau_ratio, speed = TABLE_3.tau(name, "Speculative"), TABLE_3.speed(name, "Speculative")
    how = {"marker": look.marker, "facecolors": "none", "edgecolors": look.color, "s": 45}
    plot.ax.scatter(tau_ratio, speed, **how)
    return {"paper_speed": speed, "paper_tau_ratio": tau_ratio}


def _ratio(mine: Counts, other: Counts) -> Estimate:
    """τ ÷ τ, paired."""
    return clusters.ratio_of_ratios(*taus(mine, other))
