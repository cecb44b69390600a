"""How far drafts are accepted, from steps whose drafts were cut: survival under censoring.

R is how many tokens of a draft would be accepted in a row, however long it were. A step that
drafted d tokens and accepted a < d of them shows R = a; one that accepted all d shows R >= d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Risks(NamedTuple):
    """What steps show of each depth j = 1, …, D, by the request that they belong to.

    Attributes:
        at_risk: (S, D) int64, steps that drafted token j and accepted all before it.
        rejected: (S, D) int64, those of them that rejected it.
    """

    at_risk: np.ndarray
    rejected: np.ndarray


class Cut(NamedTuple):
    """Bounds of P(R >= j), j = 1, …, k, over some steps, whatever cut them short.

    Attributes:
        low: (k,): every draft that was accepted whole would have been rejected at the next token.
        high: (k,): each of them would have been accepted to the end.
    """

    low: np.ndarray
    high: np.ndarray


def risks(owner: np.ndarray, drafted: np.ndarray, accepted: np.ndarray, n: int) -> Risks:
    """The steps of n requests, counted.

    Args:
        owner: (N,) whole numbers, the request of each step, from 0 to n - 1.
        drafted: (N,) whole numbers >= 0.
        accepted: (N,) whole numbers, at most `drafted`.
        n: requests.
    """
    deepest = int(drafted.max(initial=0))
    reached = np.minimum(accepted + 1, drafted)  # the deepest token that was looked at
    at_risk = np.zeros((n, deepest + 1), np.int64)
    np.add.at(at_risk, (owner, reached), 1)
    at_risk = np.cumsum(at_risk[:, :0:-1], axis=1)[:, ::-1]
    rejected = np.zeros((n, deepest + 1), np.int64)
    seen = accepted < drafted
    np.add.at(rejected, (owner[seen], accepted[seen] + 1), 1)
    return Risks(at_risk, rejected[:, 1:])


def kaplan_meier(at_risk: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    """P(R >= j), the product of 1 - rejected / at risk up to j; NaN from where no step is at risk.

    Source: Kaplan and Meier 1958.

    Args:
        at_risk: (…, D).
        rejected: (…, D), at most as many.
    """
    hazard = np.full(at_risk.shape, np.nan)
    np.divide(rejected, at_risk, out=hazard, where=at_risk > 0)
    return np.cumprod(1 - hazard, axis=-1)


def cut_bounds(drafted: np.ndarray, accepted: np.ndarray, depth: int) -> Cut:
    """What is certain of these steps' own runs, up to a depth, whatever cut their drafts.

    Args:
        drafted: (N,), N > 0.
        accepted: (N,).
        depth: k.
    """
    depths = np.arange(1, depth + 1)
    low = accepted[:, None] >= depths
    whole = (accepted == drafted)[:, None]
    return Cut(low.mean(0), (low | whole).mean(0))


def sum_bounds(accepted: np.ndarray, steps: np.ndarray, drafted: int, depth: int) -> Cut:
    """The same of requests of which the sums alone are known, if all their steps drafted as much.

    Args:
        accepted: (S,) int64, tokens that the steps of each request accepted, at most drafted a
            step.
        steps: (S,) int64, of each request, some of them above 0.
        drafted: tokens of each draft.
        depth: k.
    """
    low, high = np.zeros(depth), np.zeros(depth)
    whole = np.minimum(steps, accepted // drafted)  # the most drafts that were accepted whole
    for j in range(1, depth + 1):
        if j > drafted:
            high[j - 1] = whole.sum()
            continue
        short = accepted - steps * (j - 1)  # more than steps of j - 1 tokens can have accepted
        low[j - 1] = np.maximum(0, -(-short // (drafted - j + 1))).sum()
        high[j - 1] = np.minimum(steps, accepted // j).sum()
    return Cut(low / steps.sum(), high / steps.sum())


def sum_means(
    accepted: np.ndarray, steps: np.ndarray, drafted: int, depth: int
) -> tuple[float, float]:
    """The least and the largest mean of min(R, k) of such steps; see `sum_bounds`."""
    whole, rest = np.divmod(accepted, drafted)
    low = whole * min(depth, drafted) + np.minimum(rest, depth)
    high = np.minimum(accepted, steps * depth) + whole * max(0, depth - drafted)
    return float(low.sum() / steps.sum()), float(high.sum() / steps.sum())
