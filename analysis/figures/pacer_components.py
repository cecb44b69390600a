"""PACER without its position embedding and without its growth factor."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.labelled_replays import choices, chosen
from analysis.papers import TableRow, pacer
from analysis.replays import ALONE, FAMILIES, of
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

ARMS = (
    TableRow("PACER", pacer.policy(), pacer.TABLE_5["PACER"]),
    TableRow("w/o pos-emb", pacer.policy(head="pacer-no-position"), pacer.TABLE_5["w/o pos-emb"]),
    TableRow("w/o growth", pacer.policy(growth=1.0), pacer.TABLE_5["w/o growth-factor"]),
    TableRow("best fixed", FAMILIES["fixed"], pacer.TABLE_5["Speculative"]),
    TableRow(ALONE, ALONE, pacer.TABLE_5["Vanilla"]),
)


@figure("PACER Table 5", draft_model=True)
def pacer_components(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PACER, its parts left out, and plain speculation with the best fixed length.

    Args:
        study: of a trace with the scores of PACER's heads.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    costs = both(cost, pacer.DEEPSEEK)
    found = compare(study, ARMS, "PACER", costs)
    lengths = "; ".join(f"{choices(of(study, costs[k]).tuned_fixed())}, {k}" for k in found.speeds)
    ranked(ax, ARMS, found, "PACER", "PACER Table 5, HumanEval")
    caption(
        ax,
        "What PACER's parts are worth, at the paper's settings",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. τ: accepted tokens a step.",
        f"Best fixed: {lengths}; {chosen(trace)}.",
    )
    return Drawn("pacer_components", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
