"""The draft's entropy and acceptance, for every kind of drafter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.drafters import side_by_side
from analysis.figures.base import Plot, figure
from analysis.figures.rows import cells
from analysis.series_styles import SeriesStyle, drafters_of
from analysis.stats import binned, entropy
from analysis.study import MissingError
from traces.errors import UserError
from traces.messages import how_many
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
def drafters_entropy(plot: Plot, bins: int = 12) -> None:
    """Overlap β by the draft's entropy, and SVIP's estimate of β, for each drafter with a q.

    Over the rows that are verified: all tokens of the draft before them were accepted. On a path
    each position counts once, in a lattice once for each start that reaches it.

    Args:
        bins: of H(q), as many rows in each.

    Raises:
        MissingError: no drafter has a q, as where all are rules from tokens.
    """
    found, looks = side_by_side(plot.study), drafters_of(plot.trace)
    without: dict[str, list[str]] = {}
    for name, at in found.replays.items():
        try:
            some = verified(at.trace)
        except UserError as error:
            without.setdefault(str(error), []).append(name)
            continue
        _draw(plot, name, some, looks[name], bins)
    if not plot.rows:
        raise MissingError(f"no drafter has a distribution to look at: {'; '.join(without)}")
    plot.gone += found.gone + [f"{', '.join(names)}: {why}." for why, names in without.items()]
    plot.ax.set(xlabel="draft's entropy H(q), nats", ylabel="overlap β", ylim=(0, 1.02))
    plot.below()
    plot.caption(
        "The draft's entropy and acceptance, by drafter",
        f"Draft tokens that verification reaches, in {how_many(bins, 'bin')}; {plot.prompts}; bars:"
        " 95% CI over prompts; dotted: SVIP's estimate 1 − √(c H(q)) with each drafter's own c.",
    )


def _draw(plot: Plot, name: str, some: DraftRows, look: SeriesStyle, bins: int) -> None:
    """One drafter's overlap, and the estimate that is fitted to it."""
    edges = np.unique(np.quantile(some.draft_entropy, np.linspace(0, 1, bins + 1)))
    curve = binned.curve(some.draft_entropy, some.overlap, some.offsets, edges)
    fit = entropy.fit(*some)
    tight = entropy.tightness(*some, c=fit.value or 0.0)
    label = f"{name}, c = {fit.value:.2f}" if fit.value is not None else name
    drawn = {"of": [name] * len(curve.y), "label": label, **look.line}
    plot.curve(curve, {"drafter": name, "series": "overlap"}, "draft_entropy", **drawn)
    x = np.linspace(0, float(edges[-1]), 60)
    guess = np.maximum(entropy.estimate(x, fit.value or 0.0), 0)
    plot.ax.plot(x, guess, ":", color=look.color, linewidth=0.9)
    told = {"c": fit, "mean overlap": tight.overlap, "Pinsker": tight.pinsker_clipped}
    told |= {"Bretagnolle–Huber": tight.bretagnolle_huber, "estimate lies below": tight.below}
    row = {"drafter": name, "rows": len(some.overlap)}
    plot.rows += [row | {"series": series} | cells(e) for series, e in told.items()]


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
