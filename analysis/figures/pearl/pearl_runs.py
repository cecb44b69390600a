"""Model runs that PEARL pays for its speed."""

from __future__ import annotations

from analysis.figures.arms import passes
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.styles import FigureError
from analysis.figures.rows import text
from analysis.labelled_replays import replays, window_words
from analysis.papers import pearl
from analysis.speeds import speed
from simkit.simulator.arguments import AnyCost

PRINTED: dict[str, float] = dict(
    zip(("draft runs", "target runs"), pearl.PAIRS[pearl.DEEPSEEK].runs_ratio, strict=True)
)


@figure("PEARL Table 11", draft_model=True, grouped=True)
def pearl_runs(plot: Plot, cost: AnyCost | None = None) -> None:
    """Passes of both models and time of PEARL, relative to fixed drafts of the same length."""
    at = plot.under(cost)
    window, best = at.window, at.best_fixed
    arms = {"PEARL": f"pearl({window})", "plain": f"fixed({window})"}
    runs, why = replays(plot.study, arms, cost)
    if why:
        raise FigureError(f"pearl_runs: {next(iter(why.values()))}")
    mine, plain = runs["PEARL"], runs["plain"]
    one, other = (plot.groups.of(at, arm) for arm in (mine, plain))
    pairs = {
        "draft runs": (one.counts["draft_passes"], other.counts["draft_passes"]),
        "target runs": (one.counts["steps"], other.counts["steps"]),
        "time": (one.total_s, other.total_s),
    }
    passes(plot, plot.groups.masks, pairs, PRINTED, "PEARL Table 11, DeepSeek 1.3B/33B")
    plot.ax.set(ylabel=f"pearl({window}) ÷ fixed({window})")
    plot.caption(
        "Model runs of PEARL and of plain speculation",
        f"Speed ÷ that of the best fixed length, {best.spec}: {text(speed(mine, best), '.2f')}.",
        f"{plot.prompts}; {window_words(at)}; {plot.cost_name(cost)};"
        " bars: 95% CI over prompts, paired.",
    )
