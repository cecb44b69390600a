"""PEARL without one of its strategies."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import both, compare, ranked
from analysis.figures.base import Drawn, caption, figure, frame
from analysis.labelled_replays import window_words
from analysis.papers import TableRow, pearl
from analysis.replays import of
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

_PRINTED = pearl.TABLE_4[pearl.DEEPSEEK]
ARMS = (
    TableRow("PEARL", "pearl", _PRINTED["PEARL"]),
    TableRow("w/o pre-verify", "pearl(pre_verify=false)", _PRINTED["w/o pre-verify"]),
    TableRow("w/o post-verify", "pearl(post_verify=false)", _PRINTED["w/o post-verify"]),
)


@figure("PEARL Table 4", draft_model=True)
def pearl_strategies(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """PEARL, without pre-verify, and without post-verify.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    trace = study.trace
    costs = both(cost, pearl.DEEPSEEK)
    found = compare(study, ARMS, "PEARL", costs)
    windows = dict.fromkeys(
        window_words(of(study, times)) + (f" ({name})" if len(found.speeds) > 1 else "")
        for name, times in costs.items()
        if name in found.speeds
    )
    ranked(ax, ARMS, found, "PEARL", "PEARL Table 4, DeepSeek 1.3B/33B")
    caption(
        ax,
        "What PEARL's strategies are worth",
        f"{trace.n_sequences} prompts; bars: 95% over prompts, paired. {', '.join(windows)};"
        " draft and target on devices of their own. τ: accepted tokens a step.",
    )
    return Drawn("pearl_strategies", frame(found.rows), ax, tuple(found.notes), costs=found.costs)
