"""Tokens a step by nodes verified."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.panels import doubling
from analysis.figures.rows import cells, text
from analysis.series_styles import of_policy
from analysis.trees import BUDGETS, by_budget, name_of

PROPHETS = ("tree_prophet", "prophet")
TICKS = (1, 2, 4, 8, 16, 32, 60)


@figure("Sequoia, in form", trees=True)
def tree_budget(plot: Plot, budgets: tuple[int, ...] = BUDGETS) -> None:
    """Tokens a step by number of verified nodes, for static trees, dynamic trees and chains.

    No times are in it: a prophet's level is that of its fewest steps.

    Args:
        budgets: nodes, the root apart.
    """
    ax, found = plot.ax, by_budget(plot.study, budgets)
    plot.gone += found.gone
    for k, (label, curve) in enumerate(found.curves.items()):
        at = np.array([one.nodes for one in curve], float) * 1.02 ** (k - 1)
        look = of_policy(curve[0].spec).line
        plot.points(at, [one.tokens for one in curve], label=label, **look)
        for one in curve:
            row = {"series": label, "nodes": one.nodes, "policy": one.spec}
            row |= cells(one.tokens, "emitted_per_step")
            plot.rows.append(row | cells(one.verified, "verified"))
    for (label, level), spec, line in zip(
        found.bounds.items(), PROPHETS, (":", "--"), strict=False
    ):
        plot.rows.append({"series": label} | cells(level, "emitted_per_step"))
        if level.value is not None:
            ax.axhline(level.value, color=of_policy(spec).color, linestyle=line, label=label)
    doubling(ax, "x", [tick for tick in TICKS if tick <= max(budgets)])
    ax.set(xlabel="nodes verified in a step, at most", ylabel="output tokens a step")
    ax.set_ylim(1, None)
    plot.below()
    levels = ", ".join(f"{label} {text(e, '.2f')}" for label, e in found.bounds.items())
    plot.caption(
        "Tokens a step by nodes",
        f"{plot.prompts}, {name_of(plot.study)}; bars: 95% CI over prompts. A"
        f" chain has γ nodes. {levels}. Sequoia's trees are fitted to these prompts.",
    )
