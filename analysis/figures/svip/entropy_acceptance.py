"""Acceptance against the draft's entropy."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.rows import cells, text
from analysis.stats import binned, correlation
from traces.messages import how_many

SERIES = {"accepted": "accepted", "overlap": "overlap β"}


@figure("SVIP Fig. 2, top", "draft_entropy", "accepted", "overlap", draft_model=True)
def entropy_acceptance(plot: Plot, bins: int = 16) -> None:
    """Acceptance of a draft token by the draft's entropy.

    Args:
        bins: of entropy, of about as many rows each.
    """
    trace, looped, apart = plot.trace, plot.study.loops, ""
    h, offsets = trace.positions("draft_entropy"), trace.position_offsets
    rank = {}
    for k, (column, label) in enumerate(SERIES.items()):
        y = trace.positions(column)
        found = binned.curve(h, y, offsets, bins)
        rank[column] = correlation.correlation(h, y, offsets)
        drawn = f"{label}, Spearman ρ {text(rank[column], '.2f')}"
        facts = [
            {"series": column, "entropy_nats": float(x), "rows": int(n), "bin_lo": lo, "bin_hi": hi}
            for x, n, (lo, hi) in zip(found.x, found.rows, found.edges, strict=True)
        ]
        plot.series(found.x, found.y, facts, "mean", label=drawn, **look(k))
    for column, e in rank.items():
        plot.rows.append({"series": f"spearman:{column}", "rows": len(h)} | cells(e, "mean"))
    if (left := looped.outside) is not None:
        beta = trace.positions("overlap")[left.rows]
        free = correlation.correlation(h[left.rows], beta, left.prompts)
        series = {"series": "spearman:overlap, outside of loops", "rows": len(beta)}
        plot.rows.append(series | cells(free, "mean"))
        apart = f", outside of them ρ of β {text(free, '.2f')}"
    plot.ax.set(xlabel="draft entropy H(q), nats", ylabel="probability", ylim=(0, 1.02))
    plot.below(2)
    plot.caption(
        "Acceptance by the draft's entropy",
        f"{how_many(len(h), 'position')} of {plot.prompts}, {plot.sampling}; bins of equal counts;"
        " bars: 95% CI over prompts.",
        f"{looped.share:.0%} of the positions lie in verbatim loops{apart}.",
    )
