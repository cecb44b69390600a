"""PACER's halting criteria."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, ranked, sweep
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.papers import pacer
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

ARMS = sweep(pacer.TABLE_7, lambda criterion: pacer.policy(criterion=criterion))


@figure("PACER Table 7", draft_model=True)
def pacer_criteria(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER stopping by the mean, any, or the last score of a block.

    Args:
        study: of a trace with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    found = compare(study, ARMS, "mean", both(cost, pacer.DEEPSEEK))
    ranked(ax, ARMS, found, "mean", "PACER Table 7, HumanEval")
    caption(
        ax,
        "When PACER stops, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
    )
    return Drawn("pacer_criteria", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
