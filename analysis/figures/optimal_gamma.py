"""Speed against a fixed draft length."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    COLORS,
    Drawn,
    caption,
    cells,
    figure,
    frame,
    ink,
    look,
    missing,
    points,
)
from analysis.figures.legends import below
from analysis.figures.tasks import few
from analysis.labelled_replays import cost_name, replays, without
from analysis.replays import each_task, groups, of
from analysis.speeds import speed
from analysis.stats import Estimate, clusters, optimal
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("PACER Table 16; PEARL Table 14", "accepted")
def optimal_gamma(
    study: Study, ax: Axes, cost: AnyCost | None = None, longest: int | None = None
) -> Drawn:
    """Speedup of every fixed draft length by task, the best ones, and the i.i.d. law's.

    Args:
        study: of a trace with rows.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
        longest: γ; None means 12, or Γ if that is less.
    """
    trace = study.trace
    longest = longest or min(12, trace.max_draft)
    gammas = np.arange(1, longest + 1)
    runs, why = replays(study, {str(k): f"fixed({k})" for k in gammas}, cost)
    gone = without(why)
    gammas = np.array([int(k) for k in runs])
    seconds = np.array([one.total_s for one in runs.values()])
    base, rows, said = of(study, cost).charge.baseline_s, [], []
    masks = groups(trace)
    speeds = {t: [speed(mine, base, some) for mine in seconds] for t, some in masks.items()}
    shown, which = few({t: _fastest(found) for t, found in speeds.items()})
    for task, some in masks.items():
        found = speeds[task]
        (best,) = optimal.best_lengths(seconds[:, some], base[some], [task] * int(some.sum()))
        winner = int(best.setting or 0)
        if task in shown:
            _course(ax, shown.index(task), task, gammas, found, winner)
            said += missing(found, [task] * len(found))
        for i, e in enumerate(found):
            chosen = None if best.chosen is None else float(best.chosen[i])
            row = {"series": task, "gamma": int(gammas[i]), "best": i == winner, "chosen": chosen}
            rows.append(row | cells(e, "speedup"))
    rows += _law(study, ax, gammas, cost)
    ax.axhline(1, color=ink(), linewidth=0.8)
    ax.set(xlabel="fixed draft length γ, tokens", ylabel="speedup over the target alone")
    below(ax)
    n = ", ".join(f"{t} {int(some.sum())}" for t, some in each_task(trace).items() if t in shown)
    caption(
        ax,
        "Speed by fixed draft length",
        f"Prompts: {n}; {cost_name(study, cost)}; bars: 95% over prompts; rings: fastest γ.",
        which,
    )
    return Drawn("optimal_gamma", frame(rows), ax, tuple(said + gone))


def _fastest(found: list[Estimate]) -> float:
    return max((e.value for e in found if e.value is not None), default=0.0)


def _course(
    ax: Axes, k: int, task: str, gammas: np.ndarray, found: list[Estimate], winner: int
) -> None:
    """One task's speeds, with a ring around the fastest."""
    drawn, at = look(k), gammas + (k - 2) * 0.06
    points(ax, at, found, label=f"{task}: γ = {gammas[winner]}", **drawn)
    height = found[winner].value
    if height is not None:
        ring: dict[str, Any] = {"s": 90, "facecolors": "none", "linewidths": 1.2}
        ax.scatter(at[winner], height, edgecolors=drawn["color"], **ring)


def _law(study: Study, ax: Axes, gammas: np.ndarray, cost: AnyCost | None) -> list[dict]:
    """Draw Leviathan's law at the trace's α and c."""
    trace = study.trace
    c = of(study, cost).cost_ratio()
    accepted = trace.positions("accepted")
    of_prompt = clusters.by_prompt(trace.position_offsets, lambda r: [accepted[r]])[:, 0]
    alpha = clusters.ratio(of_prompt, np.diff(trace.position_offsets)).value or 0.0
    law = optimal.speedup(alpha, gammas, c)
    best = int(optimal.optimal_length(alpha, c))
    label = f"i.i.d. α = {alpha:.2f}, c = {c:.1f}: γ = {best}"
    ax.plot(gammas, law, ":", color=COLORS[7], label=label)
    values = zip(gammas.tolist(), law.tolist(), strict=True)
    return [{"series": "iid", "gamma": k, "best": k == best, "speedup": v} for k, v in values]
