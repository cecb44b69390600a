"""PACER by growth factor."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import DEEPSEEK, Arm, both, compare, swept
from analysis.figures.base import Drawn, caption, figure, frame
from simkit.simulator.given import AnyCost
from traces.trace import Trace

PRINTED = {  # DeepSeek-Coder 1.3B/33B on HumanEval, tokens/s
    1: 40.05,
    1.01: 40.12,
    1.02: 40.4,
    1.03: 40.57,
    1.04: 40.73,
    1.05: 41.8,
    1.06: 41.6,
    1.07: 40.52,
    1.08: 39.48,
    1.09: 39.37,
}
ARMS = tuple(
    Arm(f"{v:g}", f"pacer(block=4, threshold=0.7, growth={v})", s) for v, s in PRINTED.items()
)


@figure("PACER Table 12")
def pacer_growth(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of PACER by its growth factor.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "1.05", both(cost, DEEPSEEK))
    swept(ax, ARMS, found, "ρ = 1.05", "growth factor ρ", "PACER Table 12, HumanEval")
    caption(
        ax,
        "PACER by growth factor",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. Other settings: the"
        " paper's.",
        *found.notes,
    )
    return Drawn("pacer_growth", frame(found.rows), ax, tuple(found.notes))
