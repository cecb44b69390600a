"""What the optimal draft length of every step saves."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import passes
from analysis.figures.base import Drawn, caption, figure, frame, text
from analysis.labelled_replays import cost_name, replays
from analysis.papers import pacer
from analysis.replays import groups, of
from analysis.speeds import speed
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

PRINTED: dict[str, float] = dict(
    zip(("draft passes", "target passes"), pacer.optimal_passes(), strict=True)
)
PRINTED["time"] = 1 / pacer.OPTIMAL_SPEED[0]


@figure("PACER Fig. 2b")
def optimal_gain(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Passes and time with γ* in every step, against the best fixed draft length.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    at = of(study, cost)
    length, fixed = at.best_length, at.best_fixed
    runs, _ = replays(study, {"γ*": "oracle"}, cost)
    best = runs["γ*"]
    pairs = {
        "draft passes": (best.counts["draft_passes"], fixed.counts["draft_passes"]),
        "target passes": (best.counts["steps"], fixed.counts["steps"]),
        "time": (best.total_s, fixed.total_s),
    }
    rows, said = passes(ax, groups(trace), pairs, PRINTED, "PACER Fig. 2b, HumanEval")
    ax.set(ylabel=f"γ* ÷ best fixed length (γ = {length})")
    ax.set_ylim(0)
    caption(
        ax,
        "Drafting just what will be accepted",
        f"{trace.n_sequences} prompts; {cost_name(study, cost)}; bars: 95% over prompts, paired."
        f" fixed({length}): the fastest on all these prompts, one length for all tasks.",
        f"γ* is {text(speed(best, fixed), '.2f')} times as fast as fixed({length});"
        f" PACER prints {pacer.OPTIMAL_SPEED[0]:g}.",
    )
    return Drawn("optimal_gain", frame(rows), ax, tuple(said))
