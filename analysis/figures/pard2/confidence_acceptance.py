"""Acceptance against the target's confidence."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.drawing.styles import ink, small
from analysis.figures.rows import cells, text
from analysis.stats import binned, correlation
from traces.messages import how_many


@figure("PARD-2 Fig. 2b", "target_token_prob_raw", "accepted")
def confidence_acceptance(plot: Plot, bins: int = 10) -> None:
    """Share of draft tokens accepted, by the target's probability of the output's token.

    Args:
        bins: of equal width in [0, 1].
    """
    trace, ax, looped, apart = plot.trace, plot.ax, plot.study.loops, ""
    x, y = trace.positions("target_token_prob_raw"), trace.positions("accepted")
    found = binned.curve(x, y, trace.position_offsets, np.linspace(0, 1, bins + 1))
    rank = correlation.correlation(x, y, trace.position_offsets)
    label = f"Spearman ρ {text(rank, '.2f')}"
    plot.curve(found, {}, "confidence", "accepted", label=label, **look(0))
    ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8, label="acceptance = confidence")
    plot.rows.append({"rows": len(x)} | cells(rank, "spearman"))
    if (left := looped.outside) is not None:
        free = correlation.correlation(x[left.rows], y[left.rows], left.prompts)
        plot.rows.append({"series": "outside of loops"} | cells(free, "spearman"))
        apart = f", outside of them ρ {text(free, '.2f')}"
    for at, e, n in zip(found.x, found.y, found.rows, strict=True):
        spot = (at, max(e.hi or 0.0, e.value or 0.0))
        how = {"textcoords": "offset points", "ha": "center", "fontsize": small()}
        ax.annotate(f"{n:,}", spot, (0, 2), **how)
    ax.set(xlabel="target's probability of the output's token", ylabel="share accepted")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.1))
    plot.below(2)
    plot.caption(
        "The target's confidence and acceptance",
        f"{how_many(len(x), 'position')} of {plot.prompts}; numbers: positions in a bin; bars:"
        f" 95% CI over prompts. {looped.share:.0%} of the positions lie in verbatim loops{apart}.",
    )
