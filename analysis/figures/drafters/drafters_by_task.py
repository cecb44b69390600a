"""Which drafter for which task."""

from __future__ import annotations

from analysis import outside_loops
from analysis.drafters import side_by_side
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import spread_ratios
from analysis.figures.drawing.tasks import beside, few_along, mark_size, tasks_on
from analysis.figures.measures import tau_cells
from analysis.figures.rows import cells
from analysis.labelled_replays import cost_name
from analysis.series_styles import drafters_of
from analysis.speeds import speedup
from simkit.simulator.arguments import AnyCost

BOUND = "prophet"


@figure("PARD-2 Tables 1 and 2; PACER Table 4", drafters=True, grouped=True)
def drafters_by_task(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speedup of each drafter with its best fixed length, over the target alone, by task.

    The length is tuned on other prompts. The frame has the bound of each drafter (`prophet`), and τ
    of all steps and of those outside of verbatim loops.
    """
    found = side_by_side(plot.study, cost, timed=True)
    plot.gone += found.gone
    by, looks, n = plot.groups, drafters_of(plot.trace), len(found.replays)
    masks, shown, which = by.masks, [], ""
    for k, (name, at) in enumerate(found.replays.items()):
        one = at.tuned_fixed()
        free = outside_loops.if_any(at, {name: one}) if plot.by == "task" else {}
        one, bound = by.of(at, one), by.of(at, at.replay(BOUND))
        speeds = {task: speedup(one, some) for task, some in masks.items()}
        if not shown:
            values = {task: e.value for task, e in speeds.items()}
            shown, which = few_along(plot.ax, values, plot.by)
        size = mark_size(plot.ax, len(shown), n)
        drawn = {"label": name, "markersize": size, **looks[name].dots}
        here = [speeds[task] for task in shown]
        plot.points(beside(len(shown), k, n, 0.8 / n), here, shown, **drawn)
        for task, some in masks.items():
            e = speeds[task]
            row = {"drafter": name, "spec": at.trace.manifest.spec, plot.by: task}
            row |= {"setting": one.spec} | cells(e, "speedup")
            row |= cells(speedup(bound, some), "bound")
            plot.rows.append(row | tau_cells(one.counts, free.get(name), some))
    tasks_on(plot.ax, {task: masks[task] for task in shown})
    plot.line_at_1()
    spread_ratios(plot.ax)
    plot.ax.set(ylabel="speedup over the target alone")
    plot.below(4)
    first = next(iter(found.replays.values())).study  # a target alone has no steps to price
    plot.caption(
        f"Drafters by {plot.by}",
        which,
        f"Each with its best fixed length; n: prompts; {by.chosen};"
        f" bars: 95% CI over prompts; {cost_name(first, cost)}.",
    )
