"""What PACER's head attends to."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.papers import TableRow, pacer
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

_HEADS = {
    "full context": {},
    "local draft": {"head": "pacer-local-draft"},
    "local block": {"head": "pacer-local-block"},
}
ARMS = tuple(
    TableRow(label, pacer.policy(pacer.HUMANEVAL_LLAMA, **head), pacer.TABLE_8[label])
    for label, head in _HEADS.items()
)


@figure("PACER Table 8", draft_model=True)
def pacer_attention(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER's heads that see the whole context, the draft, or the block.

    Args:
        study: of a trace with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    found = compare(study, ARMS, "full context", both(cost, pacer.LLAMA))
    ranked(ax, ARMS, found, "full context", "PACER Table 8, HumanEval")
    caption(
        ax,
        "What PACER's head attends to, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
    )
    return Drawn("pacer_attention", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
