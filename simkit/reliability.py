"""Predicted probabilities against what happened, in bins of equal width."""

from __future__ import annotations

import numpy as np

N_BINS = 15


def bins_of(probability: np.ndarray, n_bins: int = N_BINS) -> np.ndarray:
    """The bin of each probability in [0, 1], 0-based; 1 is in the last."""
    return np.minimum((probability * n_bins).astype(int), n_bins - 1)


def reliability(accepted: np.ndarray, probability: np.ndarray) -> list[dict[str, float]]:
    """The reliability curve: bins of equal width that are not empty.

    Returns:
        for each bin the mean prediction, the share accepted, and the number of tokens.
    """
    which = bins_of(probability)
    count = np.bincount(which, minlength=N_BINS)
    predicted = np.bincount(which, probability.astype(np.float64), N_BINS)
    found = np.bincount(which, accepted, N_BINS)
    return [
        {
            "predicted": predicted[b] / count[b],
            "accepted": found[b] / count[b],
            "tokens": int(count[b]),
        }
        for b in np.flatnonzero(count)
    ]


def expected_error(accepted: np.ndarray, probability: np.ndarray) -> float:
    """Expected calibration error: mean over tokens of |predicted - accepted| of their bin."""
    bins = reliability(accepted, probability)
    gaps = [abs(b["predicted"] - b["accepted"]) * b["tokens"] for b in bins]
    return float(sum(gaps) / max(1, len(accepted)))
