"""PEARL's speed by its window."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, look, missing, points
from analysis.figures.legends import below
from analysis.figures.tasks import few
from analysis.labelled_replays import cost_name, replays, without
from analysis.replays import groups, of
from analysis.speeds import speedup
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("PEARL Tables 5 and 6", draft_model=True)
def pearl_window(
    study: Study, ax: Axes, cost: AnyCost | None = None, longest: int | None = None
) -> Drawn:
    """Speedup of PEARL by its window γ, task by task, and the window round(c).

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
        longest: γ; None means `Replays.longest_window`.
    """
    trace = study.trace
    at = of(study, cost)
    gammas = np.arange(1, (longest or at.longest_window) + 1)
    runs, why = replays(study, {str(k): f"pearl({k})" for k in gammas}, cost)
    gone = without(why)
    kept = np.array([int(k) for k in runs])
    c, why = at.cost_ratio(), at.too_wide
    masks = groups(trace)
    rows, said = [], []
    speeds = {task: [speedup(r, some) for r in runs.values()] for task, some in masks.items()}
    shown, which = few({t: max(e.value or 0.0 for e in found) for t, found in speeds.items()})
    for task, found in speeds.items():
        best = int(kept[int(np.argmax([e.value or 0.0 for e in found]))])
        if task in shown:
            k = shown.index(task)
            points(ax, kept + (k - 2) * 0.06, found, label=f"{task}: γ = {best}", **look(k))
            said += missing(found, [task] * len(found))
        for gamma, e in zip(kept, found, strict=True):
            row = {"task": task, "gamma": int(gamma), "best": int(gamma) == best}
            rows.append(row | cells(e, "speedup"))
    ax.axvline(round(c), color=ink(), linestyle="--", linewidth=1, label=f"round(c) = {round(c)}")
    rows.append({"task": "c", "speedup": c})
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(xlabel="window γ, tokens", ylabel="speedup over the target alone")
    below(ax)
    caption(
        ax,
        "PEARL's window",
        f"{trace.n_sequences} prompts; {cost_name(study, cost)}; draft and target on devices of"
        " their own; bars: 95% over prompts.",
        which,
        f"Whether round(c) is best cannot be seen: {why}." if why else "",
    )
    return Drawn("pearl_window", frame(rows), ax, tuple(said + gone))
