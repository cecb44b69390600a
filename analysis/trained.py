"""Parallel drafters that were trained to differ in one setting, on the trace that they belong to.

What is known of each is how many of its tokens are accepted from every start of a greedy trace
(`traces.arms`), from which the steps of every fixed length follow. Numbers are means over
the seeds of training, and their intervals are over prompts and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from analysis.stats import Estimate, clusters, drafts
from analysis.stats.drafts import Drafts
from analysis.study import MissingError, Study
from traces import arms
from traces.arms import MeasuredArm, ParallelArm
from traces.messages import how_many

DEPENDENT, INDEPENDENT = "dependent", "independent"


class ArmRun(NamedTuple):
    """An arm, its mode ("dependent" or "independent"), and K of inference."""

    arm: ParallelArm
    mode: str
    length: int


def run(loss: str, features: str, block: int = 16, length: int = 16, rho: float = 0.1) -> ArmRun:
    """An arm that reads the target's features if it has any."""
    mode = INDEPENDENT if features == "none" else DEPENDENT
    return ArmRun(ParallelArm(loss, features, block, rho), mode, length)


class Trained:
    """The drafters that were trained for a trace's target, and measured on this trace.

    Args:
        study: of the trace.

    Raises:
        MissingError: none were measured on it.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        file = arms.ARMS
        if not file.exists() or arms.measured_on(file) != study.trace.hash:
            raise MissingError(
                "compares drafters whose training differs; none were measured on this trace"
            )
        self._measured = arms.measured(file)

    @cached_property
    def arms(self) -> list[tuple[ParallelArm, str]]:
        """What there is, with its mode."""
        return list(dict.fromkeys((one.arm, one.mode) for one in self._measured))

    def seeds(self, arm: ParallelArm, mode: str) -> list[int]:
        """Of the trainings of an arm."""
        return [one.seed for one in self.of(arm, mode)]

    def tau(
        self,
        arm: ParallelArm,
        mode: str,
        length: int,
        apart: bool = False,
        some: np.ndarray | None = None,
    ) -> Estimate:
        """Accepted tokens a step of `fixed(length)`.

        Args:
            arm: which.
            mode: "dependent" or "independent".
            length: K of inference, at most that of training.
            apart: outside of verbatim loops of the output only.
            some: (S,) bool, prompts that count; None means all.

        Raises:
            MissingError: it was not trained.
        """
        return _over_seeds([self.sums(arm, mode, length, apart)], some)

    def gain(self, one: ArmRun, other: ArmRun, apart: bool = False) -> Estimate:
        """τ of one arm ÷ that of another, paired over prompts and over seeds.

        Args:
            one: which.
            other: that it is compared with.
            apart: see `tau`.

        Raises:
            MissingError: one of them was not trained.
        """
        return _over_seeds([self.sums(*one, apart), self.sums(*other, apart)])

    def sums(self, arm: ParallelArm, mode: str, length: int, apart: bool = False) -> np.ndarray:
        """Accepted tokens and steps of `fixed(length)`, (seeds, S, 2); see `tau`.

        Raises:
            MissingError: it was not trained, or nothing lies outside of loops.
        """
        taken = [self.drafts(one, length, apart) for one in self.of(arm, mode)]
        return np.stack([_accepted_and_steps(found) for found in taken])

    def drafts(self, one: MeasuredArm, length: int, apart: bool = False) -> Drafts:
        """Those of the steps of `fixed(length)`; see `tau`."""
        if length > one.arm.block:
            raise MissingError(
                f"{one.arm.name} drafts {how_many(one.arm.block, 'token')}, not {length}"
            )
        trace = self.study.trace
        if not apart:
            ends = trace.position_offsets, trace.max_new_tokens, length
            return drafts.fixed_steps(one.accepted, *ends)
        left = self.study.loops.outside
        if left is None:
            raise MissingError("nothing lies outside of loops, or everything")
        ends = left.offsets, trace.max_new_tokens, length
        return left.by_prompt(drafts.fixed_steps(left.cut(one.accepted), *ends))

    def of(self, arm: ParallelArm, mode: str) -> list[MeasuredArm]:
        """One for each seed.

        Raises:
            MissingError: it was not trained.
        """
        found = [one for one in self._measured if (one.arm, one.mode) == (arm, mode)]
        if not found:
            raise MissingError(f"no drafter was trained as {arm.name} and run {mode}")
        return found


def _accepted_and_steps(found: Drafts) -> np.ndarray:
    """(S, 2) of each prompt."""
    accepted = clusters.by_prompt(found.offsets, lambda rows: [found.accepted[rows]])
    return np.append(accepted, np.diff(found.offsets)[:, None], 1)


def _over_seeds(sums: Sequence[np.ndarray], some: np.ndarray | None = None) -> Estimate:
    """Accepted ÷ steps of the first ÷ that of the second, if there is one.

    Args:
        sums: (seeds, S, 2) each; with two, as many seeds, paired.
        some: (S,) bool, prompts that count; None means all.
    """
    kept = [part if some is None else part[:, some] for part in sums]
    n_seeds = min(len(part) for part in kept)
    kept = [part[:n_seeds] for part in kept]

    def statistic(s: np.ndarray) -> np.ndarray:
        rates = s[..., 0::2] / s[..., 1::2]
        return rates[..., :1] / rates[..., 1:] if len(sums) > 1 else rates

    each = np.concatenate(kept, -1)  # (seeds, S, 2 or 4)
    factors = seed_factors(each.sum(1), statistic)
    return clusters.bootstrap(each.sum(0), statistic, positive=True, factors=[factors])[0]


def seed_factors(
    sums: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    """By what a statistic changes with other seeds: that of every resample of the seeds.

    n seeds have n^n resamples, whose spread is sqrt((n - 1) / n) of what it stands for; so each
    logarithm is stretched by that.

    Args:
        sums: of each seed, (n, m).
        statistic: from (..., m) sums to (..., 1), > 0.
    """
    n = len(sums)
    if n < 2:
        return None
    drawn = np.array([sums[list(chosen)].sum(0) for chosen in product(range(n), repeat=n)])
    with np.errstate(all="ignore"):
        change = np.log(statistic(drawn)[:, 0] / statistic(sums.sum(0))[0])
    if not np.isfinite(change).all():
        return None
    return np.exp(change * np.sqrt(n / (n - 1)))
