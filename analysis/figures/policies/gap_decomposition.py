"""The time between the best fixed length and the prophet, in parts."""

from __future__ import annotations

from textwrap import fill

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import bars_high
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import paper, small
from analysis.figures.rows import cells
from analysis.gap import parts
from analysis.labelled_replays import HINDSIGHT, choices, tuned
from analysis.replays import FAMILIES
from analysis.series_styles import HATCHES, Look
from analysis.stats import clusters
from simkit.simulator.arguments import AnyCost

LEAST = 1e-4  # of the time, that a bar shows
BLIND = {"fixed", "heuristic"}  # families that read no column of the drafts
MEANING = {
    "reachable": "best policy saves",
    "overhead": "its decisions, heads",
    "unreachable": "out of reach",
}


@figure("new", grouped=True, compares=True)
def gap_decomposition(plot: Plot, cost: AnyCost | None = None) -> None:
    """Time between the tuned fixed length and the prophet: saved, decision cost, unreachable."""
    ax, each = plot.ax, plot.tuned(FAMILIES, cost, bounded=True)
    if each.keys() - plot.policies.keys() <= BLIND:
        plot.nothing = (
            "no rule that looks at the drafts can be replayed, so what is out of reach is not known"
        )
    real = [name for name, one in each.items() if not one.policy.needs_future]
    whole = tuple((FAMILIES | plot.policies)[name] for name in real)
    wanted = {"best": whole, "fixed": FAMILIES["fixed"], **HINDSIGHT}
    found, _ = tuned(plot.study, wanted, cost)
    at, by = plot.under(cost), plot.groups
    best, fixed, prophet = (by.of(at, found[name]) for name in ("best", "fixed", "prophet"))
    seconds = parts(fixed.total_s, best.total_s, best.seconds["policy_s"], prophet.total_s)
    masks = by.masks
    bars_high(ax, len(masks), 0.36)
    none = [task for task, some in masks.items() if not seconds["gap"][some].any()]
    heights = range(len(masks) - 1, -1, -1)
    for height, (task, some) in zip(heights, masks.items(), strict=True):
        _bar(plot, height, task, {name: mine[some] for name, mine in seconds.items()})
        if task in none:
            ax.text(0, height, " no gap", va="center", fontsize=small())
    ax.set_yticks(heights, [f"{fill(t, 18)}, n = {int(m.sum())}" for t, m in masks.items()])
    for_all = f" for all {plot.by}s" if len(masks) > 1 else ""
    ax.set(xlabel=f"share of the time of the best fixed length{for_all}")
    if len(none) == len(masks):
        ax.set_xlim(0, 1)
    ax.set_ylim(-0.7, len(masks) - 0.5)
    ax.grid(axis="y", visible=False)
    plot.below()
    plot.caption(
        "From the best fixed length to the prophet",
        "n: prompts; lines below a part's end: its 95% CI over prompts, paired."
        f" Best policy: {choices(best)}; best fixed length: {choices(fixed)};"
        f" {by.chosen}; {plot.cost_name(cost)}.",
    )


def _bar(plot: Plot, at: int, task: str, seconds: dict[str, np.ndarray]) -> None:
    """One task's parts, one behind the other, and the interval of each below its end."""
    left = 0.0
    for k, (name, meaning) in enumerate(MEANING.items()):
        share = clusters.ratio(seconds[name], seconds["fixed"])
        of_gap = clusters.ratio(seconds[name], seconds["gap"])
        value = share.value or 0.0
        seen = abs(value) > LEAST
        how: Look = {"color": COLORS[k], "hatch": HATCHES[k], "edgecolor": paper()}
        plot.ax.barh(at, value, 0.55, left, label=meaning if seen else None, **how)
        end, left = left + value, left + max(0.0, value)
        if share.lo is not None and share.hi is not None and seen:
            reach, y = [[value - share.lo], [share.hi - value]], at - 0.36 - 0.06 * k
            plot.ax.errorbar(end, y, xerr=reach, fmt="|", color=COLORS[k], elinewidth=1.2)
        row = {plot.by: task, "part": name, "seconds": float(seconds[name].sum())}
        plot.rows.append(row | cells(share, "of_fixed") | cells(of_gap, "of_gap"))
        if seen:
            plot.missing([share], [task])
