"""Regret of policies against the prophet, by task."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.figures.tasks import mark_size, tasks_on
from analysis.labelled_replays import chosen, cost_name, tuned
from analysis.replays import FAMILIES, groups
from analysis.series_styles import of_policy
from analysis.stats import waste
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "confidence", "SVIP", "acceptance head", "PACER", "best rate")


@figure("new")
def regret_by_task(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """How much longer policies take than the prophet, by task.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    families = {name: FAMILIES[name] for name in SHOWN} | {"prophet": "prophet"}
    found, gone = tuned(study, families, cost)
    best = found.pop("prophet").total_s
    masks = groups(trace)
    rows, said, size = [], [], mark_size(ax, len(masks), len(found))
    for k, (name, one) in enumerate(found.items()):
        values = [waste.regret(one.total_s[some], best[some]) for some in masks.values()]
        at = np.arange(len(masks)) + (k - (len(found) - 1) / 2) * 0.11
        points(ax, at, values, label=name, markersize=size, **of_policy(one.spec).dots)
        said += missing(values, masks)
        for task, e in zip(masks, values, strict=True):
            rows.append({"policy": name, "task": task, "setting": one.spec} | cells(e, "regret"))
    tasks_on(ax, masks)
    ax.set(ylabel="time ÷ prophet's time − 1")
    ax.set_ylim(0)
    below(ax, 4)
    caption(
        ax,
        "Regret against the prophet, by task",
        f"n: prompts, {chosen(trace, by_task=True)}; {cost_name(study, cost)};"
        " bars: 95% over prompts, paired.",
    )
    return Drawn("regret_by_task", frame(rows), ax, tuple(said + gone))
