"""Bootstrap intervals over prompts: those of replays, and of all statistics of `analysis`.

Each end is the farther of two, or with pivots of three. The first is bias-corrected and
accelerated (Efron 1987), at the level that would give a mean the width of its t interval
(Hesterberg 2015, section 5.3, "expanded percentile"): resampling n prompts understates their
spread by sqrt((n - 1) / n). The second is that of the jackknife's t interval (Tukey 1958): the
acceleration is estimated on few prompts too, and where it bends too far one end falls short.
The third is bootstrap-t's, of the logarithm (Efron and Tibshirani 1993, sections 12.5 and
12.6): where a few prompts weigh most, samples that lack their like show too small a value and
too small a spread at once. It is taken at the expanded level; at the book's own it holds the
truth too seldom here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

RESAMPLES = 2000
ROUNDING = 1e-9  # of seconds: what differs by less is equal
_COUNTS = 2**22  # weights of prompts held at a time
_FARTHEST = 300.0  # a logarithm; beyond it nothing is known, and the end stays finite


def ratio_interval(
    numerator: np.ndarray,
    denominator: np.ndarray,
    confidence: float,
    seed: int,
    factors: np.ndarray | None = None,
) -> tuple[float, float]:
    """The bootstrap interval of sum(numerator) / sum(denominator) over paired observations.

    Args:
        numerator: shape (n,); of any sign, see `unsigned`.
        denominator: >= 0, shape (n,). Observations that bring nothing to either sum, as outputs
            that take no time, are left out.
        confidence: of the interval, in (0, 1).
        seed: of the resampling.
        factors: > 0, shape (D,): by what the ratio changes for reasons that all observations
            share, such as other samples of the times that priced them; draws of these are combined
            with those of the observations. None: there are none.

    Returns:
        Its ends, see `ends`; both the ratio itself if it is constant. NaN for fewer than two
        observations, and where some resample's denominators sum to 0.
    """
    bearing = (numerator != 0) | (denominator != 0)
    numerator, denominator = numerator[bearing], denominator[bearing]
    top, bottom = numerator.sum(), denominator.sum()
    if len(numerator) < 2 or np.any(denominator < 0) or not bottom > denominator.max():
        return math.nan, math.nan
    value = float(top / bottom)
    each = np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)
    if denominator.all() and np.ptp(each) <= 1e-12 * np.abs(each).max():
        return (value, value) if factors is None else shared_ends(value, factors, confidence)
    sums = np.stack([numerator, denominator], 1).astype(np.float64)
    drawn = np.concatenate(list(resampled(sums, seed)))
    if not drawn[:, 1].all():
        return math.nan, math.nan
    without = (top - numerator) / (bottom - denominator)
    quotients = drawn[:, 0] / drawn[:, 1]
    positive = unsigned(numerator)
    return ends(
        value,
        quotients,
        without,
        confidence,
        positive=positive,
        capped=False,
        factors=factors,
    )


def shared_ends(value: float, factors: np.ndarray, confidence: float) -> tuple[float, float]:
    """The interval of a value of which nothing but shared factors (D,) is uncertain."""
    from scipy.special import stdtrit

    arm = stdtrit(max(1, len(factors) - 1), (1 + confidence) / 2) * np.log(factors).std(ddof=1)
    both = value * np.exp([-arm, arm])
    return float(both.min()), float(both.max())


def unsigned(summed: np.ndarray) -> bool:
    """Whether nothing that is summed is negative: only then do ratios of sums have a logarithm.

    Savings are signed, since some prompts lose. A resample of those may save nothing though all
    prompts together save something, and near 0 a logarithm says that they may save anything.
    """
    return bool(np.all(summed >= 0))


def resampled(
    sums: np.ndarray, seed: int, resamples: int = RESAMPLES, size: int | None = None
) -> Iterator[np.ndarray]:
    """Sums over prompts drawn with replacement.

    Args:
        sums: (n, m), of each prompt.
        seed: of the resampling.
        resamples: how many.
        size: prompts in each; None means n.

    Yields:
        (some, m), `resamples` rows in all.
    """
    rng = np.random.default_rng(seed)
    n = len(sums)
    step = max(1, _COUNTS // n)
    for low in range(0, resamples, step):
        some = min(step, resamples - low)
        drawn = rng.integers(0, n, (some, size or n))
        drawn += n * np.arange(some)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=some * n).reshape(some, n)
        yield counts.astype(np.float64) @ sums


def ends(
    value: float,
    drawn: np.ndarray,
    without: np.ndarray,
    confidence: float,
    bearing: int | None = None,
    positive: bool = False,
    capped: bool = True,
    pivots: np.ndarray | None = None,
    factors: np.ndarray | None = None,
) -> tuple[float, float]:
    """The ends of a statistic's interval over n prompts: see the module.

    Args:
        value: on all prompts.
        drawn: (B,), on each resample.
        without: (n,), without each prompt in turn; they differ.
        confidence: of the interval, in (0, 1).
        bearing: how many of the prompts bear on the statistic, at least 2; None means all.
        positive: whether the statistic is, as ratios of times are (see `unsigned`); then the
            jackknife's interval is one of its logarithm (unless it is 0 without some prompt).
        capped: no end lies beyond every resample: for statistics that have a range, as shares of
            counts. It is also what makes intervals of 2 to 5 prompts too narrow: two prompts have
            three resamples, and the least of them cuts off a quarter. A logarithm needs no cap,
            nor does the third end.
        pivots: how far each resample's logarithm lies above that of `value`, in standard errors
            of its own; NaN is left out. They count only if all of `without` has a logarithm.
        factors: see `ratio_interval`. Levels are those of the prompts alone; every resample is
            multiplied by a factor, about its centre, and the jackknife's variance is added to
            that of the factors.

    Returns:
        Low and high; docs/statistics.md has how often they hold the truth.
    """
    n = bearing or len(without)
    reach = _reach(n, confidence)
    expanded = math.sqrt(n / (n - 1)) * reach
    levels = _levels(value, drawn, without, expanded)
    drawn, spread = (drawn, 0.0) if factors is None else _times(drawn, factors)
    low, high = np.quantile(drawn, levels)
    logs = positive and value > 0 and bool(np.all(without > 0))
    arm = reach * _error(value, without, n, spread, logs)
    near, far = _jackknife(value, arm, logs)
    if capped or (positive and not logs):  # what is positive does not go below 0
        near, far = max(near, drawn.min()), min(far, drawn.max())
    if logs and pivots is not None:
        farther = _studentised(value, pivots, arm / reach, reach, expanded)
        near, far = min(near, farther[0]), max(far, farther[1])
    return float(min(low, near)), float(max(high, far))


def _reach(n: int, confidence: float) -> float:
    """The two-sided t deviate of n observations."""
    from scipy.special import stdtrit

    return stdtrit(n - 1, (1 + confidence) / 2)


def _times(drawn: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, float]:
    """Each resample times a factor, and the standard deviation of the factors' logarithms."""
    logs = np.log(factors) - np.log(factors).mean()
    with_factors = drawn * np.exp(np.random.default_rng(len(drawn)).choice(logs, len(drawn)))
    return with_factors, float(logs.std(ddof=1))


def _levels(value: float, drawn: np.ndarray, without: np.ndarray, expanded: float) -> np.ndarray:
    """The levels (2,) of resamples at which the first ends lie; see `ends`."""
    from scipy.special import ndtr, ndtri

    gaps = without.mean() - without
    bend = float((gaps**3).sum()) / (6 * float((gaps**2).sum()) ** 1.5)
    below = (np.count_nonzero(drawn < value) + np.count_nonzero(drawn <= value)) / 2
    bias = ndtri(np.clip(below / len(drawn), 0.5 / len(drawn), 1 - 0.5 / len(drawn)))
    sides = bias + np.array([-expanded, expanded])
    # beyond its pole the acceleration would turn the interval inside out
    return ndtr(bias + sides / np.maximum(1 - bend * sides, 1e-9))


def _error(value: float, without: np.ndarray, n: int, spread: float, logs: bool) -> float:
    """The jackknife's standard error of a value or its logarithm; `spread` is of the factors'."""
    each = np.log(without / value) if logs else without - value
    shared = spread if logs else spread * abs(value)
    return math.hypot(math.sqrt((n - 1) / n * float(((each - each.mean()) ** 2).sum())), shared)


def _jackknife(value: float, arm: float, logs: bool) -> tuple[float, float]:
    """The second ends: `arm` away from the value, or its logarithm."""
    if not logs:
        return value - arm, value + arm
    factor = np.exp(min(arm, _FARTHEST))
    return value / factor, value * factor


def _studentised(
    value: float, pivots: np.ndarray, error: float, reach: float, expanded: float
) -> tuple[float, float]:
    """Bootstrap-t's ends, of the logarithm.

    Resamples of a few prompts may show next to no spread, and so a pivot of any size: none counts
    for more than twice the t deviate `reach`, so that no end lies more than twice as far as the
    jackknife's. `error` is the logarithm's standard error, the deviate `expanded` gives the level.
    """
    from scipy.special import ndtr

    pivots = pivots[~np.isnan(pivots)].clip(-2 * reach, 2 * reach)
    if not len(pivots):
        return value, value
    ways = error * np.quantile(pivots, ndtr([expanded, -expanded]))
    low, high = value * np.exp(-ways.clip(-_FARTHEST, _FARTHEST))
    return float(low), float(high)
