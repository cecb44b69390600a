"""Regret of policies against the prophet, by task."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.tasks import beside, few_along, mark_size, tasks_on
from analysis.replays import FAMILIES
from analysis.stats import waste
from analysis.study import MissingError
from simkit.simulator.arguments import AnyCost

SHOWN = ("fixed", "heuristic", "confidence", "SVIP", "acceptance head", "PACER", "best rate")
ARMS = {name: FAMILIES[name] for name in SHOWN} | {"prophet": "prophet"}


@figure("new", grouped=True, compares=True)
def regret_by_task(plot: Plot, cost: AnyCost | None = None) -> None:
    """How much more time policies take than the prophet, by task."""
    at, by = plot.under(cost), plot.groups
    found = {name: by.of(at, one) for name, one in plot.tuned(ARMS, cost, bounded=True).items()}
    if set(found) == {"prophet"}:
        raise MissingError("no policy but the prophet can be replayed")
    best, masks = found.pop("prophet").total_s, by.masks
    regrets = {
        name: {task: waste.regret(one.total_s[some], best[some]) for task, some in masks.items()}
        for name, one in found.items()
    }
    first = next(iter(regrets.values()))
    shown, which = few_along(plot.ax, {task: e.value for task, e in first.items()}, plot.by)
    size, gap = mark_size(plot.ax, len(shown), len(found)), 0.8 / max(7, len(found))
    for k, (name, one) in enumerate(found.items()):
        drawn = {"label": name, "markersize": size, **plot.look(name, one.spec).dots}
        here = [regrets[name][task] for task in shown]
        plot.points(beside(len(shown), k, len(found), gap), here, shown, **drawn)
        facts = [{"policy": name, plot.by: group, "setting": one.spec} for group in masks]
        plot.keep(facts, list(regrets[name].values()), "regret")
    tasks_on(plot.ax, {task: masks[task] for task in shown})
    plot.ax.set(ylabel="time ÷ prophet's time − 1")
    plot.ax.set_ylim(0)
    plot.below(4)
    plot.caption(
        f"Regret against the prophet, by {plot.by}",
        which,
        f"n: prompts; {by.chosen}; {plot.cost_name(cost)}; bars: 95% CI over prompts, paired.",
    )
