"""EAGLE-2 with and without an exit, by task: SVIP's, and the acceptance head's."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, missing, points, text
from analysis.figures.legends import below
from analysis.figures.tasks import tasks_on
from analysis.labelled_replays import chosen, cost_name
from analysis.replays import groups
from analysis.series_styles import of_policy
from analysis.speeds import speed, speedup
from analysis.study import Study
from analysis.trees import exits, name_of
from simkit.simulator.arguments import AnyCost


@figure("SVIP Table 4", trees=True)
def tree_exits(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speedup of EAGLE-2 with and without SVIP's exit, of its own settings and of tuned ones.

    Args:
        study: of a trace of trees, or of a recording that has some attached.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    return _drawn(study, ax, cost, "SVIP", "SVIP's exit", "tree_exits")


@figure("acceptance head Fig. 2 and Table 1", trees=True)
def tree_head(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speedup of EAGLE-2 with and without the acceptance head, of its own settings and of tuned.

    Args:
        study: of a trace of trees with the head's scores, or of a recording that has some attached.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    return _drawn(study, ax, cost, "head", "the acceptance head", "tree_head")


def _look(shape: str, spec: str) -> dict[str, Any]:
    """That of the policy; its own settings have other marks than tuned ones."""
    found = of_policy(spec).dots
    return found if shape == "tuned" else found | {"marker": "s" if "eagle2" in spec else "v"}


def _drawn(study: Study, ax: Axes, cost: AnyCost | None, rule: str, title: str, name: str) -> Drawn:
    """Both arms of both shapes, a point for each task."""
    found = exits(study, cost, rule)
    masks = groups(study.trace)
    arms = [(shape, arm) for shape in found.plain for arm in ("EAGLE-2", f"+ {rule}")]
    rows, said, against = [], [], []
    for k, (shape, arm) in enumerate(arms):
        one = (found.plain if arm == "EAGLE-2" else found.stopped)[shape]
        speeds = [speedup(one, some) for some in masks.values()]
        where = np.arange(len(masks)) + (k - (len(arms) - 1) / 2) * 0.16
        points(ax, where, speeds, label=f"{arm}, {shape}", **_look(shape, one.spec))
        said += missing(speeds, masks)
        for (task, some), e in zip(masks.items(), speeds, strict=True):
            row = {"task": task, "shape": shape, "arm": arm, "setting": one.spec}
            ratio = speed(one, found.plain[shape], some) if arm != "EAGLE-2" else None
            rows.append(row | cells(e, "speedup") | (cells(ratio, "against") if ratio else {}))
        if arm != "EAGLE-2":
            which = "its own settings" if shape != "tuned" else "tuned"
            against.append(f"{which}: {text(speed(one, found.plain[shape]), '.2f')}")
    tasks_on(ax, masks)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(ylabel="speedup over the target alone")
    below(ax, 2)
    temperature = study.trace.sampler.temperature
    caption(
        ax,
        f"EAGLE-2 with {title}, temperature {temperature:g}",
        f"{name_of(study)}; n: prompts, bars: 95% over them; {chosen(study.trace, by_task=True)};"
        f" {cost_name(study, cost)}. Times as fast with it as without, {'; '.join(against)}.",
    )
    return Drawn(name, frame(rows), ax, tuple(said + found.gone))
