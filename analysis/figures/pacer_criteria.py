"""PACER's halting criteria."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, Arm, both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from simkit.simulator.given import AnyCost
from traces.trace import Trace

_PACER = "pacer(block=4, threshold=0.7, growth=1.05, criterion="
ARMS = (  # Table 7, DeepSeek-Coder 1.3B/33B on HumanEval: tokens/s, τ; settings: Table 10
    Arm("mean", f"{_PACER}mean)", 41.80, 9.67),
    Arm("last", f"{_PACER}last)", 40.11, 9.34),
    Arm("any", f"{_PACER}any)", 38.96, 8.70),
)


@figure("PACER Table 7")
def pacer_criteria(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER stopping by the mean, any, or the last score of a block.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "mean", both(cost, DEEPSEEK))
    ranked(ax, ARMS, found, "mean", "PACER Table 7, HumanEval")
    caption(
        ax,
        "When PACER stops, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
        *found.notes,
    )
    return Drawn("pacer_criteria", frame(found.rows), ax, tuple(found.notes))
