"""Which drafter for which task."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.drafters import side_by_side
from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, points
from analysis.figures.legends import below
from analysis.figures.measures import PER_STEP_APART as APART
from analysis.figures.measures import tau
from analysis.figures.tasks import mark_size, tasks_on
from analysis.labelled_replays import chosen, cost_name
from analysis.replays import groups
from analysis.series_styles import drafters_of
from analysis.speeds import speedup
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

BOUND = "prophet"


@figure("PARD-2 Tables 1 and 2; PACER Table 4", drafters=True)
def drafters_by_task(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speedup over the target alone of each drafter with its best fixed length, by task.

    The length is tuned on other prompts. The frame has the bound of each drafter (`prophet`), and τ
    of all steps and of those outside of verbatim loops.

    Args:
        study: of a recording that drafters were attached to.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`; of each drafter.
    """
    found = side_by_side(study, cost, timed=True)
    first = next(iter(found.replays.values())).study  # a target alone has no steps to price
    masks, looks = groups(study.trace), drafters_of(study.trace)
    rows, said = [], []
    n = len(found.replays)
    size = mark_size(ax, len(masks), n)
    for k, (name, at) in enumerate(found.replays.items()):
        one, bound = at.tuned_fixed(), at.replay(BOUND)
        speeds = [speedup(one, some) for some in masks.values()]
        where = np.arange(len(masks)) + (k - (n - 1) / 2) * 0.8 / n
        points(ax, where, speeds, label=name, markersize=size, **looks[name].dots)
        said += missing(speeds, masks)
        free = outside_loops.if_any(at, {name: one})
        for (task, some), e in zip(masks.items(), speeds, strict=True):
            row = {"drafter": name, "spec": at.trace.manifest.spec, "task": task}
            row |= {"setting": one.spec} | cells(e, "speedup")
            row |= cells(speedup(bound, some), "bound")
            row |= cells(tau(one.counts, some), "accepted_per_step")
            rows.append(row | (cells(tau(free[name], some), APART) if free else {}))
    tasks_on(ax, masks)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(ylabel="speedup over the target alone")
    below(ax, 4)
    caption(
        ax,
        "Drafters by task",
        f"Each with its best fixed length; n: prompts, {chosen(study.trace, by_task=True)};"
        f" bars: 95% over prompts; {cost_name(first, cost)}.",
    )
    return Drawn("drafters_by_task", frame(rows), ax, tuple(said + found.gone))
