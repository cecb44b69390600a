"""Speedups of policies, task by task."""

from __future__ import annotations

from collections.abc import Mapping

from analysis import outside_loops, token_drafters
from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import spread_ratios
from analysis.figures.drawing.tasks import beside, few_along, mark_size, tasks_on
from analysis.figures.measures import tau_cells
from analysis.figures.pacer.dynamic_policies import SHOWN
from analysis.figures.rows import cells
from analysis.replays import FAMILIES, Replayed, Replays
from analysis.series_styles import SeriesStyle, drafters_of
from analysis.speeds import speedup
from simkit.simulator.arguments import AnyCost


@figure(
    "SVIP Tables 1, 5; PACER Tables 1, 2, 4, Fig. 3; acceptance head Table 1",
    grouped=True,
    compares=True,
)
def policies_by_task(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speedup of the papers' policies over the target alone, by task.

    Where a drafter from tokens alone is attached, also its own, and that of the model under PACER's
    policy behind it. τ is in the frame: of all steps, and of those outside of verbatim loops of the
    output.
    """
    found, at = plot.tuned({name: FAMILIES[name] for name in SHOWN}, cost), plot.under(cost)
    found |= _looked_up(at, found)
    by, looks, n = plot.groups, _looks(plot, found), len(found)
    masks, free = by.masks, outside_loops.if_any(at, found) if plot.by == "task" else {}
    found = {name: by.of(at, one) for name, one in found.items()}
    speeds = {
        name: {task: speedup(one, some) for task, some in masks.items()}
        for name, one in found.items()
    }
    first = next(iter(speeds.values()))
    shown, which = few_along(plot.ax, {task: e.value for task, e in first.items()}, plot.by)
    size = mark_size(plot.ax, len(shown), n)
    for k, (name, one) in enumerate(found.items()):
        drawn = {"label": name, "markersize": size, **looks[name].dots}
        here = [speeds[name][task] for task in shown]
        plot.points(beside(len(shown), k, n, 0.8 / max(7, n)), here, shown, **drawn)
        for task, some in masks.items():
            e = speeds[name][task]
            rate = float(one.counts["emitted"][some].sum() / one.total_s[some].sum())
            row = {"policy": name, plot.by: task, "setting": one.spec, "tokens_per_s": rate}
            row |= cells(e, "speedup") | tau_cells(one.counts, free.get(name), some)
            plot.rows.append(row)
    tasks_on(plot.ax, {task: masks[task] for task in shown})
    plot.line_at_1()
    spread_ratios(plot.ax)
    plot.ax.set(ylabel="speedup over the target alone")
    plot.below(4)
    plot.caption(
        f"Policies by {plot.by}",
        which,
        f"n: prompts; {by.chosen}; {plot.cost_name(cost)}; bars: 95% CI over"
        f" prompts, not of differences: policies of one {plot.by} share prompts.",
    )


def _looked_up(at: Replays, found: Mapping[str, Replayed]) -> dict[str, Replayed]:
    """A lookup alone, and before the model under PACER's policy; none where none is attached."""
    if not token_drafters.names(at) or "PACER" not in found:
        return {}
    name = token_drafters.first_of(at)
    both = token_drafters.before(at, name, found["PACER"].spec)
    return {name: token_drafters.alone(at, name), f"{name}, then PACER": both.replayed}


def _looks(plot: Plot, found: Mapping[str, Replayed]) -> dict[str, SeriesStyle]:
    """Of policies their own; of a lookup that of the drafter, before a model that of a route."""
    drafters = drafters_of(plot.trace)
    return {
        name: drafters.get(name)
        or plot.look(name, "route" if name.endswith(", then PACER") else one.spec)
        for name, one in found.items()
    }
