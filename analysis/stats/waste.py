"""Where time goes that emits nothing, and how far from the best a policy is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.stats.checks import StatsError, finite
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, ratio
from simkit.steps.steps import Steps
from traces.messages import how_many


def overhead_share(
    counts: Mapping[str, np.ndarray],
    seconds: Mapping[str, np.ndarray],
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Estimate:
    """Share of the time that goes into decisions, heads, and draft tokens that were not accepted.

    A token that was not accepted is charged the mean of the prompt's draft passes.

    Args:
        counts: drafted and accepted, (S,) each, by prompt.
        seconds: the parts of a replay's time, (S,) each; `baseline_s` is left out.
        confidence: of the interval over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: seconds that are not finite.
    """
    parts = {name: values for name, values in seconds.items() if name != "baseline_s"}
    for name, values in parts.items():
        finite(name, values)
    drafted = counts["drafted"]
    lost = (drafted - counts["accepted"]) / np.maximum(1, drafted)
    idle = parts["policy_s"] + lost * parts["draft_s"]
    return ratio(idle, np.sum(list(parts.values()), axis=0), confidence, seed)


def regret(
    mine_s: np.ndarray, best_s: np.ndarray, confidence: float = CONFIDENCE, seed: int = 0
) -> Estimate:
    """Summed seconds ÷ those of the best, less 1; paired over prompts.

    Args:
        mine_s: (S,) seconds, of each prompt.
        best_s: (S,) of `prophet`.
        confidence: of the interval.
        seed: of the bootstrap.
    """
    sums = np.stack([mine_s, best_s], 1).astype(np.float64)
    return bootstrap(sums, lambda s: s[..., :1] / s[..., 1:] - 1, confidence, seed)[0]


def by_position(steps: Steps, seconds: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Each prompt's seconds between positions, a step's shared evenly over what it emits.

    Args:
        steps: of a replay.
        seconds: (N,) of each step.
        edges: (B + 1,) ascending positions; bin b holds tokens edges[b] <= i < edges[b + 1].

    Returns:
        (S, B) float64; a step that emits nothing counts nowhere.

    Raises:
        StatsError: seconds do not fit the steps.
    """
    if seconds.shape != (len(steps),):
        raise StatsError(
            f"seconds have shape {seconds.shape}, there are {how_many(len(steps), 'step')}"
        )
    begin, n = steps.start, len(steps.counts)
    end, which = begin + steps.emitted, steps.sequence - steps.low
    rate = seconds / np.maximum(1, steps.emitted)
    found = np.empty((n, len(edges) - 1))
    for b, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        inside = np.minimum(end, high) - np.maximum(begin, low)
        found[:, b] = np.bincount(which, rate * np.maximum(0, inside), n)
    return found
