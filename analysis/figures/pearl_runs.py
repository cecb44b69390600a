"""Model runs that PEARL pays for its speed."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.arms import passes
from analysis.figures.base import Drawn, FigureError, caption, figure, frame, text
from analysis.labelled_replays import cost_name, replays, window_words
from analysis.papers import pearl
from analysis.replays import groups, of
from analysis.speeds import speed
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

PRINTED: dict[str, float] = dict(
    zip(("draft runs", "target runs"), pearl.PAIRS[pearl.DEEPSEEK].runs_ratio, strict=True)
)


@figure("PEARL Table 11", draft_model=True)
def pearl_runs(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Runs of both models and time of PEARL, against fixed drafts of as many tokens.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    at = of(study, cost)
    window = at.window
    arms = {"PEARL": f"pearl({window})", "plain": f"fixed({window})"}
    runs, why = replays(study, arms, cost)
    if why:
        raise FigureError(f"pearl_runs: {next(iter(why.values()))}")
    mine, plain = runs["PEARL"], runs["plain"]
    best = at.best_fixed
    pairs = {
        "draft runs": (mine.counts["draft_passes"], plain.counts["draft_passes"]),
        "target runs": (mine.counts["steps"], plain.counts["steps"]),
        "time": (mine.total_s, plain.total_s),
    }
    label = "PEARL Table 11, DeepSeek 1.3B/33B"
    rows, said = passes(ax, groups(trace), pairs, PRINTED, label)
    ax.set(ylabel=f"pearl({window}) ÷ fixed({window})")
    ax.set_ylim(0)
    caption(
        ax,
        "Model runs of PEARL and of plain speculation",
        f"Times as fast as the best fixed length, {best.spec}: {text(speed(mine, best), '.2f')}.",
        f"{trace.n_sequences} prompts; {window_words(at)}; {cost_name(study, cost)};"
        " bars: 95% over prompts, paired.",
    )
    return Drawn("pearl_runs", frame(rows), ax, tuple(said))
