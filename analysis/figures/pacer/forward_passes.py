"""Passes of PACER against those of plain speculation."""

from __future__ import annotations

from analysis import outside_loops
from analysis.figures.arms import passes
from analysis.figures.base import Plot, figure
from analysis.figures.measures import APART, taus
from analysis.labelled_replays import choices
from analysis.papers import pacer
from analysis.replays import FAMILIES
from simkit.simulator.arguments import AnyCost

_PLAIN, _MINE = pacer.TABLE_6["HumanEval"]
PRINTED = {  # PACER ÷ plain speculation with the best fixed length
    "draft passes": _MINE.draft / _PLAIN.draft,
    "target passes": _MINE.target / _PLAIN.target,
    "τ": _MINE.tau / _PLAIN.tau,
}


@figure("PACER Table 6", draft_model=True, grouped=True)
def forward_passes(plot: Plot, cost: AnyCost | None = None) -> None:
    """Draft passes, target passes and τ of PACER ÷ those of the best fixed draft length.

    τ also of the steps outside of verbatim loops of the output. Needs the scores of PACER's head.
    """
    at = plot.under(cost)
    fixed = at.tuned_fixed()
    one = plot.tuned({"PACER": FAMILIES["PACER"]}, cost)["PACER"]
    mine, plain = (plot.groups.of(at, arm).counts for arm in (one, fixed))
    arms = {"PACER": one, "fixed": fixed}
    free = outside_loops.if_any(at, arms) if plot.by == "task" else {}
    measures = {
        "draft passes": (mine["draft_passes"], plain["draft_passes"]),
        "target passes": (mine["steps"], plain["steps"]),
        "τ": taus(mine, plain),
    }
    if free:
        measures[APART] = taus(free["PACER"], free["fixed"])
    passes(plot, plot.groups.masks, measures, PRINTED, "PACER Table 6, HumanEval")
    plot.ax.set(ylabel="PACER ÷ the best fixed length")
    plot.caption(
        "Passes that PACER saves",
        f"{plot.prompts}; {plot.groups.chosen}; {plot.cost_name(cost)};"
        " bars: 95% CI over prompts, paired.",
        f"Best fixed length: {choices(fixed)}. PACER: {choices(one)}.",
    )
