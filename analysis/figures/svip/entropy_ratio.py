"""The distribution of H(q,p) / H(q)."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import ink, paper
from analysis.figures.rows import cells, text
from analysis.papers import svip
from analysis.stats import entropy
from traces.messages import how_many

LONGEST = 4.0  # ratios beyond are counted in the last bar


@figure("SVIP Fig. 3", "draft_entropy", "cross_entropy", draft_model=True)
def entropy_ratio(plot: Plot, bins: int = 60) -> None:
    """Distribution of the ratio of cross entropy to the draft's entropy.

    Args:
        bins: from 1 to 4; what lies beyond is in the last.
    """
    trace, ax, bits = plot.trace, plot.ax, plot.trace.manifest.bits
    h, x = trace.positions("draft_entropy"), trace.positions("cross_entropy")
    found = entropy.entropy_ratio(h, x, trace.position_offsets, svip.RATIO, bits)
    edges = np.linspace(1, LONGEST, bins + 1)
    counts, _ = np.histogram(np.minimum(found.values, LONGEST), edges)
    share = counts / max(1, len(found.values))
    low, high = found.band
    inside = edges[:-1] < high - 1e-9
    for some, color, hatch in ((inside, COLORS[0], ""), (~inside, COLORS[4], "////")):
        bars = edges[:-1][some], share[some], np.diff(edges)[some]
        how = {"hatch": hatch, "edgecolor": paper(), "linewidth": 0.3}
        ax.bar(*bars, align="edge", color=color, **how)
    median = found.quantiles[0.5]
    if median.value is not None:
        ax.axvline(median.value, color=ink(), linestyle="--")
    plot.rows = [
        {"series": "share", "ratio_lo": lo, "ratio_hi": hi, "rows": int(n), "value": float(p)}
        for lo, hi, n, p in zip(edges[:-1], edges[1:], counts, share, strict=True)
    ]
    plot.rows += [{"series": f"quantile:{p:g}"} | cells(e) for p, e in found.quantiles.items()]
    band = {"series": "in band", "ratio_lo": low, "ratio_hi": high, "rows": len(found.values)}
    plot.rows.append(band | cells(found.in_band))
    plot.missing([found.in_band])
    ax.set(xlabel="H(q,p) ÷ H(q)   (last bar: 4 and beyond)", ylabel="share of positions")
    ax.set_xlim(1, LONGEST)
    plot.caption(
        "Cross entropy as a multiple of entropy",
        f"In {low:g} – {high:g} (solid bars): {text(found.in_band)} of"
        f" {how_many(len(found.values), 'position')},"
        f" {plot.prompts}; 95% CI over prompts.",
        f"Median (dashed): {text(median, '.2f')}. Left out, H(q) too small: {found.left_out}.",
        f"Stored in {bits} bits: each is drawn from the values that round to it." if bits else "",
    )
