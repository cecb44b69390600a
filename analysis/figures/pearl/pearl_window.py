"""PEARL's speed by its window."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.drawing.styles import ink
from analysis.figures.drawing.tasks import few
from analysis.replays import groups
from analysis.speeds import speedup
from simkit.simulator.arguments import AnyCost


@figure("PEARL Tables 5 and 6", draft_model=True)
def pearl_window(plot: Plot, cost: AnyCost | None = None, longest: int | None = None) -> None:
    """Speedup of PEARL by its window γ and by task, and the window round(c).

    Args:
        longest: γ; None means `Replays.longest_window`.
    """
    at = plot.under(cost)
    lengths = range(1, (longest or at.longest_window) + 1)
    runs = plot.replays({str(k): f"pearl({k})" for k in lengths}, cost)
    gammas, c, why = np.array([int(k) for k in runs]), at.cost_ratio(), at.too_wide
    masks = groups(plot.trace)
    speeds = {task: [speedup(r, some) for r in runs.values()] for task, some in masks.items()}
    shown, which = few(
        plot.ax, {t: max(e.value or 0.0 for e in found) for t, found in speeds.items()}
    )
    for task, found in speeds.items():
        best = int(gammas[int(np.argmax([e.value or 0.0 for e in found]))])
        if task in shown:
            k = shown.index(task)
            label, tasks = f"{task}: γ = {best}", [task] * len(found)
            plot.points(gammas + (k - 2) * 0.06, found, tasks, label=label, **look(k))
        facts = [{"task": task, "gamma": int(k), "best": int(k) == best} for k in gammas]
        plot.keep(facts, found, "speedup")
    if round(c) <= gammas[-1]:  # or half of the picture would be empty
        label = f"round(c) = {round(c)}"
        plot.ax.axvline(round(c), color=ink(), linestyle="--", linewidth=1, label=label)
    plot.rows.append({"task": "c", "speedup": c})
    plot.line_at_1()
    plot.ax.set(xlabel="window γ, tokens", ylabel="speedup over the target alone")
    plot.below()
    plot.caption(
        "PEARL's window",
        f"Whether round(c) is the best window cannot be seen: {why}." if why else "",
        f"{plot.prompts}; {plot.cost_name(cost)}; draft and target on separate"
        " devices; bars: 95% CI over prompts.",
        which,
    )
