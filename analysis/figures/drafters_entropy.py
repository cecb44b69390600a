"""The draft's entropy and acceptance, for every kind of drafter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from analysis.drafters import side_by_side
from analysis.figures.base import Drawn, caption, cells, figure, frame, missing, points
from analysis.figures.legends import below
from analysis.series_styles import drafters_of
from analysis.stats import binned, entropy
from analysis.study import MissingError, Study
from traces.errors import UserError
from traces.trace import Trace

COLUMNS = ("draft_entropy", "cross_entropy", "overlap")


class DraftRows(NamedTuple):
    """Rows of a drafter whose predecessors in the draft were all accepted.

    Attributes:
        draft_entropy: H(q), nats, (N,).
        cross_entropy: H(q, p), nats.
        overlap: β.
        offsets: where prompts start, (S + 1,).
    """

    draft_entropy: np.ndarray
    cross_entropy: np.ndarray
    overlap: np.ndarray
    offsets: np.ndarray


@figure("SVIP Fig. 4, several drafters", drafters=True)
def drafters_entropy(study: Study, ax: Axes, bins: int = 12) -> Drawn:
    """Overlap β by the draft's entropy, and SVIP's estimate, for each drafter that has a q.

    Over the rows that are verified: all tokens of the draft before them were accepted. On a path
    each position counts once, in a lattice once for each start that reaches it.

    Args:
        study: of a recording that drafters were attached to.
        ax: to draw on; None makes one.
        bins: of H(q), as many rows in each.

    Raises:
        MissingError: no drafter has a q, as where all are rules from tokens.
    """
    found, looks = side_by_side(study), drafters_of(study.trace)
    rows, said = [], []
    without: dict[str, list[str]] = {}
    for name, at in found.replays.items():
        try:
            some = verified(at.trace)
        except UserError as error:
            without.setdefault(str(error), []).append(name)
            continue
        edges = np.unique(np.quantile(some.draft_entropy, np.linspace(0, 1, bins + 1)))
        curve = binned.curve(some.draft_entropy, some.overlap, some.offsets, edges)
        columns = some.draft_entropy, some.cross_entropy, some.overlap, some.offsets
        fit = entropy.fit(*columns)
        tight = entropy.tightness(*columns, c=fit.value or 0.0)
        label = f"{name}, c = {fit.value:.2f}" if fit.value is not None else name
        points(ax, curve.x, curve.y, label=label, **looks[name].line)
        x = np.linspace(0, float(edges[-1]), 60)
        guess = np.maximum(entropy.estimate(x, fit.value or 0.0), 0)
        ax.plot(x, guess, ":", color=looks[name].color, linewidth=0.9)
        said += missing(curve.y, [name] * len(curve.y))
        for h, e, n in zip(curve.x, curve.y, curve.rows, strict=True):
            row = {"drafter": name, "series": "overlap", "draft_entropy": float(h), "rows": int(n)}
            rows.append(row | cells(e))
        told = {"c": fit, "mean overlap": tight.overlap, "Pinsker": tight.pinsker_clipped}
        told |= {"Bretagnolle–Huber": tight.bretagnolle_huber, "estimate lies below": tight.below}
        for series, e in told.items():
            row = {"drafter": name, "series": series, "rows": len(some.overlap)}
            rows.append(row | cells(e))
    if not rows:
        raise MissingError(f"no drafter has a distribution to look at: {'; '.join(without)}")
    gone = found.gone + [f"{', '.join(names)}: {why}." for why, names in without.items()]
    ax.set(xlabel="draft's entropy H(q), nats", ylabel="overlap β", ylim=(0, 1.02))
    below(ax)
    caption(
        ax,
        "The draft's entropy and acceptance, by drafter",
        f"Rows that a draft reaches, in {bins} bins; {study.trace.n_sequences} prompts; bars: 95%"
        " over prompts; dotted: SVIP's estimate 1 − √(c H(q)) with each drafter's own c.",
    )
    return Drawn("drafters_entropy", frame(rows), ax, tuple(said + gone))


def verified(trace: Trace) -> DraftRows:
    """The rows of any drafter with a q that a draft reaches.

    Raises:
        UserError: it has no such columns, as a rule from tokens.
    """
    if trace.has("positions", COLUMNS[0]):
        h, x, beta = map(trace.positions, COLUMNS)
        return DraftRows(h, x, beta, trace.position_offsets)
    lacking = [name for name in COLUMNS if not trace.has("lattice", name)]
    if lacking:
        raise MissingError(f"no {', '.join(lacking)}")
    h, x, beta = map(trace.lattice, COLUMNS)
    known = np.isfinite(beta)  # no target behind a rejected token
    total = np.concatenate([[0], np.cumsum(known)]).astype(np.int64)
    begins = trace.lattice_offsets[trace.position_offsets]
    return DraftRows(h[known], x[known], beta[known], total[begins])
