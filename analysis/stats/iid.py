"""Is each token accepted independently with the same probability, as Leviathan et al. assume?

If so, runs of accepted tokens are geometric, P(run = a) = (1 - α) α^a; a token's acceptance tells
nothing about the next one's; prompts do not differ; and a draft of k tokens emits
(1 - α^(k+1)) / (1 - α) tokens (Leviathan et al. 2023, Eq. 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2_contingency

from analysis.stats.checks import StatsError, check
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, by_prompt, ratio
from analysis.stats.depth import table
from analysis.stats.drafts import Drafts

LEAST_EXPECTED = 5.0  # in each cell of a χ² test; depths that expect fewer are pooled


def tokens_per_step(alpha: np.ndarray | float, draft_length: np.ndarray | int) -> np.ndarray:
    """τ = (1 - α^(k+1)) / (1 - α), and k + 1 at α = 1; Leviathan et al. (2023), Eq. 1.

    Args:
        alpha: in [0, 1].
        draft_length: k >= 0; both are broadcast.
    """
    alpha, k = np.asarray(alpha, np.float64), np.asarray(draft_length)
    short = np.minimum(alpha, 1 - 1e-12)  # above, the quotient loses its digits
    found = -np.expm1((k + 1) * np.log(np.maximum(short, 1e-300))) / (1 - short)
    return np.where(alpha > short, k + 1.0, found)


@dataclass(frozen=True)
class Homogeneity:
    """A χ² test that a share is the same in all groups.

    Attributes:
        statistic: χ²; None if there is nothing to test.
        freedom: its degrees of freedom.
        p_value: under independent tokens of one α.
        note: why there is no test; empty if there is one.
    """

    statistic: float | None
    freedom: int
    p_value: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class RunLengths:
    """Runs of accepted tokens against the geometric law.

    Attributes:
        alpha: accepted ÷ accepted and rejected tokens, the law's maximum likelihood fit.
        length: (L,) run lengths 0, 1, …, int64.
        observed: (L,) runs of exactly this length that a rejection ended, int64.
        expected: (L,) these by the law, given how many runs got so far.
        censored: runs cut off by the end of the text.
        test: that a run is as likely to end at each length.
        dispersion: variance of the ended runs ÷ that of a geometric law of their mean; 1 for it.
    """

    alpha: Estimate
    length: np.ndarray
    observed: np.ndarray
    expected: np.ndarray
    censored: int
    test: Homogeneity
    dispersion: Estimate


def run_lengths(runs: Drafts, confidence: float = CONFIDENCE, seed: int = 0) -> RunLengths:
    """Compare runs with the geometric law.

    The test is on hazards, which censored runs bear on too: of the runs that got to length j, as
    many should end there as at any other. It is exact for independent tokens only, which is what it
    tests; a small p-value tells that they are not, not by how much.

    Args:
        runs: see `drafts.runs`.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.
    """
    longest = int((runs.accepted + runs.rejected).max(initial=0))
    at_risk, ended = (part.sum(0) for part in table(runs, max(1, longest)))
    accepted, lost = by_prompt(runs.offsets, lambda r: (runs.accepted[r], runs.rejected[r])).T
    alpha = ratio(accepted, accepted + lost, confidence, seed)
    kept = 0.0 if alpha.value is None else alpha.value
    return RunLengths(
        alpha=alpha,
        length=np.arange(longest),
        observed=ended[:longest],
        expected=at_risk[:longest] * (1 - kept),
        censored=int(np.count_nonzero(~runs.rejected)),
        test=_same(at_risk - ended, ended),
        dispersion=dispersion(runs, confidence, seed),
    )


def dispersion(runs: Drafts, confidence: float = CONFIDENCE, seed: int = 0) -> Estimate:
    """Variance of the runs that ended ÷ (m + m²), that of a geometric law of their mean m.

    Above 1, long and short runs are both too frequent: prompts or passages differ. Censored runs
    are left out, which makes it a little smaller where outputs hold few runs.
    """

    def columns(rows: slice) -> tuple[np.ndarray, ...]:
        ended = runs.rejected[rows].astype(np.float64)
        length = ended * runs.accepted[rows]
        return ended, length, length**2

    def statistic(s: np.ndarray) -> np.ndarray:
        mean, square = s[..., 1:2] / s[..., :1], s[..., 2:] / s[..., :1]
        return (square - mean**2) / (mean + mean**2)

    sums = by_prompt(runs.offsets, columns)
    return bootstrap(sums, statistic, confidence, seed, studentised=True)[0]


def between_prompts(accepted: np.ndarray, offsets: np.ndarray) -> Homogeneity:
    """Test that all prompts share one α, as independent tokens would.

    Args:
        accepted: (R,) bool, of each position.
        offsets: (S + 1,), where prompts start.
    """
    check(offsets, accepted=accepted)
    kept = by_prompt(offsets, lambda rows: [accepted[rows]])[:, 0]
    return _same(kept, np.diff(offsets) - kept)


def autocorrelation(
    accepted: np.ndarray,
    offsets: np.ndarray,
    lag: int = 1,
    within: bool = False,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """Correlation of acceptance with that of the token `lag` positions later, same prompt.

    Args:
        accepted: (R,) bool, of each position.
        offsets: (S + 1,), where prompts start.
        lag: >= 1, in tokens.
        within: measure from each prompt's own mean. Prompts that differ then add nothing, but
            independent tokens give about -1/T rather than 0, for T tokens a prompt.
        confidence: of the interval over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: lag < 1, or lengths that differ.
    """
    check(offsets, accepted=accepted)
    if lag < 1:
        raise StatsError(f"lag must be >= 1: {lag}")
    lengths = np.diff(offsets)
    position = np.maximum(lengths - lag, 0)
    pairs = np.concatenate([[0], np.cumsum(position)]).astype(np.int64)
    shift = np.repeat(offsets[:-1] - pairs[:-1], position)  # a pair's first row, less its number

    def columns(rows: slice) -> tuple[np.ndarray, ...]:
        first = np.arange(rows.start, rows.stop) + shift[rows]
        x, y = accepted[first].astype(bool), accepted[first + lag].astype(bool)
        return np.ones(len(x)), x, y, x & y

    def statistic(s: np.ndarray) -> np.ndarray:
        n, x, y, both = (s[..., i : i + 1] for i in range(4))
        product, of_x, of_y = s[..., 4:5], s[..., 5:6], s[..., 6:7]
        if not within:
            product, of_x, of_y = both - x * y / n, x - x**2 / n, y - y**2 / n
        found = product / np.sqrt(of_x * of_y)
        return np.where(np.minimum(of_x, of_y) > 1e-9 * n, found, np.nan)

    sums = by_prompt(pairs, columns)
    n, x, y, both = sums.T
    n = np.maximum(n, 1)
    centred = np.stack([both - x * y / n, x - x**2 / n, y - y**2 / n], 1)
    return bootstrap(np.concatenate([sums, centred], 1), statistic, confidence, seed)[0]


def excess_tokens(
    accepted: np.ndarray,
    offsets: np.ndarray,
    steps: np.ndarray,
    emitted: np.ndarray,
    draft_length: int,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """τ of `fixed(draft_length)` less Leviathan's law at the trace's α, in tokens per step.

    Args:
        accepted: (R,) bool, of each position; α is their share.
        offsets: (S + 1,), where prompts start.
        steps: (S,) steps of each prompt.
        emitted: (S,) tokens that these emitted.
        draft_length: k.
        confidence: of the interval over prompts.
        seed: of the bootstrap.
    """
    check(offsets, accepted=accepted)
    kept = by_prompt(offsets, lambda rows: [accepted[rows]])[:, 0]
    sums = np.stack([kept, np.diff(offsets), emitted, steps], 1).astype(np.float64)

    def statistic(s: np.ndarray) -> np.ndarray:
        law = tokens_per_step(s[..., :1] / s[..., 1:2], draft_length)
        return s[..., 2:3] / s[..., 3:] - law

    return bootstrap(sums, statistic, confidence, seed)[0]


def _same(kept: np.ndarray, lost: np.ndarray) -> Homogeneity:
    """Test that kept ÷ (kept + lost) is one for all groups; neighbours may be pooled."""
    whole = kept + lost
    total = whole.sum()
    rarer = min(kept.sum(), lost.sum()) / total if total else 0.0
    if rarer == 0:
        return Homogeneity(None, 0, None, "all tokens went one way" if total else "no rows")
    group = _pooled(whole, LEAST_EXPECTED / rarer)
    if group[-1] == 0:
        return Homogeneity(None, 0, None, "too few tokens to compare groups")
    cells = np.stack([np.bincount(group, kept), np.bincount(group, lost)])
    found: Any = chi2_contingency(cells, correction=False)  # its type is made at run time
    return Homogeneity(float(found.statistic), int(found.dof), float(found.pvalue))


def _pooled(sizes: np.ndarray, least: float) -> np.ndarray:
    """The group of each entry, so that neighbours together reach the least size."""
    group = np.zeros(len(sizes), np.int64)
    number, filled = 0, 0.0
    for i, size in enumerate(sizes):
        if filled >= least:
            number, filled = number + 1, 0.0
        group[i] = number
        filled += size
    if filled < least and number > 0:
        group[group == number] = number - 1
    return group
