"""What the optimal draft length of every step saves."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import passes
from analysis.figures.base import Drawn, caption, figure, frame, text
from analysis.replays import groups, of, speed
from analysis.shown import cost_name, replays
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

# PACER section 3.1.2: γ* saves 4,837 draft passes; passes of the best fixed length are Table 6's
PRINTED = {"draft passes": (27423 - 4837) / 27423, "target passes": 1150 / 3047, "time": 1 / 1.4}


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
        " PACER prints 1.4.",
        *said[:2],
    )
    return Drawn("optimal_gain", frame(rows), ax, tuple(said))
