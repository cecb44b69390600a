"""The mean of one column against another, in bins, with intervals over prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError, check
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, in_bins

_SAMPLE = 2**20  # rows, evenly spread, that equal bins are laid out by


@dataclass(frozen=True, eq=False)
class Curve:
    """Means of y in bins of x; bins without rows are left out. Shape (B,) each.

    Attributes:
        edges: (B, 2) float64, ends of each bin, the upper one included.
        x: mean of x, float64.
        y: mean of y, with intervals.
        rows: int64.
    """

    edges: np.ndarray
    x: np.ndarray
    y: tuple[Estimate, ...]
    rows: np.ndarray


def curve(
    x: np.ndarray,
    y: np.ndarray,
    offsets: np.ndarray,
    edges: np.ndarray | int = 20,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Curve:
    """The mean of y by x, as of acceptance by entropy (SVIP Fig. 2) or confidence (PARD-2 Fig. 2b).

    Args:
        x: (R,).
        y: (R,).
        offsets: (S + 1,), where prompts start.
        edges: ascending ends of the bins, the first bin's lower end included; rows beyond count in
            the outer bins. A number asks for that many bins of about as many rows each.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: NaN, lengths that differ, or edges that do not ascend.
    """
    check(offsets, x=x, y=y)
    ends = equal_edges(x, edges) if isinstance(edges, int) else np.asarray(edges, float)
    if len(x) == 0:
        return Curve(np.zeros((0, 2)), np.zeros(0), (), np.zeros(0, np.int64))
    if len(ends) < 2 or np.any(np.diff(ends) <= 0):
        raise StatsError("edges must ascend, and be two or more")
    n = len(ends) - 1

    def columns(rows: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        return np.searchsorted(ends[1:-1], x[rows]), [x[rows], y[rows]]

    count, of_x, of_y = in_bins(offsets, n, columns)
    some = np.flatnonzero(count.any(0))
    both, k = np.concatenate([count[:, some], of_y[:, some]], 1), len(some)
    there = np.count_nonzero(count[:, some], 0)
    found = bootstrap(both, lambda s: s[..., k:] / s[..., :k], confidence, seed, bearing=there)
    total = count.sum(0)[some]
    edges = np.stack([ends[some], ends[some + 1]], 1)
    return Curve(edges, of_x.sum(0)[some] / total, found, total.astype(np.int64))


def equal_edges(x: np.ndarray, bins: int) -> np.ndarray:
    """Ends of at most so many bins of about as many rows each; fewer where values repeat."""
    if bins < 1:
        raise StatsError(f"bins must be >= 1: {bins}")
    sample = np.sort(x[:: max(1, len(x) // _SAMPLE)]).astype(np.float64)
    if not len(sample):
        return sample
    inner = np.unique(sample[np.arange(1, bins) * len(sample) // bins])
    inner = inner[(inner > sample[0]) & (inner < sample[-1])] if bins > 1 else inner[:0]
    low, high = float(x.min()), float(x.max())
    return np.concatenate([[low], inner, [high if high > low else np.nextafter(low, np.inf)]])
