"""Regret of policies against the prophet, by position in the text."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis import by_position
from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.figures.regret_by_task import SHOWN
from analysis.labelled_replays import chosen, cost_name, tuned
from analysis.replays import FAMILIES, folds, of
from analysis.series_styles import of_policy
from analysis.stats import waste
from analysis.study import Study
from simkit.simulator.arguments import AnyCost


@figure("new")
def regret_by_position(study: Study, ax: Axes, cost: AnyCost | None = None, bins: int = 8) -> Drawn:
    """How much longer policies take than the prophet, by position in the output.

    A step's time is shared evenly over the tokens that it emits; prefill is left out.

    Args:
        study: of a trace of any kind.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
        bins: of positions, of equal width.
    """
    trace = study.trace
    families = {name: FAMILIES[name] for name in SHOWN} | {"prophet": "prophet"}
    found, gone = tuned(study, families, cost)
    edges = np.unique(np.linspace(1, trace.max_new_tokens + 1, bins + 1).round().astype(int))
    at = of(study, cost)
    taken = {
        name: by_position.seconds(one.policy, at, edges, by_position.STEP_PARTS)
        for name, one in found.items()
    }
    best = taken.pop("prophet")
    middle, n = (edges[:-1] + edges[1:] - 1) / 2, len(best)
    rows, said = [], []
    for k, (name, mine) in enumerate(taken.items()):
        values = [waste.regret(mine[:, b], best[:, b]) for b in range(len(middle))]
        points(
            ax,
            middle + (k - 3) * 0.01 * edges[-1] / bins,
            values,
            label=name,
            **of_policy(found[name].spec).line,
        )
        said += missing(values, [f"from {low}" for low in edges[:-1]])
        for b, e in enumerate(values):
            row = {"policy": name, "setting": found[name].spec}
            row |= {"from": int(edges[b]), "to": int(edges[b + 1]) - 1}
            rows.append(row | cells(e, "regret"))
    ax.set(xlabel="position in the output, tokens", ylabel="time ÷ prophet's time − 1")
    ax.set_ylim(0)
    most = "each policy with the setting that most folds chose"
    how = chosen(trace) if folds(trace) is None else most
    below(ax, 4)
    caption(
        ax,
        "Regret against the prophet, by position in the text",
        f"{n} prompts, fewer where outputs have ended (frame); {how}; prefill left out;"
        f" {cost_name(study, cost)};"
        " bars: 95% over prompts, paired.",
    )
    return Drawn("regret_by_position", frame(rows), ax, tuple(said + gone))
