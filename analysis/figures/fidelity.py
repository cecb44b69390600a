"""Predictions against the clock, drawn from frames of `analysis.fidelity`."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.drawing.captions import caption
from analysis.figures.drawing.marks import COLORS, look, points
from analysis.figures.drawing.styles import ink, style
from analysis.figures.drawn import Drawn
from analysis.stats import Estimate
from traces.messages import how_many


def fidelity_speedups(policies: pl.DataFrame, ax: Axes | None = None) -> Drawn:
    """Measured and predicted speedup of each policy; the error of the prediction beside its name.

    Both are of the same prompts, so that the error is far smaller than either interval.

    Args:
        policies: `Fidelity.policies`, one row or more.
        ax: to draw on; None makes one.

    >>> from analysis import fidelity
    >>> analysis.figures.fidelity_speedups(fidelity.load().policies)
    <Drawn fidelity_speedups: 9 rows>
    """
    table = policies.sort("measured", maintain_order=True)
    place = np.arange(len(table))
    with style():
        if ax is None:
            ax = Figure((7, 1.6 + 0.42 * len(table)), layout="constrained").subplots()
        for k, name in enumerate(("measured", "predicted")):
            rows = table.select(name, f"{name}_lo", f"{name}_hi", "sequences").iter_rows()
            found = [Estimate(*row) for row in rows]
            how = look(k) | {"linestyle": ""}
            points(ax, place + 0.12 - 0.24 * k, found, sideways=True, label=name, **how)
        both = table.select("policy", "error").iter_rows()
        ax.set_yticks(place, [f"{policy}  {error:+.1%}" for policy, error in both])
        ax.axvline(1, color=ink(), linewidth=0.8)
        ax.set(xlabel="speedup over the target alone")
        ax.legend(loc="lower right")
        what = "Beside the policies: predicted ÷ measured − 1; bars: 95% CI over prompts."
        caption(ax, "Predicted and measured speedups", what)
    return Drawn("fidelity_speedups", policies, ax)


def fidelity_prompts(prompts: pl.DataFrame, ax: Axes | None = None) -> Drawn:
    """Predicted against measured seconds of single prompts.

    Args:
        prompts: one row a policy and prompt; `total_s` is predicted, `seconds` measured.
        ax: to draw on; None makes one.

    >>> import polars as pl
    >>> prompts = pl.DataFrame({"seconds": [1.0, 2.0], "total_s": [1.1, 1.9]})
    >>> analysis.figures.fidelity_prompts(prompts)
    <Drawn fidelity_prompts: 2 rows>
    """
    with style():
        if ax is None:
            ax = Figure((4.8, 4.4), layout="constrained").subplots()
        ax.axline((1, 1), slope=1, color=ink(), linewidth=0.8, label="as predicted")
        ax.loglog(prompts["seconds"], prompts["total_s"], "o", color=COLORS[0], alpha=0.6)
        ax.set(xlabel="measured, s", ylabel="predicted, s")
        ax.legend(loc="lower right")
        caption(ax, "Single prompts", f"{how_many(len(prompts), 'pair')} of a prompt and a policy.")
    return Drawn("fidelity_prompts", prompts, ax)
