"""PACER by block size."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, Arm, both, compare, swept
from analysis.figures.base import Drawn, caption, figure, frame
from simkit.simulator.given import AnyCost
from traces.trace import Trace

PRINTED = {  # DeepSeek-Coder 1.3B/33B on HumanEval, tokens/s
    1: 30.0,
    2: 38.07,
    3: 39.28,
    4: 41.8,
    5: 38.95,
    6: 38.85,
    7: 37.21,
}
ARMS = tuple(
    Arm(f"{v:g}", f"pacer(block={v}, threshold=0.7, growth=1.05)", s) for v, s in PRINTED.items()
)


@figure("PACER Table 11")
def pacer_block(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of PACER by its block size.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "4", both(cost, DEEPSEEK))
    swept(ax, ARMS, found, "b = 4", "block size b", "PACER Table 11, HumanEval")
    caption(
        ax,
        "PACER by block size",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. Other settings: the"
        " paper's.",
        *found.notes,
    )
    return Drawn("pacer_block", frame(found.rows), ax, tuple(found.notes))
