"""Drafted and accepted tokens of three policies, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, paper, small
from analysis.figures.captions import length
from analysis.figures.legends import below
from analysis.figures.styles import WIDTH
from analysis.figures.tasks import tasks_on
from analysis.labelled_replays import replays, without
from analysis.papers import svip
from analysis.replays import groups, of
from analysis.series_styles import SeriesStyle, of_policy
from analysis.stats import Estimate, clusters
from analysis.study import Study

ARMS = {"constant 5": svip.CONSTANT, "heuristic": svip.HEURISTIC}
MEASURES = {
    "draft_length": ("proposed", "steps"),
    "accepted_length": ("accepted", "steps"),
    "acceptance_rate": ("accepted", "proposed"),
}


@figure("SVIP Figs. 5, 6 and 7")
def draft_lengths(study: Study, ax: Axes, h: float = 0.8) -> Drawn:
    """Draft length, accepted length and acceptance rate of constant, heuristic and SVIP drafts.

    Of all tasks together also outside of verbatim loops of the output; of each task in the frame.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        h: SVIP's threshold; the paper tunes it for each pair, within 0.2 to 0.5.
    """
    trace = study.trace
    runs, why = replays(study, ARMS | {f"SVIP, h = {h:g}": f"svip(h={h})"}, timed=False)
    gone = without(why)
    masks, free = groups(trace), outside_loops.if_any(of(study, None), runs)
    rows, said = [], []
    for k, (label, one) in enumerate(runs.items()):
        measured = _measured(one.counts, masks)
        shown = list(measured.values())
        if free:
            apart = _measured(free[label], masks)
            measured |= {f"{task}, outside of loops": found for task, found in apart.items()}
            shown.append(list(apart.values())[-1])  # all tasks together
        at = np.arange(len(shown)) + (k - (len(runs) - 1) / 2) * 0.27
        _bars(ax, at, shown, of_policy(one.spec), label)
        for task, found in measured.items():
            row = {"policy": label, "task": task}
            for name, e in found.items():
                row |= cells(e, name)
                said += missing([e], [task])
            rows.append(row)
    tasks_on(ax, masks, *(["outside of loops"] if free else []))
    ax.set(ylabel="tokens a step")
    below(ax)
    drawn = "greedy" if trace.sampler.greedy else "sampled"
    caption(
        ax,
        "Draft length and accepted length",
        f"Outline: drafted; filled: accepted; %: their ratio; n: prompts, {drawn}; lines: 95%"
        " over prompts.",
        "Outside of loops: steps that begin outside of verbatim loops of the output, their tokens"
        " up to the next loop; all prompts."
        if free
        else "",
    )
    return Drawn("draft_lengths", frame(rows), ax, tuple(said + gone))


def _measured(
    counts: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Estimate]]:
    """The measures of each task's prompts."""
    return {
        task: {
            name: clusters.ratio(counts[a][m], counts[b][m]) for name, (a, b) in MEASURES.items()
        }
        for task, m in masks.items()
    }


def _bars(
    ax: Axes,
    at: np.ndarray,
    measured: Sequence[Mapping[str, Estimate]],
    look: SeriesStyle,
    label: str,
) -> None:
    """One policy: drafted as an outline, accepted inside it, and their ratio above."""
    drafted, accepted, rate = ([found[name] for found in measured] for name in MEASURES)
    height = [e.value or 0.0 for e in drafted]
    ax.bar(at, height, 0.25, color=paper(), edgecolor=look.color, linewidth=1.2)
    how: dict[str, Any] = look.bar | {"edgecolor": paper()}
    filled = [e.value or 0.0 for e in accepted]
    ax.bar(at, filled, 0.25, label=label if any(filled) else None, **how)
    for some in (drafted, accepted):
        for x, e in zip(at, some, strict=True):
            if e.lo is not None and e.hi is not None:
                ax.vlines(x, e.lo, e.hi, colors=ink(), lw=0.8)
    whole = ax.get_figure(root=True)
    wide = 72 * (whole.get_figwidth() if whole else WIDTH) / (4 * len(at))
    if wide < length("88%", small()):
        return  # too many bars to write on: the ratios are in the frame
    for x, e, a, share in zip(at, drafted, accepted, rate, strict=True):
        if share.value is not None:
            top = max(e.hi or 0.0, e.value or 0.0, a.hi or 0.0)
            ax.text(x, top, f"{share.value:.0%}", ha="center", va="bottom", fontsize=small())
