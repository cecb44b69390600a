"""What the optimal draft length of every step saves."""

from __future__ import annotations

from analysis.figures.arms import passes
from analysis.figures.base import Plot, figure
from analysis.figures.rows import text
from analysis.papers import pacer
from analysis.speeds import speed
from simkit.simulator.arguments import AnyCost

PRINTED: dict[str, float] = dict(
    zip(("draft passes", "target passes"), pacer.optimal_passes(), strict=True)
)
PRINTED["time"] = 1 / pacer.OPTIMAL_SPEED[0]


@figure("PACER Fig. 2b", grouped=True)
def optimal_gain(plot: Plot, cost: AnyCost | None = None) -> None:
    """Passes and time with γ* in every step, relative to the best fixed draft length."""
    at = plot.under(cost)
    length, fixed = at.best_length, at.best_fixed
    best = plot.replays({"γ*": "oracle"}, cost)["γ*"]
    mine, other = (plot.groups.of(at, one) for one in (best, fixed))
    pairs = {
        "draft passes": (mine.counts["draft_passes"], other.counts["draft_passes"]),
        "target passes": (mine.counts["steps"], other.counts["steps"]),
        "time": (mine.total_s, other.total_s),
    }
    passes(plot, plot.groups.masks, pairs, PRINTED, "PACER Fig. 2b, HumanEval")
    plot.ax.set(ylabel=f"γ* ÷ best fixed length (γ = {length})")
    plot.caption(
        "Drafting exactly what will be accepted",
        f"γ* is {text(speed(best, fixed), '.2f')} times as fast as fixed({length});"
        f" PACER prints {pacer.OPTIMAL_SPEED[0]:g}.",
        f"{plot.prompts}; {plot.cost_name(cost)}; bars: 95% CI over prompts, paired."
        f" fixed({length}) is the fastest on these prompts, one length for all {plot.by}s.",
    )
