"""Speed against a fixed draft length."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS, look
from analysis.figures.drawing.tasks import few
from analysis.figures.rows import Row
from analysis.replays import each_task, groups
from analysis.speeds import speed
from analysis.stats import Estimate, clusters, optimal
from simkit.simulator.arguments import AnyCost


@figure("PACER Table 16; PEARL Table 14", "accepted")
def optimal_gamma(plot: Plot, cost: AnyCost | None = None, longest: int | None = None) -> None:
    """Speedup of every fixed draft length by task, the best lengths, and the i.i.d. law's curve.

    Args:
        longest: γ; None means 12, or Γ if that is less.
    """
    trace = plot.trace
    lengths = range(1, (longest or min(12, trace.max_draft)) + 1)
    runs = plot.replays({str(k): f"fixed({k})" for k in lengths}, cost)
    gammas = np.array([int(k) for k in runs])
    seconds = np.array([one.total_s for one in runs.values()])
    base, masks = plot.under(cost).charge.baseline_s, groups(trace)
    speeds = {t: [speed(mine, base, some) for mine in seconds] for t, some in masks.items()}
    shown, which = few(
        plot.ax, {t: max(e.value or 0.0 for e in found) for t, found in speeds.items()}
    )
    for task, some in masks.items():
        found = speeds[task]
        (best,) = optimal.best_lengths(seconds[:, some], base[some], [task] * int(some.sum()))
        winner = int(best.setting or 0)
        if task in shown:
            _course(plot, shown.index(task), task, gammas, found, winner)
        chosen = best.chosen if best.chosen is not None else [None] * len(found)
        facts = [
            {"series": task, "gamma": int(gamma), "best": i == winner, "chosen": share}
            for i, (gamma, share) in enumerate(zip(gammas, chosen, strict=True))
        ]
        plot.keep(facts, found, "speedup")
    plot.rows += _law(plot, gammas, cost)
    plot.line_at_1()
    plot.ax.set(xlabel="fixed draft length γ, tokens", ylabel="speedup over the target alone")
    plot.below()
    n = ", ".join(f"{t} {int(some.sum())}" for t, some in each_task(trace).items() if t in shown)
    plot.caption(
        "Speed by fixed draft length",
        f"Prompts: {n}; {plot.cost_name(cost)}; bars: 95% CI over prompts; rings: fastest γ.",
        which,
    )


def _course(
    plot: Plot, k: int, task: str, gammas: np.ndarray, found: list[Estimate], winner: int
) -> None:
    """One task's speeds, with a ring around the fastest."""
    drawn, at = look(k), gammas + (k - 2) * 0.06
    tasks = [task] * len(found)
    plot.points(at, found, tasks, label=f"{task}: γ = {gammas[winner]}", **drawn)
    height = found[winner].value
    if height is not None:
        ring = {"facecolors": "none", "edgecolors": drawn["color"]}
        plot.ax.scatter(at[winner], height, s=90, linewidths=1.2, **ring)


def _law(plot: Plot, gammas: np.ndarray, cost: AnyCost | None) -> list[Row]:
    """Draw Leviathan's law at the trace's α and c."""
    offsets, accepted = plot.trace.position_offsets, plot.trace.positions("accepted")
    c = plot.under(cost).cost_ratio()
    of_prompt = clusters.by_prompt(offsets, lambda r: [accepted[r]])[:, 0]
    alpha = clusters.ratio(of_prompt, np.diff(offsets)).value or 0.0
    law = optimal.speedup(alpha, gammas, c)
    best = int(optimal.optimal_length(alpha, c))
    label = f"i.i.d. α = {alpha:.2f}, c = {c:.1f}: γ = {best}"
    plot.ax.plot(gammas, law, ":", color=COLORS[7], label=label)
    values = zip(gammas.tolist(), law.tolist(), strict=True)
    return [{"series": "iid", "gamma": k, "best": k == best, "speedup": v} for k, v in values]
