"""What tree policies close of the gap between chains and the prophet of trees."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.axes import bars_high
from analysis.figures.drawing.marks import points
from analysis.figures.drawing.styles import ink, paper, small
from analysis.figures.rows import cells
from analysis.labelled_replays import choices, chosen
from analysis.series_styles import of_policy
from analysis.trees import name_of
from analysis.trees import tree_gap as split
from simkit.simulator.arguments import AnyCost


@figure("new", trees=True)
def tree_gap(plot: Plot, cost: AnyCost | None = None) -> None:
    """Share of the gap from the tuned fixed chain to the prophet of trees that policies close."""
    ax, found, names = plot.ax, split(plot.study, cost), []
    plot.gone += found.gone
    bars_high(ax, len(found.policies))
    for k, (label, one) in enumerate(found.policies.items()):
        at = len(found.policies) - 1 - k
        how = of_policy(one.spec).bar | {"edgecolor": paper(), "alpha": 0.8}
        ax.barh(at, one.of_gap.value or 0.0, 0.6, **how)
        points(ax, [at], [one.of_gap], sideways=True, color=ink(), marker="|")
        if label != "tree prophet":
            plot.missing([one.of_gap], [label])
        names.append(f"{label}: {_text(one.speedup.value)}\n{_short(one.spec)}")
        row = {"policy": label, "setting": one.spec} | cells(one.of_gap, "of_gap")
        row |= cells(one.speedup, "speedup")
        plot.rows.append(row | cells(one.against, "against_fixed"))
    ax.set_yticks(range(len(names) - 1, -1, -1), names, fontsize=small())
    ax.axvline(0, color=ink(), linewidth=0.8)
    ax.set(xlabel="share of the gap that is closed; 0: the best fixed chain")
    ax.grid(axis="y", visible=False)
    plot.caption(
        "From the best chain to the prophet of trees",
        f"{name_of(plot.study)}; best fixed chain: {choices(found.fixed)}; beside each policy: its"
        f" speedup; {chosen(plot.trace)}; bars: 95% CI over {plot.prompts},"
        f" paired; {plot.cost_name(cost)}.",
    )


def _text(speedup: float | None) -> str:
    return "–" if speedup is None else f"{speedup:.2f}"


def _short(spec: str) -> str:
    """The arguments alone."""
    inside = spec.partition("(")[2].removesuffix(")").replace("folds=5, ", "")
    return inside if len(inside) <= 44 else f"{inside[:43]}…"
