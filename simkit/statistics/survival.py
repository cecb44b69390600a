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
