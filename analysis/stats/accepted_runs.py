"""PEARL's mean accepted tokens (MAT, Table 7) with an interval."""

from __future__ import annotations

import numpy as np

from analysis.stats.clusters import CONFIDENCE, Estimate, ratio
from simkit.steps.steps import Steps


def mean_accepted(runs: np.ndarray, confidence: float = CONFIDENCE, seed: int = 0) -> Estimate:
    """Mean run of accepted draft tokens between two rejections.

    Args:
        runs: (S, 2), see `runs_of_prompts`.
        confidence: of the interval over prompts.
        seed: of the bootstrap.
    """
    return ratio(runs[:, 0], runs[:, 1], confidence, seed)


def runs_of_prompts(
    steps: Steps, some: np.ndarray | None = None, accepted: np.ndarray | None = None
) -> np.ndarray:
    """Accepted tokens of each prompt, and the runs that they make, (S, 2).

    As `simkit.steps.concurrent.mean_accepted`: a rejection right away makes a run of none, an
    output's end ends a run if it has any token, and the target's own tokens are not counted.

    Args:
        steps: of a replay of any policy.
        some: (N,) bool, steps that count; a run ends before one that does not. None: all.
        accepted: (N,) of their accepted tokens, those that count. None: all.
    """
    there = np.ones(len(steps), bool) if some is None else some
    mine = np.where(there, steps.accepted if accepted is None else accepted, 0)
    rejected = there & (steps.accepted < steps.proposed) & (mine == steps.accepted)
    last = np.zeros(len(steps), bool)
    last[steps.offsets[1:][steps.counts > 0] - 1] = True
    last[:-1] |= there[:-1] & ~there[1:]
    number = np.append(0, np.cumsum(rejected | last))[:-1]  # of the run that a step adds to
    length = np.bincount(number, mine)
    ends = rejected | (last & (length[number] > 0))
    which, prompts = steps.sequence - steps.low, len(steps.counts)
    found = np.bincount(which, mine, prompts)
    runs = np.bincount(which, ends, prompts)
    return np.stack([found, runs], 1)
