"""Overlap, its lower bounds, and SVIP's estimate of them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, band, caption, cells, figure, frame, missing, text
from analysis.figures.legends import below
from analysis.stats import binned, entropy
from traces.trace import Trace


@figure("SVIP Fig. 4 and appendix B", "draft_entropy", "cross_entropy", "overlap", draft_model=True)
def entropy_bound(trace: Trace, ax: Axes, bins: int = 40, c: float | None = None) -> Drawn:
    """Overlap β, Pinsker's bound, Bretagnolle and Huber's, and SVIP's estimate, by rank of β.

    Args:
        trace: with rows.
        ax: to draw on; None makes one.
        bins: of positions sorted by β, as many in each; lines join the bins' means.
        c: of the estimate 1 - sqrt(c H(q)); None fits it to β.
    """
    h, x, beta = map(trace.positions, ("draft_entropy", "cross_entropy", "overlap"))
    offsets = trace.position_offsets
    fitted = entropy.fit(h, x, beta, offsets)
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
    rows, said = [], []
    for k, (label, made) in enumerate(series.items()):
        found = binned.curve(rank, made(), offsets, np.linspace(0, 1, bins + 1))
        band(ax, found.x, found.y, label, k, every=max(1, bins // 10))
        said += missing(found.y)
        for at, e, n in zip(found.x, found.y, found.rows, strict=True):
            rows.append({"series": label, "rank": float(at), "rows": int(n)} | cells(e))
    for name in ("gain", "gain_clipped", "pinsker_wins", "below"):
        rows.append({"series": name, "rows": len(beta)} | cells(getattr(tight, name)))
    rows.append({"series": "c", "rows": len(beta)} | cells(fitted))
    ax.set(xlabel="positions sorted by β, share", ylabel="probability", xlim=(0, 1))
    ax.set_ylim(-1.0, 1.02)
    below(ax, 2)
    n = f"{len(beta):,} positions of {trace.n_sequences} prompts in {bins} bins; bands: 95% over"
    caption(
        ax,
        "Acceptance, its bounds, and the estimate from the draft's entropy",
        f"{n} prompts. Fitted c = {text(fitted)}; the estimate lies below β in "
        f"{text(tight.below, '.2f')} of positions.",
        f"Pinsker ÷ Bretagnolle–Huber − 1 (means) = {text(tight.gain, '+.2f')}, with negative "
        f"bounds set to 0 {text(tight.gain_clipped, '+.2f')}.",
    )
    return Drawn("entropy_bound", frame(rows), ax, tuple(said))
