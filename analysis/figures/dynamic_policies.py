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
from analysis.figures.replayed import against_fixed, chosen, cost_name, tuned
from analysis.replays import FAMILIES
from analysis.stats import clusters
from simkit.simulator.given import AnyCost
from traces.trace import Trace

SHOWN = ("fixed", "heuristic", "SVIP", "AdaEDL", "SpecDec++", "acceptance head", "PACER")
# Table 3, HumanEval, Llama 2 7B/70B: tokens/s and τ, ÷ plain speculation's 21.20 and 5.39
PRINTED = {"SpecDec++": (21.17, 5.13), "AdaEDL": (22.53, 4.57), "PACER": (24.20, 7.46)}
SPECULATIVE = (21.20, 5.39)


@figure("PACER Table 3")
def dynamic_policies(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed and τ of dynamic policies, each against the best fixed draft length.

    Args:
        trace: of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    found, gone = tuned(trace, {name: FAMILIES[name] for name in SHOWN}, cost)
    base = found.pop("fixed")
    seconds = {name: one.total_s for name, one in found.items()} | {"fixed": base.total_s}
    speeds = against_fixed(seconds)
    tau_fixed = float(base.counts["accepted"].sum() / base.counts["steps"].sum())
    if tau_fixed == 0:
        raise FigureError("dynamic_policies: the best fixed length accepts no token to compare by")
    rows = [{"policy": "fixed", "setting": base.spec, "accepted_per_step": tau_fixed}]
    for k, (name, one) in enumerate(found.items()):
        tau = clusters.ratio(one.counts["accepted"], one.counts["steps"])
        x, y = (tau.value or 0.0) / tau_fixed, speeds[name]
        drawn = look(k)
        bars: dict[str, Any] = {"yerr": np.reshape(reach(y), (2, 1))} if y.lo is not None else {}
        how: dict[str, Any] = {"fmt": drawn["marker"], "color": drawn["color"], "label": name}
        ax.errorbar(x, y.value or 0.0, **bars, **how)
        row = {"policy": name, "setting": one.spec, "tau_ratio": x}
        if name in PRINTED:
            paper = [mine / other for mine, other in zip(PRINTED[name], SPECULATIVE, strict=True)]
            hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": drawn["color"], "s": 45}
            ax.scatter(paper[1], paper[0], marker=drawn["marker"], **hollow)
            row |= {"paper_speed": paper[0], "paper_tau_ratio": paper[1]}
        rows.append(row | cells(y, "speed") | cells(tau, "accepted_per_step"))
    ax.axhline(1, color="black", linewidth=0.8)
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set(xlabel="τ ÷ τ of the best fixed length", ylabel="speed ÷ speed of the best fixed length")
    below(ax, 4)
    said = missing(speeds.values())
    caption(
        ax,
        "Dynamic draft lengths against the best fixed one",
        f"Filled: this trace, {trace.n_sequences} prompts, {chosen(trace)}; "
        f"{cost_name(trace, cost)}; bars: 95% for all at once, paired. Hollow: PACER Table 3.",
        *said,
        *gone,
    )
    return Drawn("dynamic_policies", frame(rows), ax, tuple(said + gone))
