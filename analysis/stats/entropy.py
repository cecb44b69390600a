"""SVIP's bounds on acceptance from entropies (section 2 and appendix B), and how tight they are.

All arrays are columns of a trace's on-path rows: shape (R,), nats, over the raw distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.stats.checks import StatsError, check
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, by_prompt
from traces.arrays import unrounded

TOLERANCE_NATS = 1e-3  # by which a stored H(q,p) may lie below H(q), out of rounding
LEAST_NATS = 1e-6  # entropies below are left out of H(q,p) / H(q)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

Fit = Literal["overlap", "bound", "ratio"]


def divergence(cross_entropy: np.ndarray, draft_entropy: np.ndarray) -> np.ndarray:
    """KL(q‖p) = H(q,p) - H(q), float64 nats, >= 0.

    Raises:
        StatsError: it is negative beyond rounding.
    """
    found = cross_entropy.astype(np.float64) - draft_entropy
    if len(found) and found.min() < -TOLERANCE_NATS:
        row = int(found.argmin())
        raise StatsError(
            f"row {row}: H(q,p) = {cross_entropy[row]:g} is less than H(q) = {draft_entropy[row]:g}"
        )
    return np.maximum(found, 0)


def pinsker(kl: np.ndarray) -> np.ndarray:
    """β >= 1 - sqrt(KL / 2), SVIP Eq. 4. Below 0, and so empty, for KL > 2."""
    return 1 - np.sqrt(kl / 2)


def bretagnolle_huber(kl: np.ndarray) -> np.ndarray:
    """β >= 1 - sqrt(1 - exp(-KL)), SVIP Eq. 9; always above 0."""
    return 1 - np.sqrt(-np.expm1(-kl))


def estimate(draft_entropy: np.ndarray, c: float) -> np.ndarray:
    """What SVIP takes for β: 1 - sqrt(c H(q)), Eq. 6. It bounds nothing."""
    return 1 - np.sqrt(c * draft_entropy)


def fit(
    draft_entropy: np.ndarray,
    cross_entropy: np.ndarray,
    overlap: np.ndarray,
    offsets: np.ndarray,
    to: Fit = "overlap",
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """The c of the estimate 1 - sqrt(c H(q)), which SVIP leaves open.

    Args:
        draft_entropy: H(q).
        cross_entropy: H(q,p).
        overlap: β.
        offsets: (S + 1,), where prompts start.
        to: what is fitted. "overlap": least squares of the estimate against β; "bound": the same
            against Pinsker's bound, which Eq. 6 approximates; "ratio": c = (k - 1) / 2 if
            H(q,p) = k H(q), with k the ratio of sums.
        confidence: of the interval over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: NaN, lengths that differ, or H(q,p) < H(q).
    """
    check(offsets, draft_entropy=draft_entropy, cross_entropy=cross_entropy, overlap=overlap)

    def columns(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        entropy = draft_entropy[rows].astype(np.float64)
        kl = divergence(cross_entropy[rows], draft_entropy[rows])
        if to == "ratio":
            return kl / 2, entropy
        distance = np.sqrt(kl / 2) if to == "bound" else 1 - overlap[rows].astype(np.float64)
        return np.sqrt(entropy) * distance, entropy

    power = 1 if to == "ratio" else 2

    def statistic(s: np.ndarray) -> np.ndarray:
        return (s[..., :1] / s[..., 1:]) ** power

    few_weigh_most = to == "overlap"  # those of high entropy, in a least-squares fit
    sums = by_prompt(offsets, columns)
    found = bootstrap(sums, statistic, confidence, seed, positive=True, studentised=few_weigh_most)
    return found[0]


@dataclass(frozen=True)
class Tightness:
    """How far the bounds lie below the overlap.

    Attributes:
        overlap: mean β.
        pinsker: mean bound, as it is (below 0 for KL > 2).
        pinsker_clipped: mean of max(0, bound).
        bretagnolle_huber: mean bound.
        estimate: mean of 1 - sqrt(c H(q)).
        gain: mean(Pinsker) / mean(BH) - 1, SVIP appendix B: "11% tighter".
        gain_clipped: the same with max(0, Pinsker).
        pinsker_wins: share of rows where Pinsker's bound is the higher.
        below: share of rows where the estimate is at most β.
        excess: mean of max(0, estimate - β).
    """

    overlap: Estimate
    pinsker: Estimate
    pinsker_clipped: Estimate
    bretagnolle_huber: Estimate
    estimate: Estimate
    gain: Estimate
    gain_clipped: Estimate
    pinsker_wins: Estimate
    below: Estimate
    excess: Estimate


def tightness(
    draft_entropy: np.ndarray,
    cross_entropy: np.ndarray,
    overlap: np.ndarray,
    offsets: np.ndarray,
    c: float,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Tightness:
    """Compare the bounds and the estimate with the overlap.

    Args:
        draft_entropy: H(q).
        cross_entropy: H(q,p).
        overlap: β.
        offsets: (S + 1,), where prompts start.
        c: of the estimate, see `fit`; taken as given.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: NaN, lengths that differ, H(q,p) < H(q), or c < 0.
    """
    check(offsets, draft_entropy=draft_entropy, cross_entropy=cross_entropy, overlap=overlap)
    if not c >= 0:
        raise StatsError(f"c must be >= 0: {c}")

    def columns(rows: slice) -> tuple[np.ndarray, ...]:
        kl = divergence(cross_entropy[rows], draft_entropy[rows])
        near, far = pinsker(kl), bretagnolle_huber(kl)
        guess, true = estimate(draft_entropy[rows].astype(np.float64), c), overlap[rows]
        shares = near > far, guess <= true, np.maximum(guess - true, 0)
        return np.ones(len(kl)), true, near, np.maximum(near, 0), far, guess, *shares

    def statistic(s: np.ndarray) -> np.ndarray:
        means = s[..., 1:] / s[..., :1]
        gains = means[..., 1:3] / means[..., 3:4] - 1
        return np.concatenate([means[..., :5], gains, means[..., 5:]], -1)

    return Tightness(*bootstrap(by_prompt(offsets, columns), statistic, confidence, seed))


@dataclass(frozen=True)
class EntropyRatio:
    """The distribution of H(q,p) / H(q), SVIP Fig. 3.

    Attributes:
        quantiles: by their probability.
        in_band: share of rows in `band`.
        band: its ends.
        left_out: rows whose H(q) is too small to divide by.
        values: (rows left,) float32, for a histogram.
    """

    quantiles: dict[float, Estimate]
    in_band: Estimate
    band: tuple[float, float]
    left_out: int
    values: np.ndarray


def _ratios(low: np.ndarray, high: np.ndarray, bits: int, seed: int) -> np.ndarray:
    """H(q,p) / H(q), (n,) float32, at least 1."""
    if not bits:
        return np.maximum(high / low, np.float32(1))
    rng = np.random.default_rng(seed)
    found = unrounded(high, bits, rng) / unrounded(low, bits, rng)
    return np.maximum(found, 1 / found).astype(np.float32)  # H(q,p) was the larger of the two


def entropy_ratio(
    draft_entropy: np.ndarray,
    cross_entropy: np.ndarray,
    offsets: np.ndarray,
    band: tuple[float, float],
    bits: int = 0,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> EntropyRatio:
    """The distribution of H(q,p) / H(q) over rows.

    Of rounded entropies, ratios would be those of small whole numbers: none in a stretch below 2,
    very many at 2. So both are drawn anew from the numbers that they may have been.

    A quantile's interval is Woodruff's (1952): that of the share of rows below it, carried back
    through the quantiles.

    Args:
        draft_entropy: H(q).
        cross_entropy: H(q,p).
        offsets: (S + 1,), where prompts start.
        band: a range whose share of rows is asked for, ends included.
        bits: significant ones to which both were rounded; 0: they are as they were computed.
        confidence: of the intervals over prompts.
        seed: of the bootstrap, and of what is drawn anew.

    Raises:
        StatsError: NaN or lengths that differ.
    """
    check(offsets, draft_entropy=draft_entropy, cross_entropy=cross_entropy)
    usable = draft_entropy > LEAST_NATS
    found = _ratios(draft_entropy[usable], cross_entropy[usable], bits, seed)
    count = by_prompt(offsets, lambda rows: [usable[rows]])[:, 0]
    ends = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    ordered = np.sort(found)
    levels = _quantiles(ordered, np.array(QUANTILES))

    def columns(rows: slice) -> list[np.ndarray]:
        part = found[rows]
        inside = (part >= band[0]) & (part <= band[1])
        return [np.ones(len(part)), inside, *(part <= level for level in levels)]

    sums = by_prompt(ends, columns)
    in_band, *below = bootstrap(sums, lambda s: s[..., 1:] / s[..., :1], confidence, seed)
    quantiles = {
        p: _woodruff(ordered, p, float(level), share)
        for p, level, share in zip(QUANTILES, levels, below, strict=True)
    }
    return EntropyRatio(quantiles, in_band, band, int(np.sum(~usable)), found)


def _woodruff(ordered: np.ndarray, p: float, level: float, below: Estimate) -> Estimate:
    known = None if below.value is None else level
    if below.value is None or below.lo is None or below.hi is None:
        return Estimate(known, None, None, below.n_prompts, below.note)
    lo, hi = _quantiles(ordered, p + np.array([below.lo, below.hi]) - below.value)
    return Estimate(known, float(lo), float(hi), below.n_prompts, below.note)


def _quantiles(ordered: np.ndarray, p: np.ndarray) -> np.ndarray:
    if not len(ordered):
        return np.zeros(len(p))
    return ordered[np.round(np.clip(p, 0, 1) * (len(ordered) - 1)).astype(np.int64)]
