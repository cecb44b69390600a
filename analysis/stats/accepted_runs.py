"""PEARL's mean accepted tokens (MAT, Table 7) with an interval."""

from __future__ import annotations

import numpy as np

from analysis.stats.clusters import CONFIDENCE, Estimate, ratio
from simkit.simulator.steps import Steps


def mean_accepted(
    steps: Steps,
    some: np.ndarray | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """Mean run of accepted draft tokens between two rejections.

    As `simkit.simulator.parallel.mean_accepted`: a rejection right away makes a run of none, an
    output's end ends a run if it has any token, and the target's own tokens are not counted.

    Args:
        steps: of a replay of any policy.
        some: (S,) bool, prompts that count; None means all.
        confidence: of the interval over prompts.
        seed: of the bootstrap.
    """
    sums = runs_of_prompts(steps)
    chosen = np.ones(len(sums), bool) if some is None else some
    return ratio(sums[chosen, 0], sums[chosen, 1], confidence, seed)


def runs_of_prompts(steps: Steps) -> np.ndarray:
    """Accepted tokens of each prompt, and the runs that they make, (S, 2); see `mean_accepted`."""
    rejected = steps.accepted < steps.proposed
    last = np.zeros(len(steps), bool)
    last[steps.offsets[1:][steps.counts > 0] - 1] = True
    number = np.append(0, np.cumsum(rejected | last))[:-1]  # of the run that a step adds to
    length = np.bincount(number, steps.accepted)
    ends = rejected | (last & (length[number] > 0))
    prompts = len(steps.counts)
    accepted = np.bincount(steps.sequence, steps.accepted, prompts)
    runs = np.bincount(steps.sequence, ends, prompts)
    return np.stack([accepted, runs], 1)
