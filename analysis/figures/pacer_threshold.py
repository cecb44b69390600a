"""PACER by threshold."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, sweep, swept
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.papers import pacer
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

ARMS = sweep(pacer.TABLE_13, lambda threshold: pacer.policy(threshold=threshold))


@figure("PACER Table 13", draft_model=True)
def pacer_threshold(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed of PACER by its threshold.

    Args:
        study: of a trace with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    found = compare(study, ARMS, "0.7", both(cost, pacer.DEEPSEEK))
    swept(ax, ARMS, found, "t = 0.7", "threshold t", "PACER Table 13, HumanEval")
    caption(
        ax,
        "PACER by threshold",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. Other settings: the"
        " paper's.",
    )
    return Drawn("pacer_threshold", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
