"""PEARL without one of its strategies."""

from __future__ import annotations

from analysis.figures.arms import both, compare, ranked
from analysis.figures.base import Plot, figure
from analysis.labelled_replays import window_words
from analysis.papers import TableRow, pearl
from simkit.simulator.arguments import AnyCost

_PRINTED = pearl.TABLE_4[pearl.DEEPSEEK]
ARMS = (
    TableRow("PEARL", "pearl", _PRINTED["PEARL"]),
    TableRow("w/o pre-verify", "pearl(pre_verify=false)", _PRINTED["w/o pre-verify"]),
    TableRow("w/o post-verify", "pearl(post_verify=false)", _PRINTED["w/o post-verify"]),
)


@figure("PEARL Table 4", draft_model=True)
def pearl_strategies(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speed of PEARL, of PEARL without pre-verify, and of PEARL without post-verify.

    Args:
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    costs = both(cost, pearl.DEEPSEEK)
    found = compare(plot.study, ARMS, "PEARL", costs)
    plot.rows, plot.notes = found.rows, found.notes
    windows = dict.fromkeys(
        window_words(plot.under(times)) + (f" ({name})" if len(found.speeds) > 1 else "")
        for name, times in costs.items()
        if name in found.speeds
    )
    ranked(plot.ax, ARMS, found, "PEARL", "PEARL Table 4, DeepSeek 1.3B/33B")
    plot.caption(
        "What PEARL's strategies are worth",
        f"{plot.prompts}; bars: 95% CI over prompts, paired. {', '.join(windows)};"
        " draft and target on separate devices. τ: accepted tokens a step.",
    )
