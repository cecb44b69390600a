"""The distribution of H(q,p) / H(q)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import (
    COLORS,
    Drawn,
    caption,
    cells,
    figure,
    frame,
    ink,
    missing,
    paper,
    text,
)
from analysis.papers import svip
from analysis.stats import entropy
from traces.trace import Trace

LONGEST = 4.0  # ratios beyond are counted in the last bar


@figure("SVIP Fig. 3", "draft_entropy", "cross_entropy", draft_model=True)
def entropy_ratio(trace: Trace, ax: Axes, bins: int = 60) -> Drawn:
    """How often cross entropy is how many times the draft's entropy.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        bins: from 1 to 4; what lies beyond is in the last.
    """
    h, x = trace.positions("draft_entropy"), trace.positions("cross_entropy")
    bits = trace.manifest.bits
    found = entropy.entropy_ratio(h, x, trace.position_offsets, svip.RATIO, bits)
    edges = np.linspace(1, LONGEST, bins + 1)
    counts, _ = np.histogram(np.minimum(found.values, LONGEST), edges)
    share = counts / max(1, len(found.values))
    inside = edges[:-1] < found.band[1] - 1e-9
    for some, color, hatch in ((inside, COLORS[0], ""), (~inside, COLORS[4], "////")):
        bars: dict[str, Any] = {
            "color": color,
            "hatch": hatch,
            "edgecolor": paper(),
            "linewidth": 0.3,
        }
        ax.bar(edges[:-1][some], share[some], np.diff(edges)[some], align="edge", **bars)
    median = found.quantiles[0.5]
    if median.value is not None:
        ax.axvline(median.value, color=ink(), linestyle="--")
    rows = [
        {"series": "share", "ratio_lo": low, "ratio_hi": high, "rows": int(n), "value": float(p)}
        for low, high, n, p in zip(edges[:-1], edges[1:], counts, share, strict=True)
    ]
    rows += [{"series": f"quantile:{p:g}"} | cells(e) for p, e in found.quantiles.items()]
    band = {"series": "in band", "ratio_lo": found.band[0], "ratio_hi": found.band[1]}
    rows.append(band | {"rows": len(found.values)} | cells(found.in_band))
    ax.set(xlabel="H(q,p) ÷ H(q)   (last bar: 4 and beyond)", ylabel="share of positions")
    ax.set_xlim(1, LONGEST)
    said = missing([found.in_band])
    low, high = found.band
    caption(
        ax,
        "Cross entropy as a multiple of entropy",
        f"In {low:g} – {high:g} (solid bars): {text(found.in_band)} of {len(found.values):,} "
        f"positions, {trace.n_sequences} prompts; 95% over prompts.",
        f"Median (dashed): {text(median, '.2f')}. H(q) too small to divide by: {found.left_out}.",
        f"Stored in {bits} bits: each entropy is drawn from what rounds to it." if bits else "",
    )
    return Drawn("entropy_ratio", frame(rows), ax, tuple(said))
