"""EAGLE-2 with and without an exit, by task: SVIP's, and the acceptance head's."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.tasks import beside, tasks_on
from analysis.figures.rows import cells, text
from analysis.labelled_replays import chosen
from analysis.replays import groups
from analysis.series_styles import Look, of_policy
from analysis.speeds import speed, speedup
from analysis.trees import exits, name_of
from simkit.simulator.arguments import AnyCost


@figure("SVIP Table 4", trees=True)
def tree_exits(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speedup of EAGLE-2 with and without SVIP's exit, with default and tuned settings."""
    _draw(plot, cost, "SVIP", "SVIP's exit")


@figure("acceptance head Fig. 2 and Table 1", trees=True)
def tree_head(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speedup of EAGLE-2 with and without the acceptance head, with default and tuned settings."""
    _draw(plot, cost, "head", "the acceptance head")


def _draw(plot: Plot, cost: AnyCost | None, rule: str, title: str) -> None:
    """Both arms of both shapes, a point for each task."""
    found, masks = exits(plot.study, cost, rule), groups(plot.trace)
    plot.gone += found.gone
    arms = [(shape, arm) for shape in found.plain for arm in ("EAGLE-2", f"+ {rule}")]
    against = []
    for k, (shape, arm) in enumerate(arms):
        plain = arm == "EAGLE-2"
        one = (found.plain if plain else found.stopped)[shape]
        speeds = [speedup(one, some) for some in masks.values()]
        drawn = {"label": f"{arm}, {shape}", **_look(shape, one.spec)}
        plot.points(beside(len(masks), k, len(arms), 0.16), speeds, masks, **drawn)
        for (task, some), e in zip(masks.items(), speeds, strict=True):
            row = {"task": task, "shape": shape, "arm": arm, "setting": one.spec}
            row |= cells(e, "speedup")
            ratio = {} if plain else cells(speed(one, found.plain[shape], some), "against")
            plot.rows.append(row | ratio)
        if not plain:
            which = "its own settings" if shape != "tuned" else "tuned"
            against.append(f"{which}: {text(speed(one, found.plain[shape]), '.2f')}")
    tasks_on(plot.ax, masks)
    plot.line_at_1()
    plot.ax.set(ylabel="speedup over the target alone")
    plot.below(2)
    plot.caption(
        f"EAGLE-2 with {title}, temperature {plot.trace.sampler.temperature:g}",
        f"{name_of(plot.study)}; n: prompts; bars: 95% CI over them;"
        f" {chosen(plot.trace, by_task=True)}; {plot.cost_name(cost)}. Speed with it ÷"
        f" without: {'; '.join(against)}.",
    )


def _look(shape: str, spec: str) -> Look:
    """That of the policy; its own settings have other marks than tuned ones."""
    found = of_policy(spec).dots
    return found if shape == "tuned" else found | {"marker": "s" if "eagle2" in spec else "v"}
