"""Drafted and accepted tokens of three policies, by task."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.arms import below, tasks_on
from analysis.figures.base import COLORS, HATCHES, Drawn, caption, cells, figure, frame, missing
from analysis.papers import svip
from analysis.replays import groups
from analysis.shown import replays, without
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

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        h: SVIP's threshold; the paper tunes it for each pair, within 0.2 to 0.5.
    """
    trace = study.trace
    runs, why = replays(study, ARMS | {f"SVIP, h = {h:g}": f"svip(h={h})"}, timed=False)
    gone = without(why)
    masks = groups(trace)
    rows, said = [], []
    for k, (label, one) in enumerate(runs.items()):
        at = np.arange(len(masks)) + (k - (len(runs) - 1) / 2) * 0.27
        measured = {
            name: [clusters.ratio(one.counts[a][m], one.counts[b][m]) for m in masks.values()]
            for name, (a, b) in MEASURES.items()
        }
        _bars(ax, at, measured, k, label)
        for i, task in enumerate(masks):
            row = {"policy": label, "task": task}
            for name, found in measured.items():
                row |= cells(found[i], name)
                said += missing([found[i]], [task])
            rows.append(row)
    tasks_on(ax, [f"{task}\nn = {int(some.sum())}" for task, some in masks.items()])
    ax.set(ylabel="tokens a step")
    below(ax)
    drawn = "greedy" if trace.sampler.greedy else "sampled"
    caption(
        ax,
        "Draft length and accepted length",
        f"Outline: drafted; filled: accepted; %: their ratio; n: prompts, {drawn}; lines: 95%"
        " over prompts.",
        *list(dict.fromkeys(said))[:2],
        *gone,
    )
    return Drawn("draft_lengths", frame(rows), ax, tuple(said + gone))


def _bars(
    ax: Axes, at: np.ndarray, measured: dict[str, list[Estimate]], k: int, label: str
) -> None:
    """One policy: drafted as an outline, accepted inside it, and their ratio above."""
    drafted, accepted, rate = measured.values()
    color = COLORS[k]
    height = [e.value or 0.0 for e in drafted]
    ax.bar(at, height, 0.25, color="white", edgecolor=color, linewidth=1.2)
    how: dict[str, Any] = {"color": color, "hatch": HATCHES[k], "edgecolor": "white"}
    ax.bar(at, [e.value or 0.0 for e in accepted], 0.25, label=label, **how)
    for some in (drafted, accepted):
        for x, e in zip(at, some, strict=True):
            if e.lo is not None and e.hi is not None:
                ax.vlines(x, e.lo, e.hi, colors="black", lw=0.8)
    for x, e, share in zip(at, drafted, rate, strict=True):
        if share.value is not None:
            top = max(e.hi or 0.0, e.value or 0.0)
            ax.text(x, top, f"{share.value:.0%}", ha="center", va="bottom", fontsize=7)
