"""The best draft length: by Leviathan's law, empirically by task, and step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.checks import StatsError
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, in_bins, speed
from analysis.stats.drafts import Drafts
from analysis.stats.iid import tokens_per_step
from simkit.statistics.interval import RESAMPLES, ROUNDING, resampled

LONGEST = 200  # draft length up to which a best one is looked for


def speedup(
    alpha: np.ndarray | float, draft_length: np.ndarray | int, cost_ratio: np.ndarray | float
) -> np.ndarray:
    """Speedup of drafts of one length if tokens are independent; Leviathan et al. (2023), Thm 3.8.

    (1 - α^(γ+1)) / ((1 - α)(γ / c + 1)): a step costs γ draft passes and one target pass.

    Args:
        alpha: α in [0, 1].
        draft_length: γ >= 0.
        cost_ratio: c = T_target(1) / T_draft(1) > 0; the paper's c is its inverse.
    """
    k = np.asarray(draft_length)
    return tokens_per_step(alpha, k) / (k / np.asarray(cost_ratio, np.float64) + 1)


def optimal_length(
    alpha: np.ndarray | float, cost_ratio: np.ndarray | float, longest: int = LONGEST
) -> np.ndarray:
    """The γ of highest `speedup` among 0 … longest, the least of equals; int64.

    It is 0 unless α > 1 / c (their Corollary 3.9), and `longest` at α = 1 < c.

    Args:
        alpha: in [0, 1].
        cost_ratio: c > 0; both are broadcast.
        longest: the longest draft to look at.

    Raises:
        StatsError: α outside of [0, 1] or c not positive.
    """
    alpha, c = np.broadcast_arrays(np.asarray(alpha, float), np.asarray(cost_ratio, float))
    if not (np.all((alpha >= 0) & (alpha <= 1)) and np.all((c > 0) & np.isfinite(c))):
        raise StatsError("alpha must be in [0, 1] and cost_ratio positive and finite")
    best = np.zeros(alpha.shape, np.int64)
    highest = np.ones(alpha.shape)
    for k in range(1, longest + 1):
        here = speedup(alpha, k, c)
        better = here > highest * (1 + 1e-12)
        best, highest = np.where(better, k, best), np.where(better, here, highest)
    return best


@dataclass(frozen=True)
class BestLength:
    """The fastest of several settings on a group of prompts.

    Attributes:
        group: its name, as a task's.
        setting: index of the fastest; the first of equals. None without prompts.
        speedup: its speedup. The setting is taken as given: chosen on the same prompts, it looks
            faster than it is on others; `simkit.tune` holds prompts out.
        chosen: (K,) share of resamples of prompts in which each is the fastest, by more than
            rounding: of equals none is. None for fewer than two prompts.
    """

    group: str
    setting: int | None
    speedup: Estimate
    chosen: np.ndarray | None


def best_lengths(
    seconds: np.ndarray,
    baseline_s: np.ndarray,
    groups: Sequence[str],
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[BestLength]:
    """The fastest setting of each group of prompts, as fixed lengths by task (PEARL Fig. 2b).

    Args:
        seconds: (K, S) of each setting on each prompt, as `total_s` of replays by sequence.
        baseline_s: (S,) of the target alone.
        groups: (S,) names, as tasks; they come back in order of first appearance.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: shapes that do not fit, or seconds that are not positive and finite.
    """
    n = seconds.shape[1] if seconds.ndim == 2 else -1
    if baseline_s.shape != (n,) or len(groups) != n or not len(seconds):
        raise StatsError("seconds must be (settings, prompts), baseline_s and groups (prompts,)")
    if not (np.all(seconds > 0) and np.isfinite(seconds).all() and np.all(baseline_s > 0)):
        raise StatsError("seconds must be positive and finite")
    names = np.asarray(groups)
    found = []
    for name in dict.fromkeys(groups):
        mine = names == name
        sums = np.concatenate([baseline_s[mine, None], seconds[:, mine].T], 1).astype(np.float64)
        found.append(_best(str(name), sums, confidence, seed))
    return found


def _best(group: str, sums: np.ndarray, confidence: float, seed: int) -> BestLength:
    best = int(sums[:, 1:].sum(0).argmin())
    found = speed(sums[:, 0], sums[:, best + 1], confidence, seed)
    if len(sums) < 2:
        return BestLength(group, best, found, None)
    wins = np.zeros(sums.shape[1] - 1)
    for part in resampled(sums, seed):
        near = part[:, 1:] <= part[:, 1:].min(1, keepdims=True) * (1 + ROUNDING)
        wins += near[near.sum(1) == 1].sum(0)
    return BestLength(group, best, found, wins / RESAMPLES)


@dataclass(frozen=True, eq=False)
class Lengths:
    """The distribution of the best draft length of each step.

    Attributes:
        length: (L,) 0, 1, …, tokens, int64.
        count: (L,) steps of this γ*, int64.
        share: (L,) of all steps, with intervals.
        mean: tokens.
        within: share of steps that `draft_length` serves: γ* <= it.
        censored: steps whose draft Γ or the end of the text cut off, so that γ* is a lower bound.
    """

    length: np.ndarray
    count: np.ndarray
    share: tuple[Estimate, ...]
    mean: Estimate
    within: Estimate
    censored: int


def lengths(
    runs: Drafts, draft_length: int = 0, confidence: float = CONFIDENCE, seed: int = 0
) -> Lengths:
    """The distribution of γ*, the tokens that a step would accept of a draft without end.

    PACER calls it the maximum acceptance length (Fig. 2a), PEARL the optimal draft length
    (Fig. 2b): drafting γ* tokens wastes no draft pass and misses no token.

    Args:
        runs: of the output, see `drafts.runs`; or another decoder's drafts.
        draft_length: that `within` asks about.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.
    """
    length = np.arange(int(runs.accepted.max(initial=-1)) + 1)
    counts = in_bins(runs.offsets, len(length), lambda rows: (runs.accepted[rows], ()))[0]

    def statistic(s: np.ndarray) -> np.ndarray:
        shares = s / s.sum(-1, keepdims=True)
        mean = (shares * length).sum(-1, keepdims=True)
        within = shares[..., : draft_length + 1].sum(-1, keepdims=True)
        return np.concatenate([shares, mean, within], -1)

    found = bootstrap(counts, statistic, confidence, seed)
    cut = int(np.count_nonzero(~runs.rejected))
    count = counts.sum(0).astype(np.int64)
    return Lengths(length, count, found[:-2], found[-2], found[-1], cut)
