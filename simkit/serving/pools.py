"""Which prompts each run serves, and what its numbers say of other prompts.

A trace's prompts are a sample of those that a server meets. Runs that draw their requests from all
of them differ by far less than samples of prompts do: the more requests a run has, the less. So the
run of each seed serves a pool of its own, as many prompts as the trace has, drawn with replacement:
a bootstrap of which each seed is a replicate. The pools of all seeds together hold each prompt
equally often (Davison, Hinkley and Schechtman 1986), so means over seeds are those of all prompts.
Controllers share the pools, so their ratios are paired.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from traces.messages import how_many

SHARES = ("good_share", "accepted_share", "busy")  # measures from 0 to 1
ALIKE = 1e-12  # of the mean: numbers that differ by less are equal


def sequences_of(prompts: int, requests: int, seed: int, seeds: int) -> np.ndarray:
    """The sequence of each request of a run: the seed's pool in a random order, again and again.

    Args:
        prompts: sequences of the trace.
        requests: how many; copies of one request count once.
        seed: the run's, from 0.
        seeds: runs of a setting.

    Returns:
        (requests,) int64.
    """
    every = np.random.default_rng([seeds, prompts]).permutation(seeds * prompts) % prompts
    pool = every[seed * prompts : (seed + 1) * prompts]
    rng = np.random.default_rng([seed, 0])
    rounds = [rng.permutation(pool) for _ in range(-(-requests // prompts))]
    return np.concatenate(rounds)[:requests]


def bounds(name: str, mean: float, half: float) -> tuple[float, float]:
    """The ends of an interval; no measure is below 0, and no share above 1.

    Args:
        name: of the measure; empty: of a difference, whose ends may be anything.
        mean: its mean.
        half: half the interval's width.
    """
    low, high = mean - half, mean + half
    return max(0.0, low) if name else low, min(1.0, high) if name in SHARES else high


class Sample(NamedTuple):
    """What the runs of a setting served.

    Attributes:
        prompts: sequences of the trace.
        requests: of a run; copies of one request count once.
        drawn: whether each run has a pool of its own. If not, all serve the same.
    """

    prompts: int
    requests: int
    drawn: bool = True

    def half(self, values: np.ndarray, confidence: float) -> tuple[float | None, str]:
        """Half the width of Student's interval of a mean over seeds; or None, and why.

        A run's number scatters as that of min(requests, n) prompts, the mean over seeds as that of
        all n (n - 1, since resamples of n understate their spread by that), or of as many as were
        served at all.

        Args:
            values: (S,), one of each seed.
            confidence: of the interval.
        """
        seeds, n = len(values), self.prompts
        if why := self.unknown(seeds):
            return None, why
        if not np.isfinite(values).all():
            return None, "some runs have no such number"
        if np.ptp(values) <= ALIKE * abs(float(values.mean())):
            return None, f"all {how_many(seeds, 'run')} gave the same, which shows no spread"
        share = max(1 / seeds, min(self.requests, n) / (n - 1))
        reach = _student(min(seeds, n), confidence)
        return reach * float(values.std(ddof=1)) * share**0.5, ""

    def unknown(self, seeds: int) -> str:
        """Why no number of so many runs has an interval; empty if some do."""
        if not self.drawn:
            return "all runs serve the same prompts"
        if self.prompts < 2:
            return "one prompt, so all runs are of the same one"
        return "one run" if seeds < 2 else ""


@cache
def _student(n: int, confidence: float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + confidence) / 2, n - 1))
