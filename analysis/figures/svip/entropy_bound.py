"""Overlap, its lower bounds, and SVIP's estimate of them."""

from __future__ import annotations

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import band
from analysis.figures.rows import cells, text
from analysis.stats import binned, entropy
from traces.messages import how_many


@figure("SVIP Fig. 4 and appendix B", "draft_entropy", "cross_entropy", "overlap", draft_model=True)
def entropy_bound(plot: Plot, bins: int = 40, c: float | None = None) -> None:
    """Overlap β with Pinsker's bound, Bretagnolle and Huber's bound, and SVIP's estimate.

    Args:
        bins: of positions sorted by β, as many in each; lines join the bins' means.
        c: of the estimate 1 - sqrt(c H(q)); None fits it to β.
    """
    trace, offsets = plot.trace, plot.trace.position_offsets
    h, x, beta = map(trace.positions, ("draft_entropy", "cross_entropy", "overlap"))
    fitted = entropy.fit(h, x, beta, offsets)
    used = "the estimate" if c is None else f"the estimate, here of c = {c:g},"
    plot.rows += [] if c is None else [{"series": "c of the estimate", "value": c}]
    c = (fitted.value or 0.0) if c is None else c
    tight = entropy.tightness(h, x, beta, offsets, c)
    kl = entropy.divergence(x, h).astype(np.float32)
    series = {  # made one at a time: a trace may have many rows
        "overlap β": lambda: beta,
        "Pinsker's bound, Eq. 5": lambda: entropy.pinsker(kl),
        "estimate 1 − √(c H(q)), Eq. 6": lambda: entropy.estimate(h, c),
        "Bretagnolle–Huber's bound, Eq. 9": lambda: entropy.bretagnolle_huber(kl),
    }
    rank = np.empty(len(beta), np.float32)
    rank[np.argsort(beta)] = np.arange(len(beta), dtype=np.float32) / max(1, len(beta))
    for k, (label, made) in enumerate(series.items()):
        found = binned.curve(rank, made(), offsets, np.linspace(0, 1, bins + 1))
        band(plot.ax, found.x, found.y, label, k, every=max(1, bins // 10))
        plot.missing(found.y)
        for at, e, n in zip(found.x, found.y, found.rows, strict=True):
            plot.rows.append({"series": label, "rank": float(at), "rows": int(n)} | cells(e))
    told = {n: getattr(tight, n) for n in ("gain", "gain_clipped", "pinsker_wins", "below")}
    for name, e in {**told, "c": fitted}.items():
        plot.rows.append({"series": name, "rows": len(beta)} | cells(e))
    plot.ax.set(xlabel="positions sorted by β, share", ylabel="probability", xlim=(0, 1))
    plot.ax.set_ylim(-1.0, 1.02)
    plot.below(2)
    plot.caption(
        "Acceptance, its bounds, and the estimate from the draft's entropy",
        f"{how_many(len(beta), 'position')} of {plot.prompts} in {how_many(bins, 'bin')};"
        f" bands: 95% CI over prompts."
        f" Fitted c = {text(fitted)}; {used} lies below β in {text(tight.below, '.2f')} of"
        " positions.",
        f"Pinsker ÷ Bretagnolle–Huber − 1 (means) = {text(tight.gain, '+.2f')}, with negative "
        f"bounds set to 0 {text(tight.gain_clipped, '+.2f')}.",
    )
