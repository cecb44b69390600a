"""Do predicted probabilities of acceptance come true?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError, check, shares
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, in_bins
from simkit.reliability import N_BINS, bins_of


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions against outcomes. Bins are of equal width; those without rows are left out.

    Attributes:
        edges: (B, 2) ends of each bin.
        predicted: (B,) mean prediction.
        accepted: (B,) share accepted, with intervals.
        rows: (B,) int64.
        error: expected calibration error: mean over rows of |predicted - accepted| of their bin.
            Noise in the bins makes it too large, the more so the more bins and the fewer rows.
        brier: mean (prediction - outcome)².
        skill: 1 - Brier score ÷ that of always predicting the share accepted.
        n_bins: bins in [0, 1].
    """

    edges: np.ndarray
    predicted: np.ndarray
    accepted: tuple[Estimate, ...]
    rows: np.ndarray
    error: Estimate
    brier: Estimate
    skill: Estimate
    n_bins: int


def reliability(
    probability: np.ndarray,
    accepted: np.ndarray,
    offsets: np.ndarray,
    n_bins: int = N_BINS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Reliability:
    """Reliability, expected calibration error and Brier score of predicted acceptance.

    Args:
        probability: (R,) in [0, 1]: a head's score, an overlap, a confidence, 1 - sqrt(c H(q)).
        accepted: (R,) bool.
        offsets: (S + 1,), where prompts start.
        n_bins: of equal width in [0, 1].
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: NaN, lengths that differ, no bins, or probabilities outside of [0, 1].
    """
    check(offsets, probability=probability, accepted=accepted)
    shares(probability=probability)
    if n_bins < 1:
        raise StatsError(f"n_bins must be >= 1: {n_bins}")

    def columns(rows: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        square = np.square(probability[rows].astype(np.float64) - accepted[rows])
        return bins_of(probability[rows], n_bins), [probability[rows], accepted[rows], square]

    parts = in_bins(offsets, n_bins, columns)
    some = np.flatnonzero(parts[0].any(0))
    sums, k = np.concatenate([*parts[:3, :, some], parts[3].sum(1, keepdims=True)], 1), len(some)

    def statistic(s: np.ndarray) -> np.ndarray:
        rows, predicted, found = s[..., :k], s[..., k : 2 * k], s[..., 2 * k : 3 * k]
        n, share = rows.sum(-1), found.sum(-1) / rows.sum(-1)
        brier, chance = s[..., -1] / n, share * (1 - share)
        skill = np.where(chance > 0, 1 - brier / np.where(chance > 0, chance, 1), np.nan)
        whole = np.stack([np.abs(predicted - found).sum(-1) / n, brier, skill], -1)
        return np.concatenate([found / rows, whole], -1)

    bearing = np.append(np.count_nonzero(sums[:, :k], 0), [len(sums)] * 3)
    found = bootstrap(sums, statistic, confidence, seed, bearing=bearing)
    total = sums.sum(0)
    ends = np.stack([some, some + 1], 1) / n_bins
    rows = total[:k].astype(np.int64)
    mean = total[k : 2 * k] / np.maximum(rows, 1)
    error, brier, skill = found[k:]
    return Reliability(ends, mean, found[:k], rows, error, brier, skill, n_bins)
