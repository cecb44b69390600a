"""PACER without its position embedding and without its growth factor."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, Arm, both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.figures.replayed import choices, chosen
from analysis.replays import ALONE, FAMILIES, of
from simkit.simulator.given import AnyCost
from traces.trace import Trace

_PACER = "pacer(block=4, threshold=0.7, growth=1.05"
ARMS = (  # Table 5, DeepSeek-Coder 1.3B/33B on HumanEval: tokens/s, τ; settings: Table 10
    Arm("PACER", f"{_PACER})", 41.80, 9.67),
    Arm("w/o pos-emb", f"{_PACER}, head=pacer-no-position)", 39.99, 8.83),
    Arm("w/o growth", "pacer(block=4, threshold=0.7, growth=1.0)", 40.36, 9.71),
    Arm("best fixed", FAMILIES["fixed"], 37.46, 7.38),  # the paper's pair: 9, Table 16
    Arm(ALONE, ALONE, 18.11),
)


@figure("PACER Table 5")
def pacer_components(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER, its parts left out, and plain speculation with the best fixed length.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    costs = both(cost, DEEPSEEK)
    found = compare(trace, ARMS, "PACER", costs)
    lengths = "; ".join(f"{choices(of(trace, costs[k]).tuned_fixed())}, {k}" for k in found.speeds)
    ranked(ax, ARMS, found, "PACER", "PACER Table 5, HumanEval")
    caption(
        ax,
        "What PACER's parts are worth, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
        f"Best fixed: {lengths}; {chosen(trace)}.",
        *found.notes,
    )
    return Drawn("pacer_components", frame(found.rows), ax, tuple(found.notes))
