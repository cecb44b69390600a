"""Tokens a step by nodes verified."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points, text
from analysis.figures.legends import below
from analysis.figures.panels import doubling
from analysis.series_styles import of_policy
from analysis.study import Study
from analysis.trees import BUDGETS, by_budget, name_of

PROPHETS = ("tree_prophet", "prophet")
TICKS = (1, 2, 4, 8, 16, 32, 60)


@figure("Sequoia, in form", trees=True)
def tree_budget(study: Study, ax: Axes, budgets: tuple[int, ...] = BUDGETS) -> Drawn:
    """Tokens a step by nodes verified: static and dynamic trees, chains, and what bounds them.

    No times are in it: a prophet's level is that of its fewest steps.

    Args:
        study: of a trace of trees, or of a recording that has some attached.
        ax: to draw on; None makes one.
        budgets: nodes, the root apart.
    """
    found = by_budget(study, budgets)
    rows, said = [], []
    for k, (label, curve) in enumerate(found.curves.items()):
        at = np.array([one.nodes for one in curve], float)
        points(
            ax,
            at * 1.02 ** (k - 1),
            [one.tokens for one in curve],
            label=label,
            **of_policy(curve[0].spec).line,
        )
        said += missing([one.tokens for one in curve])
        for one in curve:
            row = {"series": label, "nodes": one.nodes, "policy": one.spec}
            rows.append(
                row | cells(one.tokens, "tokens_per_step") | cells(one.verified, "verified")
            )
    for k, (label, level) in enumerate(found.bounds.items()):
        rows.append({"series": label} | cells(level, "tokens_per_step"))
        if level.value is not None:
            ax.axhline(
                level.value,
                color=of_policy(PROPHETS[k]).color,
                linestyle=(":", "--")[k],
                label=label,
            )
    doubling(ax, "x", [tick for tick in TICKS if tick <= max(budgets)])
    ax.set(
        xlabel="nodes verified in a step, at most", ylabel="output tokens a step", ylim=(1, None)
    )
    below(ax)
    levels = ", ".join(f"{label} {text(e, '.2f')}" for label, e in found.bounds.items())
    caption(
        ax,
        "Tokens a step by nodes",
        f"{name_of(study)}, {study.trace.n_sequences} prompts; bars: 95% over prompts. Of the"
        f" chain, nodes are γ. {levels}. Sequoia's trees are fitted to these prompts.",
    )
    return Drawn("tree_budget", frame(rows), ax, tuple([*dict.fromkeys(said), *found.gone]))
