"""How well scores foretell acceptance on prompts that were held out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss, roc_auc_score

N_BINS = 15
_LEAST = 1e-4  # probabilities stay this far from 0 and 1, so that no log loss is infinite


def quality(accepted: np.ndarray, probability: np.ndarray) -> dict[str, float | None]:
    """AUC (None if all went one way), log loss in nats, and expected calibration error."""
    clipped = probability.astype(np.float64).clip(_LEAST, 1 - _LEAST)
    return {
        "auc": auc(accepted, probability),
        "log_loss": float(log_loss(accepted, clipped, labels=[False, True])),
        "ece": _ece(accepted, probability),
    }


def auc(accepted: np.ndarray, score: np.ndarray) -> float | None:
    """Area under the ROC curve; None if all tokens went one way."""
    if accepted.all() or not accepted.any():
        return None
    return float(roc_auc_score(accepted, score))


def fit(signal: np.ndarray, accepted: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A monotone map from a signal to a probability (isotonic regression).

    It rises if accepted tokens have the higher mean.
    """
    signal = signal.astype(np.float64)
    rises = not accepted.any() or bool(signal[accepted].mean() >= signal.mean())
    model = IsotonicRegression(out_of_bounds="clip", increasing=rises)
    model.fit(signal, accepted.astype(np.float64))
    return lambda values: model.predict(values.astype(np.float64))


def reliability(accepted: np.ndarray, probability: np.ndarray) -> list[dict[str, float]]:
    """The reliability curve: bins of equal width that are not empty.

    Returns:
        for each bin the mean prediction, the share accepted, and the number of tokens.
    """
    which = np.minimum((probability * N_BINS).astype(int), N_BINS - 1)
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


def _ece(accepted: np.ndarray, probability: np.ndarray) -> float:
    """Mean over tokens of |predicted - accepted| of their bin."""
    bins = reliability(accepted, probability)
    gaps = [abs(b["predicted"] - b["accepted"]) * b["tokens"] for b in bins]
    return float(sum(gaps) / max(1, len(accepted)))
