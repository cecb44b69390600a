"""Regret of policies against the prophet, by position in the text."""

from __future__ import annotations

import numpy as np

from analysis import by_position
from analysis.figures.base import Plot, figure
from analysis.figures.policies.regret_by_task import ARMS
from analysis.labelled_replays import chosen
from analysis.replays import folds
from analysis.stats import waste
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many


@figure("new", compares=True)
def regret_by_position(plot: Plot, cost: AnyCost | None = None, bins: int = 8) -> None:
    """How much more time policies take than the prophet, by position in the output.

    A step's time is shared evenly over the tokens that it emits; prefill is left out.

    Args:
        bins: of positions, of equal width.
    """
    trace, at, found = plot.trace, plot.under(cost), plot.tuned(ARMS, cost, bounded=True)
    edges = np.unique(np.linspace(1, trace.max_new_tokens + 1, bins + 1).round().astype(int))
    taken = {
        name: by_position.seconds(one.policy, at, edges, by_position.STEP_PARTS)
        for name, one in found.items()
    }
    best, middle = taken.pop("prophet"), (edges[:-1] + edges[1:] - 1) / 2
    of = [f"from {low}" for low in edges[:-1]]
    for k, (name, mine) in enumerate(taken.items()):
        values = [waste.regret(mine[:, b], best[:, b]) for b in range(len(middle))]
        place = middle + (k - 3) * 0.01 * edges[-1] / bins
        facts = [
            {"policy": name, "setting": found[name].spec, "from": int(low), "to": int(end) - 1}
            for low, end in zip(edges[:-1], edges[1:], strict=True)
        ]
        drawn = {"of": of, "label": name, **plot.look(name, found[name].spec).line}
        plot.series(place, values, facts, "regret", **drawn)
    plot.ax.set(xlabel="position in the output, tokens", ylabel="time ÷ prophet's time − 1")
    plot.ax.set_ylim(0)
    plot.below(4)
    most = "each policy with the setting that most folds chose"
    how = chosen(trace) if folds(trace) is None else most
    plot.caption(
        "Regret against the prophet, by position in the text",
        f"{how_many(len(best), 'prompt')}, fewer where outputs have ended (see the frame); {how};"
        f" prefill left out;"
        f" {plot.cost_name(cost)};"
        " bars: 95% CI over prompts, paired.",
    )
