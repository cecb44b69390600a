"""Acceptance against the target's confidence."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    Drawn,
    caption,
    cells,
    figure,
    frame,
    ink,
    look,
    missing,
    points,
    small,
    text,
)
from analysis.figures.legends import below
from analysis.stats import binned, correlation
from analysis.study import loops_of
from traces.trace import Trace


@figure("PARD-2 Fig. 2b", "target_token_prob_raw", "accepted")
def confidence_acceptance(trace: Trace, ax: Axes, bins: int = 10) -> Drawn:
    """Share of draft tokens accepted, by the target's probability of the output's token.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        bins: of equal width in [0, 1].
    """
    x, y = trace.positions("target_token_prob_raw"), trace.positions("accepted")
    offsets = trace.position_offsets
    found = binned.curve(x, y, offsets, np.linspace(0, 1, bins + 1))
    rank = correlation.correlation(x, y, offsets)
    points(ax, found.x, found.y, label=f"Spearman ρ {text(rank, '.2f')}", **look(0))
    ax.plot([0, 1], [0, 1], ":", color=ink(), linewidth=0.8, label="acceptance = confidence")
    rows = [
        {"confidence": float(at), "rows": int(n)} | cells(e, "accepted")
        for at, e, n in zip(found.x, found.y, found.rows, strict=True)
    ]
    rows.append({"rows": len(x)} | cells(rank, "spearman"))
    looped, apart = loops_of(trace), ""
    if (left := looped.outside) is not None:
        free = correlation.correlation(x[left.rows], y[left.rows], left.prompts)
        rows.append({"series": "outside of loops"} | cells(free, "spearman"))
        apart = f", outside of them ρ {text(free, '.2f')}"
    for at, e, n in zip(found.x, found.y, found.rows, strict=True):
        spot = (at, max(e.hi or 0.0, e.value or 0.0))
        ax.annotate(
            f"{n:,}", spot, (0, 2), textcoords="offset points", ha="center", fontsize=small()
        )
    ax.set(xlabel="target's probability of the output's token", ylabel="share accepted")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.1))
    below(ax, 2)
    said = missing(found.y)
    caption(
        ax,
        "The target's confidence and acceptance",
        f"{len(x):,} positions of {trace.n_sequences} prompts; figures: positions in a bin; bars:"
        f" 95% over prompts. {looped.share:.0%} of the positions repeat a verbatim loop{apart}.",
    )
    return Drawn("confidence_acceptance", frame(rows), ax, tuple(said))
