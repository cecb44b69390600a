"""The distribution of the optimal draft length of a step."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.drawing.tasks import few
from analysis.figures.rows import cells, text
from analysis.replays import groups
from analysis.stats import optimal

LONGEST = 12  # lengths drawn; those beyond are in the frame


@figure("PACER section 3.1; PEARL Fig. 2b", "accepted")
def optimal_lengths(plot: Plot) -> None:
    """Share of steps whose optimal draft length is at least k tokens, by task.

    Of all tasks together also outside of verbatim loops of the output; of each task in the frame.
    """
    looped, masks = plot.study.loops, groups(plot.trace)
    taken = {"": plot.study.runs()}
    if (left := looped.outside) is not None:
        taken[", outside of loops"] = plot.study.runs(left)
    each = {
        (task, end): optimal.lengths(taken[end].of_prompts(some))
        for end in taken
        for task, some in masks.items()
    }
    seen, which = few(plot.ax, {task: each[task, ""].mean.value for task in masks})
    k, overall = 0, list(masks)[-1]
    for (task, end), found in each.items():
        if task == overall or (task in seen and not end):
            shown = found.length[: LONGEST + 1]
            label = f"{task}{end}, mean {text(found.mean, '.2f')}"
            of = [f"{task} {n}" for n in shown]
            at = shown + (k - 2) * 0.09
            plot.points(at, found.share[: LONGEST + 1], of, label=label, **look(k))
            k += 1
        at_least = np.cumsum(found.count[::-1])[::-1] / max(1, found.count.sum())
        for i, e in enumerate(found.share):
            row = {"task": f"{task}{end}", "length": i, "steps": int(found.count[i])}
            plot.rows.append(row | {"at_least": float(at_least[i])} | cells(e, "share"))
        row = {"task": f"{task}{end}", "steps": int(found.count.sum())}
        plot.rows.append(row | cells(found.mean, "mean"))
    plot.ax.set(xlabel="γ*, tokens that the step could use", ylabel="share of steps")
    plot.ax.set_ylim(0)
    plot.below(3)
    plot.caption(
        "How many draft tokens a step can use",
        f"{plot.prompts}; lengths beyond {LONGEST} are not drawn; bars: 95% CI over"
        f" prompts. {looped.share:.0%} of the positions lie in verbatim loops.",
        which,
    )
