"""Drafted and accepted tokens of three policies, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import width_of
from analysis.figures.drawing.captions import length
from analysis.figures.drawing.styles import ink, paper, small
from analysis.figures.drawing.tasks import few_along, tasks_on
from analysis.figures.rows import Row, cells
from analysis.papers import svip
from analysis.replays import groups
from analysis.series_styles import Look, SeriesStyle, of_policy
from analysis.stats import Estimate, clusters

ARMS = {"constant 5": svip.CONSTANT, "heuristic": svip.HEURISTIC}
MEASURES = {
    "draft_length": ("proposed", "steps"),
    "accepted_length": ("accepted", "steps"),
    "acceptance_rate": ("accepted", "proposed"),
}
Measured = Mapping[str, Estimate]


@figure("SVIP Figs. 5, 6 and 7")
def draft_lengths(plot: Plot, h: float = 0.8) -> None:
    """Draft length, accepted length and acceptance rate of constant, heuristic and SVIP drafts.

    Of all tasks together also outside of verbatim loops of the output; of each task in the frame.

    Args:
        h: SVIP's threshold; the paper tunes it for each pair, within 0.2 to 0.5.
    """
    runs = plot.replays(ARMS | {f"SVIP, h = {h:g}": f"svip(h={h})"}, timed=False)
    masks, free = groups(plot.trace), outside_loops.if_any(plot.under(None), runs)
    drawn, which = few_along(plot.ax, _rates(next(iter(runs.values())).counts, masks))
    for k, (label, one) in enumerate(runs.items()):
        measured = _measured(one.counts, masks)
        shown = [measured[task] for task in drawn]
        if free:
            apart = _measured(free[label], masks)
            measured |= {f"{task}, outside of loops": found for task, found in apart.items()}
            shown.append(list(apart.values())[-1])  # all tasks together
        at = np.arange(len(shown)) + (k - (len(runs) - 1) / 2) * 0.27
        written = _bars(plot.ax, at, shown, of_policy(one.spec), label)
        for task, found in measured.items():
            row: Row = {"policy": label, "task": task}
            for name, e in found.items():
                row |= cells(e, name)
                plot.missing([e], [task])
            plot.rows.append(row)
    tasks_on(
        plot.ax, {task: masks[task] for task in drawn}, *(["outside of loops"] if free else [])
    )
    plot.ax.set(ylabel="tokens a step")
    plot.below()
    plot.caption(
        "Draft length and accepted length",
        which,
        f"Outline: drafted; filled: accepted; {'%: their ratio; ' * written}n: prompts,"
        f" {plot.sampling}; lines: 95% CI over prompts.",
        "Outside of loops: steps of all prompts that begin outside of verbatim loops, with their"
        " tokens up to the next loop."
        if free
        else "",
    )


def _rates(
    counts: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray]
) -> dict[str, float | None]:
    """The share of each task's drafted tokens that is accepted."""
    return {task: e["acceptance_rate"].value for task, e in _measured(counts, masks).items()}


def _measured(
    counts: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray]
) -> dict[str, Measured]:
    """The measures of each task's prompts."""
    return {
        task: {
            name: clusters.ratio(counts[a][m], counts[b][m]) for name, (a, b) in MEASURES.items()
        }
        for task, m in masks.items()
    }


def _bars(
    ax: Axes, at: np.ndarray, measured: Sequence[Measured], look: SeriesStyle, label: str
) -> bool:
    """One policy: drafted as an outline, accepted inside it; whether their ratio is above."""
    drafted, accepted, rate = ([found[name] for found in measured] for name in MEASURES)
    height = [e.value or 0.0 for e in drafted]
    ax.bar(at, height, 0.25, color=paper(), edgecolor=look.color, linewidth=1.2)
    filled = [e.value or 0.0 for e in accepted]
    how: Look = look.bar | {"edgecolor": paper()}
    ax.bar(at, filled, 0.25, label=label if any(filled) else None, **how)
    for some in (drafted, accepted):
        for x, e in zip(at, some, strict=True):
            if e.lo is not None and e.hi is not None:
                ax.vlines(x, e.lo, e.hi, colors=ink(), lw=0.8)
    if 72 * width_of(ax) / (4 * len(at)) < length("88%", small()):
        return False  # too many bars to write on: the ratios are in the frame
    for x, e, a, share in zip(at, drafted, accepted, rate, strict=True):
        if share.value is not None:
            top = max(e.hi or 0.0, e.value or 0.0, a.hi or 0.0)
            ax.text(x, top, f"{share.value:.0%}", ha="center", va="bottom", fontsize=small())
    return True
