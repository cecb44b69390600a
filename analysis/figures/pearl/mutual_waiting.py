"""How long draft and target wait for each other."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look, reach
from analysis.figures.drawing.styles import ink
from analysis.stats import clusters
from simkit.simulator.arguments import AnyCost

PARTS = {"drafting, target waits": "draft_s", "verification, draft waits": "verify_s"}


@figure("PEARL Fig. 2a", draft_model=True)
def mutual_waiting(plot: Plot, cost: AnyCost | None = None, longest: int | None = None) -> None:
    """Time of a step's drafting phase and of its verification phase, by draft length.

    Args:
        longest: γ; None means 10, or two beyond c, and at most Γ.
    """
    c = plot.under(cost).cost_ratio()
    most = longest or min(max(10, round(c) + 2), plot.trace.max_draft)
    runs = plot.replays({str(k): f"fixed({k})" for k in range(1, most + 1)}, cost)
    gammas, arms = np.array([int(k) for k in runs]), []
    for k, (label, part) in enumerate(PARTS.items()):
        found = [
            clusters.ratio(1e3 * one.seconds[part], one.counts["steps"]) for one in runs.values()
        ]
        facts = [{"phase": part, "gamma": int(gamma)} for gamma in gammas]
        plot.series(gammas, found, facts, "ms_per_step", label=label, **look(k))
        arms += [max(reach(e)) / e.value for e in found if e.value and e.lo is not None]
    plot.ax.axvline(c, color=ink(), linestyle="--", linewidth=1, label=f"c = {c:.2f}")
    plot.rows.append({"phase": "c", "gamma": None, "ms_per_step": c})
    plot.ax.set(xlabel="draft length γ, tokens", ylabel="time of a step, ms")
    plot.ax.set_ylim(0)
    plot.below()
    size = f", at most ±{max(arms):.1%} of the value" if arms else ""
    plot.caption(
        "Drafting and verification phases of a step",
        f"{plot.prompts}; {plot.cost_name(cost)}; bars: 95% CI over prompts{size}.",
    )
