"""Acceptance by depth as a survival problem: a draft survives until its first rejected token.

Conditional acceptance at depth j is one minus the hazard: accepted, given that all earlier tokens
of the draft were. Marginal acceptance is the survival function, P(a >= j).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import CensoredData, ecdf

from analysis.stats.checks import StatsError
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, in_bins
from analysis.stats.drafts import Drafts

MOST = 2**22  # drafts up to which SciPy's estimator, which sorts them, is asked


@dataclass(frozen=True, eq=False)
class DepthCurve:
    """Acceptance at depths 1 … D, where some draft was verified; shape (D,) each.

    Attributes:
        depth: j, int64.
        at_risk: drafts of which a token was verified at this depth, int64.
        rejected: of these, those that it ended, int64.
        conditional: P(accepted | all earlier ones were).
        marginal: P(a >= j), by Kaplan and Meier.
        greenwood: the same by `scipy.stats.ecdf` with Greenwood's interval, which takes drafts for
            independent; no interval for more than `MOST` drafts.
    """

    depth: np.ndarray
    at_risk: np.ndarray
    rejected: np.ndarray
    conditional: tuple[Estimate, ...]
    marginal: tuple[Estimate, ...]
    greenwood: tuple[Estimate, ...]


def by_depth(
    drafts: Drafts, max_depth: int, confidence: float = CONFIDENCE, seed: int = 0
) -> DepthCurve:
    """Acceptance by depth over drafts, conditional and marginal (PACER Fig. 6, PARD-2 Fig. 2a).

    Drafts that Γ or the end of the text cut off are censored there. That leaves the estimate
    unbiased if, among drafts equally deep, those that are cut off are no easier than the others.

    Args:
        drafts: see `fixed_steps`, `every_start`, `of_steps`.
        max_depth: the deepest depth that is asked for, >= 1.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: max_depth < 1.
    """
    if max_depth < 1:
        raise StatsError(f"max_depth must be >= 1: {max_depth}")
    at_risk, rejected = table(drafts, max_depth)
    depths = int(at_risk.any(0).sum())
    at_risk, rejected = at_risk[:, :depths], rejected[:, :depths]

    def statistic(s: np.ndarray) -> np.ndarray:
        conditional = 1 - s[..., depths:] / s[..., :depths]
        return np.concatenate([conditional, np.cumprod(conditional, -1)], -1)

    sums = np.concatenate([at_risk, rejected], 1).astype(np.float64)
    there = np.count_nonzero(at_risk, 0)  # prompts
    n_prompts = int(there.max(initial=0))
    bearing = np.append(there, np.full(depths, n_prompts))
    found = bootstrap(sums, statistic, confidence, seed, bearing=bearing)
    depth = np.arange(1, depths + 1)
    return DepthCurve(
        depth,
        at_risk.sum(0),
        rejected.sum(0),
        found[:depths],
        found[depths:],
        _greenwood(drafts, depth, found[depths:], confidence),
    )


def table(drafts: Drafts, max_depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Drafts at risk and rejected at depths 1 … D for each prompt; (S, D) int64 each."""

    def columns(rows: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        last = drafts.accepted[rows].astype(np.int64) + drafts.rejected[rows]
        return np.minimum(last, max_depth + 1), [drafts.rejected[rows]]

    ended, rejected = in_bins(drafts.offsets, max_depth + 2, columns).astype(np.int64)
    at_risk = np.cumsum(ended[:, ::-1], 1)[:, ::-1]
    return at_risk[:, 1:-1], rejected[:, 1:-1]


def kaplan_meier(
    drafts: Drafts, depth: np.ndarray, n_prompts: int, confidence: float = CONFIDENCE
) -> tuple[Estimate, ...]:
    """P(a >= j) at each depth, with Greenwood's interval cut to [0, 1].

    Greenwood's formula holds for independent drafts. Those of one prompt are not, so its interval
    is too narrow; it is here to be compared with.

    Args:
        drafts: at least one with a verified token.
        depth: (D,) depths that some draft reached.
        n_prompts: to report.
        confidence: of the interval.
    """
    reached = drafts.accepted + drafts.rejected
    failed, cut = reached[drafts.rejected], reached[~drafts.rejected & (reached > 0)]
    survival = ecdf(CensoredData(uncensored=failed, right=cut)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the note below says it
        ends = survival.confidence_interval(confidence)
    values = survival.evaluate(depth)
    low, high = ends.low.evaluate(depth), ends.high.evaluate(depth)
    made = []
    for value, lo, hi in zip(values, low, high, strict=True):
        if hi > lo:  # not where either is NaN
            made.append(Estimate(float(value), float(lo), float(hi), n_prompts))
        else:
            made.append(Estimate(float(value), None, None, n_prompts, "no interval by Greenwood"))
    return tuple(made)


def _greenwood(
    drafts: Drafts, depth: np.ndarray, marginal: tuple[Estimate, ...], confidence: float
) -> tuple[Estimate, ...]:
    if not len(depth):
        return ()
    if len(drafts) > MOST:
        note = f"more than {MOST} drafts: Greenwood's interval is left out"
        return tuple(replace(found, lo=None, hi=None, note=note) for found in marginal)
    return kaplan_meier(drafts, depth, marginal[0].n_prompts, confidence)
