"""What PACER's head attends to."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import LLAMA, Arm, both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from simkit.simulator.given import AnyCost
from traces.trace import Trace

_PACER = "pacer(block=4, threshold=0.65, growth=1.02"
ARMS = (  # Table 8: its numbers are Table 3's, Llama 2 7B/70B: tokens/s, τ; settings: Table 10
    Arm("full context", f"{_PACER})", 24.20, 7.46),
    Arm("local draft", f"{_PACER}, head=pacer-local-draft)", 22.58, 5.45),
    Arm("local block", f"{_PACER}, head=pacer-local-block)", 22.29, 5.32),
)


@figure("PACER Table 8")
def pacer_attention(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER's heads that see the whole context, the draft, or the block.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "full context", both(cost, LLAMA))
    ranked(ax, ARMS, found, "full context", "PACER Table 8, HumanEval")
    caption(
        ax,
        "What PACER's head attends to, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
        *found.notes,
    )
    return Drawn("pacer_attention", frame(found.rows), ax, tuple(found.notes))
