"""Bootstrap intervals over prompts."""

from __future__ import annotations

import math
import warnings

import numpy as np

RESAMPLES = 2000
_BATCH = 2**22  # values resampled at a time


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, confidence: float, seed: int
) -> tuple[float, float]:
    """The bootstrap interval of sum(numerator) / sum(denominator) over paired observations.

    Bias-corrected and accelerated (Efron 1987), by `scipy.stats.bootstrap`; the percentile
    interval where the acceleration is not defined.

    Args:
        numerator: >= 0, shape (n,).
        denominator: >= 0, shape (n,).
        confidence: of the interval, in (0, 1).
        seed: of the resampling.

    Returns:
        Its ends; NaN for fewer than two observations; both the ratio itself if it is constant.
    """
    top, bottom = numerator.sum(), denominator.sum()
    if len(numerator) < 2 or not bottom > 0 or np.any(denominator <= 0):
        return math.nan, math.nan
    each = numerator / denominator
    if np.ptp(each) <= 1e-12 * np.abs(each).max():
        return float(top / bottom), float(top / bottom)
    for method in ("BCa", "percentile"):
        low, high = _bootstrap(numerator, denominator, confidence, seed, method)
        if math.isfinite(low) and math.isfinite(high):
            break
    return low, high


def _bootstrap(
    numerator: np.ndarray, denominator: np.ndarray, confidence: float, seed: int, method: str
) -> tuple[float, float]:
    from scipy.stats import bootstrap

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return x.sum(axis) / y.sum(axis)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a degenerate BCa is answered by the percentiles
        found = bootstrap(
            (numerator, denominator),
            ratio,
            n_resamples=RESAMPLES,
            batch=max(1, _BATCH // len(numerator)),
            vectorized=True,
            paired=True,
            confidence_level=confidence,
            method=method,
            rng=np.random.default_rng(seed),
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
