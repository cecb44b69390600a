"""Two samples of prompts: how far a statistic of the one lies from that of the other.

Where both have the same prompts these are resampled together, and what they share cancels; where
they have not, each is resampled by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, interval, lone
from simkit.statistics.interval import RESAMPLES, resampled
from traces.messages import how_many

Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From (..., m) sums of the first and (..., l) of the second to (..., k) values."""


@dataclass(frozen=True)
class Pairing:
    """Whether two samples are of the same prompts, and how they are resampled.

    Attributes:
        paired: prompt i of the one is prompt i of the other.
        seeds: of the resampling of each; of pairs the first counts. They belong to the samples,
            not to their order, so that the second against the first is the mirror image.
    """

    paired: bool
    seeds: tuple[int, int] = (0, 1)

    def draws(
        self, first: np.ndarray, second: np.ndarray, resamples: int = RESAMPLES
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sums over as many prompts drawn with replacement, of each sample.

        Args:
            first: (S, m) sums of each prompt.
            second: (T, l); S = T if they are paired.
            resamples: how many.

        Yields:
            (some, m) and (some, l), `resamples` rows in all.
        """
        if self.paired:
            m = first.shape[1]
            for part in resampled(np.concatenate([first, second], 1), self.seeds[0], resamples):
                yield part[:, :m], part[:, m:]
            return
        one, other = (
            np.concatenate(list(resampled(sums, seed, resamples)))
            for sums, seed in zip((first, second), self.seeds, strict=True)
        )
        yield one, other


def between(
    first: np.ndarray,
    second: np.ndarray,
    statistic: Statistic,
    pairing: Pairing,
    confidence: float = CONFIDENCE,
    positive: bool = False,
    factors: Sequence[np.ndarray | None] | None = None,
) -> tuple[Estimate, ...]:
    """Statistics of two samples, as a difference or a ratio, with intervals over prompts.

    Of independent samples, the interval is that of `simkit.statistics.interval.ends`, too: its
    jackknife leaves out each prompt of either, and the two samples' variances add up, with Welch's
    degrees of freedom; `n_prompts` is that of the smaller one.

    Args:
        first: (S, m) sums of each prompt; of independent samples, those of 0 are left out.
        second: (T, l).
        statistic: of the sums of both.
        pairing: whether they are of the same prompts.
        confidence: of the intervals, in (0, 1).
        positive: see `clusters.bootstrap`.
        factors: of each value, see `clusters.bootstrap`.

    Raises:
        StatsError: confidence is not in (0, 1), or pairs are not as many here as there.
    """
    if pairing.paired:
        if len(first) != len(second):
            many = how_many(len(first), "prompt")
            raise StatsError(f"{many} cannot be paired with {len(second)}")
        m, both = first.shape[1], np.concatenate([first, second], 1)
        how = {"seed": pairing.seeds[0], "positive": positive, "factors": factors}
        return bootstrap(both, lambda s: statistic(s[..., :m], s[..., m:]), confidence, **how)
    if not 0 < confidence < 1:
        raise StatsError(f"confidence must be in (0, 1): {confidence}")
    return _apart(first, second, statistic, pairing, confidence, positive, factors)


def _apart(
    first: np.ndarray,
    second: np.ndarray,
    statistic: Statistic,
    pairing: Pairing,
    confidence: float,
    positive: bool,
    factors: Sequence[np.ndarray | None] | None,
) -> tuple[Estimate, ...]:
    """`between`, of independent samples."""
    one, other = first[first.any(1)], second[second.any(1)]
    n = min(len(one), len(other))
    with np.errstate(all="ignore"):
        found = statistic(one.sum(0), other.sum(0))
        if n < 2:
            return tuple(lone(value, n) for value in found)
        drawn = np.concatenate([statistic(*part) for part in pairing.draws(one, other)])
        left_out = (
            statistic(one.sum(0) - one, other.sum(0)[None]),
            statistic(one.sum(0)[None], other.sum(0) - other),
        )
    made = []
    for i, value in enumerate(found):
        without, freedom = _left_out(float(value), [part[:, i] for part in left_out], positive)
        shared = None if factors is None else factors[i]
        how = confidence, positive, None, shared
        made.append(interval(value, drawn[:, i], without, n, *how, freedom=freedom))
    return tuple(made)


def _left_out(value: float, parts: list[np.ndarray], positive: bool) -> tuple[np.ndarray, int]:
    """The value without each prompt of either sample, as if all were of one; degrees of freedom.

    `ends` takes one sample's values: its variance is (n - 1) / n of their squares, n one more than
    the degrees of freedom. So each part is centred on the value, and scaled so that the sum is
    the jackknife's variance of both: that of the one and that of the other.
    """
    logs = positive and value > 0 and all(bool(np.all(part > 0)) for part in parts)
    with np.errstate(all="ignore"):  # what is not defined stays so, and is told by `interval`
        gaps = [np.log(part / value) if logs else part - value for part in parts]
        gaps = [gap - gap.mean() for gap in gaps]
        sizes = [len(gap) for gap in gaps]
        parts_of = [(m - 1) / m * float((g**2).sum()) for m, g in zip(sizes, gaps, strict=True)]
        below = sum(v**2 / (m - 1) for v, m in zip(parts_of, sizes, strict=True))
    freedom = min(sizes) - 1
    if np.isfinite(below) and below > 0:
        freedom = max(freedom, int(sum(parts_of) ** 2 / below))
    n = freedom + 1
    scaled = [gap * np.sqrt((m - 1) / m * n / (n - 1)) for m, gap in zip(sizes, gaps, strict=True)]
    moved = np.concatenate(scaled)
    return (value * np.exp(moved) if logs else value + moved), freedom
