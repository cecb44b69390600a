"""The time between the best fixed length and the prophet, in parts."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from matplotlib.axes import Axes

from analysis.figures.base import (
    COLORS,
    HATCHES,
    Drawn,
    bars_high,
    caption,
    cells,
    figure,
    frame,
    missing,
    paper,
    small,
)
from analysis.figures.legends import below
from analysis.gap import parts
from analysis.labelled_replays import HINDSIGHT, choices, chosen, cost_name, tuned
from analysis.replays import FAMILIES, groups
from analysis.stats import clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

LEAST = 1e-4  # of the time, that a bar shows
MEANING = {
    "reachable": "best policy saves",
    "overhead": "its decisions, heads",
    "unreachable": "out of reach",
}


@figure("new")
def gap_decomposition(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Time between the tuned fixed length and the prophet: reachable, overhead, unreachable.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    each, gone = tuned(study, FAMILIES, cost)
    whole = tuple(FAMILIES[name] for name in each)
    found, _ = tuned(study, {"best": whole, "fixed": FAMILIES["fixed"], **HINDSIGHT}, cost)
    best = found["best"]
    seconds = parts(
        found["fixed"].total_s,
        best.total_s,
        best.seconds["policy_s"],
        found["prophet"].total_s,
    )
    masks = groups(trace)
    bars_high(ax, len(masks), 0.36)
    none = [task for task, some in masks.items() if not seconds["gap"][some].any()]
    rows, said = [], []
    for i, (task, some) in enumerate(masks.items()):
        at, left = len(masks) - 1 - i, 0.0
        for k, name in enumerate(MEANING):
            share = clusters.ratio(seconds[name][some], seconds["fixed"][some])
            of_gap = clusters.ratio(seconds[name][some], seconds["gap"][some])
            value = share.value or 0.0
            how: dict[str, Any] = {"color": COLORS[k], "hatch": HATCHES[k], "edgecolor": paper()}
            label = MEANING[name] if abs(value) > LEAST else None
            ax.barh(at, value, 0.55, left, label=label, **how)
            left += max(0.0, value)
            if share.lo is not None and share.hi is not None and abs(value) > LEAST:
                reach = [[value - share.lo], [share.hi - value]]
                y = at - 0.36 - 0.06 * k
                ax.errorbar(left, y, xerr=reach, fmt="|", color=COLORS[k], elinewidth=1.2)
            row = {"task": task, "part": name, "seconds": float(seconds[name][some].sum())}
            rows.append(row | cells(share, "of_fixed") | cells(of_gap, "of_gap"))
            said += missing([share], [task]) if abs(value) > LEAST else []
        if task in none:
            ax.text(0, at, " no gap", va="center", fontsize=small())
    ax.set_yticks(
        range(len(masks) - 1, -1, -1),
        [f"{fill(t, 18)}, n = {int(m.sum())}" for t, m in masks.items()],
    )
    for_all = " for all tasks" if len(masks) > 1 else ""
    ax.set(xlabel=f"share of the time of the best fixed length{for_all}")
    if len(none) == len(masks):
        ax.set_xlim(0, 1)
    ax.set_ylim(-0.7, len(masks) - 0.5)
    ax.grid(axis="y", visible=False)
    below(ax)
    caption(
        ax,
        "From the best fixed length to the prophet",
        "n: prompts; bars below each end: 95% of that part over prompts, paired."
        f" Best policy: {choices(best)}; best fixed length: {choices(found['fixed'])};"
        f" {chosen(trace, by_task=True)}; {cost_name(study, cost)}.",
    )
    return Drawn("gap_decomposition", frame(rows), ax, tuple(said + gone))
