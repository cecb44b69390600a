"""Speed and accepted tokens a step of dynamic draft lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.arms import below
from analysis.figures.base import (
    Drawn,
    FigureError,
    caption,
    cells,
    figure,
    frame,
    look,
    missing,
    reach,
)
from analysis.papers.pacer import TABLE_3
from analysis.replays import FAMILIES, Replayed
from analysis.shown import against_fixed, choices, chosen, cost_name, tuned
from analysis.speeds import per
from analysis.stats import Estimate, clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "SVIP", "AdaEDL", "SpecDec++", "acceptance head", "PACER")


@figure("PACER Table 3")
def dynamic_policies(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed and τ of dynamic policies, each against the best fixed draft length.

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
    rows = [{"policy": "fixed", "setting": base.spec} | cells(_tau(base), "accepted_per_step")]
    taus = {name: per(one, base, "accepted", "steps") for name, one in found.items()}
    for k, (name, one) in enumerate(found.items()):
        x, y = taus[name], speeds[name]
        drawn = look(k)
        ends = zip(("xerr", "yerr"), (x, y), strict=True)
        bars: dict[str, Any] = {
            end: np.reshape(reach(e), (2, 1)) for end, e in ends if e.lo is not None
        }
        how: dict[str, Any] = {"fmt": drawn["marker"], "color": drawn["color"], "label": name}
        ax.errorbar(x.value or 0.0, y.value or 0.0, **bars, **how)
        row = {"policy": name, "setting": one.spec}
        if name in TABLE_3.rows:
            paper = TABLE_3.speed(name, "Speculative"), TABLE_3.tau(name, "Speculative")
            hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": drawn["color"], "s": 45}
            ax.scatter(paper[1], paper[0], marker=drawn["marker"], **hollow)
            row |= {"paper_speed": paper[0], "paper_tau_ratio": paper[1]}
        row |= cells(y, "speed") | cells(x, "tau_ratio")
        rows.append(row | cells(_tau(one), "accepted_per_step"))
    ax.axhline(1, color="black", linewidth=0.8)
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set(xlabel="τ ÷ τ of the best fixed length", ylabel="speed ÷ speed of the best fixed length")
    below(ax, 4)
    said = missing([*speeds.values(), *taus.values()])
    caption(
        ax,
        "Dynamic draft lengths against the best fixed one",
        f"Filled: this trace, {trace.n_sequences} prompts, {chosen(trace)}; "
        f"{cost_name(study, cost)}; bars: 95%, paired, those of speeds for all {len(speeds)}"
        f" at once. Best fixed length: {choices(base)}. Hollow: PACER Table 3.",
        *said,
        *gone,
    )
    return Drawn("dynamic_policies", frame(rows), ax, tuple(said + gone))


def _tau(one: Replayed) -> Estimate:
    return clusters.ratio(one.counts["accepted"], one.counts["steps"])
