"""Speed and accepted tokens a step of dynamic draft lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.figures.base import (
    Drawn,
    FigureError,
    caption,
    cells,
    figure,
    frame,
    ink,
    missing,
    reach,
)
from analysis.figures.legends import below
from analysis.figures.measures import PER_STEP_APART as APART
from analysis.figures.measures import Counts, tau, taus
from analysis.labelled_replays import against_fixed, choices, chosen, cost_name, tuned
from analysis.papers.pacer import TABLE_3
from analysis.replays import FAMILIES, of
from analysis.series_styles import SeriesStyle, of_policy
from analysis.stats import Estimate, clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "SVIP", "AdaEDL", "SpecDec++", "acceptance head", "PACER")


@figure("PACER Table 3")
def dynamic_policies(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed and τ of dynamic policies, each against the best fixed draft length.

    τ of all steps, and of those outside of verbatim loops of the output; speeds of whole outputs.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    found, gone = tuned(study, {name: FAMILIES[name] for name in SHOWN}, cost)
    speeds = against_fixed(found)
    base = found.pop("fixed")
    if not base.counts["accepted"].any():
        raise FigureError("dynamic_policies: the best fixed length accepts no token to compare by")
    free = outside_loops.if_any(of(study, cost), {"fixed": base, **found})
    rows = [{"policy": "fixed", "setting": base.spec} | _taus(base.counts, free.get("fixed"))]
    ratios = {name: _ratio(one.counts, base.counts) for name, one in found.items()}
    for name, one in found.items():
        look = of_policy(one.spec)
        x, y = ratios[name], speeds[name]
        _mark(ax, look, name, x, y)
        row = {"policy": name, "setting": one.spec}
        if name in TABLE_3.rows:
            paper = TABLE_3.speed(name, "Speculative"), TABLE_3.tau(name, "Speculative")
            row |= {"paper_speed": paper[0], "paper_tau_ratio": paper[1]}
        row |= cells(y, "speed") | cells(x, "tau_ratio") | _taus(one.counts, free.get(name))
        if free:
            apart = _ratio(free[name], free["fixed"])
            row |= cells(apart, "tau_ratio_outside")
            if apart.value is not None:
                ax.plot(apart.value, y.value or 0.0, "x", color=look.color)
        rows.append(row)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.axvline(1, color=ink(), linewidth=0.8)
    ax.margins(0.08)
    ax.set(xlabel="τ ÷ τ of the best fixed length", ylabel="speed ÷ speed of the best fixed length")
    below(ax, 4)
    printed = " hollow: PACER Table 3;" if TABLE_3.rows.keys() & found.keys() else ""
    said = missing([*speeds.values(), *ratios.values()])
    caption(
        ax,
        "Dynamic draft lengths against the best fixed one",
        f"Filled: this trace, {trace.n_sequences} prompts, {chosen(trace)};{printed}"
        f" bars: 95%, paired, those of speeds for all {len(speeds)} at once.",
        "×: τ outside of verbatim loops, over that of the best fixed length there." if free else "",
        f"{cost_name(study, cost)}. Best fixed length: {choices(base)}.",
    )
    return Drawn("dynamic_policies", frame(rows), ax, tuple(said + gone))


def _mark(ax: Axes, look: SeriesStyle, name: str, x: Estimate, y: Estimate) -> None:
    """A policy with its bars, and hollow what the paper has of it."""
    color, marker = look.color, look.marker
    ends = zip(("xerr", "yerr"), (x, y), strict=True)
    bars: dict[str, Any] = {
        end: np.reshape(reach(e), (2, 1)) for end, e in ends if e.lo is not None
    }
    ax.errorbar(x.value or 0.0, y.value or 0.0, **bars, fmt=marker, color=color, label=name)
    if name in TABLE_3.rows:
        at = TABLE_3.tau(name, "Speculative"), TABLE_3.speed(name, "Speculative")
        ax.scatter(*at, marker=marker, facecolors="none", edgecolors=color, s=45)


def _taus(counts: Counts, free: Counts | None) -> dict[str, Any]:
    """τ, and τ outside of loops where there are any, for a row."""
    found = cells(tau(counts), "accepted_per_step")
    return found if free is None else found | cells(tau(free), APART)


def _ratio(mine: Counts, other: Counts) -> Estimate:
    """τ ÷ τ, paired."""
    return clusters.ratio_of_ratios(*taus(mine, other))
