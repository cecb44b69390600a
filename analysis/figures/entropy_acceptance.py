"""Acceptance against the draft's entropy."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, look, missing, points, text
from analysis.figures.legends import below
from analysis.stats import binned, correlation
from analysis.study import loops_of
from traces.trace import Trace

SERIES = {"accepted": "accepted", "overlap": "overlap β"}


@figure("SVIP Fig. 2, top", "draft_entropy", "accepted", "overlap", draft_model=True)
def entropy_acceptance(trace: Trace, ax: Axes, bins: int = 16) -> Drawn:
    """Acceptance of a draft token by the draft's entropy.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        bins: of entropy, of about as many rows each.
    """
    h, offsets = trace.positions("draft_entropy"), trace.position_offsets
    rows, said, rank = [], [], {}
    for k, (column, label) in enumerate(SERIES.items()):
        y = trace.positions(column)
        found = binned.curve(h, y, offsets, bins)
        rank[column] = correlation.correlation(h, y, offsets)
        drawn = f"{label}, Spearman ρ {text(rank[column], '.2f')}"
        points(ax, found.x, found.y, label=drawn, **look(k))
        said += missing(found.y)
        for i, mean in enumerate(found.x):
            row = {"series": column, "entropy_nats": float(mean), "rows": int(found.rows[i])}
            row |= {"bin_lo": found.edges[i, 0], "bin_hi": found.edges[i, 1]}
            rows.append(row | cells(found.y[i], "mean"))
    for column, e in rank.items():
        rows.append({"series": f"spearman:{column}", "rows": len(h)} | cells(e, "mean"))
    looped, apart = loops_of(trace), ""
    if (left := looped.outside) is not None:
        beta = trace.positions("overlap")[left.rows]
        free = correlation.correlation(h[left.rows], beta, left.prompts)
        row = {"series": "spearman:overlap, outside of loops", "rows": len(beta)}
        rows.append(row | cells(free, "mean"))
        apart = f", outside of them ρ of β {text(free, '.2f')}"
    ax.set(xlabel="draft entropy H(q), nats", ylabel="probability", ylim=(0, 1.02))
    below(ax, 2)
    how = "greedy" if trace.sampler.greedy else "sampled"
    loop = f"{looped.share:.0%} of the positions repeat a verbatim loop{apart}."
    n = f"{len(h):,} positions of {trace.n_sequences} prompts, {how}; bins of equal counts;"
    caption(ax, "Acceptance by the draft's entropy", f"{n} bars: 95% over prompts.", loop)
    return Drawn("entropy_acceptance", frame(rows), ax, tuple(said))
