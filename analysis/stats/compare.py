"""Policies compared on the same prompts, with corrections for comparing many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import ndtri
from scipy.stats import false_discovery_control, ttest_rel

from analysis.stats.checks import StatsError, finite
from analysis.stats.clusters import ALIKE, CONFIDENCE, Estimate, speed
from simkit.statistics.enough import few
from simkit.statistics.interval import ROUNDING, resampled

_NO_SPREAD = 1e-6  # of a log ratio: below this, rounding
_WIDEST = 5.0  # a factor of 150 either way says nothing

Factors = Mapping[str, np.ndarray]
Correction = Literal["holm", "benjamini-hochberg", "none"]


@dataclass(frozen=True)
class PolicyPair:
    """Two policies on the same prompts.

    Attributes:
        name: the one.
        against: the other.
        speed: seconds of the other ÷ seconds of the one, summed over prompts; above 1, the one is
            the faster. Its interval is for this pair alone.
        p_value: of equal summed seconds, by a paired t test over prompts; None for one prompt.
        adjusted: the p-value corrected for all pairs compared here.
    """

    name: str
    against: str
    speed: Estimate
    p_value: float | None
    adjusted: float | None


def compare(
    seconds: Mapping[str, np.ndarray],
    against: str | None = None,
    correction: Correction = "holm",
    confidence: float = CONFIDENCE,
    seed: int = 0,
    factors: Factors | None = None,
) -> list[PolicyPair]:
    """Compare policies by their seconds on the same prompts.

    Args:
        seconds: (S,) of each policy, by name: `total_s` of replays by sequence.
        against: compare all others with this one; None compares every pair.
        correction: "holm" bounds the chance of any false finding, "benjamini-hochberg" the
            expected share of false ones among the findings.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.
        factors: of each policy, by what its seconds change under other samples of the times, (D,);
            intervals hold their spread then, p-values do not. None: it is not known.

    Raises:
        StatsError: an unknown name, lengths that differ, or seconds that are not positive.
    """
    _check(seconds, against)
    pairs = [(a, b) for b, a in combinations(seconds, 2)]
    if against is not None:
        pairs = [(name, against) for name in seconds if name != against]
    raw = [_p_value(seconds[a], seconds[b]) for a, b in pairs]
    tested = [p for p in raw if p is not None]
    corrected = iter(adjust(np.array(tested), correction))
    return [
        PolicyPair(
            a,
            b,
            speed(seconds[b], seconds[a], confidence, seed, _shared(factors, a, b)),
            p,
            None if p is None else float(next(corrected)),
        )
        for (a, b), p in zip(pairs, raw, strict=True)
    ]


def saved(mine_s: np.ndarray, other_s: np.ndarray) -> np.ndarray:
    """Seconds that the one takes less than the other, 0 where they differ by rounding alone.

    Sums of the same passes in another order differ in their last digits: what is divided by such a
    difference, or tested for one sign, must not take it for a finding.

    Args:
        mine_s: (S,) seconds of each prompt.
        other_s: (S,) the other's.
    """
    found = other_s - mine_s
    return np.where(np.abs(found) > ROUNDING * np.maximum(mine_s, other_s), found, 0.0)


def adjust(p_values: np.ndarray, correction: Correction = "holm") -> np.ndarray:
    """p-values corrected for their number.

    Args:
        p_values: (M,) in [0, 1].
        correction: "holm": Holm (1979), step-down Bonferroni; "benjamini-hochberg":
            `scipy.stats.false_discovery_control`; "none".

    Raises:
        StatsError: p-values that are none, or an unknown correction.
    """
    if not np.all((p_values >= 0) & (p_values <= 1)):
        raise StatsError("p-values must be in [0, 1]")
    if correction == "none" or not len(p_values):
        return p_values
    if correction == "benjamini-hochberg":
        return false_discovery_control(p_values)
    if correction != "holm":
        raise StatsError(f"unknown correction {correction}: holm, benjamini-hochberg or none")
    order = np.argsort(p_values)
    left = len(p_values) - np.arange(len(p_values))
    out = np.empty(len(p_values))
    out[order] = np.minimum(1, np.maximum.accumulate(left * p_values[order]))
    return out


def simultaneous(
    seconds: Mapping[str, np.ndarray],
    against: str,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    factors: Factors | None = None,
) -> dict[str, Estimate]:
    """Speeds against one policy, with intervals that hold for all of them at once.

    Bootstrapped max-t (Westfall and Young 1993) on log ratios: the intervals are of one width in
    standard errors, that which the largest deviation of a resample exceeds with 1 - confidence.
    Three prompts or fewer have no such width: one resample in nine holds one prompt only. As in
    `clusters.bootstrap`, a ratio that is the same for all prompts has no interval.

    Args:
        seconds: see `compare`.
        against: the policy that all others are compared with.
        confidence: that all intervals hold.
        seed: of the bootstrap.
        factors: see `compare`.

    Raises:
        StatsError: see `compare`.
    """
    _check(seconds, against)
    names = [name for name in seconds if name != against]
    sums = np.stack([seconds[name] for name in (against, *names)], 1).astype(np.float64)
    n = len(sums)
    if n < 2 or not names:
        return {
            name: speed(
                seconds[against], seconds[name], confidence, seed, _shared(factors, name, against)
            )
            for name in names
        }
    squares = sums[:, :, None] * sums[:, None, :]
    both = np.concatenate([sums, squares.reshape(n, -1)], 1)
    found, error = _logs(both.sum(0), n)
    reach = max(_deviation(both, seed, confidence), ndtri((1 + confidence) / 2))
    shared = [_shared(factors, name, against) for name in names]
    errors = [
        float(np.hypot(own, 0.0 if one is None else np.log(one).std(ddof=1)))
        for own, one in zip(error, shared, strict=True)
    ]
    return {name: _around(found[i], errors[i], reach, n) for i, name in enumerate(names)}


def _logs(s: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log ratios, and their standard errors to first order, (..., K) each.

    Args:
        s: (..., K + 1 + (K + 1)²), sums over n prompts of the policies' seconds, the one that all
            are compared with first, and of their products.
        n: prompts.
    """
    width = round(np.sqrt(s.shape[-1] + 0.25) - 0.5)
    one, two = s[..., :width], s[..., width:].reshape(*s.shape[:-1], width, width)
    scaled = two / one[..., :, None] / one[..., None, :]
    own = np.diagonal(scaled, axis1=-2, axis2=-1)
    spread = scaled[..., :1, 0] + own[..., 1:] - 2 * scaled[..., 0, 1:]
    found = np.log(one[..., :1]) - np.log(one[..., 1:])
    return found, np.sqrt(np.maximum(spread, 0) * n / (n - 1))


def _deviation(both: np.ndarray, seed: int, confidence: float) -> float:
    """The standard errors by which the largest of a resample's log ratios is off, as a quantile."""
    found, error = _logs(both.sum(0), len(both))
    alike = error <= _NO_SPREAD  # a policy just like the other does not deviate
    most = []
    for part in resampled(both, seed):
        moved, own = _logs(part, len(both))
        scale = np.where(alike, np.inf, np.where(own > _NO_SPREAD, own, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            # a resample of one prompt only has no spread to measure by: anything may be
            deviation = np.where(alike | (scale > 0), np.abs(moved - found) / scale, np.inf)
        most.append(deviation.max(-1))
    return float(np.quantile(np.concatenate(most), confidence, method="higher"))


def _shared(factors: Factors | None, name: str, against: str) -> np.ndarray | None:
    """By what the speed of one against the other changes under other samples of the times."""
    if factors is None or name not in factors or against not in factors:
        return None
    return factors[against] / factors[name]


def _around(log: float, error: float, reach: float, n: int) -> Estimate:
    """exp(log), and `reach` standard errors about it on the scale of logarithms."""
    value, arm = float(np.exp(log)), reach * float(error)
    if error <= _NO_SPREAD:
        return Estimate(value, None, None, n, ALIKE)
    if arm > _WIDEST:
        return Estimate(value, None, None, n, "too few prompts differ: no interval for all at once")
    return Estimate(value, float(np.exp(log - arm)), float(np.exp(log + arm)), n, few(n))


def _check(seconds: Mapping[str, np.ndarray], against: str | None) -> None:
    if against is not None and against not in seconds:
        raise StatsError(f"{against} is not among the policies: {', '.join(seconds)}")
    shapes = {values.shape for values in seconds.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise StatsError("policies must be given on the same prompts, (prompts,) each")
    for name, values in seconds.items():
        finite(name, values)
        if np.any(values <= 0):
            raise StatsError(f"{name}: seconds must be positive")


def _p_value(mine: np.ndarray, other: np.ndarray) -> float | None:
    """Of equal means, that is of a ratio of 1."""
    if len(mine) < 2:
        return None
    gap = saved(mine, other)
    if not gap.any():
        return 1.0
    if np.ptp(gap) <= 1e-12 * np.abs(mine).max():
        return 0.0
    return float(ttest_rel(mine, other).pvalue)
