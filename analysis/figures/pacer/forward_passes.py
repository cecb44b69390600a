"""Passes of PACER against those of plain speculation."""

from __future__ import annotations

from analysis import outside_loops
from analysis.figures.arms import passes
from analysis.figures.base import Plot, figure
from analysis.figures.measures import APART, taus
from analysis.labelled_replays import choices, chosen
from analysis.papers import pacer
from analysis.replays import FAMILIES, groups
from simkit.simulator.arguments import AnyCost

_PLAIN, _MINE = pacer.TABLE_6["HumanEval"]
PRINTED = {  # PACER ÷ plain speculation with the best fixed length
    "draft passes": _MINE.draft / _PLAIN.draft,
    "target passes": _MINE.target / _PLAIN.target,
    "τ": _MINE.tau / _PLAIN.tau,
}


@figure("PACER Table 6", draft_model=True)
def forward_passes(plot: Plot, cost: AnyCost | None = None) -> None:
    """Draft passes, target passes and τ of PACER ÷ those of the best fixed draft length.

    τ also of the steps outside of verbatim loops of the output. Needs the scores of PACER's head.
    """
    at = plot.under(cost)
    fixed = at.tuned_fixed()
    one = plot.tuned({"PACER": FAMILIES["PACER"]}, cost)["PACER"]
    mine, plain = one.counts, fixed.counts
    free = outside_loops.if_any(at, {"PACER": one, "fixed": fixed})
    measures = {
        "draft passes": (mine["draft_passes"], plain["draft_passes"]),
        "target passes": (mine["steps"], plain["steps"]),
        "τ": taus(mine, plain),
    }
    if free:
        measures[APART] = taus(free["PACER"], free["fixed"])
    passes(plot, groups(plot.trace), measures, PRINTED, "PACER Table 6, HumanEval")
    plot.ax.set(ylabel="PACER ÷ the best fixed length")
    plot.caption(
        "Passes that PACER saves",
        f"{plot.prompts}, {chosen(plot.trace, by_task=True)}; {plot.cost_name(cost)};"
        " bars: 95% over prompts, paired.",
        f"Best fixed length: {choices(fixed)}. PACER: {choices(one)}.",
    )
