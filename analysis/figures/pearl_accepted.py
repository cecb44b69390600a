"""Mean accepted tokens of PEARL."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis import outside_loops
from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.figures.tasks import tasks_on
from analysis.labelled_replays import cost_name, replays, window_words
from analysis.papers import pearl
from analysis.replays import Replays, groups, of
from analysis.series_styles import of_policy
from analysis.stats import Estimate, accepted_runs, clusters
from analysis.study import MissingError, Study
from simkit.simulator.arguments import AnyCost


@figure("PEARL Table 7", draft_model=True)
def pearl_accepted(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Mean accepted tokens between rejections (MAT) of PEARL and of plain speculation.

    With verbatim loops of the output and without.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: that γ = round(c) follows from.
    """
    at = of(study, cost)
    window = at.window
    arms = {"PEARL": f"pearl({window})", "plain speculation": f"fixed({window})"}
    runs, _ = replays(study, arms, cost)
    masks = groups(study.trace)
    rows, said = [], []
    for k, (label, one) in enumerate(runs.items()):
        sums = at.accepted_runs(one.spec)
        found = [accepted_runs.mean_accepted(sums[some]) for some in masks.values()]
        x = np.arange(len(masks)) + (k - 0.5) * 0.16
        points(ax, x, found, label=f"{label}, MAT", **of_policy(one.spec).dots)
        said += missing(found, masks)
        rows += _rows(label, "mat", masks, found)
        rows += _outside(at, label, one.spec, masks, ax, k)
    plain = runs["plain speculation"].counts
    a = [clusters.ratio(plain["accepted"][m], plain["steps"][m]) for m in masks.values()]
    x = np.arange(len(masks)) + 0.24
    how: dict[str, Any] = of_policy("fixed").dots | {"marker": "X"}
    points(ax, x, a, label="plain speculation, accepted a step", **how)
    rows += _rows("plain speculation", "accepted_per_step", masks, a)
    printed = pearl.PAIRS[pearl.DEEPSEEK]
    tasks_on(ax, masks)
    ax.set(ylabel="accepted tokens")
    ax.set_ylim(0)
    below(ax, 2)
    caption(
        ax,
        "Accepted tokens between two rejections",
        f"n: prompts; {window_words(at)}; {cost_name(study, cost)}; bars: 95% over prompts.",
        "PEARL Table 7, DeepSeek 1.3B/33B: mean accepted tokens (MAT)"
        f" {printed.pearl_accepted}; plain speculation {printed.plain_accepted} accepted a step at"
        f" γ = {printed.best_length}. A run between rejections is never shorter than what a step"
        " accepts of it.",
    )
    return Drawn("pearl_accepted", frame(rows), ax, tuple(said))


def _outside(
    at: Replays, label: str, spec: str, masks: dict[str, np.ndarray], ax: Axes, k: int
) -> list[dict[str, Any]]:
    """MAT outside of loops, drawn beside; no rows where there are no loops."""
    try:
        sums = outside_loops.accepted_runs(at, spec)
    except MissingError:
        return []
    found = [accepted_runs.mean_accepted(sums[some]) for some in masks.values()]
    x = np.arange(len(masks)) - 0.24 - (1 - k) * 0.12
    how: dict[str, Any] = of_policy(spec).dots | {"marker": "v<"[k]}
    points(ax, x, found, label=f"{label}, MAT outside of loops", **how)
    return _rows(label, "mat, outside of loops", masks, found)


def _rows(
    label: str, measure: str, masks: dict[str, np.ndarray], found: list[Estimate]
) -> list[dict[str, Any]]:
    return [
        {"policy": label, "measure": measure, "task": task} | cells(e, "tokens")
        for task, e in zip(masks, found, strict=True)
    ]
