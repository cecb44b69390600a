"""Replays compared: how much faster one is, or how many passes it takes, prompt by prompt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.replays import Replayed
from analysis.stats import Estimate, clusters
from simkit.simulator.run import Run


def speed(
    one: Replayed | Run | np.ndarray,
    other: Replayed | Run | np.ndarray,
    some: np.ndarray | None = None,
) -> Estimate:
    """How many times faster one is than the other: its summed seconds into the other's, paired.

    The interval holds the spread of the timing samples too, where that is known of two replays.

    Args:
        one: a replay, or its (S,) seconds.
        other: the same of the other.
        some: (S,) bool, prompts that count; None means all.
    """
    mine, theirs = (x if isinstance(x, np.ndarray) else x.total_s for x in (one, other))
    chosen = np.ones(len(mine), bool) if some is None else some
    first, second = (x.timing() if isinstance(x, Replayed) else None for x in (one, other))
    shared = second.total / first.total if first and second else None
    return clusters.speed(theirs[chosen], mine[chosen], factors=shared)


def speedup(one: Replayed, some: np.ndarray | None = None) -> Estimate:
    """Over the target alone, see `speed`."""
    chosen = np.ones(len(one.total_s), bool) if some is None else some
    spread, baseline_s = one.timing(), one.seconds["baseline_s"]
    shared = None if spread is None else spread.baseline / spread.total
    return clusters.speed(baseline_s[chosen], one.total_s[chosen], factors=shared)


def ratio(one: Replayed, other: Replayed, count: str) -> Estimate:
    """A summed count of one over that of the other, paired."""
    return clusters.ratio(one.counts[count], other.counts[count])


def per(one: Replayed, other: Replayed, count: str, unit: str) -> Estimate:
    """A count per unit, as accepted tokens per step, of one over that of the other, paired."""
    pairs = [run.counts[name] for run in (one, other) for name in (count, unit)]
    return clusters.ratio_of_ratios(*pairs)


def factors(found: Mapping[str, Replayed]) -> dict[str, np.ndarray] | None:
    """By what seconds change under other samples of the times, (D,) each; None if not known."""
    spreads = {name: one.timing() for name, one in found.items()}
    known = {name: spread.total for name, spread in spreads.items() if spread is not None}
    return known if len(known) == len(spreads) else None
