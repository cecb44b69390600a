"""The distribution of the optimal draft length of a step."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points, text
from analysis.replays import groups
from analysis.stats import clusters, drafts, optimal
from analysis.study import path_layout
from traces.trace import Trace

LONGEST = 12  # lengths drawn; those beyond are in the frame


@figure("PACER section 3.1; PEARL Fig. 2b", "accepted")
def optimal_lengths(trace: Trace, ax: Axes) -> Drawn:
    """Share of steps that could use so many draft tokens or more, by task.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
    """
    layout = path_layout(trace)
    accepted = trace.positions("accepted")
    rows, said = [], []
    for k, (task, some) in enumerate(groups(trace).items()):
        wanted, offsets = clusters.of_prompts(layout.offsets, some)
        runs = drafts.runs(accepted[wanted], offsets)
        found = optimal.lengths(runs)
        at_least = np.cumsum(found.count[::-1])[::-1] / max(1, found.count.sum())
        shown = found.length[: LONGEST + 1]
        points(
            ax,
            shown + (k - 2) * 0.09,
            found.share[: LONGEST + 1],
            label=f"{task}, mean {text(found.mean, '.2f')}",
            **look(k),
        )
        said += missing(found.share[: LONGEST + 1], [f"{task} {n}" for n in shown])
        for i, e in enumerate(found.share):
            row = {"task": task, "length": i, "steps": int(found.count[i])}
            rows.append(row | {"at_least": float(at_least[i])} | cells(e, "share"))
        rows.append({"task": task, "steps": len(runs)} | cells(found.mean, "mean"))
    ax.set(xlabel="γ*, tokens that the step could use", ylabel="share of steps")
    ax.set_ylim(0)
    ax.legend(loc="upper right")
    caption(
        ax,
        "How many draft tokens a step can use",
        f"{trace.n_sequences} prompts; beyond {LONGEST} tokens not drawn; bars: 95% over prompts.",
        *said[:2],
    )
    return Drawn("optimal_lengths", frame(rows), ax, tuple(said))
