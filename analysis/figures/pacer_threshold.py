"""PACER by threshold."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, Arm, both, compare, swept
from analysis.figures.base import Drawn, caption, figure, frame
from simkit.simulator.given import AnyCost
from traces.trace import Trace

PRINTED = {  # DeepSeek-Coder 1.3B/33B on HumanEval, tokens/s
    0.5: 37.64,
    0.55: 38.09,
    0.6: 40.34,
    0.65: 39.89,
    0.7: 41.8,
    0.75: 40.44,
    0.8: 39.93,
}
ARMS = tuple(
    Arm(f"{v:g}", f"pacer(block=4, threshold={v}, growth=1.05)", s) for v, s in PRINTED.items()
)


@figure("PACER Table 13")
def pacer_threshold(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of PACER by its threshold.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "0.7", both(cost, DEEPSEEK))
    swept(ax, ARMS, found, "t = 0.7", "threshold t", "PACER Table 13, HumanEval")
    caption(
        ax,
        "PACER by threshold",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. Other settings: the"
        " paper's.",
        *found.notes,
    )
    return Drawn("pacer_threshold", frame(found.rows), ax, tuple(found.notes))
