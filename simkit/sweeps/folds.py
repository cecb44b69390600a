"""Folds of prompts for cross-validation."""

from __future__ import annotations

import numpy as np

from simkit.errors import ReplayError


def stratified(strata: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each prompt, in [0, folds): random, and of every stratum about as many in each.

    Each stratum is shuffled and dealt out in turn, from where the stratum before it left off, so
    that folds as a whole differ by no more than one prompt. Strata come in the order in which they
    first appear, so that what they are called does not matter.

    Args:
        strata: (S,), each prompt's stratum: its task, or a number for it.
        folds: how many, at least 2.
        seed: of the shuffling, at least 0.

    Raises:
        ReplayError: the seed is negative, or there are fewer than two folds, or fewer prompts than
            folds, or one of the numbers is not whole.
    """
    for name, value in (("seed", seed), ("folds", folds)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ReplayError(f"{name} must be a whole number, not {value!r}")
    if seed < 0:
        raise ReplayError(f"seed must be at least 0, not {seed}")
    if folds < 2:
        raise ReplayError(f"folds must be at least 2, not {folds}")
    if len(strata) < folds:
        prompts = "1 prompt" if len(strata) == 1 else f"{len(strata)} prompts"
        raise ReplayError(f"{prompts} cannot be cut into {folds} folds")
    rng = np.random.default_rng(seed)
    named = dict.fromkeys(strata.tolist())
    dealt = np.concatenate([rng.permutation(np.flatnonzero(strata == s)) for s in named])
    fold = np.empty(len(strata), np.int64)
    fold[dealt] = np.arange(len(strata)) % folds
    return fold
