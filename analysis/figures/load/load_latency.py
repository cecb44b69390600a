"""Latencies by arrival rate."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import NARROW, width_of
from analysis.figures.drawing.marks import reach
from analysis.figures.drawing.panels import doubling, panels, round_ticks
from analysis.figures.drawing.styles import ink
from analysis.figures.rows import Row, cells
from analysis.series_styles import Look, SeriesStyle, of_controller
from analysis.serving import (
    ALONE,
    COST,
    LARGEST,
    SHARES,
    At,
    Curves,
    LoadCurve,
    capacity,
    curves,
    priced_as,
)
from analysis.stats import Estimate
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many

CONTROLLERS = ("static(1)", "static(3)", "ema")
REQUESTS = 240
MEASURES = {"ttft_s": "to the first token, ms", "tpot_s": "per token, ms"}


@figure("new")
def load_latency(
    plot: Plot,
    cost: AnyCost | None = COST,
    controllers: tuple[str, ...] = CONTROLLERS,
    shares: tuple[float, ...] = SHARES,
    seeds: int = 5,
) -> None:
    """Median and 99th percentile of latency by arrival rate, and where servers saturate.

    A server saturates at the rate at which it serves requests while as many are always in flight
    as can run.

    Args:
        cost: see `simkit.replay`; None: of an H200, `analysis.serving.COST`.
        controllers: beside none.
        shares: arrival rates over the one at which the server saturates without drafts.
        seeds: runs of each.
    """
    most = capacity(plot.study, (ALONE, *controllers), cost, seeds)
    plot.gone += most.gone
    ends = {name: one.estimates("steady_requests_s")[0] for name, one in most.of.items()}
    whole = ends[ALONE].value or 0.0
    loads = [At("rate", whole * share, REQUESTS) for share in shares]
    found = curves(plot.study, most.of, loads, cost, seeds)
    for label, one in found.of.items():
        plot.rows += _rows(label, one, ends[label])
    _panels(plot.ax, found, ends)
    plot.below(5)
    shown = ", ".join(f"{label} {e.value or 0.0:.1f}" for label, e in ends.items())
    plot.caption(
        "Latencies by arrival rate",
        f"Lines: median; pale: 99th percentile; {how_many(seeds, 'run')} of"
        f" {how_many(REQUESTS, 'request')}; bars: 95% CI;"
        f" outcomes are exact, the schedule is simulated. Saturated, with {LARGEST} in flight,"
        f" requests a second: {shown}."
        f" {priced_as({'the drafter': plot.trace}, cost)}",
    )


def _panels(ax: Axes, found: Curves, ends: dict[str, Estimate]) -> None:
    """A panel for each measure, with a line where each server saturates."""
    both = panels(ax, "arrivals, requests a second", list(MEASURES.values()))
    heights: dict[str, list[float]] = {name: [] for name in MEASURES}
    for label, one in found.of.items():
        look, end = of_controller(label), ends[label].value or 0.0
        for panel, measure in zip(both, MEASURES, strict=True):
            heights[measure] += _draw(panel, one, measure, look)
            panel.axvline(end, color=look.color, linewidth=0.9, linestyle=":")
        how: Look = look.line | {"linestyle": "-"}
        ax.plot([], [], label=label, **how)
    ax.plot([], [], color=ink(), linewidth=0.9, linestyle=":", label="saturates")
    if first := heights["ttft_s"]:
        doubling(both[0], "y", round_ticks(0.7 * min(first), 1.4 * max(first), 6))
        both[0].set_ylim(0.5 * min(first), None)
    both[1].set_ylim(0, None)


def _rows(label: str, one: LoadCurve, end: Estimate) -> list[Row]:
    columns = {
        f"{measure}_p{p}": one.estimates(f"{measure}_p{p}")
        for measure in MEASURES
        for p in (50, 99)
    }
    rows = []
    for i, rate in enumerate(one.at):
        row: Row = {"controller": label, "rate": float(rate)}
        for name, values in columns.items():
            row |= cells(values[i], name)
        rows.append(row | cells(end, "saturates"))
    return rows


def _draw(panel: Axes, one: LoadCurve, measure: str, look: SeriesStyle) -> list[float]:
    """Draw two lines; gives their heights."""
    heights: list[float] = []
    for p, alpha, width in ((50, 1.0, 1.4), (99, 0.45, 1.1)):
        found = one.estimates(f"{measure}_p{p}")
        kept = [i for i, e in enumerate(found) if e.value is not None and e.value > 0]
        y = np.array([1e3 * (found[i].value or 0.0) for i in kept])
        arms = np.array([_arms(found[i]) for i in kept]).reshape(-1, 2).T * 1e3
        how = look.line | {"linestyle": "-", "alpha": alpha}
        if p == 99 and width_of(panel) < NARROW:  # lines alone: bars would hide the medians
            how, arms = how | {"marker": ""}, None
        panel.errorbar(one.at[kept], y, yerr=arms, linewidth=width, elinewidth=0.8, **how)
        heights += y.tolist()
    return heights


def _arms(e: Estimate) -> tuple[float, float]:
    """How far an interval reaches; on a logarithmic axis it ends above 0."""
    low, high = reach(e)
    return min(low, 0.9 * (e.value or 0.0)), high
