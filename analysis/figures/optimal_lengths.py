"""The distribution of the optimal draft length of a step."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points, text
from analysis.figures.legends import below
from analysis.figures.tasks import few
from analysis.replays import groups
from analysis.stats import drafts, optimal
from analysis.study import loops_of, path_layout
from traces.trace import Trace

LONGEST = 12  # lengths drawn; those beyond are in the frame


@figure("PACER section 3.1; PEARL Fig. 2b", "accepted")
def optimal_lengths(trace: Trace, ax: Axes) -> Drawn:
    """Share of steps that could use so many draft tokens or more, by task.

    Of all tasks together also outside of verbatim loops of the output; of each task in the frame.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
    """
    layout, looped = path_layout(trace), loops_of(trace)
    accepted, left = trace.positions("accepted"), looped.outside
    taken = {"": drafts.runs(accepted, layout.offsets)}
    if left is not None:
        runs = drafts.runs(accepted[left.rows], left.offsets)
        taken[", outside of loops"] = left.by_prompt(runs)
    masks = groups(trace)
    rows, said = [], []
    each = [(task, some, end) for end in taken for task, some in masks.items()]
    overall = list(masks)[-1]
    of_each = [optimal.lengths(taken[end].of_prompts(some)) for _, some, end in each]
    means = {t: one.mean.value for (t, _, end), one in zip(each, of_each, strict=True) if not end}
    seen, which = few(means)
    k = -1
    for (task, _, end), found in zip(each, of_each, strict=True):
        at_least = np.cumsum(found.count[::-1])[::-1] / max(1, found.count.sum())
        if task == overall or (task in seen and not end):
            k += 1
            shown = found.length[: LONGEST + 1]
            label = f"{task}{end}, mean {text(found.mean, '.2f')}"
            points(ax, shown + (k - 2) * 0.09, found.share[: LONGEST + 1], label=label, **look(k))
            said += missing(found.share[: LONGEST + 1], [f"{task} {n}" for n in shown])
        for i, e in enumerate(found.share):
            row = {"task": f"{task}{end}", "length": i, "steps": int(found.count[i])}
            rows.append(row | {"at_least": float(at_least[i])} | cells(e, "share"))
        rows.append(
            {"task": f"{task}{end}", "steps": int(found.count.sum())} | cells(found.mean, "mean")
        )
    ax.set(xlabel="γ*, tokens that the step could use", ylabel="share of steps")
    ax.set_ylim(0)
    below(ax, 3)
    caption(
        ax,
        "How many draft tokens a step can use",
        f"{trace.n_sequences} prompts; beyond {LONGEST} tokens not drawn; bars: 95% over"
        f" prompts. {looped.share:.0%} of the positions repeat a verbatim loop.",
        which,
    )
    return Drawn("optimal_lengths", frame(rows), ax, tuple(said))
