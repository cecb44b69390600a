"""PACER by block size."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, sweep, swept
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.papers import pacer
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

ARMS = sweep(pacer.TABLE_11, lambda block: pacer.policy(block=block))


@figure("PACER Table 11", draft_model=True)
def pacer_block(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of PACER by its block size.

    Args:
        study: of a trace with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    found = compare(study, ARMS, "4", both(cost, pacer.DEEPSEEK))
    swept(ax, ARMS, found, "b = 4", "block size b", "PACER Table 11, HumanEval")
    caption(
        ax,
        "PACER by block size",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. Other settings: the"
        " paper's.",
    )
    return Drawn("pacer_block", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
