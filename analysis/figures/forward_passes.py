"""Passes of PACER against those of plain speculation."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.figures.arms import passes
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.figures.measures import APART, taus
from analysis.labelled_replays import choices, chosen, cost_name, tuned
from analysis.papers import pacer
from analysis.replays import FAMILIES, groups, of
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

_PLAIN, _MINE = pacer.TABLE_6["HumanEval"]
PRINTED = {  # PACER ÷ plain speculation with the best fixed length
    "draft passes": _MINE.draft / _PLAIN.draft,
    "target passes": _MINE.target / _PLAIN.target,
    "τ": _MINE.tau / _PLAIN.tau,
}


@figure("PACER Table 6", draft_model=True)
def forward_passes(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Draft passes, target passes and τ of PACER ÷ those of the best fixed draft length.

    τ also of the steps outside of verbatim loops of the output.

    Args:
        study: of a trace with the scores of PACER's head.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    at = of(study, cost)
    fixed = at.tuned_fixed()
    found, gone = tuned(study, {"PACER": FAMILIES["PACER"]}, cost)
    mine, plain = found["PACER"].counts, fixed.counts
    free = outside_loops.if_any(at, {"PACER": found["PACER"], "fixed": fixed})
    measures = {
        "draft passes": (mine["draft_passes"], plain["draft_passes"]),
        "target passes": (mine["steps"], plain["steps"]),
        "τ": taus(mine, plain),
    }
    if free:
        measures[APART] = taus(free["PACER"], free["fixed"])
    rows, said = passes(ax, groups(trace), measures, PRINTED, "PACER Table 6, HumanEval")
    ax.set(ylabel="PACER ÷ the best fixed length")
    ax.set_ylim(0)
    caption(
        ax,
        "Passes that PACER saves",
        f"{trace.n_sequences} prompts, {chosen(trace, by_task=True)}; {cost_name(study, cost)};"
        " bars: 95% over prompts, paired.",
        f"Best fixed length: {choices(fixed)}. PACER: {choices(found['PACER'])}.",
    )
    return Drawn("forward_passes", frame(rows), ax, tuple(said + gone))
