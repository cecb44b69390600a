"""Regret of policies against the prophet, by task."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.tasks import beside, mark_size, tasks_on
from analysis.replays import FAMILIES
from analysis.series_styles import of_policy
from analysis.stats import waste
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "confidence", "SVIP", "acceptance head", "PACER", "best rate")
ARMS = {name: FAMILIES[name] for name in SHOWN} | {"prophet": "prophet"}


@figure("new", grouped=True)
def regret_by_task(plot: Plot, cost: AnyCost | None = None) -> None:
    """How much more time policies take than the prophet, by task."""
    at, by = plot.under(cost), plot.groups
    found = {name: by.of(at, one) for name, one in plot.tuned(ARMS, cost).items()}
    best, masks = found.pop("prophet").total_s, by.masks
    size = mark_size(plot.ax, len(masks), len(found))
    for k, (name, one) in enumerate(found.items()):
        values = [waste.regret(one.total_s[some], best[some]) for some in masks.values()]
        facts = [{"policy": name, plot.by: group, "setting": one.spec} for group in masks]
        drawn = {"of": masks, "label": name, "markersize": size, **of_policy(one.spec).dots}
        plot.series(beside(len(masks), k, len(found), 0.11), values, facts, "regret", **drawn)
    tasks_on(plot.ax, masks)
    plot.ax.set(ylabel="time ÷ prophet's time − 1")
    plot.ax.set_ylim(0)
    plot.below(4)
    plot.caption(
        f"Regret against the prophet, by {plot.by}",
        f"n: prompts; {by.chosen}; {plot.cost_name(cost)}; bars: 95% CI over prompts, paired.",
    )
