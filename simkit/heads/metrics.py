"""How well scores foretell acceptance on prompts that were held out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss, roc_auc_score

from simkit.reliability import expected_error

_LEAST = 1e-4  # probabilities stay this far from 0 and 1, so that no log loss is infinite


def quality(accepted: np.ndarray, probability: np.ndarray) -> dict[str, float | None]:
    """AUC (None if all went one way), log loss in nats, and expected calibration error."""
    clipped = probability.astype(np.float64).clip(_LEAST, 1 - _LEAST)
    return {
        "auc": auc(accepted, probability),
        "log_loss": float(log_loss(accepted, clipped, labels=[False, True])),
        "ece": expected_error(accepted, probability),
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
