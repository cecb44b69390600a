"""What PACER's head attends to."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.papers import Arm, pacer
from simkit.simulator.arguments import AnyCost
from traces.trace import Trace

_HEADS = {
    "full context": {},
    "local draft": {"head": "pacer-local-draft"},
    "local block": {"head": "pacer-local-block"},
}
ARMS = tuple(
    Arm(label, pacer.policy(pacer.HUMANEVAL_LLAMA, **head), pacer.TABLE_8[label])
    for label, head in _HEADS.items()
)


@figure("PACER Table 8")
def pacer_attention(trace: Trace, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER's heads that see the whole context, the draft, or the block.

    Args:
        trace: with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    found = compare(trace, ARMS, "full context", both(cost, pacer.LLAMA))
    ranked(ax, ARMS, found, "full context", "PACER Table 8, HumanEval")
    caption(
        ax,
        "What PACER's head attends to, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
        *found.notes,
    )
    return Drawn("pacer_attention", frame(found.rows), ax, tuple(found.notes))
