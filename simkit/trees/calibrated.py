"""What a beam's probability is worth, and the rate at which a rule that weighs it settles."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.policies.acceptance_fit import BINS, dealt_once, edges_of, isotonic, others
from simkit.policies.base import Setting
from simkit.policies.rate_optimal import ROUNDS, TOLERANCE, rate_of
from simkit.trees.base import TreePolicy
from simkit.trees.beams import NEVER, Grown

P = TypeVar("P", bound=TreePolicy)


class Calibrated(NamedTuple):
    """The chance that a level more holds a token of the output, by the beam's probability.

    Attributes:
        fold: (S,) int64, of each sequence.
        edges: (B - 1,) float64, bounds of bins.
        following: (F, B) float64, fitted to the prompts outside of each fold.
    """

    fold: np.ndarray
    edges: np.ndarray
    following: np.ndarray

    def chance(self, mass: np.ndarray, layout: TreeLayout) -> np.ndarray:
        """Of each start and level, (R, L)."""
        fold = np.repeat(self.fold, layout.n_output)[:, None]
        return self.following[fold, np.searchsorted(self.edges, mass)]


def calibrated(layout: TreeLayout, found: Grown, folds: int) -> Calibrated:
    """Fit whether the level behind a beam holds a token of the output to the beam's probability.

    Args:
        layout: of the trace.
        found: what beams propose.
        folds: into which the prompts are dealt; no more than there are prompts.
    """
    fold, folds = dealt_once(layout.trace.prompt_numbers, folds, seed=0)
    levels = found.made.shape[1]
    depth = np.arange(1, levels)
    seen = (found.made[:, :-1] > 0) & (depth < np.minimum(layout.left, layout.trees.room)[:, None])
    hit = found.ahead[:, levels - 1, 1:] < NEVER
    edges = edges_of(found.mass[:, :-1][seen])
    cells = np.searchsorted(edges, found.mass[:, :-1][seen])
    cells += BINS * np.broadcast_to(np.repeat(fold, layout.n_output)[:, None], seen.shape)[seen]
    count = np.bincount(cells, minlength=folds * BINS).reshape(folds, BINS)
    hits = np.bincount(cells, hit[seen], folds * BINS).reshape(folds, BINS)
    fit = np.array([isotonic(*pair) for pair in zip(*others(count, hits), strict=True)])
    return Calibrated(fold, edges.astype(np.float64), fit)


def attained(at: Callable[[float], P], setting: Setting) -> P:
    """The rule at the rate that it attains itself, by Dinkelbach's iteration.

    Args:
        at: gives the rule at a rate, tokens a second of steps.
        setting: of a replay.

    Returns:
        the rule at the fixed point; the fastest one that was tried if there is none to be found.
    """
    rate, tried = 0.0, dict[float, P]()
    for _ in range(ROUNDS):
        policy = at(rate)
        reached = rate_of(policy, setting)
        if abs(reached - rate) <= TOLERANCE * reached or reached in tried:
            return policy
        tried[reached] = policy
        rate = reached
    return tried[max(tried)]
