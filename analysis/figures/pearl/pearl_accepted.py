"""Mean accepted tokens of PEARL."""

from __future__ import annotations

from itertools import compress

import numpy as np

from analysis import outside_loops
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import points
from analysis.figures.drawing.tasks import few_along, tasks_on
from analysis.labelled_replays import window_words
from analysis.papers import pearl
from analysis.replays import groups
from analysis.series_styles import of_policy
from analysis.stats import accepted_runs, clusters
from analysis.study import MissingError
from simkit.simulator.arguments import AnyCost

PLAIN = "plain speculation"


@figure("PEARL Table 7", draft_model=True)
def pearl_accepted(plot: Plot, cost: AnyCost | None = None) -> None:
    """Mean accepted tokens between rejections (MAT) of PEARL and of plain speculation.

    With verbatim loops of the output and without.

    Args:
        cost: that γ = round(c) follows from.
    """
    at = plot.under(cost)
    runs = plot.replays({"PEARL": f"pearl({at.window})", PLAIN: f"fixed({at.window})"}, cost)
    masks, plain = groups(plot.trace), runs[PLAIN].counts
    a = [clusters.ratio(plain["accepted"][m], plain["steps"][m]) for m in masks.values()]
    shown, which = few_along(plot.ax, {t: e.value for t, e in zip(masks, a, strict=True)})
    place, drawn = np.arange(len(shown)), [task in shown for task in masks]
    for k, (label, one) in enumerate(runs.items()):
        dots = of_policy(one.spec).dots
        facts = [{"policy": label, "measure": "mat", "task": task} for task in masks]
        found = _mat(at.accepted_runs(one.spec), masks)
        plot.keep(facts, found, "tokens")
        here = list(compress(found, drawn))
        plot.points(place + (k - 0.5) * 0.16, here, shown, label=f"{label}, MAT", **dots)
        try:
            free = _mat(outside_loops.accepted_runs(at, one.spec), masks)
        except MissingError:  # there are no loops
            continue
        how = {"label": f"{label}, MAT outside of loops", **dots, "marker": "v<"[k]}
        points(plot.ax, place - 0.24 - (1 - k) * 0.12, list(compress(free, drawn)), **how)
        apart = [row | {"measure": "mat, outside of loops"} for row in facts]
        plot.keep(apart, free, "tokens")
    how = {"label": f"{PLAIN}, accepted a step", **of_policy("fixed").dots, "marker": "X"}
    points(plot.ax, place + 0.24, list(compress(a, drawn)), **how)
    row = {"policy": PLAIN, "measure": "accepted_per_step"}
    plot.keep([row | {"task": task} for task in masks], a, "tokens")
    tasks_on(plot.ax, {task: masks[task] for task in shown})
    plot.ax.set(ylabel="accepted tokens")
    plot.ax.set_ylim(0)
    plot.below(2)
    printed = pearl.PAIRS[pearl.DEEPSEEK]
    plot.caption(
        "Accepted tokens between two rejections",
        which,
        f"n: prompts; {window_words(at)}; {plot.cost_name(cost)}; bars: 95% CI over prompts.",
        "PEARL Table 7, DeepSeek 1.3B/33B: mean accepted tokens (MAT)"
        f" {printed.pearl_accepted}; plain speculation {printed.plain_accepted} accepted a step at"
        f" γ = {printed.best_length}. A run between rejections is at least as long as what one"
        " step accepts of it.",
    )


def _mat(sums: np.ndarray, masks: dict[str, np.ndarray]) -> list:
    """MAT of each task's prompts."""
    return [accepted_runs.mean_accepted(sums[some]) for some in masks.values()]
